"""The sizes of what runs write and leave (docs/performance.md): WAL, rows at rest, the rows of one step's append."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import pytest

from benchmarks import documents as texts
from benchmarks.counted import w1, w2
from benchmarks.counting import CountingDatabase
from benchmarks.timed import machine
from benchmarks.world import ACTOR, World, new_world
from connectors.port import Call
from core.db import ENGINE_ROLE, Database
from runtime.requests.policies import publish_policy
from runtime.requests.publishing import publish_workflow
from runtime.requests.signaling import Signal, Signaling

DEEP = os.environ.get("COUNTERSEAL_DEEP") == "1"
KIB = 1024
RUNS = 40
WAL = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
AT_REST = """
SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"""
WRITTEN = """
SELECT relname, n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables WHERE n_tup_ins + n_tup_upd + n_tup_del > 0"""
FREE = """
SELECT current_setting('block_size')::int * (100 - substring(reloptions::text from 'fillfactor=([0-9]+)')::int) / 100
FROM pg_class WHERE oid = 'runs'::regclass"""
# Longer rows are shortened by storing values of theirs apart (TOAST_TUPLE_THRESHOLD).
LONGEST_ROW = 2032
# Many steps at once, which take few appends; then one after the other, as all steps of most runs.
LONG = f"""
workflow: long
version: 1
reference: ${{{{ run.id }}}}
steps:
  - id: wide
    foreach: ${{{{ trigger.items }}}}
    max_parallel: 1000
    steps:
      - {{id: one, do: {texts.OPERATION}, with: {{name: "n${{{{ item }}}}", category: c}}}}
  - {{id: park, wait: {{signal: go, correlate: "${{{{ trigger.key }}}}"}}}}
  - id: more
    foreach: ${{{{ trigger.more }}}}
    steps:
      - {{id: another, do: {texts.OPERATION}, with: {{name: "n${{{{ item }}}}", category: c}}}}
"""
Workload = Callable[[World], Awaitable[object]]
LIMITS = {"w1": (w1, 28, 18), "w2": (w2, 36, 25)}


async def _runs(world: World, workload: Workload) -> None:
    for _ in range(RUNS):
        await workload(world)


async def _at_rest(world: World) -> int:
    """The bytes of all tables and indexes, once everything is delivered and what is dead is gone.

    A page of an index that one VACUUM has emptied can be used again after the next one.
    """
    await world.dispatcher().work_off()
    for _ in range(2):
        await world.plain.execute("VACUUM")
    return int(await world.plain.fetchval(AT_REST))


@pytest.mark.parametrize("name", LIMITS)
async def test_a_run_writes_and_leaves_no_more_than_it_may(name: str, postgres_url: str, tmp_path: Path) -> None:
    """The first runs make the room that the dead versions of rows take in turn. A checkpoint must not count."""
    workload, written, left = LIMITS[name]
    async with new_world(postgres_url, tmp_path) as world, world.server_set(full_page_writes="off", autovacuum="off"):
        await _runs(world, workload)
        before = await _at_rest(world)
        start = await world.plain.fetchval(WAL)
        await _runs(world, workload)
        wal = await world.plain.fetchval(WAL) - start
        rest = await _at_rest(world) - before
        assert wal / RUNS / KIB <= written
        assert rest / RUNS / KIB <= left


async def test_the_next_version_of_a_runs_row_finds_room_beside_the_last_one(postgres_url: str, tmp_path: Path) -> None:
    """A page with less room than FREE is cleared of old versions before it is written to (heap_page_prune_opt).

    A page with just a little more is not, so a row has to fit there; else each fourth append of a run whose row has
    that size takes another page, and writes a row into every index.
    """
    async with new_world(postgres_url, tmp_path) as world:
        assert await world.plain.fetchval(FREE) >= LONGEST_ROW


@dataclass
class Rows:
    """The rows that are written between two effects of a run, by table: inserted, updated, deleted."""

    database: Database
    """The rows of one connection, which writes all of them."""
    written: list[dict[str, tuple[int, int, int]]] = field(default_factory=list)
    """The rows written before each effect."""

    async def __call__(self, call: Call) -> None:
        async with self.database.connection() as connection:
            # A connection reports what it has written when it likes, so it is told to.
            await connection.execute("SELECT pg_stat_force_next_flush()")
            self.written.append({name: tuple(counts) for name, *counts in await connection.fetch(WRITTEN)})

    def between(self) -> Iterator[dict[str, tuple[int, ...]]]:
        for before, after in pairwise(self.written):
            moved = {name: _less(counts, before.get(name, (0, 0, 0))) for name, counts in after.items()}
            yield {name: counts for name, counts in moved.items() if any(counts)}


def _less(after: tuple[int, ...], before: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(now - then for now, then in zip(after, before, strict=True))


async def _come_to(world: World, steps: int) -> None:
    """A run that has so many steps behind it, and 20 before it that are ready to be claimed one after the other."""
    async with machine(world) as running:
        await world.start("long", {"items": [*range(steps)], "more": [*range(20)], "key": f"at {steps}"})
        while not await world.plain.fetchval("SELECT count(*) FROM waits WHERE status = 'waiting'"):
            await running.notice(0.05)
    assert world.outside.effects == steps
    signal = Signal(texts.TENANT, f"go:at {steps}", str(uuid4()), ACTOR)
    assert (await Signaling(world.faces, world.definitions).signal(signal)).code == "delivered"


@pytest.mark.req("X-17")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("steps", [10, 10_000 if DEEP else 2_000])
async def test_a_steps_append_writes_two_rows_however_long_its_run_is(
    steps: int, postgres_url: str, tmp_path: Path
) -> None:
    """The book's next row and the run's row; the place in the queue goes on to the next step."""
    async with new_world(postgres_url, tmp_path) as world:
        async with world.faces.transaction(texts.TENANT) as connection:
            policy = texts.policy(50, counting=False)  # a decision that has counted writes meets no other
            await publish_policy(connection, world.definitions, texts.TENANT, policy, "policy.yaml", ACTOR)
            await publish_workflow(connection, world.definitions, texts.TENANT, LONG, "long.yaml", ACTOR)
        await _come_to(world, steps)
        async with CountingDatabase(world.url, ENGINE_ROLE, world.counter, connections=1) as one:
            world.outside.on_effect = rows = Rows(one)
            while await replace(world, engine=one).drive():
                pass
    assert world.outside.effects == steps + 20
    each = {"journal": (1, 0, 0), "runs": (0, 1, 0), "queue": (0, 1, 0)}
    assert list(rows.between()) == [each] * 19
