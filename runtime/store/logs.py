"""Reads and orders the leaves of the tenants' logs, and keeps copies of signed checkpoints.

The leaves are written by triggers of the database, in the transaction of the fact that they record.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import orjson
from msgspec import Struct

from core.db import Connection
from core.errors import ConsistencyError
from evidence.log.leaves import Leaf, LeafKind
from runtime.store.statements import statements

_SQL = statements("logs")
_MOVED = _SQL["moved"]
_ORDER = _SQL["order"]
_PAGE = _SQL["page"]
_COUNTED = _SQL["counted"]
_WITHOUT_PLACE = _SQL["without_place"]
_UNORDERED = _SQL["unordered"]
_COUNTER = _SQL["counter"]
_KEEP = _SQL["keep"]
_CHECKPOINT = _SQL["checkpoint"]
_TENANTS = _SQL["tenants"]
_RUNS = _SQL["runs"]
_BOOK = _SQL["book"]
_ELSEWHERE = _SQL["elsewhere"]
_BUNDLES = _SQL["bundles"]
_IN_FORCE = _SQL["in_force"]
_MONITORED = _SQL["monitored"]
_LINES = _SQL["lines"]
_HEAD = _SQL["head"]
_BOOK_AND_VALUES = _SQL["book_and_values"]
_BEGUN = _SQL["begun"]
_RECEIVED = _SQL["received"]
_ACTIVE = _SQL["active"]

PAGE = 5000
_KINDS = frozenset(map(str, LeafKind))
_BATCH = 1000


class Unordered(Struct, frozen=True):
    """The number of leaves without a place, the time since which the oldest of them waits, and the database's time."""

    waiting: int
    since: datetime | None
    now: datetime


async def note_moved(connection: Connection, within: timedelta | None = None) -> int:
    """Write a leaf for each open run whose head has moved since its last one; return how many.

    Runs without an append for longer than ``within`` are not looked at. After a crash the next call does the work.
    """
    return int(await connection.fetchval(_MOVED, within))


async def order(connection: Connection, tenant: str) -> int:
    """Give the tenant's leaves their order; return how many got a place. A crash leaves the rest for the next call."""
    count = 0
    while met := int(await connection.fetchval(_ORDER, tenant)):
        count += met
        if met < _BATCH:
            break
    return count


async def leaves(connection: Connection, tenant: str, first: int = 0) -> AsyncIterator[tuple[int, Leaf]]:
    """The ordered leaves from this place on, each with its place in the database."""
    place = first
    while rows := await connection.fetch(_PAGE, tenant, place, PAGE):
        for row in rows:
            yield row["place"], _leaf(row)
        place = rows[-1]["place"] + 1


async def counted(connection: Connection, tenant: str, first: int, runs: Iterable[str]) -> dict[str | None, int]:
    """The number of lines that leaves before this place cover: by run, and under None for the tenant's stream."""
    rows = await connection.fetch(_COUNTED, tenant, first, [UUID(run) for run in runs])
    return {None if row["run_id"] is None else str(row["run_id"]): row["count"] for row in rows}


def _leaf(row: asyncpg.Record) -> Leaf:
    if row["kind"] not in _KINDS:
        words = f"A leaf of the log of {row['tenant_id']} is of the kind {row['kind'][:40]!r}, which nobody writes."
        raise ConsistencyError(words, remedy="Somebody has written behind the database's triggers.")
    run = None if row["run_id"] is None else str(row["run_id"])
    head = bytes(row["head"]).hex()
    return Leaf(row["tenant_id"], LeafKind(row["kind"]), row["count"], head, row["at"], run, row["number"])


async def without_place(connection: Connection, tenant: str) -> list[Leaf]:
    """The leaves that the keeper has not ordered yet."""
    return [_leaf(row) for row in await connection.fetch(_WITHOUT_PLACE, tenant)]


async def unordered(connection: Connection, tenant: str) -> Unordered:
    """The number of leaves that the keeper has not ordered yet, with their age."""
    row = await connection.fetchrow(_UNORDERED, tenant)
    assert row is not None, "an aggregate has a row"
    return Unordered(**row)


