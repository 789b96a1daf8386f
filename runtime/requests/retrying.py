"""Going on with a failed run from its failed steps, by a person who says why (X-18)."""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from core.canonical import check_text
from core.db import Connection
from core.errors import ConsistencyError, InputError
from evidence.chain import Actor
from runtime.definition.catalog import Definitions
from runtime.definition.reserved import refuse_altering
from runtime.engine.reopening import reopen
from runtime.engine.states import RunState
from runtime.engine.transition import Transition
from runtime.store import bundles, faces
from runtime.store.views import load


async def retry_run(
    connection: Connection, definitions: Definitions, tenant: str, run_id: UUID, actor: Actor, reason: str
) -> RunState:
    """Reopen a failed run inside the caller's transaction; return its status afterwards.

    ``ConsistencyError`` says why that cannot be. A crash before the commit leaves the run as it ended; after it, its
    steps stand in line.
    """
    check_text(reason, "reason")
    if not reason.strip():
        raise InputError("is empty", where="reason", remedy="Say why the run may go on now.")
    view = await load(connection, run_id, definitions.graphs, lock=True, whole=True, tenant=tenant)
    refuse_altering(view.workflow)
    if view.parent is not None:
        words = f"The run {view.parent} above this one has its end already, and has moved on."
        raise ConsistencyError(words, remedy="Retry that one: it starts this one anew.")
    stored = await bundles.newest(connection, tenant, run_id)
    if stored is None and view.run.finished:
        raise ConsistencyError("The evidence of how this run ended is not stored yet.", remedy="Try again soon.")
    workflow = await definitions.of_run(connection, view.definition)
    stored_already = replace(view.run, checkpoints=[], ledger=[], mutations=[])
    transition = Transition(replace(view, run=stored_already), workflow.graph)
    reopen(transition, actor, reason, stored)
    if not await faces.append(connection, transition.commit()):
        raise ConsistencyError("The run has just moved on.", remedy="Look at it again.")
    return transition.run.status
