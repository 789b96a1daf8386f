"""Publishes, activates and retires policies. It takes two people if the directory has a group of policy approvers.

Several policies are in force together: of each name at most one version, until it is retired.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from approvals.model import Choice, VoteChannel
from core.canonical import JsonObject
from core.db import Connection
from core.documents import load_document
from core.errors import AuthorizationError, DefinitionError, NotFoundError, nearest
from core.terms import POLICY_APPROVERS
from evidence.chain import Actor
from evidence.events import DENIALS
from policy.load import Policy
from runtime.definition import agents, people
from runtime.definition.catalog import Definitions
from runtime.definition.people import Findings
from runtime.definition.reserved import POLICY_CHANGE, TRIGGER
from runtime.requests import policy_changes
from runtime.requests.declaring import settled
from runtime.requests.directory import approvers, member
from runtime.requests.policy_changes import Foreseen, Proposed, Way
from runtime.requests.steering import cancel_run
from runtime.requests.voting import VoteRequest, vote_within
from runtime.store import documents, pauses, runs, tenants
from runtime.store.offload import COMPILING, offload

WORKSPACE = "main"


@dataclass(frozen=True, slots=True)
class Published:
    """A publication; ``changed`` is False if exactly this was published before.

    ``retired``: it was published before and has been retired since; publishing it again does not bring it back.
    ``warnings`` name the cases in which nobody could decide a question, and the rules that trust what anyone may write.
    ``waits``: a policy is not in force until a second member of ``POLICY_APPROVERS`` agrees; a workflow starts no runs
    until an admin activates it, for the reason ``waits_for``. ``questions`` counts the open questions that are judged
    anew. ``staged``: it is stored, but not put in force. ``consequences`` are those of a change of the policies in
    force; ``dry_run``: nothing was done. ``steps`` are a workflow's steps, each with its present verdict.
    """

    name: str
    version: int
    digest: str
    changed: bool
    retired: bool = False
    warnings: tuple[str, ...] = ()
    waits: bool = False
    questions: int = 0
    staged: bool = False
    consequences: JsonObject | None = None
    dry_run: bool = False
    steps: tuple[JsonObject, ...] = ()
    waits_for: str | None = None


async def publish_policy(
    connection: Connection,
    definitions: Definitions,
    tenant: str,
    text: str,
    file: str,
    actor: Actor,
    *,
    stage: bool = False,
    dry_run: bool = False,
) -> Published:
    """Publish a policy, and put it in force like ``activate_policy``, unless it is only staged.

    ``DefinitionError`` lists what is wrong with it, such as approvers who could not decide by the tenant's directory;
    without a directory, that is a warning. ``dry_run`` shows the consequences, and changes nothing.
    """
    compiled = partial(definitions.compile_policy, text, file)
    now, policy = await settled(connection, definitions, tenant, text, compiled)
    if await documents.policy(connection, tenant, policy.digest) is None:
        policy = await offload(COMPILING, partial(definitions.check_policy, text, file, now), connection)
    if policy.name.startswith(DENIALS):
        message = f"{policy.name!r} is a name of a denial: names that begin with {DENIALS!r} are reserved."
        problem = load_document(text, file).problem(("policy",), message, "Choose another name, or `counterseal deny`.")
        raise DefinitionError((problem,))
    if not dry_run:
        own: JsonObject = {name: one.model_dump(mode="json") for name, one in now.own.items()}
        stored = await documents.store_policy(connection, tenant, policy, text, actor, own)
        if stage:
            warnings = await _warnings(connection, definitions, tenant, text, file)
            return Published(policy.name, policy.version, policy.digest, stored, warnings=warnings, staged=True)
    return await _put_in_force(connection, definitions, tenant, policy, file, actor, dry_run=dry_run)


async def activate_policy(
    connection: Connection,
    definitions: Definitions,
    tenant: str,
    name: str,
    version: int,
    actor: Actor,
    *,
    dry_run: bool = False,
) -> Published:
    """Put a published version in force, in place of the one with its name; errors as for ``publish_policy``.

    ``NotFoundError`` lists the published versions. If the directory has a group ``POLICY_APPROVERS``, it takes two of
    its members: the call of the first one proposes the change and asks the others; the same call by another member
    approves it. Once this has put it in force, no append with an intent by the former policies is under way (promise
    11).
    """
    await tenants.lock(connection, tenant)
    _, text, _ = await documents.policy_of(connection, tenant, name, version)
    file = f"{name}@{version}"
    now = await definitions.published(connection, tenant)
    compiled = partial(definitions.compile_policy, text, file, now)
    policy = await offload(COMPILING, compiled, connection)
    return await _put_in_force(connection, definitions, tenant, policy, file, actor, dry_run=dry_run)


async def _put_in_force(
    connection: Connection,
    definitions: Definitions,
    tenant: str,
    policy: Policy,
    file: str,
    actor: Actor,
    *,
    dry_run: bool,
) -> Published:
    name, version, digest = policy.name, policy.version, policy.digest
    used = (await documents.past_policies(connection, tenant)).used(name)
    if used is not None and used.digest == digest:
        return Published(name, version, digest, False)
    warnings = await _warnings(connection, definitions, tenant, policy.text, file)
    proposed = Proposed(Way.ACTIVATE, name, version, digest)
    foreseen = await policy_changes.foresee(connection, definitions, tenant, proposed, policy)
    answer = Published(
        name, version, digest, True, warnings=warnings, consequences=foreseen.consequences, dry_run=dry_run
    )
    return answer if dry_run else await _make(connection, definitions, tenant, proposed, foreseen, answer, actor)


async def retire_policy(
    connection: Connection, definitions: Definitions, tenant: str, name: str, actor: Actor, *, dry_run: bool = False
) -> Published:
    """Take the policy of this name out of force; ``changed`` is False if none is. It stays published.

    ``NotFoundError`` if there never was one. Two people are needed, and the answer has the same meaning, as for
    ``activate_policy``.
    """
    await tenants.lock(connection, tenant)
    past = await documents.past_policies(connection, tenant)
    used = past.used(name)
    if used is None:
        known = [one for one in past.editions if one.name == name]
        if not known:
            names = {one.name for one in past.editions}
            raise NotFoundError(f"There is no policy {name!r}.", remedy=nearest(name, names, "Published"))
        return Published(name, known[-1].version, known[-1].digest, False, retired=True)
    proposed = Proposed(Way.RETIRE, name, used.version, used.digest)
    foreseen = await policy_changes.foresee(connection, definitions, tenant, proposed, None)
    consequences = foreseen.consequences
    answer = Published(name, used.version, used.digest, True, retired=True, consequences=consequences, dry_run=dry_run)
    return answer if dry_run else await _make(connection, definitions, tenant, proposed, foreseen, answer, actor)


async def _make(
    connection: Connection,
    definitions: Definitions,
    tenant: str,
    proposed: Proposed,
    foreseen: Foreseen,
    answer: Published,
    actor: Actor,
) -> Published:
    """Make the change, or propose it if it takes two people."""
    person = await member(connection, tenant, actor)
    if person is None:
        await policy_changes.make(connection, definitions, tenant, proposed, foreseen, actor, "")
    elif not await _confirmed(connection, definitions, tenant, proposed, foreseen, actor, person):
        return replace(answer, changed=False, retired=False, waits=True)
    return replace(answer, questions=await pauses.open_questions(connection, tenant))


async def _confirmed(
    connection: Connection,
    definitions: Definitions,
    tenant: str,
    proposed: Proposed,
    foreseen: Foreseen,
    actor: Actor,
    person: str,
) -> bool:
    """Make the change if another member has proposed it, and return True; otherwise propose it, unless it is proposed.

    If no worker has asked the question yet, the second member's call itself is the answer.
    """
    members = approvers(await tenants.directory(connection, tenant))
    found = await runs.proposal(connection, tenant, POLICY_CHANGE, TRIGGER, proposed.about)
    first = "" if found is None else found[1].partition(":")[2]
    if found is not None and first == person:
        return False
    if found is not None and first in members:
        question = found[2]
        if question is None:
            await policy_changes.make(connection, definitions, tenant, proposed, foreseen, actor, first)
            return True
        channel = VoteChannel.HTTP if actor.kind in ("token", "service_account") else VoteChannel.CLI
        request = VoteRequest(tenant, question, f"person:{person}", Choice.APPROVE, "", channel)
        answer = await vote_within(connection, definitions, request)
        if not answer.counted:
            raise AuthorizationError(answer.sentence, remedy="Look at the question: `counterseal approval list`.")
        return True
    if found is not None:  # the proposer is no longer in the group
        await cancel_run(connection, definitions, tenant, found[0], actor, "who proposed it has left the group")
    if members == {person}:
        raise AuthorizationError(
            f"This takes two people of the group {POLICY_APPROVERS}, and {person} is the only one.",
            remedy="Publish a directory with more people in the group.",
        )
    await policy_changes.propose(connection, definitions, tenant, WORKSPACE, proposed, foreseen, person)
    return False


async def _warnings(
    connection: Connection, definitions: Definitions, tenant: str, text: str, file: str
) -> tuple[str, ...]:
    """The warnings of a policy's check by the tenant's directory; ``DefinitionError`` if there are problems."""
    decided = refuse(people.of_policy(text, file, await tenants.groups(connection, tenant)))
    return (*agents.of_policy(text, file, await definitions.published(connection, tenant)), *decided)


def refuse(found: Findings) -> tuple[str, ...]:
    """The warnings. ``DefinitionError`` if there are problems, which rolls the caller's transaction back."""
    if found.problems:
        raise DefinitionError(tuple(found.problems))
    return tuple(found.warnings)
