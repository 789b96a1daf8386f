"""Runs by the hundred thousand are copies: each whole, none of them in the way of what really runs."""

from __future__ import annotations

from pathlib import Path

from benchmarks import crowd, run_size
from benchmarks.figures import Verdict
from benchmarks.stage import Stage
from benchmarks.world import World, new_world

INDEXES = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY indexname"
CONSTRAINTS = """
SELECT conname, conrelid::regclass::text, contype::text FROM pg_constraint
WHERE connamespace = 'public'::regnamespace ORDER BY conname"""
FOREIGN_KEYS = "SELECT conrelid::regclass::text AS table, conname FROM pg_constraint WHERE contype = 'f'"
RUNS = "SELECT workflow, status, count(*) FROM runs GROUP BY 1, 2 ORDER BY 1, 2"
ROWS = """
SELECT count(*) AS runs,
  (SELECT count(*) FROM bundles) AS bundles, (SELECT count(*) FROM votes) AS votes,
  (SELECT count(DISTINCT run_id) FROM journal) AS chains
FROM runs"""


async def _one_more_run(world: World) -> None:
    await world.start("w1")
    assert await world.drive()
    (approval,) = set(await world.open_approvals()) - set(await _parked(world))
    await world.approve(approval)
    assert await world.drive()


async def _parked(world: World) -> list[object]:
    rows = await world.plain.fetch(
        "SELECT approval_id FROM approvals JOIN runs USING (run_id) WHERE workflow = 'parked'"
    )
    return [row["approval_id"] for row in rows]


async def test_copies_are_whole_and_in_nobodys_way(postgres_url: str, tmp_path: Path) -> None:
    async with new_world(postgres_url, tmp_path) as world:
        plain = world.plain
        filled = await crowd.begin(world)
        before = (
            [tuple(row) for row in await plain.fetch(INDEXES)],
            [tuple(row) for row in await plain.fetch(CONSTRAINTS)],
        )
        await filled.grow(finished=50, parked=3)
        await filled.grow(finished=100, parked=7)
        assert before == (
            [tuple(row) for row in await plain.fetch(INDEXES)],
            [tuple(row) for row in await plain.fetch(CONSTRAINTS)],
        )
        assert [tuple(row) for row in await plain.fetch(RUNS)] == [
            ("one", "succeeded", 99),
            ("parked", "waiting_approval", 8),
            ("w1", "succeeded", 3),
        ]
        row = await plain.fetchrow(ROWS)
        assert row is not None
        assert tuple(row) == (110, 102, 3, 110)
        for key in await plain.fetch(FOREIGN_KEYS):
            await plain.execute(f'ALTER TABLE {key["table"]} VALIDATE CONSTRAINT "{key["conname"]}"')
        assert await world.sweeper().sweep() == 0
        assert await world.dispatcher().work_off() == 0
        assert not await world.drive()
        await _one_more_run(world)
        assert await plain.fetchval("SELECT count(*) FROM runs WHERE workflow = 'w1' AND status = 'succeeded'") == 4


async def test_no_copy_names_the_run_that_it_was_made_of(postgres_url: str, tmp_path: Path) -> None:
    async with new_world(postgres_url, tmp_path) as world:
        filled = await crowd.begin(world)
        await filled.grow(finished=50, parked=2)
        for model in filled.models.values():
            ids = await world.plain.fetch(
                "SELECT $1::text AS id UNION SELECT step_id::text FROM waits WHERE run_id = $1::uuid "
                "UNION SELECT approval_id::text FROM approvals WHERE run_id = $1::uuid",
                str(model),
            )
            for table in ("waits", "commands", "approvals", "bundles", "runs", "votes"):
                owner = "approval_id NOT IN (SELECT approval_id FROM approvals WHERE run_id = $1)"
                where = owner if table == "votes" else "run_id <> $1"
                for row in ids:
                    found = await world.plain.fetchval(
                        f"SELECT count(*) FROM {table} t WHERE {where} AND position($2 IN t::text) > 0",
                        model,
                        row["id"],
                    )
                    assert found == 0, (table, row["id"])


async def test_a_steps_commit_is_measured_to_be_flat(postgres_url: str, tmp_path: Path) -> None:
    stage = Stage(postgres_url, tmp_path, quick=True)
    counted, wal, _ = await run_size.measure(stage)
    assert counted.verdict is Verdict.WITHIN, counted.measured
    assert float(wal.numbers["wal_bytes_300"]) > 0
    assert [curve.name for curve in stage.curves] == ["run-size"]
