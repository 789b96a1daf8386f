"""Reads the database of the chaos test from outside."""

from __future__ import annotations

import asyncio
import json
import zlib
from typing import Any

import asyncpg

# A row for each action that was intended, by the last line that moved it; ``{0}`` narrows the lines.
RECEIPTS = """
SELECT DISTINCT ON (run_id, receipt) l.run_id, t.line->>'step' AS step, t.line->'data'->>'receipt' AS receipt, l.type
FROM run_lines l, CAST(convert_from(l.line, 'UTF8') AS json) AS t(line)
WHERE l.type IN ('action.intended', 'action.succeeded', 'action.failed', 'action.in_doubt', 'action.doubt_resolved') {0}
ORDER BY run_id, receipt, l.seq DESC"""
_UNDER_WAY = "AND l.run_id IN (SELECT r.run_id FROM runs r WHERE r.finished_at IS NULL)"
# The actions in doubt of unfinished runs, each with the values of its first intent, which hold the proposed action.
DOUBTS = f"""
SELECT d.run_id, d.step, d.receipt, i.vals, i.number FROM ({RECEIPTS.format(_UNDER_WAY)}) d
CROSS JOIN LATERAL (
  SELECT j.vals, l.seq - j.first_seq AS number FROM run_lines l JOIN journal j USING (run_id, n)
  WHERE l.run_id = d.run_id AND l.type = 'action.intended' AND position(d.receipt IN convert_from(l.line, 'UTF8')) > 0
  ORDER BY l.seq LIMIT 1) i
WHERE d.type = 'action.in_doubt'"""
# The kind of each approval's question, from the line that asked it.
KINDS = """
SELECT l.run_id, t.line->'data'->>'approval' AS approval, t.line->'data'->>'kind' AS kind
FROM run_lines l, CAST(convert_from(l.line, 'UTF8') AS json) AS t(line) WHERE l.type = 'approval.requested'"""
AWAY = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, TimeoutError)


def proposed(doubt: asyncpg.Record) -> Any:
    """The action of a row of ``DOUBTS``, as it was proposed."""
    return json.loads(zlib.decompress(doubt["vals"]))[str(doubt["number"])]["proposed"]


class Eyes:
    """Reads the database as its owner, over one connection that is reopened if it is lost."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._lock = asyncio.Lock()

    async def all(self, sql: str, *parameters: Any) -> list[asyncpg.Record]:
        """The rows. Raises one of ``AWAY`` while the database is unavailable."""
        async with self._lock:
            if self._connection is None or self._connection.is_closed():
                self._connection = await asyncpg.connect(self._url, timeout=5)
            try:
                return list(await self._connection.fetch(sql, *parameters, timeout=15))
            except AWAY:
                self._connection.terminate()
                self._connection = None
                raise

    async def one(self, sql: str, *parameters: Any) -> Any:
        """The first value of the first row."""
        return (await self.all(sql, *parameters))[0][0]

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.terminate()
