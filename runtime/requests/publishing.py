"""Publishing documents: workflows, policies, the directory of people. Each publication is an audit event.

Policies live side by side: of each name at most one version is in force, until it is retired.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from core.canonical import JsonObject, sha256_hex
from core.db import Connection, check_tenant
from core.errors import DefinitionError, InputError, NotFoundError, nearest
from core.identity import Directory
from core.ids import new_id
from evidence.chain import Actor, EventType
from policy.load import Policy
from runtime.definition import deciders
from runtime.definition.catalog import Definitions
from runtime.definition.deciders import Findings
from runtime.definition.foresight import foresee_steps
from runtime.definition.people import load_directory
from runtime.definition.workflow import load_workflow
from runtime.requests.consequences import Change, change_of, foretell
from runtime.requests.inheriting import check_children
from runtime.requests.twofold import approvers, first_of_two
from runtime.store import audit, documents, pauses, tenants
from runtime.store.documents import StoredWorkflow

# What changes the policies in force, by what proposes it. Each puts an end to all that was proposed before.
_PROPOSES = {
    EventType.POLICY_ACTIVATED: EventType.POLICY_PROPOSED,
    EventType.POLICY_RETIRED: EventType.POLICY_RETIREMENT_PROPOSED,
}


@dataclass(frozen=True, slots=True)
class Published:
    """A publication; ``changed`` is False if exactly this was published before.

    ``retired`` says that it was, and has been retired since: publishing it again does not bring it back. ``warnings``
    say in which cases nobody could decide what it asks people. ``waits`` says that it is not in force until a second
    person of ``POLICY_APPROVERS`` says so too; ``questions`` counts the open ones that are judged anew now. ``staged``
    says that it is stored, and not in force by this. ``consequences`` are what a change of the policies in force leads
    to; ``dry_run`` says that nothing was done. ``steps`` are a workflow's, with what becomes of each now.
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


@dataclass(frozen=True, slots=True)
class Retired:
    """A retirement; ``changed`` is False if it had happened before. Runs now start with ``starts_with``, if any."""

    name: str
    version: int
    changed: bool
    starts_with: int | None


async def ensure_tenant(
    connection: Connection,
    tenant: str,
    *,
    max_concurrency: int | None = None,
    max_runs_per_min: int | None = None,
    max_writes_per_run: int | None = None,
    weight: float | None = None,
) -> bool:
    """Create the tenant if it is new, and set the caps that are given (Q-12); whether it is new."""
    created = await tenants.create(connection, check_tenant(tenant), new_id())
    if created or max_concurrency is not None:
        await tenants.set_slots(connection, tenant, max_concurrency or tenants.MAX_CONCURRENCY_DEFAULT)
    if (max_runs_per_min, max_writes_per_run, weight) != (None, None, None):
        await tenants.set_caps(connection, tenant, max_runs_per_min, max_writes_per_run, weight)
    return created


async def publish_workflow(
    connection: Connection, definitions: Definitions, tenant: str, text: str, file: str, actor: Actor
) -> Published:
    """Publish one version of a workflow. ``DefinitionError`` lists what is wrong with it."""
    workflow = load_workflow(text, file, definitions.catalog)
    await tenants.lock(connection, tenant)
    await check_children(connection, definitions, tenant, workflow)
    stored = StoredWorkflow(workflow.name, workflow.version, workflow.digest, text, workflow.frozen_operations)
    changed = await documents.publish_workflow(connection, tenant, stored, actor.id)
    if changed:
        if workflow.max_concurrency is not None:
            await tenants.set_workflow_slots(connection, tenant, workflow.name, workflow.max_concurrency)
        data: JsonObject = {"name": workflow.name, "version": workflow.version, "digest": workflow.digest}
        await audit.record(connection, tenant, EventType.WORKFLOW_PUBLISHED, actor, data)
        warnings = _refuse(deciders.of_workflow(text, file, await tenants.groups(connection, tenant)))
        policies = await definitions.policies(connection, tenant, await documents.in_force(connection, tenant))
        steps = tuple(one.told() for one in foresee_steps(workflow, policies))
        return Published(workflow.name, workflow.version, workflow.digest, True, warnings=warnings, steps=steps)
    startable = await documents.newest_workflows(connection, tenant, workflow.name, workflow.version)
    return Published(workflow.name, workflow.version, workflow.digest, False, retired=not startable)


