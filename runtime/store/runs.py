"""Small reads that several verbs share."""

from __future__ import annotations

from uuid import UUID

import asyncpg

from core.db import Connection
from core.errors import NotFoundError
from runtime.engine.book import contributors
from runtime.engine.model.run import Family
from runtime.store.views import Graphs, load

_RUN_OF_TRIGGER = """
SELECT run_id, reference, requested_by, requester FROM runs
WHERE tenant_id = $1 AND workflow = $2 AND trigger_type = $3 AND trigger_ref = $4"""

_GOING_OF = """
SELECT run_id FROM runs WHERE tenant_id = $1 AND workflow = $2 AND finished_at IS NULL ORDER BY created_at, run_id"""
_PROPOSAL = """
SELECT r.run_id, r.requested_by, (SELECT a.approval_id FROM approvals a
    WHERE a.run_id = r.run_id AND a.status = 'requested') AS approval
FROM runs r WHERE r.tenant_id = $1 AND r.workflow = $2 AND r.trigger_type = $3 AND starts_with(r.trigger_ref, $4)
  AND r.finished_at IS NULL AND r.canceling IS NULL
ORDER BY r.created_at DESC LIMIT 1"""

# Whoever ends a wait, adds a step, or wrote what a run has read can have shaped its result (``shaped``); what it has
# read is known when it is over. ``traced``: the run above, which waits for this one, has asked where its result comes
# from.
_ENDING = """
SELECT tenant_id, run_id, status, result, error, parent_run_id, trigger_ref, extensions > 0 OR finished_at IS NOT NULL
  OR EXISTS (SELECT FROM waits w WHERE w.run_id = r.run_id AND w.result ->> 'by' IS NOT NULL)
  AS shaped,
  EXISTS (SELECT FROM waits w WHERE w.run_id = r.parent_run_id AND w.correlation_key = r.run_id::text
    AND w.context ->> 'traced' IS NOT NULL) AS traced
FROM runs r WHERE r.run_id = $1"""
_OPEN_CHILDREN = "SELECT run_id, workflow FROM runs WHERE parent_run_id = $1 AND finished_at IS NULL ORDER BY run_id"
_WAIT = "SELECT to_jsonb(w) AS wait, w.run_id FROM waits w WHERE w.wait_id = $1"


async def ending_of(connection: Connection, run_id: UUID) -> asyncpg.Record:
    """The status of a run, its result, and the run that waits for it; ``NotFoundError`` if there is none."""
    row = await connection.fetchrow(_ENDING, run_id)
    if row is None:
        raise NotFoundError(f"There is no run {run_id}.")
    return row


async def shapers_of(connection: Connection, ending: asyncpg.Record, graphs: Graphs) -> tuple[str, ...]:
    """The marks of everybody who has shaped anything in a run; ``ending`` is what ``ending_of`` gives for it."""
    if not ending["shaped"]:
        return ()
    view = await load(connection, UUID(int=ending["run_id"].int), graphs)
    words = contributors.wrote_failures(view.run.state) if view.run.error is not None else ()
    return tuple(sorted({*contributors.everybody(view.run.state), *words}))


async def run_of_trigger(
    connection: Connection, tenant: str, workflow: str, trigger_type: str, trigger_ref: str
) -> asyncpg.Record | None:
    """The run that a trigger has started, if it has."""
    return await connection.fetchrow(_RUN_OF_TRIGGER, tenant, workflow, trigger_type, trigger_ref)


async def going_of(connection: Connection, tenant: str, workflow: str) -> list[UUID]:
    """The runs of a workflow that are not over, the oldest first."""
    return [row["run_id"] for row in await connection.fetch(_GOING_OF, tenant, workflow)]


async def proposal(
    connection: Connection, tenant: str, workflow: str, trigger_type: str, about: str
) -> tuple[UUID, str, UUID | None] | None:
    """The run that asks about this now, who requested it, and its open question, if it has asked already."""
    row = await connection.fetchrow(_PROPOSAL, tenant, workflow, trigger_type, f"{about}:")
    return None if row is None else (row["run_id"], row["requested_by"], row["approval"])


async def open_children(connection: Connection, run_id: UUID) -> list[tuple[UUID, str]]:
    """The runs that this one waits for, with their workflows."""
    return [(row["run_id"], row["workflow"]) for row in await connection.fetch(_OPEN_CHILDREN, run_id)]


async def wait(connection: Connection, wait_id: UUID) -> asyncpg.Record | None:
    """The row of a wait as JSON, and its run."""
    return await connection.fetchrow(_WAIT, wait_id)


_ROOT = "SELECT root_run_id FROM runs WHERE run_id = $1 FOR UPDATE"
_MAKE = """
INSERT INTO families (root_run_id, tenant_id, writes, refused, asked, writes_max, same)
VALUES ($1, $2, $3, $4, $5, $6, $7)"""
_BEGUN = "UPDATE runs SET root_run_id = run_id, gate = gate + 1 WHERE run_id = $1"


async def root_of(connection: Connection, run_id: UUID) -> UUID | None:
    """The outermost run of this one, whose row is locked by then; None if it has no family yet."""
    known = await connection.fetchval(_ROOT, run_id)
    return None if known is None else UUID(int=known.int)


async def begin(connection: Connection, tenant: str, family: Family) -> None:
    """Begin a family with what its root, which the caller has locked, has counted so far.

    The gate of the root moves with that: an append that was built without these counters is refused, and built anew. A
    crash before the caller's commit leaves neither the counters nor the other run.
    """
    counted = (family.writes, family.refused, family.asked, family.writes_max, dict(family.same))
    await connection.execute(_MAKE, family.root, tenant, *counted)
    await connection.execute(_BEGUN, family.root)
