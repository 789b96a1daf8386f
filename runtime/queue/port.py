"""The port of the queue, by which a worker hears of ready steps and leases the next one.

The step's row decides, whatever the queue says: a message that comes twice, late or never only changes when a worker
looks at the step. Every adapter passes the same tests of behaviour in tests/queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol
from uuid import UUID

import asyncpg
from msgspec import Struct

from core.db import Connection


class Delivery(Protocol):
    """One piece of work from the queue."""

    async def claim(self, connection: Connection, owner: str, lease: timedelta, count: int) -> list[asyncpg.Record]:
        """Lease the step that the delivery names, or up to ``count`` ready ones, in one statement. May return none."""

    async def extend(self, lease: timedelta) -> None:
        """Ask the queue to keep the message hidden. Advisory: the lease is what counts."""

    async def done(self) -> None:
        """Take the message off the queue: its step was claimed and settled, or there was nothing to claim."""


class WorkQueue(Protocol):
    """The source of deliveries. Safe for several concurrent receivers.

    ``needs_dispatch``: steps have to be sent to the queue, because workers do not lease them by themselves.
    """

    needs_dispatch: bool

    async def receive(self, count: int) -> Sequence[Delivery]:
        """Up to ``count`` deliveries; waits a bounded time for the first, and may return none."""

    async def sent(self, messages: list[tuple[str, str, str]]) -> list[str]:
        """Send messages (dedupe key, group, step id); return the dedupe keys of those that were certainly accepted."""


class DeadLetter(Struct, frozen=True):
    """A message that the queue has given up, because it was received too often and never deleted.

    ``step_id`` is None if the message is not from Counterseal; ``body`` is its raw text. ``handle`` identifies it for
    deletion.
    """

    message_id: str
    step_id: UUID | None
    body: str
    handle: str


class DeadLetters(Protocol):
    """The messages that the queue has given up. Safe for several concurrent readers."""

    async def receive(self) -> Sequence[DeadLetter]:
        """Receive dead letters, hiding them from others for a while. May return none; waits for a second at most."""

    async def delete(self, letter: DeadLetter) -> None:
        """Delete a dead letter for good. If that fails, it comes again."""


@dataclass(frozen=True, slots=True)
class Depth:
    """The number of messages in a queue, by its own approximate count."""

    waiting: int
    in_flight: int
    delayed: int
