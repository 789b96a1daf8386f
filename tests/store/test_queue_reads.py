"""Reads for `queue status` and metrics: true while steps move, one tenant's under the faces' role, by indexes."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from runtime.requests.publishing import publish_workflow
from runtime.store import claims, queue_reads, read_models
from tests.support.insides import statements_of_the_metrics

# Leases are taken by hand here, so rows move that no line of a run tells.
pytestmark = pytest.mark.tampers

LEASE = timedelta(seconds=30)
ASKS_AND_WAITS = """
workflow: waits
version: 1
reference: ${{ run.id }}
steps:
  - {wait: {for: PT1H}, id: pause}
  - {id: a, do: probe.effect.apply, with: {name: a}}
"""
ONE = """
workflow: one
version: 1
reference: ${{ run.id }}
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}}
"""


async def prepared(runtime: Any, tenant: str, runs: int, workflow: str = ONE, **columns: Any) -> None:
    await runtime.tenant(tenant, **columns)
    await runtime.policy(tenant=tenant)
    await runtime.publish(workflow, tenant)
    for number in range(runs):
        await runtime.start("one" if workflow is ONE else "waits", ref=str(number), tenant=tenant)


async def seen(runtime: Any, tenant: str | None = None) -> dict[str, queue_reads.TenantQueue]:
    async with runtime.database.transaction() as connection:
        return {one.tenant: one for one in await queue_reads.queues(connection, tenant)}


async def test_steps_are_counted_where_they_are(runtime: Any) -> None:
    await prepared(runtime, "alpha", 5, concurrency=4, max_runs_per_min=60)
    await prepared(runtime, "beta", 1)
    async with runtime.database.transaction() as connection:
        for claim in (claims.claim_next, claims.claim_next, claims.claim_next, claims.admit):
            assert await claim(connection, "w", LEASE)
    one = "(SELECT step_id FROM queue WHERE status = 'leased' AND tenant_id = 'alpha' LIMIT 1)"
    await runtime.execute(
        f"UPDATE queue SET expires_at = now() - interval '1 s' WHERE step_id = {one} OR status = 'sent'"
    )
    found = await seen(runtime)
    alpha, beta = found["alpha"], found["beta"]
    assert alpha.steps == {"pending": 2, "admitted": 1, "running": 2}
    assert (alpha.slots, alpha.slots_used, alpha.starts_left) == (4, 3, 57)
    assert [lane.abandoned for lane in alpha.lanes] == [1]
    assert (beta.steps, beta.starts_left) == ({"pending": 0, "admitted": 0, "running": 1}, None)
    assert list(await seen(runtime, "beta")) == ["beta"]


async def test_a_workflow_with_a_cap_is_told_apart(runtime: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    text = ONE.replace("reference", "caps: {max_concurrency: 2}\nreference")
    async with runtime.faces.transaction("acme") as connection:
        await publish_workflow(connection, runtime.definitions, "acme", text, "test.yaml", runtime.actor)
    for number in range(3):
        await runtime.start("one", ref=str(number))
    async with runtime.database.transaction() as connection:
        assert await claims.claim_next(connection, "w", LEASE)
    acme = (await seen(runtime))["acme"]
    assert (acme.caps, acme.slots_used) == ((queue_reads.CapQueue("one", 2, 1, 2),), 1)


async def test_a_step_that_was_parked_has_not_stood_in_line_meanwhile(runtime: Any) -> None:
    await prepared(runtime, "acme", 1, ASKS_AND_WAITS)
    await runtime.worker().work_off()
    assert (await seen(runtime))["acme"].parked == {"timer": 1}
    await runtime.execute("UPDATE waits SET due_at = now() WHERE status = 'waiting'")
    await runtime.sweep()
    acme = (await seen(runtime))["acme"]
    assert (acme.parked, acme.steps["pending"]) == ({}, 1)
    assert acme.oldest_pending_seconds is not None
    assert acme.oldest_pending_seconds < 60
    await runtime.execute("UPDATE runs SET started_at = now() - interval '9 days'")
    await runtime.execute("UPDATE queue SET created_at = now() - interval '1 hour'")
    assert (await seen(runtime))["acme"].oldest_pending_seconds == pytest.approx(3600, abs=60)


@pytest.mark.tampers
async def test_messages_are_counted_by_kind_and_status(runtime: Any) -> None:
    await prepared(runtime, "acme", 3)
    await runtime.worker().work_off()
    (kind,) = (await seen(runtime))["acme"].messages
    assert (kind.kind, kind.status, kind.count) == ("bundle", "pending", 3)
    one = "(SELECT command_id FROM commands WHERE kind = 'bundle' AND status = 'pending' LIMIT 1)"
    lease = "UPDATE commands SET status = 'leased', lease_owner = 'd', lease_expires_at = now() + interval '1 min'"
    await runtime.execute(f"{lease} WHERE command_id = {one}")
    await runtime.execute(f"{lease}, created_at = now() - interval '2 hours' WHERE command_id = {one}")
    both = (await seen(runtime))["acme"].messages[0]
    assert (both.status, both.count, both.oldest_seconds) == ("leased", 2, pytest.approx(7200, abs=60))
    leased = "(SELECT command_id FROM commands WHERE status = 'leased' ORDER BY created_at LIMIT 1)"
    gone = "status = 'failed', lease_owner = NULL, lease_expires_at = NULL"
    await runtime.execute(f"UPDATE commands SET {gone} WHERE command_id = {leased}")
    messages = (await seen(runtime))["acme"].messages
    assert [(one.status, one.count) for one in messages] == [("failed", 1), ("leased", 1), ("pending", 1)]
    assert messages[0].oldest_seconds == pytest.approx(7200, abs=60)


async def test_a_face_sees_its_own_tenant_whatever_it_asks_for(runtime: Any) -> None:
    await prepared(runtime, "alpha", 2)
    await prepared(runtime, "beta", 3)
    async with runtime.faces.transaction("beta") as connection:
        (own,) = await queue_reads.queues(connection)
    assert (own.tenant, own.steps["pending"], own.slots) == ("beta", 3, 16)
    async with runtime.faces.transaction("beta") as connection:
        assert await queue_reads.queues(connection, "alpha") == []


@pytest.mark.parametrize("name", ["_CAPS", "_LANES", "_HELD", "_PARKED", "_PARKED_NEWEST", "_MESSAGES"])
async def test_what_is_over_is_not_read(runtime: Any, name: str) -> None:
    """The plan for full tables goes by the indexes of what is open; ``enable_seqscan`` is off on these connections."""
    await prepared(runtime, "acme", 1)
    async with runtime.database.connection() as connection:
        statement = f"EXPLAIN {getattr(queue_reads, name)}"
        plan = await connection.fetch(statement, ["acme"], *([10] if "$2" in statement else []))
    text = "\n".join(row[0] for row in plan)
    for table, index in (("commands", "ix_commands"), ("queue", "ix_queue"), ("waits", "ix_waits")):
        for line in text.splitlines():
            if f" on {table} " in line:
                assert index in line or "Bitmap Heap" in line, text


_MANY = """
INSERT INTO runs (run_id, tenant_id, workspace_id, workflow, workflow_version, workflow_digest, trigger_type,
  trigger_ref, reference, requested_by, status)
