"""The worker: claims the steps that the queue delivers, drives each until its run waits, and extends its leases."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import asyncpg
import structlog

from core.clock import Patience
from core.errors import CountersealError
from core.outage import report
from runtime.engine.model.rows import Claim
from runtime.queue.port import Delivery, WorkQueue
from runtime.store import claims
from runtime.work.driving import Drive
from runtime.work.holding import Tools
from runtime.work.lease import Lease

log = structlog.get_logger(__name__)

# The pause before the next try after an error of the database or the queue.
PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class _Job:
    drive: Drive
    delivery: Delivery


class Worker:
    """Drives up to ``concurrency`` steps at once. No worker owns a run: all state is in the database."""

    def __init__(self, tools: Tools, queue: WorkQueue, *, concurrency: int = 8) -> None:
        self._tools = tools
        self._queue = queue
        self._concurrency = concurrency
        self._jobs: dict[asyncio.Task[None], _Job] = {}
        self._free = asyncio.Semaphore(concurrency)
        self._patience = Patience()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set, then finish the steps under way. If cancelled, cancel them."""
        self._patience = Patience(stop)
        async with asyncio.TaskGroup() as group:
            beating = group.create_task(self._beat())
            stopping = group.create_task(stop.wait())
            while not stop.is_set():
                receiving = group.create_task(self._receive())
                await asyncio.wait({receiving, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if not receiving.done():
                    receiving.cancel()
                    break
                await self._start(group, receiving.result())
            if self._jobs:
                await asyncio.wait(set(self._jobs))
            beating.cancel()

    async def work_off(self) -> int:
        """Work, one delivery after the other, until nothing is left to claim; return the number done. For tests."""
        claimed = 0
        while True:
            found = [await self._take(delivery) for delivery in await self._queue.receive(1)]
            claimed += sum(found)
            if not any(found):
                return claimed

    async def _receive(self) -> Sequence[Delivery]:
        """Wait for a free place, then receive deliveries for all free places."""
        await self._free.acquire()
        self._free.release()
        try:
            return await self._queue.receive(await self._places())
        except CountersealError as error:
            log.error("queue unavailable", reason=str(error))
        except Exception:
            log.exception("unexpected error of the queue; retrying")
        await asyncio.sleep(PAUSE_SECONDS)
        return []

    async def _start(self, group: asyncio.TaskGroup, deliveries: Sequence[Delivery]) -> None:
        """Claim the steps that the deliveries name. A stop does not interrupt this, or a new lease would be lost."""
        for delivery in deliveries:
            began, free = Lease.now(), await self._places()
            records = await self._claim(delivery, free)
            claimed = (began, Lease.now())  # a step that waits for its turn here keeps this reading of the clock
            for record in records:
                drive = Drive(self._tools, self._patience)
                task = group.create_task(self._job(drive, delivery, record, claimed))
                self._jobs[task] = _Job(drive, delivery)
                task.add_done_callback(self._jobs.pop)

    async def _job(
        self, drive: Drive, delivery: Delivery, record: asyncpg.Record, claimed: tuple[float, float]
    ) -> None:
        async with self._free:
            await self._drive(drive, delivery, record, claimed)

    async def _take(self, delivery: Delivery) -> int:
        began, records = Lease.now(), await self._claim(delivery, 1)
        claimed = (began, Lease.now())
        for record in records:
            await self._drive(Drive(self._tools), delivery, record, claimed)
        return len(records)

    async def _places(self) -> int:
        """The number of free places. One append may end several steps one after the other: this waits for all."""
        met = -1
        while met != len(self._jobs):
            met = len(self._jobs)
            await asyncio.sleep(0)
        return max(1, self._concurrency - met)

    async def _claim(self, delivery: Delivery, count: int) -> Sequence[asyncpg.Record]:
        await self._patience.calm()
        tools = self._tools
        try:
            async with tools.database.connection() as connection:
                records = await delivery.claim(connection, tools.owner, tools.lease, count)
        except Exception as error:
            report("claim failed; retrying", error)
            await asyncio.sleep(PAUSE_SECONDS)
            if isinstance(error, asyncpg.LockNotAvailableError):
                self._look_again()  # what is ready stays ready, and nobody will say so again
            return []
        if records:
            self._look_again()
        else:
            await _done(delivery)
        return records

    async def _drive(
        self, drive: Drive, delivery: Delivery, record: asyncpg.Record, claimed: tuple[float, float]
    ) -> None:
        """Drive one step. If anything goes wrong, the lease runs out, and the sweeper makes the step ready again."""
        try:
            await drive.run(record, *claimed)
        except Exception as error:
            report("step abandoned until its lease runs out", error)
            await asyncio.sleep(PAUSE_SECONDS)
        else:
            await _done(delivery)

    def _look_again(self) -> None:
        """Look at the queue again at once: one wake-up may stand for several steps."""
        wake = getattr(self._queue, "wake", None)
        if wake is not None:
            wake()

    async def _beat(self) -> None:
        """Extend all held leases, three times during a lease's time; after an error, try again soon."""
        pause = beat = self._tools.lease.total_seconds() / 3
        while True:
            await asyncio.sleep(pause)
            pause = beat
            held = [(run_id, claim, job) for job in self._jobs.values() for run_id, claim in job.drive.leased]
            if not held:
                continue
            try:
                await self._extend(held)
            except Exception as error:
                pause = min(beat, PAUSE_SECONDS)
                report("leases not extended", error)

    async def _extend(self, held: Sequence[tuple[UUID, Claim, _Job]]) -> None:
        tools, began = self._tools, Lease.now()
        async with tools.database.connection() as connection:
            ours = await claims.heartbeat(connection, tools.lease, [(run_id, claim) for run_id, claim, _ in held])
        for run_id, claim, job in held:
            given_up = job.drive.beaten(claim, began, ours=claim.id in ours)
            if claim.id in ours:
                await job.delivery.extend(tools.lease)
            elif given_up:
                log.warning("lease is no longer ours; its call is given up", run=str(run_id), step=claim.key)


async def _done(delivery: Delivery) -> None:
    try:
        await delivery.done()
    except Exception:
        log.exception("message was not deleted; redelivery will be a no-op")
