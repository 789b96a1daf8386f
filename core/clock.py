"""The one loop of whatever runs until it is stopped, its rests, and its patience while PostgreSQL is away."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

import structlog

from core.outage import report

log = structlog.get_logger(__name__)

Answer = TypeVar("Answer")
Turn: TypeAlias = Callable[[], Awaitable[object]]


async def rest(event: asyncio.Event, seconds: float, woken: asyncio.Event | None = None) -> None:
    """Wait until the event is set, or ``woken``, and so many seconds at most. ``woken`` is cleared then."""
    if woken is None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()
        return
    await unless(event, rest(woken, seconds))
    woken.clear()


async def unless(stop: asyncio.Event, asking: Coroutine[Any, Any, Answer]) -> Answer | None:
    """The answer, or None if ``stop`` comes first; what is asked is cancelled then."""
    stopping, task = asyncio.create_task(stop.wait()), asyncio.create_task(asking)
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        stopping.cancel()
        task.cancel()
        await asyncio.gather(stopping, task, return_exceptions=True)


async def repeat(
    stop: asyncio.Event, turn: Turn, seconds: float, failed: str, *, woken: asyncio.Event | None = None, **facts: str
) -> None:
    """Take turns until ``stop`` is set, and rest after each one that came to nothing; see ``rest``.

    A turn that fails came to nothing: it is logged under the words ``failed`` with the facts, and taken again.
    """
    while not stop.is_set():
        try:
            if await turn():
                continue
        except Exception as error:
            report(failed, error, **facts)
        await rest(stop, seconds, woken)


PAUSE_SECONDS = 0.1
# Short, because whoever tries first after PostgreSQL is back should not be a sweeper.
PAUSE_SECONDS_MAX = 0.5


class Patience:
    """Pauses between tries, on the clock of the event loop, until ``stop`` is set: then one more try, and no other."""

    def __init__(self, stop: asyncio.Event | None = None) -> None:
        self._stop = stop or asyncio.Event()
        self._untold: set[object] = set()
        self._calm = asyncio.Event()
        self._calm.set()

    async def calm(self) -> None:
        """Wait until nobody keeps anything: what is begun before that is told may be that very step."""
        await self._calm.wait()

    def told(self, who: object) -> None:
        """Note that ``who`` has told what it kept, or has given it up."""
        self._untold.discard(who)
        if not self._untold:
            self._calm.set()

    async def pause(self, who: object, tries: int, error: Exception, **facts: str) -> None:
        """Wait before the next try after ``tries`` others; raises ``error`` where there is none."""
        self._untold.add(who)
        self._calm.clear()
        facts["reason"] = f"{type(error).__name__}: {error}"
        if self._stop.is_set():
            log.error("stopping while PostgreSQL is away; an outcome is not recorded", **facts)
            raise error
        log.warning("PostgreSQL is away; retrying to record an outcome", tries=tries + 1, **facts)
        longest: float = min(PAUSE_SECONDS_MAX, PAUSE_SECONDS * 2 ** min(tries, 10))
        # Everybody lost PostgreSQL at the same moment: they should not all come back at the same one.
        await rest(self._stop, longest * (0.5 + random.random() / 2))
