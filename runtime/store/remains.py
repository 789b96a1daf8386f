"""The rows that are shown of a run whose values retention has taken: who did what and when, and how it ended.

It is written once, when the values go: from then on nobody can fold the run's book any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from core.db import Connection
from runtime.engine.past import Past, Row, emptied
from runtime.engine.told import Diverged

_WRITE = """
INSERT INTO remains (run_id, tenant_id, steps, receipts, extensions)
SELECT run_id, tenant_id, $2, $3, $4 FROM runs WHERE run_id = $1"""
_READ = "SELECT steps, receipts, extensions FROM remains WHERE run_id = $1"

_IDS = frozenset({"step_id", "receipt_id", "run_id"})


async def write(connection: Connection, past: Past) -> None:
    """Keep what may stay, in the transaction that removes the rest: a crash leaves the run whole."""
    rows = [orjson.loads(orjson.dumps(each)) for each in emptied(past)]
    await connection.execute(_WRITE, past.run.run_id, *rows)


async def read(connection: Connection, run_id: UUID) -> tuple[Sequence[Row], Sequence[Row], Sequence[Row]]:
    """The rows of steps, receipts and extensions. ``Diverged`` if somebody has deleted them."""
    row = await connection.fetchrow(_READ, run_id)
    if row is None:
        raise Diverged(f"What retention left of the run {run_id} is gone", "remains")
    steps, receipts, extensions = ([_typed(each) for each in many] for many in row)
    return steps, receipts, extensions


def _typed(row: Row) -> Row:
    return {name: _value(name, value) for name, value in row.items()}


def _value(name: str, value: Any) -> Any:
    if value is None or not isinstance(value, str):
        return value
    if name in _IDS:
        return UUID(value)
    return datetime.fromisoformat(value) if name.endswith("_at") else value
