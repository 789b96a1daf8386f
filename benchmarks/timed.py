"""Timed figures: throughput, latency, idling. Medians of three; they depend on the machine and on what else it does."""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast
from uuid import UUID

from benchmarks.counting import Counts
from benchmarks.figures import Figure, at_least, at_most, median, percentile, plain, unmeasured
from benchmarks.world import World
from connectors.port import Call
from runtime.queue.port import WorkQueue
from runtime.queue.postgres import PostgresQueue
from runtime.store.commits import MESSAGES_CHANNEL, STEPS_CHANNEL

IN_FLIGHT = 50
CONCURRENCY = 16
ROUNDS = 3
W1_RUNS = 100
W2_RUNS = 100
LATENCY_RUNS = 100
PARKED_RUNS = 2000
IDLE_SECONDS = 10.0
COMMIT_DELAY_MICROSECONDS = 2000


@dataclass
class Machine:
    """One worker process's worth of tasks: the worker, and the line on which PostgreSQL wakes it."""

    queue: PostgresQueue
    noticed: asyncio.Event = field(default_factory=asyncio.Event)

    def notify(self, channel: str, _: str) -> None:
        if channel == STEPS_CHANNEL:
            self.queue.wake()
        self.noticed.set()

    async def notice(self, seconds: float) -> None:
        """Wait until something was committed, at most so long."""
        try:
            async with asyncio.timeout(seconds):
                await self.noticed.wait()
        except TimeoutError:
            return
        finally:
            self.noticed.clear()


@asynccontextmanager
async def machine(world: World, concurrency: int = CONCURRENCY) -> AsyncIterator[Machine]:
    """Run a worker as `counterseal work` does."""
    running = Machine(PostgresQueue())
    stop = asyncio.Event()
    async with world.engine.listening((STEPS_CHANNEL, MESSAGES_CHANNEL), running.notify), asyncio.TaskGroup() as group:
        # The queue hands out more special deliveries than the port asks for, which mypy takes for a difference.
        group.create_task(world.worker(cast("WorkQueue", running.queue), concurrency).run(stop))
        try:
            yield running
        finally:
            stop.set()


