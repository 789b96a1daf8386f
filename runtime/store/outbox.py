"""The outbox: leases commands that are messages, and records how their delivery ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from math import inf
from time import monotonic
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
from msgspec import Struct

from core.canonical import JsonObject
from core.db import Connection
from core.ids import new_id
from runtime.engine.model.states import CommandState
from runtime.store.statements import statements

_SQL = statements("outbox")
_LEASE_IN_TURN = _SQL["lease_in_turn"]
_LEASE_ONLY = _SQL["lease_only"]
_END_SHOWN = _SQL["end_shown"]
_END = _SQL["end"]
_AGAIN = _SQL["again"]
_GIVE_UP = _SQL["give_up"]
_GIVEN_UP = _SQL["given_up"]
_DEAD = _SQL["dead"]
_ORDER = _SQL["order"]
_PAYLOAD = _SQL["payload"]
_ELDEST = _SQL["eldest"]
_NOTICE = _SQL["notice"]
_NOTICED = _SQL["noticed"]

# A tenant and a kind.
Lane: TypeAlias = tuple[str, str]


class Message(Struct, frozen=True):
    """A leased command. ``attempts`` counts this one too; ``behind`` are the commands of its kind that wait for it.

    ``until`` is the deadline of its delivery by the monotonic clock: soon after, another dispatcher may deliver it.
    """

    command_id: UUID
    tenant_id: str
    run_id: UUID | None
    kind: str
    payload: Mapping[str, Any]
    attempts: int
    created_at: float
    behind: tuple[UUID, ...] = ()
    until: float = inf

    @property
    def late(self) -> bool:
        """True if this process paused for so long that another dispatcher may be delivering it."""
        return monotonic() > self.until

    @property
    def lane(self) -> Lane:
        """The tenant and kind of the message; lanes take turns."""
        return self.tenant_id, self.kind


async def lease_message(
    connection: Connection, owner: str, lease: timedelta, after: Lane, full: list[str], *, only: UUID | None = None
) -> Message | None:
    """Lease a message that is due, or ``only`` this one; None if there is none.

    It leases the message that has been due longest in the next lane after ``after`` that has a due one. Kinds and lanes
    (``tenant:kind``) in ``full`` are skipped. If another dispatcher is faster, the connection's transaction is aborted.
    """
    chosen = (_LEASE_IN_TURN, owner, lease, *after, full) if only is None else (_LEASE_ONLY, owner, lease, only)
    try:
        row = await connection.fetchrow(*chosen)
    except asyncpg.UniqueViolationError:
        return None
    if row is None:
        return None
    return Message(**{**row, "created_at": row["created_at"].timestamp(), "behind": tuple(row["behind"] or ())})


async def end_message(
    connection: Connection, message: Message, status: CommandState, error: str | None, again_in: timedelta
) -> bool:
    """Record how a delivery ended: dispatched, failed, or pending again after ``again_in``. False if the lease is lost.

    Each lease is another attempt, even if the same dispatcher takes it, so ``attempts`` identifies the lease.
    """
    ended = (message.command_id, message.attempts, status, error, again_in)
    return await connection.fetchrow(_END, *ended) is not None


async def end_shown(connection: Connection, message: Message, about: Sequence[UUID] | None = None) -> None:
    """End the messages that a delivered one makes superfluous, because it shows what they would have shown.

    With ``about``, only messages about these approvals are ended.
    """
    if message.behind:
        shown = None if about is None else [str(one) for one in about]
        await connection.execute(_END_SHOWN, list(message.behind), shown)


async def order(
    connection: Connection,
    tenant: str,
    run_id: UUID,
    kind: str,
    payload: JsonObject,
    command_id: UUID | None = None,
    ordering_key: str | None = None,
) -> None:
    """Order a message inside the caller's transaction. The same ``command_id`` orders one message only."""
    given = (command_id or new_id(), tenant, run_id, kind, payload, ordering_key)
    await connection.execute(_ORDER, *given)


async def payload_of(connection: Connection, commands: Sequence[UUID]) -> JsonObject:
    """The payload of the newest of these messages."""
    found: JsonObject = await connection.fetchval(_PAYLOAD, list(commands))
    return found


async def eldest(connection: Connection, commands: Sequence[UUID]) -> tuple[datetime, datetime]:
    """The earliest ``at`` in the payloads of these messages, and the time now."""
    row = await connection.fetchrow(_ELDEST, list(commands))
    assert row is not None, "an aggregate is one row"
    return row["since"], row["now"]


class Shown(Struct, frozen=True):
    """The newest notice to a person on a topic: its place, the time of its first event, and its number of events."""

    channel: str
    message_ts: str
    began_at: datetime
    count: int


async def notice(connection: Connection, tenant: str, person: str, topic: str, window: timedelta) -> Shown | None:
    """The notice to this person on this topic, if it began within the window; else None."""
    row = await connection.fetchrow(_NOTICE, tenant, person, topic, window)
    return None if row is None else Shown(**row)


async def noticed(connection: Connection, tenant: str, person: str, topic: str, shown: Shown) -> None:
    """Store a notice, in the transaction that ends its message: so a crash before the commit counts nothing twice."""
    place = (shown.began_at, shown.channel, shown.message_ts, shown.count)
    await connection.execute(_NOTICED, tenant, person, topic, *place)


async def dead(connection: Connection, tenant: str | None, kind: str | None, most: int) -> list[dict[str, Any]]:
    """Messages that failed for good, the oldest first, each with run and last error; of one kind, or of all (None)."""
    return [dict(row) for row in await connection.fetch(_DEAD, tenant, kind, most)]


async def send_again(
    connection: Connection, tenant: str | None, kind: str | None, message: UUID | None = None
) -> list[dict[str, Any]]:
    """Let messages that failed for good be sent again; the counts by tenant and kind. None means any kind or message.

    It is one statement: after a crash all of them are sent again or none, and the caller repeats the call.
    """
    rows = await connection.fetch(_AGAIN, tenant, kind, message)
    return [{name: row[name] for name in ("tenant", "kind", "count")} for row in rows]


async def give_up(connection: Connection, message: UUID, never: Sequence[str]) -> asyncpg.Record | None:
    """Let a message that failed for good be sent no more, in the caller's transaction; return its tenant, kind and run.

    None if there is no such message, or if its kind is in ``never``.
    """
    found = await connection.fetchrow(_GIVE_UP, message, [*never])
    if found is not None:
        await connection.execute(_GIVEN_UP, message)
    return found
