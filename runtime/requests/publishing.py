"""Publishing documents: workflows, policies, the directory of people. Each publication is an audit event."""

from __future__ import annotations

from dataclasses import dataclass

from core.canonical import JsonObject, sha256_hex
from core.db import Connection, check_tenant
from core.errors import DefinitionError, InputError
from core.ids import new_id
from evidence.chain import Actor, EventType
from runtime.definition import deciders
from runtime.definition.catalog import Definitions
from runtime.definition.deciders import Findings
from runtime.definition.people import load_directory
from runtime.definition.workflow import load_workflow
from runtime.store import audit, documents, tenants
from runtime.store.documents import StoredWorkflow


@dataclass(frozen=True, slots=True)
class Published:
    """What was published; ``changed`` is False when exactly this was published before.

    ``retired`` says that it was, and has been retired since: publishing it again does not bring it back. ``warnings``
    say in which cases nobody could decide what it asks people.
    """

    name: str
    version: int
    digest: str
    changed: bool
    retired: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Retired:
    """What was retired; ``changed`` is False when it had been before. Runs now start with ``starts_with``, if any."""

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
    stored = StoredWorkflow(workflow.name, workflow.version, workflow.digest, text, workflow.frozen_operations)
    changed = await documents.publish_workflow(connection, tenant, stored, actor.id)
    if changed:
        if workflow.max_concurrency is not None:
            await tenants.set_workflow_slots(connection, tenant, workflow.name, workflow.max_concurrency)
        data: JsonObject = {"name": workflow.name, "version": workflow.version, "digest": workflow.digest}
        await audit.record(connection, tenant, EventType.WORKFLOW_PUBLISHED, actor, data)
        warnings = _refuse(deciders.of_workflow(text, file, await tenants.groups(connection, tenant)))
        return Published(workflow.name, workflow.version, workflow.digest, True, warnings=warnings)
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
        data: JsonObject = {"name": name, "version": version}
        await audit.record(connection, tenant, EventType.WORKFLOW_RETIRED, actor, data)
    left = await documents.newest_workflows(connection, tenant, name)
    return Retired(name, version, changed, left[0].version if left else None)


async def publish_policy(
    connection: Connection, definitions: Definitions, tenant: str, text: str, file: str, actor: Actor
) -> Published:
    """Publish a policy and make it the tenant's active one. ``DefinitionError`` lists what is wrong with it.

    So it is with one whose approvers could not decide, by the tenant's directory; without a directory it is a warning.
    """
    policy = definitions.compile_policy(text, file)
    await tenants.lock(connection, tenant)
    changed = await documents.publish_policy(connection, tenant, policy, text, actor.id)
    warnings: tuple[str, ...] = ()
    if changed:
        data: JsonObject = {"name": policy.name, "version": policy.version, "digest": policy.digest}
        await audit.record(connection, tenant, EventType.POLICY_PUBLISHED, actor, data)
        warnings = _refuse(deciders.of_policy(text, file, await tenants.groups(connection, tenant)))
    return Published(policy.name, policy.version, policy.digest, changed, warnings=warnings)


def _refuse(found: Findings) -> tuple[str, ...]:
    """The warnings, if nothing is worse. The error undoes the caller's transaction, and with it the publication."""
    if found.problems:
        raise DefinitionError(tuple(found.problems))
    return tuple(found.warnings)


async def undecided(connection: Connection, tenant: str) -> tuple[str, ...]:
    """What people could not decide under the tenant's active policy, with the directory as it is now."""
    active = await documents.active_policy_text(connection, tenant)
    if active is None:
        return ()
    try:
        found = deciders.of_policy(active[1], active[0], await tenants.groups(connection, tenant))
    except InputError:
        return ()  # one that cannot be read allows nothing, and whoever looks at it hears so
    return (*map(str, found.problems), *found.warnings)


async def publish_directory(connection: Connection, tenant: str, text: str, file: str, actor: Actor) -> Published:
    """Replace the tenant's people and groups. Rights are read when a vote arrives, so this takes effect at once.

    People leave, so it is no error if nobody is left who could decide; the warnings say so.
    """
    content = load_directory(text, file)
    await tenants.lock(connection, tenant)
    people = [(person.id, person.name, person.slack) for person in content.people]
    members = [(group, person) for group, persons in content.groups.items() for person in persons]
    await tenants.replace_directory(connection, tenant, people, members)
    digest = sha256_hex(text.encode())
    data: JsonObject = {"name": content.directory, "version": content.version, "digest": digest}
    await audit.record(connection, tenant, EventType.DIRECTORY_PUBLISHED, actor, data)
    warnings = await undecided(connection, tenant)
    return Published(content.directory, content.version, digest, True, warnings=warnings)
