"""Moves waiting runs to another version of their workflow, only by order of people who may publish it."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from core.canonical import check_text
from core.db import Connection, Database
from core.errors import ConsistencyError, InputError
from evidence.chain import Actor
from runtime.definition.catalog import Definitions
from runtime.definition.migrating import asked_anew, check_trigger
from runtime.definition.reserved import refuse_altering
from runtime.engine.life.migrating import migrate
from runtime.engine.life.transition import Transition
from runtime.engine.model.workflow import Workflow
from runtime.requests.publishing import check_owner
from runtime.requests.several import Steer, Where, where_of
from runtime.store import documents, faces
from runtime.store.views import load


class Move(Struct, frozen=True):
    """An order to move the runs of a workflow that a filter finds from version ``since`` to version ``to``."""

    name: str
    since: int
    to: int
    where: Sequence[str] = ()

    def filter(self) -> Where:
        """The filter for the open runs of the order. ``InputError`` if the given filter names other runs."""
        if self.since == self.to:
            raise InputError("is the version that they have.", where="to", remedy="Name another one.")
        given = where_of(self.where) if self.where else Where()
        if given.workflow not in (None, self.name) or given.version not in (None, self.since):
            words = "asks for runs of another workflow or version."
            raise InputError(words, where="where", remedy="Leave workflow and version out of it.")
        return replace(given, workflow=self.name, version=self.since, going=True)


async def prepared(
    database: Database, definitions: Definitions, tenant: str, move: Move, actor: Actor, *, owned: bool
) -> Steer:
    """The function that moves each run of the order, for ``several.plan``.

    People who may publish the workflow may order it; with ``owned``, only the owner of its name. A version with which
    no run may start, because it is retired or waits for an admin, takes over no run either.
    """
    refuse_altering(move.name)
    async with database.transaction(tenant) as connection:
        documents.of_number(await documents.known_versions(connection, tenant, move.name), move.since)
        if owned:
            await check_owner(connection, tenant, move.name, actor)

    async def steer(
        connection: Connection, definitions: Definitions, tenant: str, run_id: UUID, actor: Actor, reason: str
    ) -> str:
        stored = await documents.startable_workflow(connection, tenant, move.name, move.to)
        return await _migrate(connection, definitions, tenant, run_id, actor, reason, definitions.compiled(stored))

    return steer


async def _migrate(
    connection: Connection,
    definitions: Definitions,
    tenant: str,
    run_id: UUID,
    actor: Actor,
    reason: str,
    after: Workflow,
) -> str:
    """Move one run inside the caller's transaction; return, in words, what it then waits for and what is asked anew.

    ``ConsistencyError`` says why it is not moved. A crash before the commit leaves it as it was; after the commit it
    has the new version, and steps that can begin are in the queue.
    """
    check_text(reason, "reason")
    view = await load(connection, run_id, definitions.graphs, lock=True, whole=True, tenant=tenant)
    before = await definitions.of_run(connection, view.definition)
    if before.definition_digest == after.definition_digest:
        raise ConsistencyError(f"The run is of version {after.version} already.")
    anew = asked_anew(view.run, before, after)
    check_trigger(after, view.run.trigger)
    stored = replace(view.run, checkpoints=[], ledger=[], mutations=[])
    transition = Transition(replace(view, run=stored), after.graph)
    migrate(transition, before, after, anew, actor, reason)
    if not await faces.append(connection, transition.commit()):
        raise ConsistencyError("The run has just moved on.", remedy="Look at it again.")
    void = f"; asked anew: {', '.join(anew)}" if anew else ""
    return f"{transition.run.status}{void}"
