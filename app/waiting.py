"""Waits for runs to end: however many callers wait in a process, one connection listens, and a wake costs one read.

A caller that goes away ends its waiting, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from uuid import UUID

from core.db import Database
from core.outage import report
from runtime.store import actions
from runtime.store.commits import MESSAGES_CHANNEL

# Wakes that come closer together than this share a read.
TOGETHER_SECONDS = 0.02
# Nobody is woken for so long: then see if anybody waits still.
LISTENING_SECONDS = 1.0
RECONNECT_SECONDS = 1.0


@dataclass
class Waiting:
    """Those who wait in this process, by tenant and run; at most ``most`` of them, so that others find connections."""

    database: Database
    most: int
    _waiters: dict[str, dict[UUID, set[asyncio.Future[None]]]] = field(default_factory=lambda: defaultdict(dict))
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None
    _count: int = 0

    async def ended(self, tenant: str, run_id: UUID, seconds: float) -> None:
        """Return when the run has ended, or after so many seconds, or at once if too many wait already."""
        if seconds <= 0 or self._count >= self.most:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[tenant].setdefault(run_id, set()).add(done)
        self._count += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._serve(), name="waiting")
        self._woken.set()  # it may have ended before anybody listened
        try:
            await asyncio.wait_for(done, seconds)
        except TimeoutError:
            return
        finally:
            self._count -= 1
            waiters = self._waiters[tenant].get(run_id, set())
            waiters.discard(done)
            if not waiters:
                self._waiters[tenant].pop(run_id, None)

    @property
    def count(self) -> int:
        """The number of those who wait now."""
        return self._count

    async def until(self, stop: asyncio.Event) -> None:
        """Let callers wait until this process is to stop: then all are answered with what there is, at once."""
        await stop.wait()
        self.most = 0
        for runs in self._waiters.values():
            for done in (one for waiting in runs.values() for one in waiting if not one.done()):
                done.set_result(None)

    async def close(self) -> None:
        """Stop listening. Whoever waits is answered when their time is over."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _serve(self) -> None:
        """Listen as long as somebody waits. If the connection is lost, the next look is after it is there again."""
        while self._count:
            try:
                async with self.database.listening((MESSAGES_CHANNEL,), lambda *_: self._woken.set()) as lost:
                    await self._look_while_wanted(lost)
            except Exception as error:  # whatever it was, the next turn begins anew, and nobody waits longer than asked
                report("nobody listens for those who wait", error)
                await asyncio.sleep(RECONNECT_SECONDS)

    async def _look_while_wanted(self, lost: asyncio.Future[None]) -> None:
        self._woken.set()
        while self._count and not lost.done():
            try:
                await asyncio.wait_for(self._woken.wait(), LISTENING_SECONDS)
            except TimeoutError:
                continue  # see if anybody waits still, and if the connection lives
            self._woken.clear()
            await self._look()
            await asyncio.sleep(TOGETHER_SECONDS)

    async def _look(self) -> None:
        for tenant, runs in [(name, [*waited]) for name, waited in self._waiters.items() if waited]:
            async with self.database.transaction(tenant) as connection:
                over = await actions.over(connection, tenant, runs)
            for run_id in over:
                for done in self._waiters[tenant].get(run_id, ()):
                    if not done.done():
                        done.set_result(None)
