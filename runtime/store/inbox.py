"""Notifications from outside, recorded before they are acted on, and the waits that they end, by correlation key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct

from core.canonical import JsonObject
from core.db import Connection
from runtime.store.statements import statements

# A signal is kept this long for a wait that does not exist yet.
KEPT_FOR = timedelta(days=30)
# Every sweep looks at this many of the newest kept signals.
NEWEST = 1000

_SQL = statements("inbox")
_RECORD = _SQL["record"]
_READ = _SQL["read"]
_PROCESSED = _SQL["processed"]
_ADD = _SQL["add"]
_EMPTY = _SQL["empty"]
_RESERVE_FOR = _SQL["reserve_for"]
_FIND = _SQL["find"]
_NAMED = _SQL["named"]
_TENANT_OF = _SQL["tenant_of"]
_UNSTARTED = _SQL["unstarted"]
_TIMES_OF = _SQL["times_of"]


class Notice(Struct, frozen=True):
    """A kept notification. ``result`` is its outcome; None while it has none."""

    payload: Mapping[str, Any]
    result: Mapping[str, Any] | None
    correlation_key: str | None
    processed: bool
    received_at: datetime


class FoundWait(Struct, frozen=True):
    """The wait with a correlation key. ``parked``: its step still waits for it. ``going``: its run is open."""

    wait_id: UUID
    run_id: UUID
    step_key: str
    kind: str
    token: str
    waiting: bool
    parked: bool
    going: bool


class StoredSignal(Struct, frozen=True):
    """A kept signal, and the run that waits for it by now; the run is None if the signal was kept for too long."""

    tenant_id: str
    source: str
    notification_id: str
    run_id: UUID | None


async def record(
    connection: Connection, tenant: str, source: str, notice_id: str, payload: JsonObject, key: str | None = None
) -> bool:
    """Keep a notification under its own id; False if it was kept before."""
    return await connection.fetchrow(_RECORD, tenant, source, notice_id, payload, key) is not None


async def read(connection: Connection, tenant: str, source: str, notice_id: str) -> Notice | None:
    """A notification that was kept."""
    row = await connection.fetchrow(_READ, tenant, source, notice_id)
    return None if row is None else Notice(**row)


async def processed(connection: Connection, tenant: str, source: str, notice_id: str, result: JsonObject) -> None:
    """Store that a notification was acted on, or never will be; ``result`` says which."""
    await connection.execute(_PROCESSED, tenant, source, notice_id, result)


async def add(
    connection: Connection, tenant: str, source: str, notice_id: str, member: str, item: JsonObject | str
) -> None:
    """Add ``item`` to a list in the result of a notification that waited for others. Under the engine's role."""
    await connection.execute(_ADD, tenant, source, notice_id, member, [item])


async def empty(connection: Connection, tenant: str, source: str, notice_id: str) -> None:
    """Remove the content of a notification; its id and its result stay. Under the engine's role."""
    await connection.execute(_EMPTY, tenant, source, notice_id)


async def reserve_for(connection: Connection, tenant: str, source: str, notice_id: str, run: JsonObject) -> None:
    """Store which run a kept notification is for: the one in ``run``; if that is null, any run that exists now."""
    await connection.execute(_RESERVE_FOR, tenant, source, notice_id, run)


async def find(
    connection: Connection, tenant: str, key: str, kinds: Sequence[str], stored: Notice | None = None
) -> FoundWait | None:
    """The wait of one of these kinds that a notification with this key is for: an open one, or else the newest.

    A notification that was ``stored`` ends only waits of the runs for which it was kept.
    """
    limits = (None, None) if stored is None or stored.result is None else (stored.result["run"], stored.received_at)
    row = await connection.fetchrow(_FIND, tenant, key, list(kinds), *limits)
    return None if row is None else FoundWait(**row)


async def times_of(connection: Connection, wait_id: UUID) -> tuple[datetime, datetime | None, datetime]:
    """The beginning of a wait, its deadline, and the time now."""
    row = await connection.fetchrow(_TIMES_OF, wait_id)
    assert row is not None, "it was found just now"
    return row[0], row[1], row[2]


async def find_named(
    connection: Connection, tenant: str, key: str, kinds: Sequence[str], token: str | None, version: int | None
) -> FoundWait | None:
    """The wait with this key and this token, or opened by the commit with this version; None if there is none.

    The first line that names a wait opens it.
    """
    row = await connection.fetchrow(_NAMED, tenant, key, list(kinds), token, version)
    return None if row is None else FoundWait(**row)


async def tenant_of(connection: Connection, key: str) -> str | None:
    """The tenant whose run started the outside process with this key; None if no run did.

    Under the engine's role, which sees all tenants.
    """
    tenant: str | None = await connection.fetchval(_TENANT_OF, key)
    return tenant


async def unstarted(connection: Connection, tenant: str) -> list[tuple[str, int, str, datetime]]:
    """The workflows that recent events could not start: name, version, the newest reason, and the event's time."""
    return [tuple(row) for row in await connection.fetch(_UNSTARTED, tenant)]
