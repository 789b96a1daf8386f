"""Reads a tenant's whole audit stream, and computes its chain again. All who show the stream read it through here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import asyncpg
from msgspec import Struct

from core.db import Connection
from core.errors import NotFoundError
from evidence.chain import ChainHead, verify_lines
from runtime.engine.book.recorded import Diverged
from runtime.store.claims import aside
from runtime.store.statements import statements

_SQL = statements("streams")
_STREAM = _SQL["stream"]
# A line of the stream, parsed, with its place as ``seq``.
TenantEvent: TypeAlias = dict[str, Any]


class Stream(Struct, frozen=True):
    """Every event of a tenant's stream, in order, and the head to which they come; ``heads`` are those after each."""

    head: ChainHead
    events: Sequence[TenantEvent]
    heads: Sequence[str] = ()


async def read(connection: Connection, tenant: str) -> Stream:
    """The stream as it is at one moment.

    ``Diverged`` names the first line that is not the one that was written, or is missing. ``NotFoundError`` without
    such a tenant.
    """
    row = await connection.fetchrow(_STREAM, tenant)
    if row is None:
        raise NotFoundError(f"There is no tenant {tenant!r}.", remedy="Create it with `counterseal tenant create`.")
    return await aside(row["audit_count"], lambda: _checked(tenant, row), connection)


def _checked(tenant: str, row: asyncpg.Record) -> Stream:
    lines, count = row["lines"] or [], row["audit_count"]
    head = ChainHead.of(f"tenant:{tenant}")
    if not count and not lines:
        return Stream(head, ())
    for number, (place, line, after) in enumerate(zip(row["places"] or (), lines, row["heads"] or (), strict=True)):
        if place != number:
            raise _broken(f"line {number + 1} is missing")
        head = head.after([line])
        if head.hash != after:
            raise _broken(
                f"line {number + 1} does not come to the hash beside it: it, or a line before it, was changed"
            )
    if len(lines) < count:
        raise _broken(f"line {len(lines) + 1} is missing: the tenant's row counts {count} lines")
    stored, events = ChainHead(head.stream, count, row["audit_head"]), list[TenantEvent]()
    report = verify_lines(stored, lines, [1] * len(lines), events.append)
    if not report.ok:
        raise _broken(str(report.problem))
    for event, kind in zip(events, row["types"], strict=True):
        if event["type"] != kind:
            raise _broken(f"line {event['seq'] + 1} is {event['type']}, and the column beside it says {kind}")
    return Stream(stored, events, row["heads"] or ())


def _broken(words: str) -> Diverged:
    return Diverged(f"The tenant's audit chain is broken: {words}", "chain")
