"""The one loop of whatever runs until it is stopped, and its rests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from core.outage import report

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
