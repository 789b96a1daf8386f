"""Reads a tenant's records. ``append`` writes them, in the append of the step that changes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from connectors.port import SHAPED
from core.canonical import VALUE_BYTES_MAX, Json, JsonObject, canonical_bytes
from core.db import Database
from core.errors import ConsistencyError
from core.identity import UNKNOWN, Role
from runtime.engine.book.contributors import mark
from runtime.store.statements import statements

# The most records of one output if the caller names no limit, and the most bytes of an output.
ROWS_MAX = 1000
BYTES_MAX = VALUE_BYTES_MAX - 16 * 1024
_UNTOLD = (mark(Role.SOURCE_REQUESTER, UNKNOWN),)

_SQL = statements("records")
_GET = _SQL["get"]
_QUERY = _SQL["query"]


class RecordRefused(ConsistencyError):
    """A record is not as an append expects: it exists already, or it has another version. Nothing was written."""


async def read(database: Database, tenant: str, function: str, values: JsonObject) -> JsonObject:
    """The output of ``records:get`` or ``records:query``.

    The marks of those who shaped the records are under ``SHAPED``; the connector removes them from the output.
    """
    given: dict[str, Any] = dict(values)
    async with database.transaction(tenant) as connection:
        if function == "get":
            row = await connection.fetchrow(_GET, tenant, given["collection"], given["key"])
            found: JsonObject = {"found": row is not None, "value": None, "version": None}
            found |= {} if row is None else {"value": row["value"], "version": row["version"]}
            return {**found, SHAPED: _shapers([row] if row else [])}
        limit = given.get("limit", ROWS_MAX)
        named = (tenant, given["collection"], given.get("after", ""), given.get("where"))
        rows = await connection.fetch(_QUERY, *named, limit + 1)
    shown: list[Json] = []
    size = 0
    for row in rows[:limit]:
        record = {name: row[name] for name in ("key", "value", "version")}
        size += len(canonical_bytes(record))
        if shown and size > BYTES_MAX:
            break
        shown.append(record)
    whole = len(rows) == len(shown)
    return {"records": shown, "count": len(shown), "truncated": not whole, SHAPED: _shapers(rows[: len(shown)])}


def _shapers(rows: Sequence[asyncpg.Record]) -> list[Json]:
    """The marks of everybody who shaped these records. Records of an older release have no marks."""
    return [*sorted({text for row in rows for text in (_UNTOLD if row["shaped"] is None else row["shaped"])})]
