"""Reads a tenant's records. ``runtime.store.parts`` writes them, in the append of the step that changes them."""

from __future__ import annotations

from typing import Any

from core.canonical import VALUE_BYTES_MAX, Json, JsonObject, canonical_bytes
from core.db import Database
from core.errors import ConsistencyError

# The most records of one output, if the caller names no limit, and their bytes.
ROWS_MAX = 1000
BYTES_MAX = VALUE_BYTES_MAX - 16 * 1024

_GET = "SELECT value, version FROM records WHERE tenant_id = $1 AND collection = $2 AND key = $3"
_QUERY = """
SELECT key, value, version FROM records WHERE tenant_id = $1 AND collection = $2 AND key > $3
  AND ($4::jsonb IS NULL OR value @> $4::jsonb)
ORDER BY key LIMIT $5"""


class RecordRefused(ConsistencyError):
    """A record is not as an append expects it: there is one already, or it has another version. Nothing was written."""


async def read(database: Database, tenant: str, function: str, values: JsonObject) -> JsonObject:
    """The record or the records that ``records:get`` or ``records:query`` asks for."""
    given: dict[str, Any] = dict(values)
    async with database.transaction(tenant) as connection:
        if function == "get":
            row = await connection.fetchrow(_GET, tenant, given["collection"], given["key"])
            found = row is not None
            return {"found": found, "value": row["value"] if row else None, "version": row["version"] if row else None}
        limit = given.get("limit", ROWS_MAX)
        named = (tenant, given["collection"], given.get("after", ""), given.get("where"))
        rows = await connection.fetch(_QUERY, *named, limit + 1)
    shown: list[Json] = []
    size = 0
    for row in rows[:limit]:
        size += len(canonical_bytes(dict(row)))
        if shown and size > BYTES_MAX:
            break
        shown.append(dict(row))
    return {"records": shown, "count": len(shown), "truncated": len(rows) > len(shown)}
