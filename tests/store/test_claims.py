"""Leases, caps and fairness: decided by one statement, under as many workers as there are."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from time import monotonic
from typing import Any
from uuid import UUID

import pytest

from runtime.engine.life.transition import Transition
from runtime.requests.steering import cancel_run
from runtime.store import claims
from runtime.store.commits import apply, apply_together
from runtime.work.holding import claim_of, read_claimed
from runtime.work.lease import Recent
from tests.support.for_all import ForAll
from tests.support.store_claims import LEASE, ONE

# Leases are taken by hand here, so rows move that no line of a run tells.
pytestmark = pytest.mark.tampers

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


async def batch(runtime: Any, count: int, owner: str = "w") -> list[Any]:
    async with runtime.database.connection() as connection:
        return list(await claims.claim_next(connection, owner, LEASE, count))


async def claim(runtime: Any, owner: str = "w") -> Any:
    return next(iter(await batch(runtime, 1, owner)), None)


async def claimed_in_order(runtime: Any, count: int) -> list[str]:
    """The tenants whose steps ``count`` claims get, whose places are free again at once."""
    order = []
    for _ in range(count):
        found = await claim(runtime)
        assert found is not None
        order.append(found["run"]["tenant_id"])
        await runtime.trouble.free_slots()
    return order


async def waits(runtime: Any, task: asyncio.Task[Any]) -> None:
    """Until this task waits for a lock, and it has to."""
    while not await runtime.one("SELECT 1 FROM pg_locks WHERE NOT granted"):
        assert not task.done(), "it waited for nobody"


async def place(runtime: Any) -> Any:
    """The one row that there is."""
    return await runtime.one("SELECT status, owner, epoch, expires_at > now() AS held FROM queue")


async def begun(runtime: Any, found: Any) -> Transition:
    """The step of this claim begun, as its worker does it; what that worker decides next."""
    graph = (await runtime.definitions_of("acme", found["run"]["workflow"])).graph
    met, step, _ = await read_claimed(
        runtime.database, found, runtime.definitions, ForAll(runtime.connectors), Recent(), monotonic()
    )
    transition = Transition(met.view, graph)
    transition.started(step)
    commit = transition.commit()
    commit.held = [claim_of(found)[0]]
    async with runtime.database.connection() as connection:
        assert await apply(connection, commit)
    return Transition(transition.after(), graph)


# -- leases ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("Q-9")
async def test_of_many_workers_one_gets_the_step(runtime: Any) -> None:
    await queued(runtime, "acme", 1)
    found = await asyncio.gather(*(claim(runtime, f"w{number}") for number in range(12)))
    (winner,) = [row for row in found if row is not None]
    assert tuple(await place(runtime)) == ("leased", winner["step"]["lease_owner"], 1, True)


@pytest.mark.req("Q-9")
@pytest.mark.req("Q-8")
@pytest.mark.tampers
@pytest.mark.parametrize("change", ["lease_id = gen_random_uuid()", "epoch = epoch + 1"])
async def test_a_settle_under_another_lease_or_epoch_writes_nothing(runtime: Any, change: str) -> None:
    """The lease's id alone tells a claim that PostgreSQL lost from the next, and the epoch two leases of one step."""
    await queued(runtime, "acme", 1)
    first = await claim(runtime, "slow")
    stale = await begun(runtime, first)
    stale.succeed(stale.view.run.steps["a"], {"late": True}, {})
    commit = stale.commit()
    commit.held = [claim_of(first)[0]]
    await runtime.execute(f"UPDATE queue SET {change}")
    before = await runtime.fingerprint()
    async with runtime.database.connection() as connection:
        assert not await apply(connection, commit)
        assert await apply_together(connection, [commit]) == {}
    assert await runtime.fingerprint() == before


@pytest.mark.req("Q-9")
@pytest.mark.parametrize("grouped", [False, True])
async def test_a_lease_retaken_while_its_old_owner_waits_for_the_lock_is_lost(runtime: Any, grouped: bool) -> None:
    """Take a lease while its old owner waits for the row: that one has an old snapshot, and must see the new row."""
    await queued(runtime, "acme", 1)
    first = await claim(runtime, "slow")
    stale = await begun(runtime, first)
    stale.succeed(stale.view.run.steps["a"], {"late": True}, {})
    commit = stale.commit()
    commit.held = [claim_of(first)[0]]

    async def settle() -> bool:
        async with runtime.database.connection() as connection:
            return bool(await (apply_together(connection, [commit]) if grouped else apply(connection, commit)))

    async with runtime.database.transaction() as other:
        await other.execute("UPDATE queue SET owner = 'fast', lease_id = gen_random_uuid()")
        late = asyncio.create_task(settle())
        await waits(runtime, late)
    assert not await late
    assert (await runtime.books.step()).status == "running"


