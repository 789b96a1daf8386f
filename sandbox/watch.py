"""State that can be waited on: tests and demos wait for a fact instead of sleeping."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Watched:
    """Counts its changes; ``until`` returns as soon as a condition on it holds."""

    def __init__(self) -> None:
        self.version = 0
        self._waiters: set[asyncio.Event] = set()

    def changed(self) -> None:
        """Announce a change. The state itself calls this, on the event loop's thread."""
        self.version += 1
        for waiter in self._waiters:
            waiter.set()

    async def until(self, fact: Callable[[], object], *, seconds: float = 10.0) -> None:
        """Wait until ``fact()`` is true; TimeoutError after ``seconds``."""
        event = asyncio.Event()
        self._waiters.add(event)
        try:
            async with asyncio.timeout(seconds):
                while not fact():
                    await event.wait()
                    event.clear()
        finally:
            self._waiters.discard(event)
