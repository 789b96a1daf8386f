"""Turns of steps at targets with a rate. The database counts them, so the rate holds for all workers together."""

from __future__ import annotations

from uuid import UUID

from core.db import Connection
from runtime.store.statements import statements

_SQL = statements("turns")
_TAKE = _SQL["take"]


async def take(connection: Connection, tenant: str, target: str, calls: int, step: UUID) -> float:
    """Take a turn for the step: 0 if it may call now, else the seconds until its turn, which stays reserved for it.

    A crash leaves a turn that nobody uses; it is forgotten after a minute.
    """
    return float(await connection.fetchval(_TAKE, tenant, target, calls, step))