@pytest.mark.req("Q-9")
@pytest.mark.req("Q-8")
async def test_epochs_grow_from_lease_to_lease_begun_or_not(runtime: Any) -> None:
    await queued(runtime, "acme", 1)
    for epoch in range(1, 5):
        found = await claim(runtime, f"w{epoch}")
        assert found["step"]["lease_epoch"] == epoch
        if epoch % 2:
            await begun(runtime, found)
        await runtime.trouble.expire_leases()
        assert await runtime.sweep() == 1
        assert tuple(await place(runtime)) == ("claimable", None, epoch, None)
    told = [(event.type, event.data.get("epoch")) for event in await runtime.books.audit() if event.step == "a"]
    assert told == [(kind, epoch) for epoch in range(1, 5) for kind in ("step.started", "lease.expired")]


@pytest.mark.req("Q-10")
@pytest.mark.parametrize("meanwhile", ["expires_at = now() + interval '1 min'", "lease_id = gen_random_uuid()"])
async def test_a_sweep_looks_at_the_lease_again_before_it_takes_it(runtime: Any, meanwhile: str) -> None:
    """A heartbeat, or another worker, comes between the look for what is due and the lock."""
    await queued(runtime, "acme", 1)
    await begun(runtime, await claim(runtime, "slow"))
    await runtime.trouble.expire_leases()
    async with runtime.database.transaction() as other:
        await other.execute(f"UPDATE queue SET {meanwhile}")
        sweeping = asyncio.create_task(runtime.sweep())
        await waits(runtime, sweeping)
    assert await sweeping == 0
    assert (await place(runtime))["status"] == "leased"
    assert (await runtime.books.step()).status == "running"


@pytest.mark.req("Q-9")
async def test_a_worker_that_comes_back_too_late_decides_nothing(runtime: Any, late_gate: Any) -> None:
    await queued(runtime, "acme", 1)
    runtime.outside.gates["a"] = late_gate
    slow = asyncio.create_task(runtime.worker("slow").work_off())
    await asyncio.wait_for(late_gate.reached.wait(), 60)
    await runtime.trouble.expire_leases()
    assert await runtime.sweep() == 1
    await runtime.worker("fast").work_off()
    before = await runtime.fingerprint()
    late_gate.opened.set()
    await slow
    after = await runtime.fingerprint()
    # The book has one line more, and a longer bundle is ordered.
    assert {table for table in after if after[table] != before[table]} == {"journal", "runs", "commands", "log_leaves"}
    (run,) = await runtime.books.runs()
    assert (await runtime.events(run.id))[-2:] == ["run.closed", "action.late"]
    assert len(runtime.outside.effects) == 1
    await runtime.at_rest()


@pytest.mark.req("Q-10")
async def test_a_heartbeat_extends_what_is_still_held(runtime: Any) -> None:
    await queued(runtime, "acme", 2)
    ours, theirs = await claim(runtime, "w1"), await claim(runtime, "w2")
    held = [(UUID(row["run"]["run_id"]), claim_of(row)[0]) for row in (ours, theirs)]
    await runtime.execute("UPDATE queue SET lease_id = gen_random_uuid() WHERE owner = 'w2'")
    async with runtime.database.connection() as connection:
        assert await claims.heartbeat(connection, timedelta(hours=1), held) == {held[0][1].id}
    rows = await runtime.all("SELECT owner FROM queue WHERE expires_at > now() + interval '30 minutes'")
    assert [row["owner"] for row in rows] == ["w1"]


# -- caps ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("Q-12")
async def test_no_more_steps_run_at_once_than_the_tenant_may(runtime: Any) -> None:
    await queued(runtime, "acme", 10, concurrency=3)
    found = await asyncio.gather(*(claim(runtime, f"w{number}") for number in range(12)))
    assert sum(row is not None for row in found) == 3
    assert await claim(runtime) is None
    held = next(row for row in found if row is not None)
    await runtime.execute("DELETE FROM queue WHERE step_id = $1", UUID(held["step"]["step_id"]))
    again = await asyncio.gather(*(claim(runtime, f"x{number}") for number in range(4)))
    assert sum(row is not None for row in again) == 1


@pytest.mark.req("Q-12")
async def test_of_two_claimers_at_a_cap_of_one_only_one_gets_a_step(runtime: Any) -> None:
    """The second has counted before the first took its step, and waits for it: that count is not good any more."""
    await queued(runtime, "acme", 4, concurrency=1)
    *_, last = await runtime.books.places()
    async with runtime.database.transaction() as first:
        # Another one than the second claimer chooses, which would else find it taken.
        assert len(await claims.claim_of_run(first, "w1", LEASE, last.run)) == 1
        second = asyncio.create_task(batch(runtime, 4, "w2"))
        await waits(runtime, second)
    assert await second == []


