"""Leases, slots, caps and fairness: decided by one statement, under as many workers as there are."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from runtime.kernel.transition import Transition
from runtime.store import claims
from runtime.store.commits import apply
from runtime.store.views import load
from runtime.verbs.starting import cancel_run
from runtime.work.claiming import claimed

# Leases are taken by hand here, so rows move that no line of a run tells.
pytestmark = pytest.mark.tampers

LEASE = timedelta(seconds=30)
ONE = """
workflow: one
version: 1
reference: ${{ run.id }}
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}}
"""
BESIDE = """
workflow: beside
version: 1
reference: ${{ run.id }}
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}, needs: []}
  - {id: b, do: probe.effect.apply, with: {name: b}, needs: []}
  - {id: c, do: probe.effect.apply, with: {name: c}, needs: []}
"""


async def queued(runtime: Any, tenant: str, count: int, *, workspace: str = "main", **columns: Any) -> None:
    """A tenant with so many runs of one step in its queue."""
    if await runtime.one("SELECT FROM tenants WHERE tenant_id = $1", tenant) is None:
        await runtime.tenant(tenant, **columns)
        await runtime.policy(tenant=tenant)
        await runtime.publish(ONE, tenant)
    for number in range(count):
        await runtime.start("one", ref=f"{workspace}:{number}", tenant=tenant, workspace=workspace)


async def claim(runtime: Any, owner: str = "w") -> Any:
    async with runtime.database.transaction() as connection:
        return await claims.claim_next(connection, owner, LEASE)


async def claimed_in_order(runtime: Any, count: int) -> list[str]:
    """The tenants whose steps ``count`` claims get, each given back at once."""
    order = []
    for _ in range(count):
        found = await claim(runtime)
        assert found is not None
        order.append(found["run"]["tenant_id"])
        await runtime.execute("UPDATE slots SET step_id = NULL")
    return order


# -- leases ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("Q-9")
async def test_of_many_workers_one_gets_the_step(runtime: Any) -> None:
    await queued(runtime, "acme", 1)
    found = await asyncio.gather(*(claim(runtime, f"w{number}") for number in range(12)))
    (winner,) = [row for row in found if row is not None]
    step = await runtime.one("SELECT lease_owner, lease_epoch, status, lease_expires_at > now() AS held FROM steps")
    assert dict(step) == {
        "lease_owner": winner["step"]["lease_owner"],
        "lease_epoch": 1,
        "status": "running",
        "held": True,
    }


@pytest.mark.req("Q-9")
@pytest.mark.req("Q-8")
@pytest.mark.tampers
async def test_an_old_lease_writes_nothing(runtime: Any) -> None:
    await queued(runtime, "acme", 1)
    first = await claim(runtime, "slow")
    graph = (await runtime.definitions_of("acme", "one")).graph
    async with runtime.database.transaction() as connection:
        view, step, _ = await claimed(connection, first, runtime.definitions)
        begun = Transition(view, graph)
        begun.started(step)
        assert await apply(connection, begun.commit())
        stale = Transition(begun.after(), graph)
    async with runtime.database.transaction() as connection:
        view = await load(connection, view.run_id, runtime.definitions.graphs, lock=True)
        lost = Transition(view, graph)
        lost.expire_lease(view.steps["a"])
        assert await apply(connection, lost.commit())
    second = await claim(runtime, "fast")
    assert second["step"]["lease_epoch"] == 2
    before = await runtime.fingerprint()
    stale.succeed(stale.view.steps["a"], {"late": True}, {})
    async with runtime.database.connection() as connection:
        assert not await apply(connection, stale.commit())
    assert await runtime.fingerprint() == before


@pytest.mark.req("Q-9")
async def test_a_worker_that_comes_back_too_late_changes_nothing(runtime: Any, late_gate: Any) -> None:
    await queued(runtime, "acme", 1)
    runtime.outside.gates["a"] = late_gate
    slow = asyncio.create_task(runtime.worker("slow").work_off())
    await asyncio.wait_for(late_gate.reached.wait(), 60)
    await runtime.execute("UPDATE steps SET lease_expires_at = now()")
    assert await runtime.sweep() == 1
    await runtime.worker("fast").work_off()
    before = await runtime.fingerprint()
    late_gate.opened.set()
    await slow
    assert await runtime.fingerprint() == before
    assert len(runtime.outside.effects) == 1
    await runtime.at_rest()


@pytest.mark.req("Q-10")
async def test_a_heartbeat_extends_what_is_still_held(runtime: Any) -> None:
    await queued(runtime, "acme", 2)
    ours, theirs = await claim(runtime, "w1"), await claim(runtime, "w2")
    steps = [UUID(row["step"]["step_id"]) for row in (ours, theirs)]
    async with runtime.database.connection() as connection:
        assert await claims.heartbeat(connection, "w1", timedelta(hours=1), steps) == {steps[0]}
    rows = await runtime.all("SELECT lease_owner FROM steps WHERE lease_expires_at > now() + interval '30 minutes'")
    assert [row["lease_owner"] for row in rows] == ["w1"]


# -- caps ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("Q-12")
async def test_no_more_steps_run_at_once_than_the_tenant_may(runtime: Any) -> None:
    await queued(runtime, "acme", 10, concurrency=3)
    found = await asyncio.gather(*(claim(runtime, f"w{number}") for number in range(12)))
    assert sum(row is not None for row in found) == 3
    assert await claim(runtime) is None
    held = next(row for row in found if row is not None)
    await runtime.execute("UPDATE slots SET step_id = NULL WHERE step_id = $1", UUID(held["step"]["step_id"]))
    again = await asyncio.gather(*(claim(runtime, f"x{number}") for number in range(4)))
    assert sum(row is not None for row in again) == 1


@pytest.mark.req("Q-12")
async def test_workers_never_crowd_the_outside_beyond_the_cap(runtime: Any) -> None:
    await queued(runtime, "acme", 12, concurrency=2)
    runtime.outside.on_perform = None
    while any(await asyncio.gather(*(runtime.worker(f"w{number}").work_off() for number in range(4)))):
        pass
    assert len(runtime.outside.effects) == 12
    assert runtime.outside.crowd <= 2
    await runtime.at_rest()


@pytest.mark.req("Q-12")
async def test_runs_start_no_faster_than_the_tenant_may(runtime: Any) -> None:
    await queued(runtime, "acme", 9, max_runs_per_min=3)
    found = await asyncio.gather(*(claim(runtime, f"w{number}") for number in range(10)))
    assert sum(row is not None for row in found) == 3
    await runtime.execute("UPDATE tenants SET starts_left_at = starts_left_at - interval '41 seconds'")
    found = await asyncio.gather(*(claim(runtime, f"x{number}") for number in range(6)))
    assert sum(row is not None for row in found) == 2
    await runtime.execute("UPDATE tenants SET starts_left_at = starts_left_at - interval '1 hour'")
    found = await asyncio.gather(*(claim(runtime, f"y{number}") for number in range(6)))
    assert sum(row is not None for row in found) == 3, "a minute's starts are saved up, not an hour's"


@pytest.mark.req("Q-12")
async def test_the_cap_on_starts_counts_runs_and_holds_up_none_that_has_started(runtime: Any) -> None:
    await queued(runtime, "acme", 0, max_runs_per_min=1)
    await runtime.publish(BESIDE)
    runs = [(await runtime.start("beside", ref=str(number))).run_id for number in range(2)]
    await runtime.worker().work_off()
    assert [await runtime.status(run_id) for run_id in runs] == ["succeeded", "queued"]


# -- fairness --------------------------------------------------------------------------------------------------------


@pytest.mark.req("Q-13")
async def test_a_long_queue_does_not_keep_short_ones_waiting(runtime: Any) -> None:
    await queued(runtime, "alpha", 50)
    await queued(runtime, "beta", 2)
    await queued(runtime, "gamma", 2)
    order = await claimed_in_order(runtime, 12)
    assert set(order[:3]) == {"alpha", "beta", "gamma"}
    assert Counter(order[:6]) == {"alpha": 2, "beta": 2, "gamma": 2}
    assert set(order[6:]) == {"alpha"}


@pytest.mark.req("Q-13")
async def test_a_tenant_of_twice_the_weight_is_served_twice_as_often(runtime: Any) -> None:
    await queued(runtime, "heavy", 24, weight=2.0)
    await queued(runtime, "light", 24)
    served = Counter(await claimed_in_order(runtime, 24))
    assert served["heavy"] == pytest.approx(16, abs=1)


@pytest.mark.req("Q-13")
async def test_who_was_idle_starts_level_and_not_ahead(runtime: Any) -> None:
    await queued(runtime, "early", 40)
    await claimed_in_order(runtime, 20)
    await queued(runtime, "late", 20)
    order = await claimed_in_order(runtime, 12)
    assert "late" in order[:2]
    assert Counter(order)["late"] <= 7


@pytest.mark.req("Q-13")
async def test_a_cap_on_starts_buys_no_better_turn(runtime: Any) -> None:
    await queued(runtime, "metered", 20, max_runs_per_min=600)
    await queued(runtime, "plain", 20)
    assert Counter(await claimed_in_order(runtime, 12)) == {"metered": 6, "plain": 6}


@pytest.mark.req("Q-13")
async def test_the_workspaces_of_a_tenant_take_turns_too(runtime: Any) -> None:
    await queued(runtime, "acme", 20, workspace="busy")
    await queued(runtime, "acme", 2, workspace="calm")
    order = [(await claim(runtime))["run"]["workspace_id"] for _ in range(4)]
    assert Counter(order) == {"busy": 2, "calm": 2}


@pytest.mark.req("Q-13")
async def test_a_slot_that_somebody_is_just_taking_costs_nobody_a_turn(runtime: Any) -> None:
    await queued(runtime, "alpha", 5, concurrency=1)
    await queued(runtime, "beta", 5, concurrency=1)
    async with runtime.database.transaction() as one, runtime.database.transaction() as two:
        found = [await claims.claim_next(connection, "w", LEASE) for connection in (one, two)]
        assert {row["run"]["tenant_id"] for row in found} == {"alpha", "beta"}


# -- stale commands and admission ------------------------------------------------------------------------------------


async def test_a_command_whose_step_is_over_is_ended_and_the_next_one_claimed(runtime: Any) -> None:
    await queued(runtime, "acme", 1)
    await runtime.worker().work_off()
    await runtime.execute("UPDATE commands SET status = 'pending' WHERE kind = 'step'")
    await runtime.start("one", ref="another")
    found = await claim(runtime)
    assert found is not None
    assert await claim(runtime) is None
    rows = await runtime.all("SELECT status FROM commands WHERE kind = 'step' ORDER BY command_id")
    assert [row["status"] for row in rows] == ["rejected", "dispatched"]
    assert len(await runtime.all("SELECT FROM slots WHERE step_id IS NOT NULL")) == 1


async def admit(runtime: Any) -> Any:
    async with runtime.database.connection() as connection:
        return await claims.admit(connection, "s", LEASE)


@pytest.mark.req("O-7")
async def test_admission_takes_a_slot_once_and_only_for_what_is_ready(runtime: Any) -> None:
    await queued(runtime, "acme", 2, concurrency=2)
    admitted = await admit(runtime)
    await runtime.execute("UPDATE commands SET status = 'pending' WHERE status = 'leased'")  # as after a lost message
    assert (await admit(runtime))["step_id"] == admitted["step_id"]
    assert (await admit(runtime))["step_id"] != admitted["step_id"]
    assert await admit(runtime) is None
    async with runtime.database.transaction() as connection:
        assert await claims.claim_step(connection, "w", LEASE, admitted["step_id"]) is not None
        assert await claims.claim_step(connection, "w", LEASE, admitted["step_id"]) is None
    await runtime.execute("UPDATE commands SET status = 'pending' WHERE step_id = $1", admitted["step_id"])
    assert await admit(runtime) is None, "it is running already"
    assert len(await runtime.all("SELECT FROM slots WHERE step_id IS NOT NULL")) == 2


async def test_a_canceled_run_gives_back_the_slot_that_it_was_admitted_with(runtime: Any) -> None:
    await queued(runtime, "acme", 1)
    admitted = await admit(runtime)
    async with runtime.database.transaction() as connection:
        await cancel_run(connection, runtime.definitions, "acme", admitted["run_id"], runtime.actor, "no")
    await runtime.at_rest()
    async with runtime.database.transaction() as connection:
        assert await claims.claim_step(connection, "w", LEASE, admitted["step_id"]) is None
