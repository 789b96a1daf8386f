"""The port: how a worker hears of ready steps, and how it leases the next one.

Whatever the queue says, the step's row decides (Q-11): a message that comes twice, late or never changes nothing but
the time at which a step is looked at. Every adapter passes tests/queue's one behaviour suite.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

import asyncpg

from core.db import Connection


class Delivery(Protocol):
    """One thing to do, as the queue gave it."""

    async def claim(self, connection: Connection, owner: str, lease: timedelta) -> asyncpg.Record | None:
        """Lease the step in the caller's transaction; None if there is nothing to do (any more)."""

    async def extend(self, lease: timedelta) -> None:
        """Ask the queue to keep the message hidden. Advisory: the lease is what counts (Q-11)."""

    async def done(self) -> None:
        """Take the message off the queue: its step was claimed and settled, or there was nothing to claim."""


class WorkQueue(Protocol):
    """Where deliveries come from. Safe for several concurrent receivers."""

    async def receive(self, count: int) -> Sequence[Delivery]:
        """Up to ``count`` deliveries; waits a bounded time for the first, and may return none."""

    async def sent(self, messages: list[tuple[str, str, str]]) -> list[str]:
        """Send ``(dedupe key, group, step id)`` each; the dedupe keys that were certainly accepted."""

    @property
    def needs_dispatch(self) -> bool:
        """Whether step commands have to be moved to the queue, because workers do not lease them by themselves."""

    async def aclose(self) -> None:
        """Release connections."""
