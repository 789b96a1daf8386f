"""The PostgreSQL queue: workers lease step commands themselves with SKIP LOCKED, woken by NOTIFY; there is no hop."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg

from core.db import Connection
from runtime.store import claims


class PostgresDelivery:
    """A turn to look for the fairest ready step."""

    async def claim(self, connection: Connection, owner: str, lease: timedelta) -> asyncpg.Record | None:
        """Lease the fairest ready step of all tenants."""
        return await claims.claim_next(connection, owner, lease)

    async def extend(self, lease: timedelta) -> None:
        """Nothing is hidden, so nothing is to be extended."""

    async def done(self) -> None:
        """The command was marked in the transaction of the claim."""


class PostgresQueue:
    """Hands out turns: at once while there is work, then on every wake-up, and after ``idle`` in case one was lost."""

    def __init__(self, *, idle: timedelta = timedelta(seconds=5)) -> None:
        self._idle = idle.total_seconds()
        self._woken = asyncio.Event()
        self._woken.set()

    @property
    def needs_dispatch(self) -> bool:
        """Workers lease by themselves."""
        return False

    def wake(self) -> None:
        """Something may have become ready. Called on NOTIFY, and by a worker that has just freed a slot."""
        self._woken.set()

    async def receive(self, count: int) -> list[PostgresDelivery]:
        """``count`` turns, once there is reason to look."""
        try:
            async with asyncio.timeout(self._idle):
                await self._woken.wait()
        except TimeoutError:
            return [PostgresDelivery()]  # the safety look for a lost wake-up costs one statement
        self._woken.clear()
        return [PostgresDelivery() for _ in range(count)]

    async def sent(self, messages: list[tuple[str, str, str]]) -> list[str]:
        """Commands stay where they are."""
        return []

    async def aclose(self) -> None:
        """Nothing is held."""
