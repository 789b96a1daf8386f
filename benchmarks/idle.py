"""The cost of waiting: transactions per second and memory of a worker and a keeper over many parked runs.

Both are real processes, with every task that `counterseal work` and `counterseal keep` run.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import pairwise

from benchmarks import crowd
from benchmarks.children import Child, child, environment
from benchmarks.figures import Figure, at_most, median, spread_of
from benchmarks.stage import Stage, tell

PARKED = 100_000
ROUNDS = 2
SECONDS = 10.0
SETTLE_SECONDS = 3.0
GROWTH_MIB = 1.0


@dataclass(frozen=True, slots=True)
class _Used:
    """The use of all processes together since their start."""

    transactions: float
    cpu_seconds: float
    resident_mib: float


async def measure(stage: Stage) -> list[Figure]:
    """Load the parked runs, start the processes, and measure their use while nothing happens."""
    parked, seconds = stage.size(PARKED, 200), stage.size(SECONDS, 1.0)
    async with stage.world() as world:
        tell(f"loading {parked:,} parked runs")
        await (await crowd.begin(world)).grow(finished=0, parked=parked)
        async with AsyncExitStack() as stack:
            children = [
                await stack.enter_async_context(
                    child(["-m", "benchmarks.process", part], environment(world), world.folder / f"{part}.log")
                )
                for part in ("work", "keep")
            ]
            await asyncio.sleep(stage.size(SETTLE_SECONDS, 0.5))
            looks = [await _used(children)]
            for _ in range(ROUNDS):
                await asyncio.sleep(seconds)
                looks.append(await _used(children))
    return _figures(parked, seconds, looks)


async def _used(children: list[Child]) -> _Used:
    answers = [await one.ask() for one in children]
    return _Used(
        sum(answer["transactions"] for answer in answers),
        sum(answer["cpu_seconds"] for answer in answers),
        sum(answer["resident_kib"] for answer in answers) / 1024,
    )


def _figures(parked: int, seconds: float, looks: list[_Used]) -> list[Figure]:
    rates = [(after.transactions - before.transactions) / seconds for before, after in pairwise(looks)]
    grown = looks[-1].resident_mib - looks[0].resident_mib
    cpu = (looks[-1].cpu_seconds - looks[0].cpu_seconds) / (seconds * (len(looks) - 1))
    what = f"idle, {parked:,} parked runs, worker and keeper"
    return [
        at_most(
            f"{what}: transactions/s",
            2,
            median(rates),
            "transactions/s",
            spread=spread_of(rates),
            processor_share=cpu,
        ),
        at_most(
            f"{what}: memory grown", GROWTH_MIB, grown, "MiB", resident_mib=looks[-1].resident_mib, seconds=seconds * 2
        ),
    ]
