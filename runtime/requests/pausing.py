"""Pauses and resumes a tenant, a workflow, a connector, an agent or a run (promise 11).

Once a pause has returned, no action that it stops goes out any more: every append with an intent that began before has
ended, and every later one is refused by its guard. Calls under way are still settled. Votes, signals and starts are
still accepted; a step that would call a connector waits, and goes on after ``resume``.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from core.canonical import check_text
from core.db import Connection, Database
from core.errors import ConsistencyError, InputError, NotFoundError, nearest
from core.identity import Kind, principal
from core.terms import Stopped
from evidence.chain import Actor
from evidence.commitments import commit_fields, path_of
from runtime.definition.catalog import Definitions
from runtime.engine.life.pausing import Pause, account_key, key_of, parts_of
from runtime.engine.life.transition import Transition
from runtime.engine.model.events import RunPaused, RunResumed
from runtime.engine.model.graph import NO_GRAPH
from runtime.store import documents, faces, pauses, read_models, tenants
from runtime.store.views import Purged, load_to_end

PAUSES_MAX = 500


@dataclass(frozen=True, slots=True)
class Changed:
    """The outcome of ``pause`` or ``resume``; ``changed`` is False if it was paused, or not paused, before."""

    what: Stopped
    name: str
    paused: bool
    changed: bool


async def listed(connection: Connection, tenant: str) -> list[Pause]:
    """Every pause of the tenant, the oldest first; pauses of ended runs are left out."""
    rows = [row for row in await pauses.in_force(connection, tenant) if not row["over"]]
    return [Pause.of(row["key"], row["value"]) for row in rows]


async def of_run(connection: Connection, tenant: str, run_id: UUID) -> list[Pause]:
    """The pauses that hold up a run now."""
    keys = await pauses.of_run(connection, tenant, run_id)
    return [one for one in await listed(connection, tenant) if key_of(one.what, one.name) in keys]


async def pause(
    database: Database, definitions: Definitions, tenant: str, what: Stopped, name: str, reason: str, actor: Actor
) -> Changed:
    """Pause; idempotent. ``NotFoundError`` suggests existing names, ``ConsistencyError`` if the run has ended.

    The pause and its line in the tenant's stream are one transaction. The line in a run's book is a second transaction,
    because it locks the run. After a crash in between, the run is stopped all the same, and a repeated call writes the
    line.
    """
    check_text(reason, "reason")
    if not reason.strip():
        raise InputError("is empty.", where="reason", remedy="Say why: whoever meets the pause reads it.")
    async with database.transaction(tenant) as connection:
        await tenants.lock(connection, tenant)
        key = await _key(connection, definitions, tenant, what, name, new=True)
        there = await pauses.in_force(connection, tenant)
        if sum(not row["over"] for row in there) >= PAUSES_MAX:
            words = f"{PAUSES_MAX} pauses are in force, and no more can be kept."
            raise ConsistencyError(words, remedy="Pause the workflow or the tenant, and resume what it covers.")
        changed = await pauses.pause(connection, tenant, key, actor, reason)
    await _tell_run(database, definitions, tenant, key, actor, reason, paused=True)
    return Changed(*parts_of(key), True, changed)


async def resume(
    database: Database, definitions: Definitions, tenant: str, what: Stopped, name: str, reason: str, actor: Actor
) -> Changed:
    """End a pause; its steps go on within seconds. Idempotent. ``NotFoundError`` as for ``pause``.

    Crashes as for ``pause``.
    """
    check_text(reason, "reason")
    async with database.transaction(tenant) as connection:
        await tenants.lock(connection, tenant)
        key = await _key(connection, definitions, tenant, what, name, new=False)
        changed = await pauses.resume(connection, tenant, key, actor, reason)
    await _tell_run(database, definitions, tenant, key, actor, reason, paused=False)
    return Changed(*parts_of(key), False, changed)


async def _key(
    connection: Connection, definitions: Definitions, tenant: str, what: Stopped, name: str, *, new: bool
) -> str:
    """The key of a pause, after a check that the named thing exists. An ended run can be resumed, but not paused."""
    match what:
        case Stopped.SUSPENDED:
            remedy = "It is for the operator of the installation: `counterseal tenant suspend`."
            raise InputError("cannot be paused or resumed here.", where="suspended", remedy=remedy)
        case Stopped.TENANT:
            if name not in ("", tenant):
                raise NotFoundError(f"This is the tenant {tenant!r}, not {name!r}.", remedy="Leave its name out.")
            if not await tenants.exists(connection, tenant):
                remedy = f"Create it with `counterseal tenant create {tenant}`."
                raise NotFoundError(f"There is no tenant {tenant!r}.", remedy=remedy)
            return key_of(what)
        case Stopped.WORKFLOW:
            await documents.known_versions(connection, tenant, name)
        case Stopped.CONNECTOR:
            now = await definitions.published(connection, tenant)
            known = {operation.connector for operation in now.operations.values()}
            # Runs that began earlier use their frozen declarations, which may name a connector that no declaration has
            # now.
            known |= {used for one in await documents.workflow_versions(connection, tenant) for used in one.connectors}
            if name not in known:
                raise NotFoundError(f"There is no connector {name!r}.", remedy=nearest(name, known, "Known"))
        case Stopped.AGENT:
            return key_of(what, await _agent(connection, tenant, name, new=new))
        case Stopped.RUN:
            try:
                row = await read_models.run(connection, tenant, UUID(name))
            except ValueError:
                raise InputError(f"{name!r} is not an id.", where="run", remedy="Copy it from `run list`.") from None
            if row is None:
                raise NotFoundError(f"There is no run {name}.", remedy="See `counterseal run list`.")
            if new and row["finished_at"] is not None:
                raise ConsistencyError(f"The run is {row['status']}; there is nothing left to pause.")
            name = str(UUID(name))
    return key_of(what, name)


async def _agent(connection: Connection, tenant: str, name: str, *, new: bool) -> str:
    """The name in an agent's pause. An agent that has left the directory can be resumed, but not paused."""
    held = key_of(Stopped.AGENT, account_key(name))
    if not new and any(row["key"] == held for row in await pauses.in_force(connection, tenant)):
        return account_key(name)
    people = await tenants.directory(connection, tenant)
    found = people.entries.get(name) or people.entry(principal(Kind.PERSON, name))
    if found is None or found.owner is None:
        known = {one.id for one in people.entries.values() if one.owner is not None}
        raise NotFoundError(f"There is no agent {name!r}.", remedy=nearest(name, known, "Service accounts"))
    return account_key(found.id)


async def _tell_run(
    database: Database, definitions: Definitions, tenant: str, key: str, actor: Actor, reason: str, *, paused: bool
) -> None:
    """Append the pause, or its end, to the run's book, unless the book has it already."""
    what, name = parts_of(key)
    if what is not Stopped.RUN:
        return
    async with database.transaction(tenant) as connection:
        try:
            view = await load_to_end(connection, UUID(name), definitions.graphs, lock=True, tenant=tenant)
        except Purged:
            return
        if view.run.finished or view.run.paused is paused:
            return
        transition = Transition(view, NO_GRAPH)
        given = {"reason": reason} if reason else {}
        verb = "paused" if paused else "resumed"
        committed = commit_fields(view.run.run_key, path_of(verb, str(view.version)), given)
        facts = (bool(reason), committed or None, reason if committed else "")
        # An intent with this stop number is refused by the pause, unless it was lifted before its line was appended.
        held = view.stop if key in view.paused else None
        transition.tell(RunPaused(*facts, held) if paused else RunResumed(*facts), actor=actor)
        if not await faces.append(connection, transition.commit()):
            raise ConsistencyError("The run has just moved on.", remedy="It is stopped; the same again tells its book.")
