"""Policies: publishing one, and putting it in force, which takes two people where the directory says so."""

from __future__ import annotations

from dataclasses import dataclass

from approvals.model import Choice, VoteChannel
from core.canonical import JsonObject
from core.db import Connection
from core.errors import AuthorizationError, DefinitionError
from evidence.chain import Actor, EventType
from runtime.definition import deciders
from runtime.definition.catalog import Definitions
from runtime.definition.deciders import Findings
from runtime.definition.reserved import POLICY_APPROVERS, POLICY_CHANGE, TRIGGER
from runtime.requests import enacting
from runtime.requests.steering import cancel_run
from runtime.requests.twofold import approvers, member
from runtime.requests.voting import VoteRequest, vote_within
from runtime.store import audit, documents, pauses, runs, tenants

WORKSPACE = "main"


@dataclass(frozen=True, slots=True)
class Published:
    """A publication; ``changed`` is False if exactly this was published before.

    ``retired`` says that it was, and has been retired since: publishing it again does not bring it back. ``warnings``
    say in which cases nobody could decide what it asks people. ``waits`` says that it is not in force until a second
    person of ``POLICY_APPROVERS`` says so too; ``questions`` counts the open ones that a new policy is judged over now.
    """

    name: str
    version: int
    digest: str
    changed: bool
    retired: bool = False
    warnings: tuple[str, ...] = ()
    waits: bool = False
    questions: int = 0


async def publish_policy(
    connection: Connection, definitions: Definitions, tenant: str, text: str, file: str, actor: Actor
) -> Published:
    """Publish a policy, and make it the tenant's active one as ``activate_policy`` does.

    ``DefinitionError`` lists what is wrong with it. So it is with one whose approvers could not decide, by the tenant's
    directory; without a directory it is a warning.
    """
    policy = definitions.compile_policy(text, file)
    await tenants.lock(connection, tenant)
    if await documents.store_policy(connection, tenant, policy, text, actor.id):
        data: JsonObject = {"name": policy.name, "version": policy.version, "digest": policy.digest}
        await audit.record(connection, tenant, EventType.POLICY_PUBLISHED, actor, data)
    return await activate_policy(connection, definitions, tenant, policy.name, policy.version, actor, file)


async def activate_policy(
    connection: Connection,
    definitions: Definitions,
    tenant: str,
    name: str,
    version: int,
    actor: Actor,
    file: str = "",
) -> Published:
    """Make a published version the tenant's active policy; errors as of ``publish_policy``, and ``NotFoundError``.

    Where the directory has a group ``POLICY_APPROVERS``, it takes two of it: the first one proposes it, which asks the
    others; to activate it is another way to approve it. The answer means that no append with an intent is under way any
    more that the policy before has decided (promise 11).
    """
    await tenants.lock(connection, tenant)
    digest, text, _ = await documents.policy_of(connection, tenant, name, version)
    if await documents.active_policy(connection, tenant) == digest:
        return Published(name, version, digest, False)
    warnings = refuse(deciders.of_policy(text, file or f"{name}@{version}", await tenants.groups(connection, tenant)))
    data: JsonObject = {"name": name, "version": version, "digest": digest}
    person = await member(connection, tenant, actor)
    if person is None:
        questions = await enacting.in_force(connection, tenant, data, actor, "")
        await enacting.end_others(connection, definitions, tenant, actor)
        return Published(name, version, digest, True, warnings=warnings, questions=questions)
    if not await _confirmed(connection, definitions, tenant, data, actor, person):
        return Published(name, version, digest, False, warnings=warnings, waits=True)
    questions = await pauses.open_questions(connection, tenant)
    return Published(name, version, digest, True, warnings=warnings, questions=questions)


async def _confirmed(
    connection: Connection, definitions: Definitions, tenant: str, data: JsonObject, actor: Actor, person: str
) -> bool:
    """True if another of the group has proposed it, and it is in force now; else this is the proposal, if it is new.

    The question may not be put yet, because no worker is there: then the second person's word stands for the answer.
    """
    members = approvers(await tenants.directory(connection, tenant))
    found = await runs.proposal(connection, tenant, POLICY_CHANGE, TRIGGER, str(data["digest"]))
    first = "" if found is None else found[1].partition(":")[2]
    if found is not None and first == person:
        return False
    if found is not None and first in members:
        question = found[2]
        if question is None:
            await enacting.in_force(connection, tenant, data, actor, first)
            await enacting.end_others(connection, definitions, tenant, actor)
            return True
        channel = VoteChannel.HTTP if actor.kind in ("token", "service_account") else VoteChannel.CLI
        request = VoteRequest(tenant, question, f"person:{person}", Choice.APPROVE, "", channel)
        answer = await vote_within(connection, definitions, request)
        if not answer.counted:
            raise AuthorizationError(answer.sentence, remedy="Look at the question: `counterseal approval list`.")
        return True
    if found is not None:  # who proposed it is of the group no more
        await cancel_run(connection, definitions, tenant, found[0], actor, "who proposed it has left the group")
    if members == {person}:
        raise AuthorizationError(
            f"This takes two people of the group {POLICY_APPROVERS}, and {person} is the only one.",
            remedy="Publish a directory with more people in the group.",
        )
    await enacting.propose(connection, definitions, tenant, WORKSPACE, data, person)
    return False


def refuse(found: Findings) -> tuple[str, ...]:
    """The warnings, if nothing is worse. The error undoes the caller's transaction, and with it the publication."""
    if found.problems:
        raise DefinitionError(tuple(found.problems))
    return tuple(found.warnings)
