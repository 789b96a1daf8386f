"""Reads lists of records to their end, although an instance silently caps each answer, and hides rows from our user."""

from __future__ import annotations

from dataclasses import dataclass, field

import orjson

from connectors.exchange import deadline_in, seconds_to
from connectors.port import Done, NotSent, Refused
from connectors.servicenow.client import Page, TableClient
from core.canonical import VALUE_BYTES_MAX, Json, JsonObject

PAGE_ROWS = 250
PAGES_MAX = 200
# The limits of one list, even if the caller asks for more.
ROWS_MAX = 10_000
BYTES_MAX = VALUE_BYTES_MAX - 16 * 1024
_ID, _ORDER = "sys_id", "ORDERBYsys_id"


@dataclass
class Listing:
    """One list: all that the query selects, or the first ``limit`` rows from ``offset`` on.

    Pages come in the order of the rows' ids, because without an order two pages may hold one row twice and another one
    not at all. An instance may give fewer rows than it is asked for, so the next page begins where the last one ended.
    The query for a list that fits one page is sent as the caller wrote it.
    """

    client: TableClient
    table: str
    query: str
    fields: tuple[str, ...]
    limit: int | None
    offset: int
    _rows: list[JsonObject] = field(default_factory=list)
    _seen: set[Json] = field(default_factory=set)
    _bytes: int = 0
    _cut: bool = False

    @property
    def _alone(self) -> bool:
        return self.limit is not None and self.limit <= PAGE_ROWS

    async def read(self, timeout_seconds: float) -> Done | Refused | NotSent:
        """Read the list. The output has ``truncated`` if the query selects more than ``records`` holds."""
        most, at = ROWS_MAX if self.limit is None else min(self.limit, ROWS_MAX), self.offset
        deadline, left = deadline_in(timeout_seconds), timeout_seconds
        for _ in range(PAGES_MAX):
            page = await self._page(min(PAGE_ROWS, most - len(self._rows)), at, left)
            if not isinstance(page, Page):
                return page
            fresh, total, left = self._take(page.rows, most), page.total, seconds_to(deadline)
            at += len(page.rows) or PAGE_ROWS  # an empty page in the middle: our user may see none of that page's rows
            # Without a total from the instance, only an empty page shows the end of the list.
            more = fresh if total is None else at < total
            if self._alone or not more or self._cut or len(self._rows) >= most:
                break
        uncounted = more and (not self._alone or len(self._rows) >= most)
        missing = uncounted if total is None else len(self._rows) < total - self.offset
        return Done(self._output(total, truncated=missing or self._cut))

    async def _page(self, limit: int, offset: int, seconds: float) -> Page | Refused | NotSent:
        query, fields = self.query, self.fields
        if not self._alone:
            query = query if _ORDER in query else f"{query}^{_ORDER}".lstrip("^")
            fields = fields if not fields or _ID in fields else (*fields, _ID)
        return await self.client.page(self.table, query, fields, limit=limit, offset=offset, timeout_seconds=seconds)

    def _take(self, rows: list[JsonObject], most: int) -> bool:
        """Keep the new rows, as far as one output can hold them; True if there were new ones."""
        before = len(self._rows)
        for row in rows:
            key = row.get(_ID)
            if key is not None and key in self._seen:
                continue
            size = len(orjson.dumps(row)) + 1
            if len(self._rows) == most or (self._rows and self._bytes + size > BYTES_MAX):
                self._cut = True
                break
            self._seen.add(key)
            self._bytes += size
            self._rows.append(row)
        return len(self._rows) > before

    def _output(self, total: int | None, *, truncated: bool) -> JsonObject:
        given = bool(self.fields) and _ID not in self.fields and not self._alone
        rows: list[Json] = [
            {name: value for name, value in row.items() if name != _ID} if given else row for row in self._rows
        ]
        output: JsonObject = {"records": rows, "count": len(rows), "truncated": truncated}
        return output if total is None else {**output, "total": total}
