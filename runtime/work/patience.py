"""Patience: what is known is kept while PostgreSQL is away, and told when it is back (promise 4)."""

from __future__ import annotations

import asyncio
import random

import structlog

from runtime.engine.commit import StepRow

log = structlog.get_logger(__name__)

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
        """Whoever kept something has told it, or has given it up."""
        self._untold.discard(who)
        if not self._untold:
            self._calm.set()

    async def pause(self, who: object, tries: int, error: Exception, step: StepRow | None) -> None:
        """Wait before the next try after ``tries`` others; raises ``error`` where there is none."""
        self._untold.add(who)
        self._calm.clear()
        facts = {"step": str(step.step_id) if step else "", "reason": f"{type(error).__name__}: {error}"}
        if self._stop.is_set():
            log.error("the process ends before PostgreSQL could be told what came of a step", **facts)
            raise error
        log.warning("PostgreSQL cannot be told what came of a step; it is tried again", tries=tries + 1, **facts)
        longest: float = min(PAUSE_SECONDS_MAX, PAUSE_SECONDS * 2 ** min(tries, 10))
        try:
            # Everybody lost PostgreSQL at the same moment: they should not all come back at the same one.
            async with asyncio.timeout(longest * (0.5 + random.random() / 2)):
                await self._stop.wait()
        except TimeoutError:
            return
