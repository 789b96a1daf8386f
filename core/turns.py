"""Shares a few places of work among all tenants, which take turns (promise 9).

First come, first served would let a tenant that asks a thousand times hold up one that asks once. Here a free place
goes to the tenant that holds the fewest, and among equals to the one whose turn was longest ago. No tenant holds more
than its share.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

# The installation's own work, which belongs to no tenant and has no limit of a share.
NOBODY = ""


class Turns:
    """Hands out ``places``, of which one tenant holds at most ``of_one``. All calls come from one event loop."""

    def __init__(self, places: int, of_one: int | None = None) -> None:
        self._free = places
        self._of_one = places if of_one is None else of_one
        self._held: dict[str, int] = {}
        # Waiting tenants in the order of their turns. None of them could take a free place now.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def take(self, tenant: str) -> None:
        """Wait for a place. A canceled waiter gets none."""
        held = self._held.get(tenant, 0)
        if self._free and (held < self._of_one or tenant == NOBODY):
            self._free, self._held[tenant] = self._free - 1, held + 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(place)
        try:
            await place
        except BaseException:
            if place.done() and not place.cancelled():
                self.give(tenant)  # the place came at this very moment
            raise

    def give(self, tenant: str) -> None:
        """Give a place back, and hand free places to waiters."""
        self._free += 1
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]
        if not self._waiting:
            return
        if tenant in self._waiting:
            self._waiting[tenant] = self._waiting.pop(tenant)  # it had its turn just now
        while self._free and (next_ := self._next()) is not None:
            waiting = self._waiting.pop(next_)
            place = waiting.popleft()
            if waiting:
                self._waiting[next_] = waiting  # behind the others
            if not place.done():
                self._free, self._held[next_] = self._free - 1, self._held.get(next_, 0) + 1
                place.set_result(None)

    @asynccontextmanager
    async def place(self, tenant: str) -> AsyncIterator[None]:
        """A place for as long as the block runs."""
        await self.take(tenant)
        try:
            yield
        finally:
            self.give(tenant)

    def _next(self) -> str | None:
        held = self._held
        served = (one for one in self._waiting if held.get(one, 0) < self._of_one or one == NOBODY)
        return min(served, key=lambda one: held.get(one, 0), default=None)
