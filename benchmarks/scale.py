"""Throughput against worker processes and keepers on one PostgreSQL, with its own queue and with moto's SQS.

Each figure comes with its resource use: processor time of the workers, the keepers and PostgreSQL per run, connections
and WAL, to identify the next bottleneck. The measuring process also starts the runs and approves them.
"""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from dataclasses import astuple, dataclass
from typing import Any

import psutil

from benchmarks.children import Child, child, environment
from benchmarks.curves import Curve
from benchmarks.figures import Figure, plain, short, spread_of
from benchmarks.figures import median as middle
from benchmarks.moto_sqs import queues
from benchmarks.postgres_use import processor_seconds
from benchmarks.stage import Stage, tell
from benchmarks.timed import Load, machine
from benchmarks.world import World

WORKERS = (1, 2, 3, 4)
KEEPERS = (1, 2)
ROUNDS = 3
RUNS = 150
CONCURRENCY = 16

_WAL = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
_CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"


@dataclass(frozen=True, slots=True)
class Setting:
    """The numbers of processes, and the queue by which steps reach them."""

    queue: str
    workers: int
    keepers: int

    def __str__(self) -> str:
        return f"{self.queue}, {_number(self.workers, 'worker')}, {_number(self.keepers, 'keeper')}"


@dataclass(frozen=True, slots=True)
class Use:
    """Seconds of processor time of the workers, the keepers, PostgreSQL and SQS, and bytes of WAL."""

    workers: float
    keepers: float
    postgres: float
    sqs: float
    log: float

    def __sub__(self, other: Use) -> Use:
        return Use(*(ours - theirs for ours, theirs in zip(astuple(self), astuple(other), strict=True)))

    def __truediv__(self, parts: float) -> Use:
        return Use(*(one / parts for one in astuple(self)))


@dataclass(frozen=True, slots=True)
class Found:
    """Rates per round; the use of one W1 run; connections; MB of WAL per second."""

    w1: list[float]
    w2: list[float]
    each: Use
    connections: int
    wal_mb: float


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


async def measure(stage: Stage) -> list[Figure]:
    """Measure every setting in a new database."""
    workers, keepers = stage.size((WORKERS, KEEPERS), ((1, 2), (1,)))
    found: dict[Setting, Found] = {}
    async with queues(stage.folder) as sqs:
        for queue in ("postgres", "sqs"):
            for keeping in keepers:
                for working in workers:
                    setting = Setting(queue, working, keeping)
                    tell(str(setting))
                    more = sqs.settings(f"steps-{working}-{keeping}") if queue == "sqs" else {}
                    found[setting] = await _one(stage, setting, more, sqs.pid)
    stage.curves.append(_curve(workers, keepers, found))
    return [figure for setting, one in found.items() for figure in _figures(setting, one)]


async def _one(stage: Stage, setting: Setting, settings: dict[str, str], sqs: int) -> Found:
    runs = stage.size(RUNS, 10)
    async with stage.world() as world, AsyncExitStack() as stack:
        settings = environment(world, COUNTERSEAL_WORKER_CONCURRENCY=str(CONCURRENCY), **settings)

        async def start(part: str, number: int) -> list[Child]:
            log = world.folder / f"{part}.log"
            command = ["-m", "benchmarks.process", part]
            return [await stack.enter_async_context(child(command, settings, log)) for _ in range(number)]

        keepers, workers = await start("keep", setting.keepers), await start("work", setting.workers)
        running = await stack.enter_async_context(machine(world, concurrency=0))
        one, ten = Load(world, running, "w1"), Load(world, running, "w2")
        await one.run(runs // 3)
        await ten.run(runs // 3)
        w2 = [10 * runs / await ten.run(runs) for _ in range(ROUNDS)]
        before, begun = await _use(world, workers, keepers, sqs), time.perf_counter()
        w1 = [runs / await one.run(runs) for _ in range(ROUNDS)]
        seconds, after = time.perf_counter() - begun, await _use(world, workers, keepers, sqs)
        connections = int(await world.plain.fetchval(_CONNECTIONS))
    used = after - before
    return Found(w1, w2, used / (runs * ROUNDS), connections, used.log / seconds / 1e6)


async def _use(world: World, workers: list[Child], keepers: list[Child], sqs: int) -> Use:
    own = psutil.Process(sqs).cpu_times()
    return Use(
        workers=sum([(await one.ask())["cpu_seconds"] for one in workers]),
        keepers=sum([(await one.ask())["cpu_seconds"] for one in keepers]),
        postgres=await processor_seconds(world.plain),
        sqs=own.user + own.system,
        log=float(await world.plain.fetchval(_WAL)),
    )


def _figures(setting: Setting, found: Found) -> list[Figure]:
    each = found.each
    costs: dict[str, Any] = {
        "workers_ms_per_run": each.workers * 1000,
        "keepers_ms_per_run": each.keepers * 1000,
        "postgres_ms_per_run": each.postgres * 1000,
        "sqs_ms_per_run": each.sqs * 1000,
        "wal_kib_per_run": each.log / 1024,
        "connections": found.connections,
        "wal_mb_per_second": found.wal_mb,
    }
    parts = {"workers": each.workers, "keepers": each.keepers, "PostgreSQL": each.postgres}
    parts |= {"SQS": each.sqs} if setting.queue == "sqs" else {}
    used = " + ".join(f"{name} {seconds * 1000:.1f}" for name, seconds in parts.items())
    used += f" ms; {found.connections} connections; {found.wal_mb:.1f} MB/s of log"
    w1, w2 = middle(found.w1), middle(found.w2)
    return [
        plain(f"{setting}: W1", f"{short(w1)} runs/s", spread=spread_of(found.w1), value=w1),
        plain(f"{setting}: W2", f"{short(w2)} steps/s", spread=spread_of(found.w2), value=w2),
        plain(f"{setting}: processor per W1 run, and more", used, **costs),
    ]


def _curve(workers: tuple[int, ...], keepers: tuple[int, ...], found: dict[Setting, Found]) -> Curve:
    lines: dict[str, dict[str, list[float]]] = {"W1 runs/s": {}, "W2 steps/s": {}}
    for queue in ("postgres", "sqs"):
        for keeping in keepers:
            name = f"{queue}, {_number(keeping, 'keeper')}"
            rows = [found[Setting(queue, working, keeping)] for working in workers]
            lines["W1 runs/s"][name] = [middle(row.w1) for row in rows]
            lines["W2 steps/s"][name] = [middle(row.w2) for row in rows]
    return Curve("scale", "Throughput against worker processes", "workers", tuple(map(str, workers)), lines)
