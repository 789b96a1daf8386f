"""Throughput as the tables fill.

An empty database on the same server is measured in alternate rounds, so the machine's load affects both alike. The
database grows from level to level; PostgreSQL's statistics are renewed after each.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from benchmarks import crowd
from benchmarks.curves import Curve
from benchmarks.figures import Figure, at_least, median, plain, spread_of, unmeasured
from benchmarks.stage import Stage, tell
from benchmarks.timed import Load, machine
from benchmarks.world import World

ROUNDS = 3
RUNS = 100
FLOOR = 0.9
# The disk space of a finished run while it is loaded: its rows, their WAL, and the sort of an index.
FREE_BYTES_PER_RUN = 10_000


@dataclass(frozen=True, slots=True)
class Level:
    """The numbers of finished and parked runs in the database."""

    finished: int
    parked: int

    def __str__(self) -> str:
        return f"{self.finished:,} finished and {self.parked:,} parked runs" if self.parked else f"{self.finished:,}"


LEVELS = (Level(100_000, 0), Level(1_000_000, 100_000))
QUICK_LEVELS = (Level(500, 0), Level(2_000, 200))


@dataclass(frozen=True, slots=True)
class Rates:
    """W1 runs and W2 steps per second."""

    w1: float
    w2: float


async def measure(stage: Stage) -> list[Figure]:
    """Measure each level against an empty database."""
    levels = stage.size(LEVELS, QUICK_LEVELS)
    last = levels[-1]
    if (free := shutil.disk_usage(stage.folder).free) < FREE_BYTES_PER_RUN * last.finished:
        short = f"{free / 1e9:.0f} GB are free in {stage.folder.parent}; set TMPDIR to a larger disk"
        return [unmeasured(f"throughput with {last}", f"≥ {FLOOR:g} of empty", short)]
    async with stage.world() as empty, stage.world() as full:
        filled = await crowd.begin(full)
        await _rates(empty, stage.size(50, 5))
        found: list[tuple[list[Rates], list[Rates]]] = []
        for level in levels:
            tell(f"loading {level.finished:,} finished and {level.parked:,} parked runs")
            await filled.grow(finished=level.finished, parked=level.parked)
            await _rates(full, stage.size(50, 5))
            found.append(await _rounds(empty, full, stage.size(RUNS, 20)))
        size = await filled.gigabytes()
    stage.curves.append(_curve(levels, found))
    figures = [_figure(level, *rates) for level, rates in zip(levels, found, strict=True)]
    return [*figures, plain(f"database with {last}", f"{size:.1f} GB", value=size)]


async def _rounds(empty: World, full: World, runs: int) -> tuple[list[Rates], list[Rates]]:
    found: tuple[list[Rates], list[Rates]] = ([], [])
    for _ in range(ROUNDS):
        for world, rates in zip((empty, full), found, strict=True):
            rates.append(await _rates(world, runs))
    return found


async def _rates(world: World, runs: int) -> Rates:
    async with machine(world) as running:
        one, ten = Load(world, running, "w1"), Load(world, running, "w2")
        return Rates(runs / await one.run(runs), 10 * runs / await ten.run(runs))


def _figure(level: Level, empty: list[Rates], full: list[Rates]) -> Figure:
    """The figure of one level: the smaller of the W1 and W2 ratios to the empty database."""
    w1 = median([rates.w1 for rates in full]) / median([rates.w1 for rates in empty])
    w2 = median([rates.w2 for rates in full]) / median([rates.w2 for rates in empty])
    rounds = [min(ours.w1 / theirs.w1, ours.w2 / theirs.w2) for ours, theirs in zip(full, empty, strict=True)]
    name = str(level) if level.parked else f"{level} finished runs"
    return at_least(
        f"throughput with {name}",
        FLOOR,
        min(w1, w2),
        "of empty",
        spread=spread_of(rounds),
        w1=w1,
        w2=w2,
        w1_runs_per_second=median([rates.w1 for rates in full]),
        w2_steps_per_second=median([rates.w2 for rates in full]),
    )


def _curve(levels: tuple[Level, ...], found: list[tuple[list[Rates], list[Rates]]]) -> Curve:
    empty = [rates for level, _ in found for rates in level]
    w1 = [median([rates.w1 for rates in empty]), *(median([rates.w1 for rates in full]) for _, full in found)]
    w2 = [median([rates.w2 for rates in empty]), *(median([rates.w2 for rates in full]) for _, full in found)]
    names = ("empty", *(str(level).replace(" finished and", "\nand").replace(" runs", "") for level in levels))
    panels = {"W1 runs/s": {"W1": w1}, "W2 steps/s": {"W2": w2}}
    return Curve("table-size", "Throughput as the tables fill", "finished runs", names, panels)
