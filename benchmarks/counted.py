"""Counted figures: flushed commits, exchanges, WAL and rows. They do not depend on the machine's speed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from benchmarks.counting import Counts
from benchmarks.figures import Figure, at_most, median, plain, spread_of
from benchmarks.stage import Stage
from benchmarks.world import World

WARM_UP = 8
WAL_RUNS = 50
ROUNDS = 3
KIB = 1024

_WAL = "SELECT pg_current_wal_insert_lsn()::text"


async def w1(world: World) -> Counts:
    """Run W1 once. Returns the counts of what it sent."""
    before = await world.counter.read()
    await world.start("w1")
    assert await world.drive()
    (approval,) = await world.open_approvals()
    await world.approve(approval)
    assert await world.drive()
    return await world.counter.read() - before


async def w2(world: World) -> Counts:
    """Run W2 once. Returns the counts of what it sent."""
    before = await world.counter.read()
    await world.start("w2")
    assert await world.drive()
    return await world.counter.read() - before


async def w1_delivered(world: World) -> tuple[Counts, int]:
    """Run W1 once with its card, the card's updates and its bundle. Returns the counts and the number of messages.

    A look for messages that finds none is one statement; it belongs to no run and is subtracted.
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
    looks = Counts(transactions=2, statements=2, flushes=2)
    return await world.counter.read() - before - looks, delivered


async def measure(stage: Stage) -> list[Figure]:
    """Count in a database that nothing else uses."""
    async with stage.world() as world:
        return await _measure(world, stage.size(WAL_RUNS, 10))


async def _measure(world: World, wal_runs: int) -> list[Figure]:
    """Warm up, then count. The warm-up compiles, prepares statements and touches every page after the checkpoint."""
    for _ in range(WARM_UP):
        await w1(world)
        await w2(world)
    one, ten = await w1(world), await w2(world)
    await world.dispatcher().work_off()
    whole, messages = await w1_delivered(world)
    figures = [
        at_most("W1: flushed commits per run", 8, one.flushes, "commits"),
        at_most("W1: the same, card and bundle delivered", 14, whole.flushes, "commits", messages=messages),
        at_most("W1: exchanges per run", 11, one.exchanges, "exchanges", begin_and_commit=one.delimiters),
        at_most("W2: flushed commits per step", 1.2, ten.flushes / 10, "commits", run=ten.flushes),
        at_most("W2: exchanges per run", 13, ten.exchanges, "exchanges", begin_and_commit=ten.delimiters),
    ]
    return [*figures, *await wal(world, wal_runs)]


async def wal(world: World, runs: int = WAL_RUNS) -> list[Figure]:
    """Measure the WAL per run. It starts with a checkpoint: one in between would write every page whole once more."""
    await world.plain.execute("CHECKPOINT")
    for _ in range(runs):
        await w1(world)
    await world.dispatcher().work_off()
    bare = [await _wal_of(world, runs, w1) for _ in range(ROUNDS)]
    ten = [await _wal_of(world, runs, w2) for _ in range(ROUNDS)]
    await world.dispatcher().work_off()
    whole = [await _wal_of(world, runs, w1_delivered) for _ in range(ROUNDS)]
    return [
        at_most("W1: WAL per run", 28, median(bare), "KiB", spread=spread_of(bare)),
        at_most("W2: WAL per run", 36, median(ten), "KiB", spread=spread_of(ten)),
        plain(
            "W1: the same, card and bundle delivered",
            f"{median(whole):.1f} KiB",
            spread=spread_of(whole),
            value=median(whole),
        ),
    ]


async def _wal_of(world: World, runs: int, workload: Callable[[World], Awaitable[object]]) -> float:
    start = await world.plain.fetchval(_WAL)
    for _ in range(runs):
        await workload(world)
    used = await world.plain.fetchval("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1::text::pg_lsn)", start)
    return float(used) / runs / KIB
