"""Times of votes, decisions, starts and purges: what the rows say after the next thing has happened."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from runtime.store import claims
from tests.support.rows import ago, change, read

# Rows are changed by hand.
pytestmark = pytest.mark.tampers

EFFECT = """
workflow: effect
version: 1
reference: ${{ run.id }}
retention: P3D
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}}
  - {id: b, do: probe.effect.apply, with: {name: b}}
"""
ASK = """
policy: ask
version: 1
rules:
  - id: all
    match: {connector: probe}
    outcome: needs_approval
    approvers: [{group: owners, of: 2}]
    expires: PT8H
"""


@pytest.mark.req("V-6")
async def test_a_vote_has_the_time_at_which_it_was_given_last_and_a_decision_keeps_its_own(runtime: Any) -> None:
    await runtime.go(EFFECT, policy=ASK)
    for person in ("olga", "otto"):
        await runtime.person(person, ("owners",))
    approval = await runtime.question()
    await runtime.vote("olga", "approve")
    long_ago = ago(days=2)
    await change(runtime.database, "UPDATE votes SET voted_at = $1", long_ago)
    await runtime.vote("otto", "approve")
    votes = dict(await read(runtime.database, "SELECT person_id, voted_at FROM votes"))
    assert (votes["olga"], votes["otto"] > ago(hours=1)) == (long_ago, True)
    await change(runtime.database, "UPDATE approvals SET decided_at = $1", long_ago)
    await runtime.worker().work_off()
    decided = "SELECT status, decided_at, consumed_at > now() - interval '1 h' FROM approvals WHERE approval_id = $1"
    assert await read(runtime.database, decided, approval) == [("approved", long_ago, True)]


@pytest.mark.req("V-6")
async def test_a_vote_that_is_changed_has_the_time_of_the_change(runtime: Any) -> None:
    await runtime.go(EFFECT, policy=ASK.replace("of: 2", "of: 3"))
    for person in ("olga", "otto", "ida"):
        await runtime.person(person, ("owners",))
    approval = await runtime.question()
    await runtime.vote("olga", "approve")
    await change(runtime.database, "UPDATE votes SET voted_at = $1", ago(days=2))
    await runtime.vote("olga", "reject", on=approval)
    ((choice, voted_at),) = await read(runtime.database, "SELECT choice, voted_at FROM votes")
    assert (choice, voted_at > ago(hours=1)) == ("reject", True)


@pytest.mark.req("X-20")
async def test_retention_counts_from_the_end_of_a_run(runtime: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(EFFECT)
    await runtime.start("effect")
    await change(runtime.database, "UPDATE runs SET created_at = $1", ago(days=9))
    await runtime.worker().work_off()
    ((status, left),) = await read(runtime.database, "SELECT status, purge_at - now() FROM runs")
    assert (status, left) == ("succeeded", pytest.approx(timedelta(days=3), abs=timedelta(minutes=5)))


@pytest.mark.req("Q-12")
async def test_only_the_first_step_starts_its_run(runtime: Any, gate: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(EFFECT)
    await runtime.start("effect")
    places = "SELECT step_key, starts_run FROM queue"
    assert await read(runtime.database, places) == [("a", True)]
    runtime.outside.gates["b"] = gate
    working = asyncio.create_task(runtime.worker().work_off())
    await asyncio.wait_for(gate.reached.wait(), 60)
    held = await read(runtime.database, places)
    gate.opened.set()
    await working
    assert held == [("b", False)]


@pytest.mark.req("Q-13")
async def test_a_workspace_takes_its_turn_among_those_of_its_tenant(runtime: Any) -> None:
    for tenant in ("acme", "beta"):
        await runtime.tenant(tenant)
        await runtime.policy(tenant=tenant)
        await runtime.publish(EFFECT, tenant)
        for workspace in ("one", "two"):
            await runtime.start("effect", ref=workspace, tenant=tenant, workspace=workspace)
    far = "UPDATE workspaces SET virtual_start = $1, virtual_time = $1 WHERE tenant_id = $2"
    await change(runtime.database, far, 500.0, "beta")
    await change(runtime.database, f"{far} AND workspace_id = 'two'", 7.0, "acme")
    async with runtime.database.transaction() as connection:
        for _ in range(2):
            await claims.claim_next(connection, "w", timedelta(seconds=30))
    turns = "SELECT workspace_id, virtual_start, virtual_time FROM workspaces WHERE tenant_id = 'acme' ORDER BY 1"
    assert await read(runtime.database, turns) == [("one", 7.0, 8.0), ("two", 7.0, 7.0)]
