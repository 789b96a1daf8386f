"""Unique constraints: each, by name, refuses the same row again and takes another."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from core.grouping import Grouping
from runtime.engine.model.rows import Commit
from tests.support.store_database_rules import ROWS

pytestmark = pytest.mark.tampers

SHARED = """
workflow: shared
version: 1
reference: INC1
steps:
  - {id: open, do: probe.ticket.open, with: {name: t}}
"""
OTHER_ID = """
INSERT INTO runs (run_id, tenant_id, workspace_id, workflow, workflow_version, workflow_digest, trigger_type,
  trigger_ref, reference, requested_by, status)
VALUES (gen_random_uuid(), $1, 'w', 'w', 1, 'd', 't', $2::uuid::text, 'r', 'p', 'queued')"""
LEASED = """
INSERT INTO commands (command_id, tenant_id, run_id, kind, payload, status, ordering_key)
VALUES (gen_random_uuid(), $1, $2, 'card', '{}', 'pending', $2::uuid::text)"""
LEASE = "UPDATE commands SET status = 'leased' WHERE ordering_key = $1::uuid::text"

# By what each is the same.
UNIQUE = {
    "ix_commands_one_at_a_time": "ordering_key",
    "ix_votes_unreviewed": "tenant_id",
    "pk_searched": "tenant_id, name, value, run_id",
    "pk_actions": "tenant_id, account, key",
    "pk_approvals": "approval_id",
    "pk_audit_events": "stream_id, seq",
    "pk_bundles": "run_id, lines",
    "pk_caps": "tenant_id, cap",
    "pk_commands": "command_id",
    "pk_directories": "tenant_id, digest",
    "pk_effects": "tenant_id, key",
    "pk_families": "root_run_id",
    "pk_log_checkpoints": "tenant_id, size",
    "pk_log_counters": "tenant_id",
    "pk_log_leaves": "tenant_id, leaf_id",
    "uq_log_leaves_place": "tenant_id, place",
    "pk_notices": "tenant_id, person_id, topic",
    "pk_sessions": "session_hash",
    "pk_group_members": "tenant_id, group_name, person_id",
    "pk_inbox": "tenant_id, source, notification_id",
    "pk_journal": "run_id, n",
    "pk_ledger": "run_id, superstep, step_key, channel",
    "pk_operations": "tenant_id, name, version",
    "pk_people": "tenant_id, person_id",
    "pk_policies": "tenant_id, digest",
    "pk_queue": "run_id, step_key",
    "pk_records": "tenant_id, collection, key",
    "pk_refusals": "tenant_id, key, approval_id",
    "pk_remains": "run_id",
    "pk_runs": "run_id",
    "pk_schedules": "tenant_id, workflow",
    "pk_tenant_settings": "tenant_id, version",
    "pk_tenants": "tenant_id",
    "pk_tokens": "token_hash",
    "uq_triggered_waiting": "tenant_id, workflow, reference",
    "pk_triggered": "tenant_id, workflow, trigger_ref",
    "pk_unavailable": "tenant_id, place",
    "pk_votes": "approval_id, person_id",
    "pk_waits": "wait_id",
    "pk_workflows": "tenant_id, name, version",
    "pk_workspaces": "tenant_id, workspace_id",
    "uq_runs_tenant_id_workflow_trigger_type_trigger_ref": "tenant_id, workflow, trigger_type, trigger_ref",
}


async def refused(runtime: Any, statement: str, *parameters: Any) -> str:
    """The constraint that refuses a row; "" if the row is taken."""
    try:
        await runtime.execute(statement, *parameters)
    except asyncpg.UniqueViolationError as error:
        return str(error.constraint_name)
    return ""


@pytest.mark.req("Q-14")
async def test_what_is_unique_is_this(runtime: Any) -> None:
    found = await runtime.all(
        "SELECT c.relname, string_agg(a.attname::text, ', ' ORDER BY k.place) AS columns FROM pg_index i "
        "JOIN pg_class c ON c.oid = i.indexrelid CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY "
        "AS k(number, place) JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number "
        "WHERE i.indisunique AND c.relnamespace = 'public'::regnamespace "
        "AND c.relname <> 'alembic_version_pkc' GROUP BY 1"
    )
    assert {row["relname"]: row["columns"] for row in found} == UNIQUE


@pytest.mark.req("Q-14")
@pytest.mark.parametrize("table", ROWS)
async def test_the_same_row_is_refused(runtime: Any, table: str) -> None:
    run = uuid4()
    for each in [*ROWS][: [*ROWS].index(table) + 1]:
        await runtime.execute(ROWS[each], "alpha", run)
    assert await refused(runtime, ROWS[table], "alpha", run) == f"pk_{table}"


@pytest.mark.req("Q-1")
@pytest.mark.req("O-7")
async def test_one_run_for_a_trigger_and_one_message_of_a_card_at_a_time(runtime: Any) -> None:
    run = uuid4()
    for table in ("tenants", "runs"):
        await runtime.execute(ROWS[table], "alpha", run)
    assert (await refused(runtime, OTHER_ID, "alpha", run)).startswith("uq_runs_")
    assert await refused(runtime, OTHER_ID, "alpha", uuid4()) == ""
    for _ in range(2):
        await runtime.execute(LEASED, "alpha", run)
    assert await refused(runtime, LEASE, run) == "ix_commands_one_at_a_time"


@pytest.mark.req("Q-14")
@pytest.mark.req("U-6")
async def test_two_first_intents_race_for_one_key_and_one_effect_lands(
    runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have looked, and found that nobody has the key: the table decides (promise 2)."""
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(SHARED)
    for ref in ("1", "2"):
        await runtime.start("shared", ref=ref)
    first: list[Any] = []
    met, apply = asyncio.Event(), Grouping.apply

    async def together(grouping: Any, commit: Any) -> Any:
        if isinstance(commit, Commit) and commit.effects and len(first) < 2:
            first.append(commit.run_id)
            if len(first) == 2:
                met.set()
            await asyncio.wait_for(met.wait(), 30)
        return await apply(grouping, commit)

    monkeypatch.setattr(Grouping, "apply", together)
    await asyncio.gather(*(runtime.worker(name, concurrency=1).work_off() for name in ("w1", "w2")))
    assert len(set(first)) == 2
    await runtime.wait_is_due()
    assert len(runtime.outside.effects) == 1
    assert [run.status for run in await runtime.books.runs()] == ["succeeded"] * 2
