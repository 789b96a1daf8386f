"""Publishing documents: workflows, policies, the directory of people. Each publication is an audit event.

What a folder holds when a process starts is published where it is new, and only there (X-1). Somebody may have
published something else meanwhile, by hand, in an emergency; and the folder may be an old one, on one machine of
several. So a start takes a tenant forward and never back: a text is new that was never published in the tenant, under
the name that is in use, with a version above all that were published under it. Everything else is left alone, and said.
To go back, or over to another name, is a verb: publish it by hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from msgspec import Struct

from core.canonical import JsonObject, sha256_hex
from core.db import Connection, check_tenant
from core.errors import AuthorizationError, ConsistencyError, InputError
from core.identity import Directory
from core.ids import new_id
from evidence.chain import Actor, EventType
from runtime.definition import deciders
from runtime.definition.catalog import Definitions
from runtime.definition.people import load_directory
from runtime.definition.reserved import POLICY_APPROVERS, refuse_reserved
from runtime.definition.workflow import load_workflow
from runtime.engine.workflow import Workflow
from runtime.requests.policies import Published, publish_policy, refuse
from runtime.requests.twofold import approvers, first_of_two
from runtime.store import audit, documents, tenants
from runtime.store.documents import Edition, Past, StoredWorkflow


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
    connection: Connection,
    definitions: Definitions,
    tenant: str,
    text: str,
    file: str,
    actor: Actor,
    *,
    owned: bool = False,
) -> Published:
    """Publish one version of a workflow. ``DefinitionError`` lists what is wrong with it.

    With ``owned``, ``AuthorizationError`` for a name that somebody else has published first.
    """
    workflow = check_workflow(definitions, text, file)
    await tenants.lock(connection, tenant)
    if owned:
        await _check_owner(connection, tenant, workflow.name, actor)
    stored = StoredWorkflow(workflow.name, workflow.version, workflow.digest, text, workflow.frozen_operations)
    changed = await documents.publish_workflow(connection, tenant, stored, actor.id)
    if changed:
        if workflow.max_concurrency is not None:
            await tenants.set_workflow_slots(connection, tenant, workflow.name, workflow.max_concurrency)
        data: JsonObject = {"name": workflow.name, "version": workflow.version, "digest": workflow.digest}
        await audit.record(connection, tenant, EventType.WORKFLOW_PUBLISHED, actor, data)
        warnings = refuse(deciders.of_workflow(text, file, await tenants.groups(connection, tenant)))
        return Published(workflow.name, workflow.version, workflow.digest, True, warnings=warnings)
    startable = await documents.newest_workflows(connection, tenant, workflow.name, workflow.version)
    return Published(workflow.name, workflow.version, workflow.digest, False, retired=not startable)


def check_workflow(definitions: Definitions, text: str, file: str) -> Workflow:
    """Compile a workflow of somebody else than Counterseal; ``DefinitionError`` lists what is wrong with it."""
    workflow = load_workflow(text, file, definitions.catalog)
    refuse_reserved(workflow.name, text, file)
    return workflow


async def _check_owner(connection: Connection, tenant: str, name: str, actor: Actor) -> None:
    """Read with the tenant locked, so that of two who publish a new name one is the first."""
    versions = await documents.workflow_versions(connection, tenant, name)
    owner = min(versions, key=lambda one: (one.published_at, one.version)).published_by if versions else actor.id
    if owner != actor.id:
        raise AuthorizationError(
            f"The workflow {name!r} belongs to {owner}, who has published it first.",
            remedy="Choose another name, or let them or an administrator publish it.",
        )


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


async def undecided(connection: Connection, tenant: str) -> tuple[str, ...]:
    """The questions that nobody could decide under the tenant's active policy, with the directory as it is now."""
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


class Left(Struct, frozen=True):
    """A document that was not published, and why."""

    name: str
    version: int
    why: str


class Before(Struct, frozen=True):
    """The tenant's documents before the folder was looked at. ``connection`` and the tenant's lock are the caller's."""

    tenant: str
    workflows: tuple[Edition, ...]
    policy: Edition | None

    @classmethod
    async def look(cls, connection: Connection, tenant: str) -> Before:
        """Lock the tenant until the transaction ends, and see what it has.

        So of processes that start together one publishes, and the others find it published. A crash before the commit
        leaves everything as it was, and whichever process starts next publishes it.
        """
        await tenants.lock(connection, tenant)
        policies = await documents.past_policies(connection, tenant)
        workflows = await documents.workflow_versions(connection, tenant)
        editions = tuple(Edition(one.name, one.version, one.digest) for one in workflows)
        return cls(tenant, editions, policies.in_use)


