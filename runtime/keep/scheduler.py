"""Admission to a queue: steps are sent in fair order, under the caps, in batches (Q-12, Q-13, O-1)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
import structlog
from msgspec import Struct, field

from core.canonical import digest
from core.db import Database
from core.errors import CountersealError
from runtime.queue.port import WorkQueue
from runtime.store import claims
from runtime.work.setbacks import report

log = structlog.get_logger(__name__)

BATCH = 10
LEASE = timedelta(seconds=60)


class Scheduler(Struct):
    """Sends steps to a queue that workers do not read from the database. Does nothing for one that they do."""

    database: Database
    queue: WorkQueue
    owner: str
    idle: timedelta = timedelta(seconds=5)
    claimed_within: timedelta = timedelta(seconds=120)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        """A step may be ready, or a slot free."""
        self._woken.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Admit until ``stop`` is set."""
        if not self.queue.needs_dispatch:
            return
        while not stop.is_set():
            try:
                admitted = await self.admit()
            except CountersealError as error:
                log.error("steps stay where they are", reason=str(error))
                admitted = 0
            except Exception as error:
                report("admission failed", error)
                admitted = 0
            if not admitted:
                await self._rest(stop)

    async def _rest(self, stop: asyncio.Event) -> None:
        waiting = {asyncio.create_task(self._woken.wait()), asyncio.create_task(stop.wait())}
        await asyncio.wait(waiting, timeout=self.idle.total_seconds(), return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        self._woken.clear()

    async def admit(self) -> int:
        """Send one batch; how many steps were admitted.

        Each step is marked as sent, and takes its place under the caps, in one statement. A crash before the queue has
        the message, or between the queue and our saying so, leaves a mark that expires: the sweeper frees the step and
        its place, the message comes perhaps twice, and the step's row lets only one through (O-8).
        """
        batch: dict[str, asyncpg.Record] = {}
        async with self.database.connection() as connection:
            while len(batch) < BATCH:
                rows = await claims.admit(connection, self.owner, LEASE, BATCH - len(batch))
                if not rows:
                    break
                batch |= {_dedupe_key(row): row for row in rows}
        if not batch:
            return 0
        accepted = await self.queue.sent([(key, str(row["run_id"]), str(row["step_id"])) for key, row in batch.items()])
        async with self.database.connection() as connection:
            steps = [(batch[key]["run_id"], batch[key]["step_key"]) for key in accepted]
            await claims.expected(connection, steps, self.claimed_within)
        return len(accepted)


def _dedupe_key(row: asyncpg.Record) -> str:
    """The same for the same lease to be, and another for the next one: a FIFO queue must not swallow that (O-2)."""
    return digest([str(row["run_id"]), row["step_key"], row["epoch"] + 1])
