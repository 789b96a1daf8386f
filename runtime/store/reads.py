"""Small reads that several verbs share."""

from __future__ import annotations

import asyncpg

from core.db import Connection
from core.errors import ConsistencyError

_RUN_OF_TRIGGER = """
SELECT run_id, reference FROM runs
WHERE tenant_id = $1 AND workflow = $2 AND trigger_type = $3 AND trigger_ref = $4"""


async def run_of_trigger(
    connection: Connection, tenant: str, workflow: str, trigger_type: str, trigger_ref: str
) -> asyncpg.Record:
    """The run that a trigger has started."""
    row = await connection.fetchrow(_RUN_OF_TRIGGER, tenant, workflow, trigger_type, trigger_ref)
    if row is None:
        raise ConsistencyError("The run that this trigger started cannot be seen yet.", remedy="Send it again.")
    return row
