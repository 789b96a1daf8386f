"""The PostgreSQL queue: workers lease steps themselves, woken by NOTIFY; there are no messages."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg

from core.clock import rest
from core.db import Connection
from runtime.store import claims


class PostgresDelivery:
    """A permission to look for ready steps once."""

    async def claim(self, connection: Connection, owner: str, lease: timedelta, count: int) -> list[asyncpg.Record]:
        """Lease ready steps of the tenant whose turn it is."""
        return await claims.claim_next(connection, owner, lease, count)

    async def extend(self, lease: timedelta) -> None:
        """No-op: nothing is hidden."""

    async def done(self) -> None:
        """No-op: there is no message."""


class PostgresQueue:
    """Hands out one look for steps per wake-up, and one after ``idle`` in case a wake-up was lost.

    A worker that finds something to claim wakes the queue again. So a burst of steps fills all free places, and costs
    only one useless look at its end.
    """

    needs_dispatch = False

    def __init__(self, *, idle: timedelta = timedelta(seconds=5)) -> None:
        self._idle = idle.total_seconds()
        self._woken = asyncio.Event()
        self._woken.set()

    def wake(self) -> None:
        """Have a worker look for steps. Called on NOTIFY, and by a worker that has just claimed a step."""
        self._woken.set()

    async def receive(self, count: int) -> list[PostgresDelivery]:
        """Return one look for steps, after a wake-up or when ``idle`` has passed."""
        await rest(self._woken, self._idle)
        self._woken.clear()
        return [PostgresDelivery()]

    async def sent(self, messages: list[tuple[str, str, str]]) -> list[str]:
        """No-op: steps stay where they are."""
        return []
