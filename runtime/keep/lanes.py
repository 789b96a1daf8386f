"""Lanes for long work of a keeper: each has one piece of it under way at most, beside everything else (promise 9)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from core.outage import report


class Lanes:
    """Tasks by name. ``done`` is set when one has done something, so that the next turn follows at once."""

    def __init__(self) -> None:
        self.done = asyncio.Event()
        self._under_way: dict[str, asyncio.Task[None]] = {}

    def begin(self, name: str, work: Callable[[], Awaitable[int]], due: object) -> None:
        """Begin work in a lane if something is due there, unless it is still at work: what is due then is found again.

        A crash leaves what is due as it was.
        """
        under_way = self._under_way.get(name)
        if due and (under_way is None or under_way.done()):
            self._under_way[name] = asyncio.create_task(self._work(name, work), name=name)

    async def end(self) -> None:
        """Let what is under way come to its end."""
        if self._under_way:
            await asyncio.wait(self._under_way.values())

    async def _work(self, name: str, work: Callable[[], Awaitable[int]]) -> None:
        try:
            if await work():
                self.done.set()
        except Exception as error:
            report("a sweep failed", error, lane=name)
