"""Reads a tenant's whole audit stream in pages, and computes its chain again. Everything that shows it uses this."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
from msgspec import Struct

from core.db import Connection
from core.errors import NotFoundError
from evidence.chain import ChainHead, ChainReport
from runtime.engine.book.recorded import Diverged
from runtime.store.offload import offload
from runtime.store.statements import statements

_SQL = statements("streams")
_HEAD = _SQL["head"]
_PAGE = _SQL["page"]
_COUNTED = _SQL["counted"]
# The most lines that are held at once, however long the stream is.
PAGE = 1000
# A line of the stream, parsed, with its place as ``seq``.
TenantEvent: TypeAlias = dict[str, Any]


class Stream(Struct, frozen=True):
    """Every event of a tenant's stream in order, and the head of the chain; ``heads`` has the head after each event."""

    head: ChainHead
    events: Sequence[TenantEvent]
    heads: Sequence[str] = ()


async def read(connection: Connection, tenant: str) -> Stream:
    """The whole stream as it is at one moment. Errors as for ``followed``."""
    events, heads = list[TenantEvent](), list[str]()

    def observe(event: TenantEvent, head: str) -> None:
        events.append(event)
        heads.append(head)

    return Stream(await followed(connection, tenant, observe), events, heads)


async def followed(connection: Connection, tenant: str, observe: Callable[[TenantEvent, str], None]) -> ChainHead:
    """Verify the stream page by page; return the head of the whole stream.

    ``observe`` gets each event and the head after it; they are proven only when this returns. ``Diverged`` names the
    first line that was altered or is missing. ``NotFoundError`` if there is no such tenant.
    """
    row = await connection.fetchrow(_HEAD, tenant)
    if row is None:
        raise NotFoundError(f"There is no tenant {tenant!r}.", remedy="Create it with `counterseal tenant create`.")
    stream, count = f"tenant:{tenant}", row["audit_count"]
    report = ChainReport(stream, ChainHead.of(stream).hash)
    while report.count < count:
        rows = await _page(connection, row["stream_id"], report.count, min(report.count + PAGE, count))
        if not rows:
            raise _broken(f"line {report.count + 1} is missing: the tenant's row counts {count} lines")
        await offload(len(rows), partial(_follow, report, rows, observe), connection)
    if count and report.head != row["audit_head"]:
        raise _broken("its lines do not come to the head in the tenant's row")
    if not await connection.fetchval(_COUNTED, tenant):
        raise _broken(f"there are more than the {count} lines that the tenant's row counts up to its head")
    return ChainHead(stream, count, report.head)


async def _page(connection: Connection, stream: UUID, first: int, end: int) -> list[asyncpg.Record]:
    return list(await connection.fetch(_PAGE, stream, first, end))


def _follow(report: ChainReport, rows: Sequence[asyncpg.Record], observe: Callable[[TenantEvent, str], None]) -> None:
    """Check the lines of a page, each against the chain and against the other columns of its row."""
    for row in rows:
        place, events = report.count + 1, list[TenantEvent]()
        if row["seq"] != report.count:
            raise _broken(f"line {place} is missing")
        if not report.follow(iter([row["line"]]), [1], events.append):
            raise _broken(str(report.problem))
        if report.head != row["hash"]:
            raise _broken(f"line {place} does not come to the hash beside it: it, or a line before it, was changed")
        (event,) = events
        if event["type"] != row["type"]:
            raise _broken(f"line {place} is {event['type']}, and the column beside it says {row['type']}")
        observe(event, report.head)


def _broken(words: str) -> Diverged:
    return Diverged(f"The tenant's audit chain is broken: {words}", "chain")