class Load:
    """Keeps ``IN_FLIGHT`` runs going, and approves whatever asks."""

    def __init__(self, world: World, running: Machine, workflow: str) -> None:
        self._world = world
        self._running = running
        self._workflow = workflow
        self._approved: set[UUID] = set()
        self._gate = asyncio.Semaphore(CONCURRENCY // 2)

    async def run(self, runs: int) -> float:
        """Seconds from the first start to the last end."""
        begun = time.perf_counter()
        before = await self._world.finished()
        started = ended = 0
        async with asyncio.TaskGroup() as group:
            while ended < runs:
                for _ in range(min(IN_FLIGHT - (started - ended), runs - started)):
                    group.create_task(self._start())
                    started += 1
                for approval in await self._world.open_approvals():
                    if approval not in self._approved:
                        self._approved.add(approval)
                        group.create_task(self._approve(approval))
                await self._running.notice(0.05)
                ended = await self._world.finished() - before
        return time.perf_counter() - begun

    async def _start(self) -> None:
        async with self._gate:
            await self._world.start(self._workflow)

    async def _approve(self, approval: UUID) -> None:
        async with self._gate:
            await self._world.approve(approval)


async def throughput(world: World) -> list[Figure]:
    """Runs and steps per second with 50 in flight, and how a slow disk would change that."""
    async with machine(world) as running:
        one, ten = Load(world, running, "w1"), Load(world, running, "w2")
        await one.run(IN_FLIGHT)
        await ten.run(IN_FLIGHT // 2)
        before = await world.counter.read()
        w1 = median([W1_RUNS / await one.run(W1_RUNS) for _ in range(ROUNDS)])
        used = await world.counter.read() - before
        w2 = median([10 * W2_RUNS / await ten.run(W2_RUNS) for _ in range(ROUNDS)])
        slow = await _with_slow_commits(world, one)
    looks = _looks(used)
    return [
        unmeasured(f"W1: runs/s, {IN_FLIGHT} in flight", "≥ 1.5 times the fastest peer", f"{w1:.0f} runs/s"),
        unmeasured(f"W2: steps/s, {IN_FLIGHT} in flight", "≥ 1.3 times the fastest peer", f"{w2:,.0f} steps/s"),
        plain("W1: transactions per run with looks for work", f"{looks:.1f}", value=looks),
        _slow_figure(w1, slow),
    ]


def _looks(used: Counts) -> float:
    return used.transactions / (W1_RUNS * ROUNDS)


def _slow_figure(fast: float, slow: float) -> Figure:
    return at_least("W1: 2 ms commits, against without", 0.9, slow / fast, "of it", runs_per_second=slow)


async def _with_slow_commits(world: World, load: Load) -> float:
    """Every commit waits 2 ms before it is flushed, so that commits that come meanwhile go with it."""
    for setting, value in (("commit_delay", COMMIT_DELAY_MICROSECONDS), ("commit_siblings", 0)):
        await world.plain.execute(f"ALTER SYSTEM SET {setting} = {value}")
    await world.plain.execute("SELECT pg_reload_conf()")
    try:
        await load.run(IN_FLIGHT)
        return median([W1_RUNS / await load.run(W1_RUNS) for _ in range(ROUNDS)])
    finally:
        await world.plain.execute("ALTER SYSTEM RESET commit_delay")
        await world.plain.execute("ALTER SYSTEM RESET commit_siblings")
        await world.plain.execute("SELECT pg_reload_conf()")


class _Finish:
    """Knows when the last effect of a W1 run has been performed."""

    def __init__(self) -> None:
        self.effects = 0

    async def __call__(self, call: Call) -> None:
        self.effects += 1


async def latency(world: World) -> list[Figure]:
    """One run at a time: from the vote to the commit that closes the run, two effects later."""
    finish = _Finish()
    world.outside.on_effect = finish
    taken: list[float] = []
    async with machine(world, concurrency=2) as running:
        for number in range(LATENCY_RUNS + 5):
            finish.effects = 0
            ended = await world.finished()
            await world.start("w1")
            while not (approvals := await world.open_approvals()):
                await running.notice(0.05)
            begun = time.perf_counter()
            await world.approve(approvals[0])
            while finish.effects < 4:
                await running.notice(0.05)
            while await world.finished() == ended:
                await running.notice(0.05)
            if number >= 5:
                taken.append((time.perf_counter() - begun) * 1000)
    world.outside.on_effect = None
    half, last = median(taken), percentile(taken, 99)
    what = "W1, one at a time: decision → complete"
    return [at_most(f"{what}, p50", 5, half, "ms", runs=LATENCY_RUNS), at_most(f"{what}, p99", 8, last, "ms")]


async def idle(world: World) -> Figure:
    """Transactions per second with nothing to do but thousands of parked runs."""
    async with machine(world) as running:
        await _park(world, running)
        await world.dispatcher().work_off()
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(world.dispatcher().run(stop))
            group.create_task(world.sweeper().run(stop))
            await asyncio.sleep(1)
            memory, before, begun = _resident(), await world.counter.read(), time.perf_counter()
            await asyncio.sleep(IDLE_SECONDS)
            used, seconds = await world.counter.read() - before, time.perf_counter() - begun
            stop.set()
    grown = (_resident() - memory) / 1024
    what = f"idle, {PARKED_RUNS:,} parked runs: transactions/s"
    return at_most(what, 2, used.transactions / seconds, "transactions/s", memory_grown_mib=grown)


async def _park(world: World, running: Machine) -> None:
    gate = asyncio.Semaphore(CONCURRENCY // 2)

    async def start() -> None:
        async with gate:
            await world.start("parked")

    async with asyncio.TaskGroup() as group:
        for _ in range(PARKED_RUNS):
            group.create_task(start())
    while len(await world.open_approvals()) < PARKED_RUNS:
        await running.notice(0.2)


def _resident() -> float:
    """The largest resident set so far, in KiB: it can only grow."""
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / 1024 if sys.platform == "darwin" else float(used)
