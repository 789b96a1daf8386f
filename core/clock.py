"""The loop of every background task, its pauses, and its backoff while PostgreSQL is unavailable."""

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
    """Wait until ``event`` or ``woken`` is set, at most ``seconds``. Clears ``woken``."""
    if woken is None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()
        return
    await unless(event, rest(woken, seconds))
    woken.clear()


async def unless(stop: asyncio.Event, asking: Coroutine[Any, Any, Answer]) -> Answer | None:
    """The result of ``asking``; None if ``stop`` is set first, which cancels ``asking``."""
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
    """Call ``turn`` until ``stop`` is set, and rest after each turn that found nothing to do; see ``rest``.

    An exception of a turn is logged with the message ``failed``; the loop rests and goes on.
    """
    while not stop.is_set():
        try:
            if await turn():
                continue
        except Exception as error:
            report(failed, error, **facts)
        await rest(stop, seconds, woken)


PAUSE_SECONDS = 0.1
# Short, so that a worker records its outcome before a sweeper finds the step when PostgreSQL is back.
PAUSE_SECONDS_MAX = 0.5


class Patience:
    """The backoff between tries to record an outcome. One more try begins after ``stop`` is set.

    It also counts the steps whose outcome is not recorded yet.
    """

    def __init__(self, stop: asyncio.Event | None = None) -> None:
        self._stop = stop or asyncio.Event()
        self._unrecorded: set[object] = set()
        self._last_tries: set[object] = set()
        self._calm = asyncio.Event()
        self._calm.set()

    async def calm(self) -> None:
        """Wait until every outcome is recorded. An earlier claim could lease the very step whose outcome is missing."""
        await self._calm.wait()

    def settled(self, who: object) -> None:
        """Note that ``who`` has recorded its outcome, or has given up."""
        self._unrecorded.discard(who)
        self._last_tries.discard(who)
        if not self._unrecorded:
            self._calm.set()

    async def pause(self, who: object, tries: int, error: Exception, **facts: str) -> None:
        """Wait before the next try, after ``tries`` failed ones. Raises ``error`` if the last began after ``stop``."""
        self._unrecorded.add(who)
        self._calm.clear()
        facts["reason"] = f"{type(error).__name__}: {error}"
        if who in self._last_tries:
            log.error("stopping while PostgreSQL is away; an outcome is not recorded", **facts)
            raise error
        log.warning("PostgreSQL is away; retrying to record an outcome", tries=tries + 1, **facts)
        longest: float = min(PAUSE_SECONDS_MAX, PAUSE_SECONDS * 2 ** min(tries, 10))
        # Jitter: all workers lost PostgreSQL at the same moment, and should not all retry at the same moment.
        await rest(self._stop, longest * (0.5 + random.random() / 2))
        if self._stop.is_set():
            self._last_tries.add(who)
