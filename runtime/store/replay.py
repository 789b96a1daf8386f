"""Reading what a replay needs besides the book: when a run was emptied, and its stored checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from core.canonical import JsonObject
from core.db import Connection
from core.errors import NotFoundError

_RUN = "SELECT purged_at FROM runs WHERE tenant_id = $1 AND run_id = $2"
_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_CHECKPOINTS = """
SELECT superstep, digest, state FROM checkpoints
WHERE tenant_id = $1 AND run_id = $2 AND superstep BETWEEN $3 AND $4 ORDER BY superstep"""
_NUMBERS = "SELECT superstep FROM checkpoints WHERE tenant_id = $1 AND run_id = $2 ORDER BY superstep"


@dataclass(frozen=True, slots=True)
class Stored:
    """A checkpoint as it is stored."""

    digest: str
    state: JsonObject


async def begin(connection: Connection, tenant: str, run_id: UUID) -> datetime | None:
    """Read all that follows in one snapshot; when the run's payloads were removed. ``NotFoundError`` without a run.

    The first statement of the caller's transaction.
    """
    await connection.execute(_SNAPSHOT)
    row = await connection.fetchrow(_RUN, tenant, run_id)
    if row is None:
        raise NotFoundError(f"There is no run {run_id}.", remedy="See `counterseal run list`.")
    purged: datetime | None = row["purged_at"]
    return purged


async def checkpoint_numbers(connection: Connection, tenant: str, run_id: UUID) -> list[int]:
    """Which checkpoints are stored."""
    return [row["superstep"] for row in await connection.fetch(_NUMBERS, tenant, run_id)]


async def checkpoints(connection: Connection, tenant: str, run_id: UUID, first: int, last: int) -> dict[int, Stored]:
    """The stored checkpoints with these numbers, both ends included."""
    rows = await connection.fetch(_CHECKPOINTS, tenant, run_id, first, last)
    return {row["superstep"]: Stored(row["digest"], row["state"]) for row in rows}
