"""Small reads that several verbs share."""

from __future__ import annotations

from uuid import UUID

import asyncpg

from core.db import Connection
from core.errors import NotFoundError

_RUN_OF_TRIGGER = """
SELECT run_id, reference FROM runs
WHERE tenant_id = $1 AND workflow = $2 AND trigger_type = $3 AND trigger_ref = $4"""

_ENDING = "SELECT tenant_id, status, result, error, parent_run_id, trigger_ref FROM runs WHERE run_id = $1"


async def ending_of(connection: Connection, run_id: UUID) -> asyncpg.Record:
    """The status of a run, its result, and the run that waits for it; ``NotFoundError`` if there is none."""
    row = await connection.fetchrow(_ENDING, run_id)
    if row is None:
        raise NotFoundError(f"There is no run {run_id}.")
    return row


async def run_of_trigger(
    connection: Connection, tenant: str, workflow: str, trigger_type: str, trigger_ref: str
) -> asyncpg.Record | None:
    """The run that a trigger has started, if it has."""
    return await connection.fetchrow(_RUN_OF_TRIGGER, tenant, workflow, trigger_type, trigger_ref)
