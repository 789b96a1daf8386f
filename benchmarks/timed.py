"""Throughput and the latency of a decision: medians of rounds; they depend on the machine and its other load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import astuple, dataclass, field
from typing import cast
from uuid import UUID

from benchmarks import rivals
from benchmarks.children import Child, working
from benchmarks.figures import Figure, at_least, median, percentile, plain, short, spread_of
from benchmarks.peers.results import GATE
from benchmarks.postgres_use import processor_seconds
from benchmarks.stage import Stage
from benchmarks.world import World, this_moment
from connectors.port import Call
from core.memory import keep_for_good
from runtime.queue.port import WorkQueue
from runtime.queue.postgres import PostgresQueue
from runtime.store.commits import MESSAGES_CHANNEL, STEPS_CHANNEL

IN_FLIGHT = 50
# As many steps at once as runs are in flight: the peers have 48 to 50.
CONCURRENCY = IN_FLIGHT
# A worker within the load's own process shares its 16 connections.
CONCURRENCY_WITHIN = 16
ROUNDS = 3
RUNS = 100
LATENCY_RUNS = 100
LATENCY_WARM_UP = 5
COMMIT_DELAY_MICROSECONDS = 2000
# The load's interval for polling open approvals. Polling at every commit would be a large part of the measured cost.
LOOK_SECONDS = 0.01


@dataclass
class Machine:
    """The tasks of one worker process: the worker, and the LISTEN connection by which PostgreSQL wakes it."""

    queue: PostgresQueue
    noticed: asyncio.Event = field(default_factory=asyncio.Event)

    def notify(self, channel: str, _: str) -> None:
        if channel == STEPS_CHANNEL:
            self.queue.wake()
        self.noticed.set()

    async def notice(self, seconds: float) -> None:
        """Wait until something is committed, at most ``seconds``."""
        try:
            async with asyncio.timeout(seconds):
                await self.noticed.wait()
        except TimeoutError:
            return
        finally:
            self.noticed.clear()


@asynccontextmanager
async def machine(world: World, concurrency: int = CONCURRENCY_WITHIN) -> AsyncIterator[Machine]:
    """Run a worker in this process. With a concurrency of 0 it only listens, and other processes work."""
    keep_for_good()
    running = Machine(PostgresQueue())
    stop = asyncio.Event()
    async with world.engine.listening((STEPS_CHANNEL, MESSAGES_CHANNEL), running.notify), asyncio.TaskGroup() as group:
        if concurrency:
            # The queue's deliveries are a subtype of the port's, which mypy does not accept here.
            group.create_task(world.worker(cast("WorkQueue", running.queue), concurrency).run(stop))
        try:
            yield running
        finally:
            stop.set()


class Load:
    """Keeps ``IN_FLIGHT`` runs going, and approves every question of its own runs."""

    def __init__(self, world: World, running: Machine, workflow: str) -> None:
        self._world = world
        self._running = running
        self._workflow = workflow
        self._gate = asyncio.Semaphore(CONCURRENCY // 2)

    async def run(self, runs: int) -> float:
        """Complete ``runs`` runs. Returns the seconds from the first start to the last end."""
        begun, since = time.perf_counter(), this_moment()
        started = ended = 0
        approved: set[UUID] = set()
        async with asyncio.TaskGroup() as group:
            while ended < runs:
                for _ in range(min(IN_FLIGHT - (started - ended), runs - started)):
                    group.create_task(self._start())
                    started += 1
                for approval in await self._world.open_approvals(since):
                    if approval not in approved:
                        approved.add(approval)
                        group.create_task(self._approve(approval))
                await self._running.notice(0.05)
                await asyncio.sleep(LOOK_SECONDS)
                ended = await self._world.finished(since)
        return time.perf_counter() - begun

    async def _start(self) -> None:
        async with self._gate:
            await self._world.start(self._workflow)

    async def _approve(self, approval: UUID) -> None:
        async with self._gate:
            await self._world.approve(approval)


@dataclass(frozen=True, slots=True)
class Used:
    """The use of a worker's process, the load's and PostgreSQL by now: transactions, and seconds of processor."""

    transactions: float
    python: float
    postgres: float

    @classmethod
    async def by_now(cls, world: World, worker: Child) -> Used:
        own, other = await world.counter.read(), await worker.ask()
        python = time.process_time() + other["cpu_seconds"]
        return cls(own.transactions + other["transactions"], python, await processor_seconds(world.plain))

    def since(self, before: Used, runs: int) -> Used:
        """The difference, for each of so many runs."""
        used, then = astuple(self), astuple(before)
        return Used(*((one - other) / runs for one, other in zip(used, then, strict=True)))


async def throughput(stage: Stage) -> list[Figure]:
    """Measure runs and steps per second with 50 in flight and one worker process, also with a simulated slow disk."""
    runs = stage.size(RUNS, 20)
    async with stage.world() as world, working(world, CONCURRENCY) as worker, machine(world, concurrency=0) as running:
        one, ten = Load(world, running, "w1"), Load(world, running, "w2")
        await one.run(stage.size(IN_FLIGHT, 5))
        await ten.run(stage.size(IN_FLIGHT // 2, 5))
        before = await Used.by_now(world, worker)
        w1 = [runs / await one.run(runs) for _ in range(ROUNDS)]
        used = (await Used.by_now(world, worker)).since(before, runs * ROUNDS)
        w2 = [10 * runs / await ten.run(runs) for _ in range(ROUNDS)]
        # Every commit waits 2 ms before its flush; commits that arrive meanwhile share the flush.
        async with world.server_set(commit_delay=COMMIT_DELAY_MICROSECONDS, commit_siblings=0):
            await one.run(stage.size(IN_FLIGHT, 5))
            slow = [runs / await one.run(runs) for _ in range(ROUNDS)]
    looks, python, postgres = used.transactions, used.python * 1000, used.postgres * 1000
    ratio = median(slow) / median(w1)
    return [
        rivals.against(f"W1: runs/s, {IN_FLIGHT} in flight", GATE, "w1", w1, "runs/s"),
        rivals.against(f"W2: steps/s, {IN_FLIGHT} in flight", GATE, "w2", w2, "steps/s"),
        plain("W1: transactions per run with looks for work", f"{looks:.1f}", value=looks),
        plain(
            "W1: processor per run: Python + PostgreSQL", f"{python:.1f} + {postgres:.1f} ms", value=python + postgres
        ),
        at_least(
            "W1: 2 ms commits, against without",
            0.9,
            ratio,
            "of it",
            spread=spread_of([one / median(w1) for one in slow]),
            runs_per_second=median(slow),
        ),
    ]


class Finish:
    """Counts the performed effects of the one run in progress."""

    def __init__(self) -> None:
        self.effects = 0

    async def __call__(self, call: Call) -> None:
        self.effects += 1


async def decided(world: World, running: Machine, finish: Finish) -> float:
    """Run W1 alone. Returns milliseconds from the vote to the commit that closes the run, two effects later."""
    finish.effects = 0
    since = this_moment()
    await world.start("w1")
    while not (approvals := await world.open_approvals(since)):
        await running.notice(0.05)
    begun = time.perf_counter()
    await world.approve(approvals[0])
    while finish.effects < 4:
        await running.notice(0.05)
    while not await world.finished(since):
        await running.notice(0.05)
    return (time.perf_counter() - begun) * 1000


async def latency(stage: Stage) -> list[Figure]:
    """Measure the time from the decision to the end of the run, one run at a time."""
    runs, finish = stage.size(LATENCY_RUNS, 10), Finish()
    async with stage.world() as world, machine(world, concurrency=2) as running:
        world.outside.on_effect = finish
        for _ in range(LATENCY_WARM_UP):
            await decided(world, running, finish)
        rounds = [[await decided(world, running, finish) for _ in range(runs)] for _ in range(ROUNDS)]
    what = "W1, one at a time: decision → complete"
    halves = [median(taken) for taken in rounds]
    lasts = [percentile(taken, 99) for taken in rounds]
    return [
        rivals.as_quick(f"{what}, p50", 1.4, halves, runs=runs),
        plain(f"{what}, p99", f"{short(median(lasts))} ms", spread=spread_of(lasts), value=median(lasts)),
    ]
