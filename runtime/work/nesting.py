"""Runs that runs start: a child whose end is waited for, a continuation whose end is not (X-13, X-14, P-8).

Starting is idempotent by the starting step, so a crash before the step is settled starts nothing twice: the next lease
finds the run there. A child is worked on by its parent's worker as far as that goes without waiting.
"""

from __future__ import annotations

from uuid import UUID

from core.db import Connection, Database
from core.errors import CountersealError
from evidence.chain import Actor
from runtime.definition.catalog import Definitions
from runtime.engine.moves import OtherRun, StartRun
from runtime.engine.transition import RunView
from runtime.requests.starting import StartRequest, start_named
from runtime.store import reads

TRIGGER_TYPE = "workflow"


async def start_other(database: Database, definitions: Definitions, view: RunView, work: StartRun) -> OtherRun:
    """Start the run that a step orders, or find it. What is wrong with the order is the ``problem`` of the answer."""
    try:
        async with database.transaction() as connection:
            request = StartRequest(
                tenant_id=view.tenant_id,
                workspace_id=view.workspace_id,
                trigger_type=TRIGGER_TYPE,
                trigger_ref=f"{view.run_id}:{work.step.key}",
                trigger=work.inputs,
                requested_by=view.requested_by,
                actor=Actor("run", str(view.run_id)),
                run_id=work.run_id,
                parent=view.run_id if work.waits else None,
                depth=view.depth + 1,
            )
            await start_named(connection, definitions, work.workflow, work.version, request)
            return await look(connection, work.run_id)
    except CountersealError as error:
        return OtherRun(problem=str(error))


async def look(connection: Connection, run_id: UUID) -> OtherRun:
    """Where the other run is."""
    row = await reads.ending_of(connection, run_id)
    return OtherRun(row["status"], row["result"], row["error"])
