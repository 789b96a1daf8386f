"""The cost of one step's commit as its run gets longer: statements, rows and WAL (counted), and time.

The run is a loop, driven by one worker on one connection. Between two effects is one commit, which ends a step and
begins the next.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import asyncpg

from benchmarks.counting import Counts
from benchmarks.curves import Curve
from benchmarks.figures import Figure, Verdict, median, plain, short
from benchmarks.stage import Stage
from benchmarks.world import World
from connectors.port import Call

POINTS = (10, 100, 1_000, 10_000)
QUICK_POINTS = (10, 100, 300)
# The number of commits from each point on that are averaged: sometimes a page splits, and a loop reads its items a
# hundred at a time.
WINDOW = 100
LOOP_ITEMS_MAX = 6_000
WAL_TOLERANCE = 1.1

_WAL = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
_ROWS = "SELECT sum(n_tup_ins), sum(n_tup_upd), sum(n_tup_del) FROM pg_stat_user_tables"


@dataclass(frozen=True, slots=True)
class Cost:
    """The average cost of one commit in statements, rows and bytes of WAL; and the median of milliseconds."""

    statements: float
    rows: float
    wal: float
    milliseconds: float


@dataclass
class Watch:
    """Observes one run between its commits: counts at the driver, and rows in PostgreSQL's statistics."""

    world: World
    points: tuple[int, ...]
    seen: int = 0
    counts: dict[int, tuple[Counts, int]] = field(default_factory=dict)
    wal: dict[int, int] = field(default_factory=dict)
    times: dict[int, float] = field(default_factory=dict)

    async def __call__(self, call: Call) -> None:
        self.seen += 1
        self.times[self.seen] = time.perf_counter()
        if any(self.seen - point in (0, WINDOW) for point in self.points):
            self.counts[self.seen] = (await self.world.counter.read(), await self._rows())
            self.wal[self.seen] = int(await self.world.plain.fetchval(_WAL))

    async def _rows(self) -> int:
        """The rows written so far. Forces the product's only connection to report its statistics first."""
        with self.world.counter.paused():
            async with self.world.engine.connection() as connection:
                await connection.execute("SELECT pg_stat_force_next_flush()")
                row: asyncpg.Record | None = await connection.fetchrow(_ROWS)
            await self.world.counter.read()
        assert row is not None
        return sum(int(value or 0) for value in row)

    def cost(self, point: int) -> Cost:
        """The average cost of the ``WINDOW`` commits from the one that ended step ``point`` on."""
        last = point + WINDOW
        (counts, rows), (counts_after, rows_after) = self.counts[point], self.counts[last]
        wal = self.wal[last] - self.wal[point]
        # Skip the interval after ``point``: it includes the time of the observation.
        taken = [self.times[n] for n in range(point + 1, last + 1)]
        each = median([(later - earlier) * 1000 for earlier, later in pairwise(taken)])
        statements = (counts_after - counts).statements
        return Cost(statements / WINDOW, (rows_after - rows) / WINDOW, wal / WINDOW, each)


async def measure(stage: Stage) -> list[Figure]:
    """Drive a run as long as the last point, and measure it at each point."""
    points = stage.size(POINTS, QUICK_POINTS)
    async with stage.world(connections=1) as world:
        await world.start("loop", {"items": list(range(20)), "more": []})
        assert await world.drive()
        watch = Watch(world, points)
        # Full-page writes after a checkpoint and vacuum are no cost of the commit, so switch them off.
        async with world.server_set(full_page_writes="off", autovacuum="off"):
            steps = points[-1] + WINDOW + 2
            first = min(steps, LOOP_ITEMS_MAX)
            world.outside.on_effect = watch
            await world.start("loop", {"items": list(range(first)), "more": list(range(steps - first))})
            assert await world.drive()
        assert watch.seen == steps
    costs = [watch.cost(point) for point in points]
    stage.curves.append(_curve(points, costs))
    return _figures(points, costs)


def _figures(points: tuple[int, ...], costs: list[Cost]) -> list[Figure]:
    words = ", ".join(f"{point:,}" for point in points)
    equal = len({(cost.statements, cost.rows) for cost in costs}) == 1
    wal = [cost.wal for cost in costs]
    flat = max(wal) <= WAL_TOLERANCE * wal[0]
    return [
        Figure(
            f"a step's commit from steps {words} on: statements, rows",
            "equal",
            ", ".join(short(cost.statements) for cost in costs) + "; " + ", ".join(short(cost.rows) for cost in costs),
            Verdict.WITHIN if equal else Verdict.OVER,
            _at(points, "statements", [cost.statements for cost in costs])
            | _at(points, "rows", [cost.rows for cost in costs]),
        ),
        Figure(
            "a step's commit from the same steps on: WAL",
            f"flat (≤ {WAL_TOLERANCE:g} of the first)",
            ", ".join(short(value / 1024) for value in wal) + " KiB",
            Verdict.WITHIN if flat else Verdict.OVER,
            _at(points, "wal_bytes", wal),
        ),
        plain(
            "a step from the same steps on: time, effect to effect",
            ", ".join(short(cost.milliseconds) for cost in costs) + " ms",
            **_at(points, "milliseconds", [cost.milliseconds for cost in costs]),
        ),
    ]


def _at(points: tuple[int, ...], name: str, values: Sequence[float]) -> dict[str, Any]:
    return {f"{name}_{point}": value for point, value in zip(points, values, strict=True)}


def _curve(points: tuple[int, ...], costs: list[Cost]) -> Curve:
    panels = {
        "a commit's statements and rows": {
            "statements": [cost.statements for cost in costs],
            "rows": [cost.rows for cost in costs],
        },
        "KiB of WAL": {"WAL": [cost.wal / 1024 for cost in costs]},
        "ms per step": {"time": [cost.milliseconds for cost in costs]},
    }
    return Curve("run-size", "One step's commit as its run gets longer", "step", points, panels, logarithmic=True)
