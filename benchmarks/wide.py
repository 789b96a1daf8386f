"""W3: one run of 1,000 parallel steps, worked on by one, two and four processes with 16 steps in flight in all."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from dataclasses import dataclass

from benchmarks import documents as texts
from benchmarks.children import working
from benchmarks.figures import Figure, at_least, at_most, median, plain, short, spread_of
from benchmarks.stage import Stage
from benchmarks.timed import Load, Machine, machine
from benchmarks.world import ACTOR, World
from runtime.requests.policies import publish_policy

STEPS = 1_000
IN_FLIGHT = 16
ROUNDS = 3
PROCESSES = {1: 0.2, 2: 0.3, 4: 0.6}
"""The budget of appends per step, by the number of processes."""

_DONE = "SELECT version FROM runs WHERE run_id = $1 AND status = 'succeeded'"


@dataclass(frozen=True, slots=True)
class Found:
    """Steps per second of each round, the median of appends per step, and W2's steps per second for comparison."""

    rates: list[float]
    appends: float
    narrow: float


async def measure(stage: Stage) -> list[Figure]:
    """Measure every number of processes, each in a new database."""
    found = {processes: await _one(stage, processes) for processes in PROCESSES}
    return [figure for processes, one in found.items() for figure in _figures(processes, one)]


async def _one(stage: Stage, processes: int) -> Found:
    steps = stage.size(STEPS, 100)
    async with stage.world() as world, AsyncExitStack() as stack:
        async with world.faces.transaction(texts.TENANT) as connection:
            # Decisions by a rule that counts the run's writes do not commute, so parallel steps would have to wait.
            policy = texts.policy(50, counting=False)
            await publish_policy(connection, world.definitions, texts.TENANT, policy, "policy.yaml", ACTOR)
        for _ in range(processes):
            await stack.enter_async_context(working(world, IN_FLIGHT // processes))
        running = await stack.enter_async_context(machine(world, concurrency=0))
        narrow = Load(world, running, "w2")
        await narrow.run(stage.size(20, 3))
        w2 = stage.size(40, 5)
        beside = 10 * w2 / await narrow.run(w2)
        await run(world, running, steps)
        rounds = [await run(world, running, steps) for _ in range(ROUNDS)]
    return Found([rate for rate, _ in rounds], median([appends for _, appends in rounds]), beside)


async def run(world: World, running: Machine, steps: int) -> tuple[float, float]:
    """Run so many parallel steps in one run. Returns steps per second, and appends per step."""
    run_id, begun = await world.start("w3", {"items": [*range(steps)]}), time.perf_counter()
    while (version := await world.plain.fetchval(_DONE, run_id)) is None:
        await running.notice(0.05)
    return steps / (time.perf_counter() - begun), version / steps


def _figures(processes: int, found: Found) -> list[Figure]:
    what = f"W3, {processes} process{'es' * (processes > 1)}"
    rate, spread = median(found.rates), spread_of(found.rates)
    each = at_most(f"{what}: appends a step", PROCESSES[processes], found.appends, "appends")
    if processes > 2:
        return [each, plain(f"{what}: steps/s", short(rate), spread=spread, value=rate)]
    share = rate / found.narrow
    beside = at_least(f"{what}: steps/s, against W2's", 0.9, share, "of it", steps_per_second=rate, w2=found.narrow)
    return [each, beside]