Renewed: TypeAlias = Published | Left


async def renew_workflow(
    connection: Connection, definitions: Definitions, before: Before, text: str, file: str, actor: Actor
) -> Renewed:
    """Publish a version, unless a higher one was there before. ``ConsistencyError`` as ``publish_workflow``."""
    found = load_workflow(text, file, definitions.catalog)
    edition = Edition(found.name, found.version, found.digest)
    higher = _higher(edition, before.workflows)
    if higher and not _of_number(edition, before.workflows):
        return Left(found.name, found.version, f"version {higher.version} is published")
    return await publish_workflow(connection, definitions, before.tenant, text, file, actor)


async def renew_policy(
    connection: Connection, definitions: Definitions, before: Before, text: str, file: str, actor: Actor
) -> Renewed:
    """Publish and activate a policy that takes the active one forward. ``ConsistencyError`` as ``publish_policy``."""
    found = definitions.compile_policy(text, file)
    edition = Edition(found.name, found.version, found.digest)
    past = await documents.past_policies(connection, before.tenant)
    if edition == past.in_use:
        return Published(edition.name, edition.version, edition.digest, False)
    if approvers(await tenants.directory(connection, before.tenant)):
        return Left(edition.name, edition.version, f"a policy is put in force by two of the group {POLICY_APPROVERS}")
    another_text = edition not in past.editions and _of_number(edition, past.editions)
    if not another_text and (why := _not_forward(edition, past, before.policy)):
        return Left(edition.name, edition.version, f"{why}; `counterseal policy publish {file}` activates it")
    return await publish_policy(connection, definitions, before.tenant, text, file, actor)


async def renew_directory(connection: Connection, before: Before, text: str, file: str, actor: Actor) -> Renewed:
    """Publish a directory that takes the one in use forward. ``ConsistencyError`` for another text of its version."""
    found = load_directory(text, file)
    edition = Edition(found.directory, found.version, sha256_hex(text.encode()))
    past = await documents.past_directories(connection, before.tenant)
    if edition == past.in_use:
        return Published(edition.name, edition.version, edition.digest, False)
    by_hand = f"`counterseal directory publish {file}` publishes it"
    people = Directory.of(edition.digest, found.entries)
    now = approvers(await tenants.directory(connection, before.tenant))
    if now and now != approvers(people):
        why = f"it changes the group {POLICY_APPROVERS}, which takes two of it; {by_hand}"
        return Left(edition.name, edition.version, why)
    if edition not in past.editions and _of_number(edition, past.editions):
        raise ConsistencyError(
            f"The directory {edition.name} version {edition.version} in {file} was published with another text.",
            remedy=f"Give this text a higher number, such as version: {edition.version + 1}; or {by_hand}.",
        )
    if why := _not_forward(edition, past, past.in_use):
        return Left(edition.name, edition.version, f"{why}; {by_hand}")
    return await publish_directory(connection, before.tenant, text, file, actor)


def _not_forward(edition: Edition, past: Past, in_use: Edition | None) -> str:
    """The reason why publishing it would not take the tenant forward; empty if it would."""
    if past.in_use is not None and edition in past.editions:
        return f"it was published before, and {past.in_use} is in use"
    if in_use is not None and in_use.name != edition.name:
        return f"{in_use} is in use, and a start changes no name"
    higher = _higher(edition, past.editions)
    return f"version {higher.version} was published" if higher else ""


def _of_number(edition: Edition, editions: Iterable[Edition]) -> bool:
    """True if something with this name and version was published, whatever its text."""
    return any((one.name, one.version) == (edition.name, edition.version) for one in editions)


def _higher(edition: Edition, editions: Iterable[Edition]) -> Edition | None:
    """The highest version of the same name that is above this one."""
    above = [one for one in editions if one.name == edition.name and one.version > edition.version]
    return max(above, key=lambda one: one.version, default=None)
