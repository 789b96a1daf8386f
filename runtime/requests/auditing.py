"""Shows a tenant's audit stream. Every read computes the chain of the whole stream again."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from core.db import Connection
from core.errors import InputError, nearest
from core.identity import Directory
from evidence.chain import Actor, ChainHead
from evidence.events import TENANT_EVENTS, EventType
from runtime.requests.finding import names_of
from runtime.store import audit, streams, tenants
from runtime.store.streams import TenantEvent


class EventFilter(Struct, frozen=True):
    """A filter of events by type, person, time (from ``since`` on, before ``until``) and run; without any, all events.

    A type that ends with ``.*`` stands for all types that begin so.
    """

    type: str | None = None
    person: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    run: str | None = None


class Seen(Struct, frozen=True):
    """The events that the filter found, the newest first, and the ``head`` of the whole stream, which was verified."""

    events: Sequence[TenantEvent]
    head: ChainHead


async def look(
    connection: Connection, tenant: str, wanted: EventFilter, actor: Actor, limit: int, before: int | None = None
) -> Seen:
    """Up to ``limit`` events whose place is below ``before``. The read itself is appended to the same stream.

    ``Diverged`` if any part of the stream is not what was written. ``InputError`` for a type that no
    tenant's stream has. A crash before the commit leaves no event, and nothing was shown.
    """
    known = {str(kind) for kind in TENANT_EVENTS}
    known |= {f"{kind.partition('.')[0]}.*" for kind in known}
    if wanted.type is not None and wanted.type not in known:
        raise InputError(f"{wanted.type!r} is no event of a tenant.", where="type", remedy=nearest(wanted.type, known))
    for where, moment in (("since", wanted.since), ("until", wanted.until)):
        if moment is not None and moment.tzinfo is None:
            raise InputError("has no time zone.", where=where, remedy="Such as 2026-11-01T00:00:00Z.")
    people = await tenants.directory(connection, tenant)
    fits = deque[TenantEvent](maxlen=limit)  # the newest fitting events: no more are held, however long the stream is

    def observe(event: TenantEvent, _: str) -> None:
        if (before is None or event["seq"] < before) and _fits(event, wanted, people):
            fits.append(event)

    head = await streams.followed(connection, tenant, observe)
    await audit.record(connection, tenant, EventType.EVIDENCE_READ, actor, {"what": "tenant"})
    return Seen([*reversed(fits)], head)


def _fits(event: TenantEvent, wanted: EventFilter, people: Directory) -> bool:
    at = datetime.fromisoformat(event["ts"])
    return (
        wanted.type in (None, event["type"], f"{event['type'].partition('.')[0]}.*")
        and (wanted.run is None or event["data"].get("run") == wanted.run)
        and (wanted.since is None or at >= wanted.since)
        and (wanted.until is None or at < wanted.until)
        and (wanted.person is None or _names(event, wanted.person, people))
    )


def _names(event: TenantEvent, text: str, people: Directory) -> bool:
    """True if the person acts in the event, or is named by a member of its data."""
    person = people.resolve(text)
    names = {text} if person is None else {text, *names_of(people, person)}
    mentioned = [event["actor"]["id"], *event["data"].values()]
    return any(isinstance(one, str) and (one in names or one.partition(":")[2] in names) for one in mentioned)