async def retire_workflow(connection: Connection, tenant: str, name: str, version: int, actor: Actor) -> Retired:
    """Let no run start with this version any more, for good; retiring it again changes nothing.

    Runs that have started go on with it. Runs start with the newest version that is left: retiring the newest one goes
    back to the one before. ``NotFoundError`` names what is published.
    """
    await tenants.lock(connection, tenant)
    known = await documents.known_versions(connection, tenant, name)
    documents.of_number(known, version)
    changed = await documents.retire_workflow(connection, tenant, name, version)
    if changed:
        await audit.record(connection, tenant, EventType.WORKFLOW_RETIRED, actor, {"name": name, "version": version})
    left = await documents.newest_workflows(connection, tenant, name)
    return Retired(name, version, changed, left[0].version if left else None)


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
    """Publish a policy, and put it in force as ``activate_policy`` does, unless it is only staged.

    ``DefinitionError`` lists what is wrong with it. So it is with one whose approvers could not decide, by the tenant's
    directory; without a directory it is a warning. ``dry_run`` tells what would happen, and does nothing.
    """
    policy = definitions.compile_policy(text, file)
    await tenants.lock(connection, tenant)
    if not dry_run:
        stored = await documents.store_policy(connection, tenant, policy, text, actor.id)
        if stored:
            await audit.record(connection, tenant, EventType.POLICY_PUBLISHED, actor, policy.named.to_json())
        if stage:
            warnings = _refuse(deciders.of_policy(text, file, await tenants.groups(connection, tenant)))
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
    """Put a published version in force, in place of the one of its name; errors as of ``publish_policy``.

    ``NotFoundError`` names what is published. Where the directory has a group ``POLICY_APPROVERS``, it takes two of it:
    the first one proposes it. The answer means that no append with an intent is under way any more that the policies
    before have decided (promise 11).
    """
    await tenants.lock(connection, tenant)
    _, text, _ = await documents.policy_of(connection, tenant, name, version)
    file = f"{name}@{version}"
    policy = definitions.compile_policy(text, file)
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
    warnings = _refuse(deciders.of_policy(policy.text, file, await tenants.groups(connection, tenant)))
    change = await change_of(connection, definitions, tenant, name, policy)
    rollback = used.version if used is not None and used.version > version else None
    foretold = await foretell(connection, definitions, tenant, change, rollback)
    answer = Published(name, version, digest, True, warnings=warnings, consequences=foretold.to_json(), dry_run=dry_run)
    if dry_run:
        return answer
    author = (await documents.policy_of(connection, tenant, name, version))[2]
    told = {**policy.named.to_json(), "author": author}
    return await _make(connection, tenant, change, answer, told, actor, EventType.POLICY_ACTIVATED)


async def retire_policy(
    connection: Connection, definitions: Definitions, tenant: str, name: str, actor: Actor, *, dry_run: bool = False
) -> Published:
    """Take the policy of this name out of force; ``changed`` is False if none is. It stays published.

    ``NotFoundError`` if there never was one. Two people and the answer's meaning are as of ``activate_policy``.
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
    change = await change_of(connection, definitions, tenant, name, None)
    foretold = (await foretell(connection, definitions, tenant, change)).to_json()
    answer = Published(name, used.version, used.digest, True, retired=True, consequences=foretold, dry_run=dry_run)
    if dry_run:
        return answer
    told: JsonObject = {"name": name, "version": used.version, "digest": used.digest}
    return await _make(connection, tenant, change, answer, told, actor, EventType.POLICY_RETIRED)


async def _make(
    connection: Connection,
    tenant: str,
    change: Change,
    answer: Published,
    data: JsonObject,
    actor: Actor,
    event: EventType,
) -> Published:
    """Make the change, or propose it where it takes two."""
    named: JsonObject = {"name": answer.name, "version": answer.version, "digest": answer.digest}
    first = await first_of_two(connection, tenant, (_PROPOSES[event], *_PROPOSES), named, actor)
    if first is None:
        return replace(answer, changed=False, retired=False, waits=True)
    await documents.put_in_force(connection, tenant, change.digests)
    told: JsonObject = {**data, "approver": actor.id, "consequences": answer.consequences}
    await audit.record(connection, tenant, event, actor, told | ({"by": first} if first else {}))
    return replace(answer, questions=await pauses.open_questions(connection, tenant))


def _refuse(found: Findings) -> tuple[str, ...]:
    """The warnings, if nothing is worse. The error undoes the caller's transaction, and with it the publication."""
    if found.problems:
        raise DefinitionError(tuple(found.problems))
    return tuple(found.warnings)


async def undecided(connection: Connection, tenant: str) -> tuple[str, ...]:
    """The questions that nobody could decide under the policies in force, with the directory as it is now."""
    groups = await tenants.groups(connection, tenant)
    said: list[str] = []
    for digest in await documents.in_force(connection, tenant):
        stored = await documents.policy(connection, tenant, digest)
        if stored is None:
            continue
        name, version, text = stored
        try:
            found = deciders.of_policy(text, f"{name}@{version}", groups)
        except InputError:
            continue  # one that cannot be read allows nothing, and whoever looks at it hears so
        said += [*map(str, found.problems), *found.warnings]
    return tuple(said)


async def publish_directory(connection: Connection, tenant: str, text: str, file: str, actor: Actor) -> Published:
    """Replace the tenant's people and groups. Rights are read when a vote arrives, so this takes effect at once.

    People leave, so it is no error if nobody is left who could decide; the warnings say so.
    """
    content = load_directory(text, file)
    await tenants.lock(connection, tenant)
    digest = sha256_hex(text.encode())
    people = Directory.of(digest, content.entries)
    data: JsonObject = {"name": content.directory, "version": content.version, "digest": digest}
    if approvers(await tenants.directory(connection, tenant)) != approvers(people):
        events = (EventType.DIRECTORY_PROPOSED, EventType.DIRECTORY_PUBLISHED)
        if await first_of_two(connection, tenant, events, data, actor) is None:
            return Published(content.directory, content.version, digest, False, waits=True)
    await audit.record(connection, tenant, EventType.DIRECTORY_PUBLISHED, actor, data)
    await tenants.replace_directory(connection, tenant, people)
    warnings = await undecided(connection, tenant)
    return Published(content.directory, content.version, digest, True, warnings=warnings)
