"""Removes the payloads of an ended run: its inputs, the values that it read and wrote, and its messages.

These stay: the audit's lines, the bundle, the decisions with their rules and deciders, the times and outcomes of steps,
and the effects' keys, so that no effect is repeated. Commands name only ids, so they hold no payload. The book cannot
be folded without its values, so the rows that faces show are written once, when the values are removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from core.canonical import digest
from core.db import Connection
from runtime.engine.book.recorded import Diverged
from runtime.engine.replay.past import REMOVED, Past, Row, emptied, questions
from runtime.store.books import Book
from runtime.store.statements import statements

_SQL = statements("retention")
_HOLD = _SQL["hold"]
_WAITS = _SQL["waits"]
_APPROVALS = _SQL["approvals"]
_REFUSALS = _SQL["refusals"]
_VOTES = _SQL["votes"]
_SIGNALS = _SQL["signals"]
_SEARCHED = _SQL["searched"]
_CHILDREN = _SQL["children"]
_EVENT = _SQL["event"]
_DELIVERY = _SQL["delivery"]
_KEYS = _SQL["keys"]
_RECORDS = _SQL["records"]
_RUN = _SQL["run"]
_KEEP = _SQL["keep"]
_REMAINS = _SQL["remains"]


_IDS = frozenset({"step_id", "receipt_id", "run_id"})


async def hold(connection: Connection, run_id: UUID) -> str | None:
    """Lock a run whose retention is over; return its tenant. None if it is not over, or if another sweeper has it."""
    tenant: str | None = await connection.fetchval(_HOLD, run_id)
    return tenant


async def remove_payloads(connection: Connection, book: Book, past: Past) -> None:
    """Remove a run's payloads, and keep what may still be shown. The caller's transaction holds the run's lock.

    A crash before the commit leaves the run unchanged.
    """
    run_id = book.run_id
    rows = [orjson.loads(orjson.dumps(each)) for each in (*emptied(past), questions(past))]
    await connection.execute(_KEEP, run_id, *rows)
    if book.row["trigger_type"] == "servicenow":
        # Under this source and id the inbox keeps the event that started a run: see ``runtime.requests.triggers``.
        source, event = f"servicenow:{book.row['trigger_ref'].partition(':')[0]}", digest(book.opened.inputs or {})
        await connection.execute(_EVENT, run_id, book.row["tenant_id"], source, event)
    if book.row["trigger_type"] == "webhook":
        named = (book.row["tenant_id"], book.row["workflow"], book.row["trigger_ref"])
        await connection.execute(_DELIVERY, run_id, *named)
    for statement in (_SIGNALS, _CHILDREN, _KEYS, _SEARCHED):
        await connection.execute(statement, run_id)
    for statement in (_WAITS, _APPROVALS, _REFUSALS, _VOTES):
        await connection.execute(statement, run_id, REMOVED)
    await connection.execute(_RECORDS, run_id)
    await connection.execute(_RUN, run_id)


async def remains(connection: Connection, run_id: UUID) -> tuple[Sequence[Row], Sequence[Row], Sequence[Row]]:
    """The rows that are left of a purged run: steps, receipts, extensions. ``Diverged`` if somebody deleted them."""
    row = await connection.fetchrow(_REMAINS, run_id)
    if row is None:
        raise Diverged(f"The row that retention kept of the run {run_id} is missing", "remains")
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
