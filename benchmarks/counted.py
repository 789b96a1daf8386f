"""Counted figures: transactions, statements, WAL and rows. They do not depend on how fast the machine is."""

from __future__ import annotations

import asyncpg

from benchmarks.counting import Counts
from benchmarks.figures import Figure, Verdict, at_most, median, plain
from benchmarks.world import World
from connectors.port import Call

WARM_UP = 8
WAL_RUNS = 50
ROUNDS = 3
KIB = 1024

_WAL = "SELECT pg_current_wal_insert_lsn()::text"
_ROWS = "SELECT sum(n_tup_ins), sum(n_tup_upd), sum(n_tup_del) FROM pg_stat_user_tables"


async def w1(world: World) -> Counts:
    """One run of W1, and what it sent."""
    before = await world.counter.read()
    await world.start("w1")
    assert await world.drive()
    (approval,) = await world.open_approvals()
    await world.approve(approval)
    assert await world.drive()
    return await world.counter.read() - before


async def w2(world: World) -> Counts:
    """One run of W2, and what it sent."""
    before = await world.counter.read()
    await world.start("w2")
    assert await world.drive()
    return await world.counter.read() - before


async def w1_delivered(world: World) -> tuple[Counts, int]:
    """One run of W1 with its card, the card's updates and its bundle; the second is the number of messages.

    A look that finds nothing more to deliver is one statement; it belongs to no run and is not counted.
    """
    dispatcher = world.dispatcher()
    before = await world.counter.read()
    await world.start("w1")
    assert await world.drive()
    (approval,) = await world.open_approvals()
    delivered = await dispatcher.work_off()
    await world.approve(approval)
    assert await world.drive()
    delivered += await dispatcher.work_off()
    looks = Counts(transactions=2, statements=2)
    return await world.counter.read() - before - looks, delivered


async def measure(world: World) -> list[Figure]:
    """Warm up, then count. The warm-up compiles, prepares statements and touches every page after the checkpoint."""
    for _ in range(WARM_UP):
        await w1(world)
        await w2(world)
    one, ten = await w1(world), await w2(world)
    await world.dispatcher().work_off()
    whole, messages = await w1_delivered(world)
    figures = [
        at_most("W1: transactions per run", 8, one.transactions, "transactions"),
        at_most("W1: the same, card and bundle delivered", 14, whole.transactions, "transactions", messages=messages),
        at_most("W1: statements per run", 14, one.statements, "statements", begin_and_commit=one.delimiters),
        plain("W1: BEGIN and COMMIT beside the statements", f"{one.delimiters}", value=one.delimiters),
        at_most("W2: transactions per step", 1.2, ten.transactions / 10, "transactions", run=ten.transactions),
        plain("W2: statements per step", f"{ten.statements / 10:g}", value=ten.statements / 10),
    ]
    return [*figures, *await wal(world)]


async def wal(world: World) -> list[Figure]:
    """WAL per run. No checkpoint may begin in between, or every page would be written whole once more."""
    await world.plain.execute("CHECKPOINT")
    for _ in range(WAL_RUNS):
        await w1(world)
    await world.dispatcher().work_off()
    bare = [await _wal_of(world, delivered=False) for _ in range(ROUNDS)]
    await world.dispatcher().work_off()
    whole = [await _wal_of(world, delivered=True) for _ in range(ROUNDS)]
    return [
        at_most("W1: WAL per run", 32, median(bare), "KiB", smallest=min(bare), largest=max(bare)),
        plain("W1: the same, card and bundle delivered", f"{median(whole):.1f} KiB", value=median(whole)),
    ]


async def _wal_of(world: World, *, delivered: bool) -> float:
    start = await world.plain.fetchval(_WAL)
    for _ in range(WAL_RUNS):
        await (w1_delivered(world) if delivered else w1(world))
    used = await world.plain.fetchval("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1::text::pg_lsn)", start)
    return float(used) / WAL_RUNS / KIB


class _Growth:
    """Snapshots between the commits of one run: counts at the driver, rows as PostgreSQL's statistics count them.

    Statistics reach the others when a connection reports them, so the product's only connection is told to.
    """

    def __init__(self, world: World, at: tuple[int, ...]) -> None:
        self._world = world
        self._at = at
        self._seen = 0
        self.found: dict[int, tuple[Counts, int]] = {}

    async def __call__(self, call: Call) -> None:
        self._seen += 1
        if self._seen in self._at:
            self.found[self._seen] = (await self._world.counter.read(), await self._rows())

    async def _rows(self) -> int:
        with self._world.counter.paused():
            async with self._world.engine.connection() as connection:
                await connection.execute("SELECT pg_stat_force_next_flush()")
                row: asyncpg.Record | None = await connection.fetchrow(_ROWS)
            await self._world.counter.read()
        assert row is not None
        return sum(int(value or 0) for value in row)

    def commit_at(self, step: int) -> tuple[int, int]:
        """Statements and rows of the commit that ended this step and began the next."""
        (counts, rows), (counts_after, rows_after) = self.found[step], self.found[step + 1]
        return (counts_after - counts).statements, rows_after - rows


async def growth(world: World, steps: int = 200) -> Figure:
    """A step's commit at step 10 and at step ``steps`` of one run. ``world`` has one connection."""
    await world.start("loop", {"items": list(range(20))})
    assert await world.drive()
    watch = _Growth(world, (10, 11, steps, steps + 1))
    world.outside.on_effect = watch
    await world.start("loop", {"items": list(range(steps + 10))})
    assert await world.drive()
    world.outside.on_effect = None
    early, late = watch.commit_at(10), watch.commit_at(steps)
    return Figure(
        f"a step's commit at step 10 and at step {steps}",
        "equal statements and rows",
        f"{early[0]} and {late[0]} statements, {early[1]} and {late[1]} rows",
        Verdict.WITHIN if early == late else Verdict.OVER,
        {"statements_10": early[0], f"statements_{steps}": late[0], "rows_10": early[1], f"rows_{steps}": late[1]},
    )
