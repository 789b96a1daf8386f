"""Events of triggers with ``overrun`` or ``debounce``: the outcome of each, and the events that wait in a window."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct

from core.db import Connection
from runtime.store.statements import statements

WAITING, MERGED, STARTED, SKIPPED, FAILED = "waiting", "merged", "started", "skipped", "failed"
MISSED = "missed"

_SQL = statements("triggered")
_LOCK = _SQL["lock"]
_FIND = _SQL["find"]
_OPEN = _SQL["open"]
_NOTE = _SQL["note"]
_MERGE = _SQL["merge"]
_HOLD = _SQL["hold"]
_DUE = _SQL["due"]
_EVENTS = _SQL["events"]
_SETTLE = _SQL["settle"]
_WINDOWS_BEGIN = _SQL["windows_begin"]


class Place(Struct, frozen=True):
    """An event for a workflow: its own reference, the business reference, and its place in the inbox."""

    tenant: str
    workflow: str
    trigger_ref: str
    reference: str
    workspace: str
    source: str
    notification: str


class PastOutcome(Struct, frozen=True):
    """The outcome of an event that came before."""

    outcome: str
    run_id: UUID | None
    reason: str | None
    due_at: datetime | None


class Window(Struct, frozen=True):
    """A window whose time is over: its last event, and its first one's reference."""

    workflow: str
    trigger_ref: str
    workspace_id: str
    source: str
    notification_id: str
    window_ref: str


async def lock(connection: Connection, tenant: str, workflow: str, reference: str) -> None:
    """Let nobody else decide about this reference until the transaction ends."""
    await connection.execute(_LOCK, tenant, workflow, reference)


async def find(connection: Connection, tenant: str, workflow: str, trigger_ref: str) -> PastOutcome | None:
    """Find the outcome of this event; None if it has not come before."""
    row = await connection.fetchrow(_FIND, tenant, workflow, trigger_ref)
    return None if row is None else PastOutcome(**row)


async def open_runs(connection: Connection, tenant: str, workflow: str, reference: str) -> list[UUID]:
    """The open runs that the workflow's trigger has started for this reference."""
    return [row["run_id"] for row in await connection.fetch(_OPEN, tenant, workflow, reference)]


async def note(
    connection: Connection, place: Place, outcome: str, run_id: UUID | None = None, reason: str | None = None
) -> None:
    """Store the outcome of an event that did not wait."""
    await connection.execute(_NOTE, *_values(place), outcome, run_id, reason)


async def merge(connection: Connection, place: Place) -> tuple[Any, ...]:
    """Merge the waiting event into this one; return the window's first reference, its end and its beginning."""
    row = await connection.fetchrow(_MERGE, place.tenant, place.workflow, place.reference)
    return (None, None, None) if row is None else tuple(row)


async def hold(connection: Connection, place: Place, span: timedelta) -> datetime:
    """Let the event wait for the end of its reference's window, in place of the waiting event; return that end."""
    began = await merge(connection, place)
    due: datetime = await connection.fetchval(_HOLD, *_values(place), *began, span)
    return due


async def due(connection: Connection, tenant: str, workflow: str, reference: str) -> Window | None:
    """The window of this reference, if its time is over and nobody has ended it. The caller holds its lock."""
    row = await connection.fetchrow(_DUE, tenant, workflow, reference)
    return None if row is None else Window(**row)


async def others(connection: Connection, tenant: str, window: Window) -> list[dict[str, Any]]:
    """The contents of the other events of a window."""
    rows = await connection.fetch(_EVENTS, tenant, window.workflow, window.window_ref, window.notification_id)
    return [row["payload"] for row in rows]


async def settle(
    connection: Connection, tenant: str, window: Window, outcome: str, run_id: UUID | None, reason: str | None
) -> None:
    """Store the outcome of the last event of a window."""
    await connection.execute(_SETTLE, tenant, window.workflow, window.trigger_ref, outcome, run_id, reason)


async def begin_anew(connection: Connection) -> int:
    """Move windows back after the database's clock has gone back; return how many were moved."""
    return int((await connection.execute(_WINDOWS_BEGIN)).rpartition(" ")[2])


def _values(place: Place) -> tuple[str, ...]:
    named = (place.tenant, place.workflow, place.trigger_ref, place.reference)
    return (*named, place.workspace, place.source, place.notification)