SELECT gen_random_uuid(), 'acme', 'main', 'w', 1, '', 'many', n::text, '', '', 'queued'
FROM generate_series($1::int, $2::int) n"""


async def pages(runtime: Any, most: int) -> int:
    """The pages that one look of the metrics reads."""
    found = 0
    async with runtime.database.transaction() as connection:
        snapshot, counted = statements_of_the_metrics()
        await connection.execute(snapshot)
        counts = counted.replace("$1", "'acme'").replace("$2", str(most))
        names = ("_CAPS", "_LANES", "_HELD", "_PARKED_NEWEST", "_MESSAGES")
        bound = [getattr(queue_reads, name).replace("$1", "'{acme}'").replace("$2", str(most)) for name in names]
        for statement in (counts, *bound):
            (row,) = await connection.fetch(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}")
            plan = (json.loads(row[0]) if isinstance(row[0], str) else row[0])[0]["Plan"]
            found += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    return found


async def test_a_look_of_the_metrics_costs_the_same_however_many_rows_there_are(runtime: Any) -> None:
    await runtime.tenant()
    await runtime.execute("INSERT INTO workspaces (tenant_id, workspace_id) VALUES ('acme', 'main')")

    async def more(first: int, last: int) -> None:
        await runtime.execute(_MANY, first, last)
        new = "FROM runs r WHERE r.trigger_type = 'many' AND r.trigger_ref::int >= $1"
        await runtime.execute(
            "INSERT INTO waits (wait_id, run_id, tenant_id, step_id, step_key, kind, status, token) "
            f"SELECT gen_random_uuid(), r.run_id, 'acme', r.run_id, 'a', 'timer', 'waiting', '' {new}",
            first,
        )
        await runtime.execute(
            "INSERT INTO queue (run_id, tenant_id, step_key, step_id, workspace_id, cap, starts_run, status, epoch) "
            f"SELECT r.run_id, 'acme', 'a', gen_random_uuid(), 'main', '', true, 'claimable', 0 {new}",
            first,
        )

    await more(1, 3_000)
    few = await pages(runtime, 1_000)
    await more(3_001, 20_000)
    await runtime.execute("ANALYZE")  # as autovacuum does soon: by figures of an empty table, a look is planned badly
    assert await pages(runtime, 1_000) <= few * 1.5  # an index may be one page deeper
    async with runtime.faces.transaction("acme") as connection:
        (acme,) = await queue_reads.queues(connection, "acme", 1_000)
        assert (acme.parked, acme.steps["pending"]) == ({"timer": 1_000}, 1_000)
        assert await read_models.run_counts(connection, "acme", 1_000) == [("queued", 1_000)]
