"""The worker: receives deliveries, drives each until its run waits, and beats the leases of what it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import structlog

from core.errors import CountersealError
from runtime.queue.port import Delivery, WorkQueue
from runtime.setbacks import report
from runtime.store import claims
from runtime.work.driving import Drive
from runtime.work.holding import Tools
from runtime.work.leasing import Lease
from runtime.work.patience import Patience

log = structlog.get_logger(__name__)

# After an error of the database or the queue, this long passes before the next try.
PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class _Job:
    drive: Drive
    delivery: Delivery


class Worker:
    """Runs up to ``concurrency`` deliveries at once. No worker owns a run: what it holds is in the database (X-6)."""

    def __init__(self, tools: Tools, queue: WorkQueue, *, concurrency: int = 8) -> None:
        self._tools = tools
        self._queue = queue
        self._concurrency = concurrency
        self._jobs: dict[asyncio.Task[None], _Job] = {}
        self._free = asyncio.Semaphore(concurrency)
        self._patience = Patience()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set, then finish what is under way. Cancelled, it takes all of that with it."""
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
                self._start(group, receiving.result())
            if self._jobs:
                await asyncio.wait(set(self._jobs))
            beating.cancel()
            stopping.cancel()

    async def work_off(self) -> int:
        """Work, one delivery after the other, until nothing is left to claim; how many were claimed. For tests."""
        claimed = 0
        while True:
            deliveries = await self._queue.receive(1)
            results = [await self._take(delivery) for delivery in deliveries]
            claimed += sum(results)
            if not any(results):
                return claimed

    async def _receive(self) -> Sequence[Delivery]:
        """Deliveries for as many free places as there are; at least one place is waited for."""
        await self._free.acquire()
        self._free.release()
        free = self._concurrency - len(self._jobs)
        try:
            return await self._queue.receive(max(1, free))
        except CountersealError as error:
            log.error("queue unavailable", reason=str(error))
        except Exception:
            log.exception("the queue failed in a way that it should not")
        await asyncio.sleep(PAUSE_SECONDS)
        return []

    def _start(self, group: asyncio.TaskGroup, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            drive = Drive(self._tools, self._look_again, self._patience)
            task = group.create_task(self._job(drive, delivery))
            self._jobs[task] = _Job(drive, delivery)
            task.add_done_callback(self._jobs.pop)

    async def _job(self, drive: Drive, delivery: Delivery) -> None:
        async with self._free:
            await self._drive(drive, delivery)

    async def _take(self, delivery: Delivery) -> bool:
        return await self._drive(Drive(self._tools), delivery)

    async def _drive(self, drive: Drive, delivery: Delivery) -> bool:
        """Drive one delivery. Whatever goes wrong, the lease expires and the sweeper brings the step back."""
        await self._patience.calm()
        try:
            found = await drive.run(delivery)
        except Exception as error:
            report("a step was left to its lease", error)
            await asyncio.sleep(PAUSE_SECONDS)
            return False
        try:
            await delivery.done()
        except Exception:
            log.exception("a message comes once more, and will find nothing to claim")
        return found

    def _look_again(self) -> None:
        """One step was ready, so another may be: several wake-ups arrive as one."""
        wake = getattr(self._queue, "wake", None)
        if wake is not None:
            wake()

    async def _beat(self) -> None:
        """Extend the leases of everything held, three times per lease (Q-10), and soon where that went wrong."""
        pause = beat = self._tools.lease.total_seconds() / 3
        while True:
            await asyncio.sleep(pause)
            pause = beat
            held: dict[UUID, _Job] = {step.step_id: job for job in self._jobs.values() for step in job.drive.leased}
            if not held:
                continue
            try:
                await self._extend(held)
            except Exception as error:
                pause = min(beat, PAUSE_SECONDS)
                report("leases not extended", error)

    async def _extend(self, held: dict[UUID, _Job]) -> None:
        tools, began = self._tools, Lease.now()
        async with tools.database.connection() as connection:
            ours = await claims.heartbeat(connection, tools.owner, tools.lease, list(held))
        for step_id, job in held.items():
            still_held = job.drive.beaten(step_id, began, ours=step_id in ours)
            if step_id in ours:
                await job.delivery.extend(tools.lease)
            elif still_held:
                log.warning("lease is no longer ours; its call is given up", step=str(step_id))
