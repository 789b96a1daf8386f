"""Waits for runs to end: however many callers wait in a process, one connection listens, and a wake costs one read.

A caller that goes away ends its waiting, and nothing else. If all places are taken, a tenant with fewer gets one of the
tenant with most, whose longest waiter is answered at once (promise 9).
"""

from __future__ import annotations

import asyncio
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
    """Those who wait in this process; at most ``most`` of them, so that others find connections."""

    database: Database
    most: int
    # The runs that are waited for, by tenant, the longest waiter first.
    _held: dict[str, dict[asyncio.Future[None], UUID]] = field(default_factory=dict)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    async def ended(self, tenant: str, run_id: UUID, seconds: float) -> None:
        """Return when the run has ended, or after so many seconds. At once, or earlier, if too many wait."""
        if seconds <= 0 or not self._has_room(tenant):
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.setdefault(tenant, {})[done] = run_id
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._serve(), name="waiting")
        self._woken.set()  # it may have ended before anybody listened
        try:
            await asyncio.wait_for(done, seconds)
        except TimeoutError:
            return
        finally:
            self._leave(tenant, done)

    @property
    def count(self) -> int:
        """The number of those who wait now."""
        return sum(map(len, self._held.values()))

    async def until(self, stop: asyncio.Event) -> None:
        """Let callers wait until this process is to stop: then all are answered with what there is, at once."""
        await stop.wait()
        self.most = 0
        for done in [one for held in self._held.values() for one in held]:
            _answer(done)

    async def close(self) -> None:
        """Stop listening. Whoever waits is answered when their time is over."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _has_room(self, tenant: str) -> bool:
        """True if there is a place, or somebody who holds more than this tenant would gives one up."""
        if self.count < self.most:
            return True
        if not self.most:
            return False
        held = {name: len(waiting) for name, waiting in self._held.items()}
        largest = max(held, key=lambda name: held[name])
        if held[largest] <= held.get(tenant, 0) + 1:
            return False
        longest = next(iter(self._held[largest]))
        self._leave(largest, longest)
        _answer(longest)
        return True

    def _leave(self, tenant: str, done: asyncio.Future[None]) -> None:
        held = self._held.get(tenant, {})
        held.pop(done, None)
        if not held:
            self._held.pop(tenant, None)

    async def _serve(self) -> None:
        """Listen as long as somebody waits. If the connection is lost, the next look is after it is there again."""
        while self._held:
            try:
                async with self.database.listening((MESSAGES_CHANNEL,), lambda *_: self._woken.set()) as lost:
                    await self._look_while_wanted(lost)
            except Exception as error:  # whatever it was, the next turn begins anew, and nobody waits longer than asked
                report("nobody listens for those who wait", error)
                await asyncio.sleep(RECONNECT_SECONDS)

    async def _look_while_wanted(self, lost: asyncio.Future[None]) -> None:
        self._woken.set()
        while self._held and not lost.done():
            try:
                await asyncio.wait_for(self._woken.wait(), LISTENING_SECONDS)
            except TimeoutError:
                continue  # see if anybody waits still, and if the connection lives
            self._woken.clear()
            await self._look()
            await asyncio.sleep(TOGETHER_SECONDS)

    async def _look(self) -> None:
        for tenant, runs in [(name, [*{*held.values()}]) for name, held in self._held.items()]:
            async with self.database.transaction(tenant) as connection:
                over = {*await actions.over(connection, tenant, runs)}
            for done, run_id in [*self._held.get(tenant, {}).items()]:
                if run_id in over:
                    _answer(done)


def _answer(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
