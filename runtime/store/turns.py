"""Turns of steps at targets with a rate, counted in the database: so many calls in any minute, whoever makes them."""

from __future__ import annotations

from uuid import UUID

from core.db import Connection
from runtime.store.statements import statements

_SQL = statements("turns")
_TAKE = _SQL["take"]


async def take(connection: Connection, tenant: str, target: str, calls: int, step: UUID) -> float:
    """Take the step's turn; 0 if it may call now, else the seconds until its turn, which is kept for it.

    A crash leaves a turn that nobody uses; it is forgotten after a minute.
    """
    return float(await connection.fetchval(_TAKE, tenant, target, calls, step))