@pytest.mark.req("Q-12")
async def test_a_batch_takes_what_the_caps_leave_places_for(runtime: Any) -> None:
    await queued(runtime, "acme", 9, concurrency=5)
    assert len(await batch(runtime, 3)) == 3
    assert len(await batch(runtime, 9)) == 2
    assert await batch(runtime, 9) == []
    await queued(runtime, "metered", 9, max_runs_per_min=4)
    assert len(await batch(runtime, 9)) == 4
    assert await batch(runtime, 9) == []
    left = (await runtime.one("SELECT starts_left FROM tenants WHERE tenant_id = 'metered'"))["starts_left"]
    assert left == pytest.approx(0, abs=0.5)


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
async def test_a_flood_that_is_claimed_in_batches_keeps_nobody_waiting(runtime: Any) -> None:
    """A turn costs as many shares as it takes steps: by weight everybody has had as much, to within a batch."""
    await queued(runtime, "flood", 200, concurrency=500)
    await queued(runtime, "heavy", 100, concurrency=500, weight=2.0)
    await queued(runtime, "light", 100, concurrency=500)
    served: Counter[str] = Counter()
    for size in (8, 8, 8, 1, 5, 8, 3, 8, 8, 2, 8, 8, 8, 7, 8):
        found = await batch(runtime, size)
        assert len(found) == size
        assert len({row["run"]["tenant_id"] for row in found}) == 1
        served.update(row["run"]["tenant_id"] for row in found)
        shares = [served["flood"], served["heavy"] / 2, served["light"]]
        assert max(shares) - min(shares) <= 8, served
    await queued(runtime, "late", 20)
    turns = [(await batch(runtime, 8))[0]["run"]["tenant_id"] for _ in range(4)]
    assert "late" in turns[:3], "who comes to an empty lane is not put behind the backlog of the others"
    assert Counter(turns)["late"] <= 2, "and not ahead of what they are owed"


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
async def test_a_step_that_somebody_is_just_taking_costs_nobody_a_turn(runtime: Any) -> None:
    """Look again after waiting for the first in line, and find the next."""
    await queued(runtime, "alpha", 5, concurrency=1)
    await queued(runtime, "beta", 5, concurrency=1)
    async with runtime.database.transaction() as one:
        (first,) = await claims.claim_next(one, "w", LEASE)
        waiting = asyncio.create_task(claim(runtime))
        await waits(runtime, waiting)
    second = await waiting
    assert {row["run"]["tenant_id"] for row in (first, second)} == {"alpha", "beta"}


# -- admission -------------------------------------------------------------------------------------------------------


async def admit(runtime: Any) -> Any:
    async with runtime.database.connection() as connection:
        return next(iter(await claims.admit(connection, "s", LEASE)), None)


async def claim_sent(runtime: Any, step_id: Any) -> list[Any]:
    async with runtime.database.connection() as connection:
        return list(await claims.claim_step(connection, "w", LEASE, step_id))


@pytest.mark.req("O-7")
async def test_admission_takes_a_place_once_and_only_for_what_is_in_line(runtime: Any) -> None:
    await queued(runtime, "acme", 2, concurrency=2)
    admitted = await admit(runtime)
    await runtime.trouble.expire_sent()  # as after a lost message
    assert await runtime.sweep() == 1
    assert (await admit(runtime))["step_id"] == admitted["step_id"]
    assert (await admit(runtime))["step_id"] != admitted["step_id"]
    assert await admit(runtime) is None
    assert len(await claim_sent(runtime, admitted["step_id"])) == 1
    assert await claim_sent(runtime, admitted["step_id"]) == []
    assert len(await runtime.all("SELECT FROM queue WHERE status <> 'claimable'")) == 2


async def test_what_is_in_line_is_not_claimed_by_a_message_of_before(runtime: Any) -> None:
    """A step that was never sent would hold a place that nobody has counted."""
    await queued(runtime, "acme", 1)
    admitted = await admit(runtime)
    await runtime.trouble.lose_claims()
    assert await claim_sent(runtime, admitted["step_id"]) == []


async def test_a_canceled_run_gives_back_the_place_that_it_was_admitted_with(runtime: Any) -> None:
    await queued(runtime, "acme", 1)
    admitted = await admit(runtime)
    async with runtime.database.transaction() as connection:
        await cancel_run(connection, runtime.definitions, "acme", admitted["run_id"], runtime.actor, "no")
    await runtime.at_rest()
    assert await claim_sent(runtime, admitted["step_id"]) == []


async def test_a_cancel_does_not_wait_for_whoever_settles_just_now_and_that_one_finds_its_step_over(
    runtime: Any,
) -> None:
    """The settler has its row and wants the run's; a cancel that wanted that row would wait for ever."""
    await queued(runtime, "acme", 0)
    await runtime.publish(BESIDE)
    run_id = (await runtime.start("beside")).run_id
    first = await begun(runtime, await claim(runtime))
    second = await claim(runtime)
    async with runtime.database.transaction() as settler:
        lease = claim_of(second)[0]
        assert await claims.hold(settler, run_id, [lease]) == {lease.id: "leased"}
        async with runtime.database.transaction() as connection:
            await cancel_run(connection, runtime.definitions, "acme", run_id, runtime.actor, "no")
    left = await runtime.all("SELECT step_key FROM queue ORDER BY step_key")
    assert [row["step_key"] for row in left] == sorted([first.view.run.state.open[0], lease.key])
    await runtime.execute("UPDATE queue SET expires_at = now() - interval '1 s' WHERE step_key = $1", lease.key)
    assert await runtime.sweep() == 1
    assert len(await runtime.all("SELECT FROM queue")) == 1, "the sweep forgets what is over"