async def opened(connection: Connection, tenant: str) -> int:
    """The number of the run that the tenant opened last."""
    return int(await connection.fetchval(_COUNTER, tenant) or 0)


async def keep(connection: Connection, tenant: str, size: int, note: bytes) -> None:
    """Keep a copy of a signed checkpoint. A crash before the commit leaves none: the signer's next turn writes it."""
    await connection.execute(_KEEP, tenant, size, note)


async def checkpoint(connection: Connection, tenant: str) -> bytes | None:
    """The newest signed checkpoint of which the database has a copy."""
    row = await connection.fetchrow(_CHECKPOINT, tenant)
    return None if row is None else bytes(row["note"])


async def tenants(connection: Connection) -> list[str]:
    """The tenants that this login sees."""
    return [row["tenant_id"] for row in await connection.fetch(_TENANTS)]


async def runs(connection: Connection, tenant: str) -> AsyncIterator[asyncpg.Record]:
    """The rows of all runs of a tenant, with the columns that a log covers."""
    after = UUID(int=0)
    while rows := await connection.fetch(_RUNS, tenant, after, PAGE):
        for row in rows:
            yield row
        after = rows[-1]["run_id"]


async def book(connection: Connection, run_id: UUID) -> list[list[bytes]]:
    """The lines of each append of a run."""
    return [bytes(row["lines"]).split(b"\n") for row in await connection.fetch(_BOOK, run_id)]


async def tenant_of(connection: Connection, run_id: UUID) -> str | None:
    """The tenant of a run by its row; None if this login does not see the run."""
    found: str | None = await connection.fetchval(_ELSEWHERE, run_id)
    return found


async def bundles(connection: Connection, tenant: str) -> list[asyncpg.Record]:
    """The places of a tenant's bundles, as the database names them."""
    return list(await connection.fetch(_BUNDLES, tenant))


async def in_force(connection: Connection, tenant: str) -> asyncpg.Record | None:
    """The policies, directory and pauses in force by the tenant's row; None if there is no such tenant."""
    return await connection.fetchrow(_IN_FORCE, tenant)


async def monitored(connection: Connection, tenant: str) -> dict[str, Any] | None:
    """The line of the last comparison of log, database and store; None if there was none."""
    line = await connection.fetchval(_MONITORED, tenant)
    return None if line is None else dict(orjson.loads(line))


async def lines(connection: Connection, tenant: str, places: Sequence[int]) -> list[bytes]:
    """The lines of a tenant's stream at these places, in order."""
    return [bytes(row["line"]) for row in await connection.fetch(_LINES, tenant, list(places))]


async def head(connection: Connection, run_id: UUID) -> str | None:
    """The head of a run's book."""
    found: str | None = await connection.fetchval(_HEAD, run_id)
    return found


async def book_and_values(connection: Connection, run_id: UUID) -> list[tuple[list[bytes], bytes | None]]:
    """The lines of each append of a run, with their values as they are stored."""
    rows = await connection.fetch(_BOOK_AND_VALUES, run_id)
    return [(bytes(row["lines"]).split(b"\n"), row["vals"]) for row in rows]


async def begun(connection: Connection, tenant: str) -> dict[tuple[str, str], UUID]:
    """The runs that ServiceNow triggers have started, by workflow and by trigger reference without its endpoint."""
    rows = await connection.fetch(_BEGUN, tenant)
    return {(row["workflow"], row["trigger_ref"].partition(":")[2]): row["run_id"] for row in rows}


async def received(connection: Connection, tenant: str) -> set[tuple[str, str, str, str | None]]:
    """The received events of ServiceNow records: table, kind, record, and the record's count of changes."""
    rows = await connection.fetch(_RECEIVED, tenant)
    return {(row["named"], row["kind"], row["sys_id"], row["changed"]) for row in rows}


async def active(connection: Connection, tenant: str, since: datetime, until: datetime) -> list[UUID]:
    """The runs that may have performed something in a period."""
    return [row["run_id"] for row in await connection.fetch(_ACTIVE, tenant, since, until)]
