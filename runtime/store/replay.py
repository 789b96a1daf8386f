"""Reading the whole record of a run, for its replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import asyncpg

from core.canonical import JsonObject
from core.db import Connection
from core.errors import NotFoundError
from runtime.kernel.record import Ended, Known
from runtime.kernel.states import WaitKind

_RUN = "SELECT purged_at FROM runs WHERE tenant_id = $1 AND run_id = $2"
_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_LINES = "SELECT line FROM audit_events WHERE tenant_id = $1 AND stream_id = $2 ORDER BY seq"
_STEPS = "SELECT step_key, output, last_error, idempotency_key FROM steps WHERE tenant_id = $1 AND run_id = $2"
_WAITS = "SELECT wait_id, kind, result FROM waits WHERE tenant_id = $1 AND run_id = $2"
_CHECKPOINTS = """
SELECT superstep, digest, state FROM checkpoints
WHERE tenant_id = $1 AND run_id = $2 AND superstep BETWEEN $3 AND $4 ORDER BY superstep"""
_NUMBERS = "SELECT superstep FROM checkpoints WHERE tenant_id = $1 AND run_id = $2 ORDER BY superstep"


@dataclass(frozen=True, slots=True)
class Stored:
    """A checkpoint as it is stored."""

    digest: str
    state: JsonObject


@dataclass(frozen=True, slots=True)
class RecordRows:
    """A run's lines, steps and waits."""

    lines: Sequence[bytes]
    steps: Mapping[str, Known]
    waits: Mapping[UUID, Ended]


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


async def read_record(connection: Connection, tenant: str, run_id: UUID) -> RecordRows:
    """Everything that a replay starts from, in the snapshot of ``begin``."""
    lines = await connection.fetch(_LINES, tenant, run_id)
    steps = await connection.fetch(_STEPS, tenant, run_id)
    waits = await connection.fetch(_WAITS, tenant, run_id)
    return RecordRows(
        [row["line"] for row in lines],
        {row["step_key"]: Known(row["output"], row["last_error"], row["idempotency_key"]) for row in steps},
        {row["wait_id"]: _ended(row) for row in waits},
    )


def _ended(row: asyncpg.Record) -> Ended:
    return Ended(WaitKind(row["kind"]), row["result"])


async def checkpoint_numbers(connection: Connection, tenant: str, run_id: UUID) -> list[int]:
    """Which checkpoints are stored."""
    return [row["superstep"] for row in await connection.fetch(_NUMBERS, tenant, run_id)]


async def checkpoints(connection: Connection, tenant: str, run_id: UUID, first: int, last: int) -> dict[int, Stored]:
    """The stored checkpoints with these numbers, both ends included."""
    rows = await connection.fetch(_CHECKPOINTS, tenant, run_id, first, last)
    return {row["superstep"]: Stored(row["digest"], row["state"]) for row in rows}
