"""Removes the payloads of a run that is over: what it was given, saw, said and kept.

These stay: the audit's lines, the bundle, who decided what and by which rules, what ran when and how it ended, and the
effects' keys, so that none is repeated. Commands name only ids, so there is nothing in them to remove. Nobody can fold
the book any more, so the rows that faces show are written once, when the values go.
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
_RECORDS = _SQL["records"]
_RUN = _SQL["run"]
_KEEP = _SQL["keep"]
_REMAINS = _SQL["remains"]


_IDS = frozenset({"step_id", "receipt_id", "run_id"})


async def hold(connection: Connection, run_id: UUID) -> str | None:
    """Lock a run whose retention is over; return its tenant, or None if it is not time. Only one sweeper gets it."""
    tenant: str | None = await connection.fetchval(_HOLD, run_id)
    return tenant


async def remove_payloads(connection: Connection, book: Book, past: Past) -> None:
    """Remove a run's payloads in the caller's transaction, which holds its lock, and keep what may still be shown.

    A crash leaves the run whole.
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
    for statement in (_SIGNALS, _CHILDREN, _SEARCHED):
        await connection.execute(statement, run_id)
    for statement in (_WAITS, _APPROVALS, _REFUSALS, _VOTES):
        await connection.execute(statement, run_id, REMOVED)
    await connection.execute(_RECORDS, run_id)
    await connection.execute(_RUN, run_id)


async def remains(connection: Connection, run_id: UUID) -> tuple[Sequence[Row], Sequence[Row], Sequence[Row]]:
    """The remains of a run: the rows of steps, receipts and extensions. ``Diverged`` if somebody has deleted them."""
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
