"""The PostgreSQL queue: workers lease steps themselves, woken by NOTIFY; there is no hop."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg

from core.clock import rest
from core.db import Connection
from runtime.store import claims


class PostgresDelivery:
    """A turn to look for steps."""

    async def claim(self, connection: Connection, owner: str, lease: timedelta, count: int) -> list[asyncpg.Record]:
        """Lease ready steps of the tenant whose turn it is."""
        return await claims.claim_next(connection, owner, lease, count)

    async def extend(self, lease: timedelta) -> None:
        """Nothing is hidden, so nothing is to be extended."""

    async def done(self) -> None:
        """There is no message."""


class PostgresQueue:
    """Hands out one turn per wake-up, and one after ``idle`` in case a wake-up was lost.

    Who finds something to claim wakes the queue again, so a burst is worked off by as many as there are places for,
    and the end of it costs one look in vain.
    """

    needs_dispatch = False

    def __init__(self, *, idle: timedelta = timedelta(seconds=5)) -> None:
        self._idle = idle.total_seconds()
        self._woken = asyncio.Event()
        self._woken.set()

    def wake(self) -> None:
        """Something may have become ready. Called on NOTIFY, and by a worker that has just claimed a step."""
        self._woken.set()

    async def receive(self, count: int) -> list[PostgresDelivery]:
        """One turn, once there is reason to look."""
        await rest(self._woken, self._idle)
        self._woken.clear()
        return [PostgresDelivery()]

    async def sent(self, messages: list[tuple[str, str, str]]) -> list[str]:
        """Steps stay where they are."""
        return []
