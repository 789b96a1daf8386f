"""Small reads of runs, effects and evidence: literal rows of two tenants, whole results."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.engine.book import shared_effects
from runtime.store import bundles, effects, journal, runs
from tests.support.rows import ago, change, put, put_run, read, uid

# The rows are of no book.
pytestmark = pytest.mark.tampers


async def two_tenants(runtime: Any) -> None:
    await runtime.tenant("acme")
    await runtime.tenant("beta")


def over(hours: float = 1, status: str = "succeeded") -> dict[str, Any]:
    return {"status": status, "finished_at": ago(hours=hours)}


@pytest.mark.req("Q-1")
async def test_the_run_of_a_trigger_and_those_that_go_on(runtime: Any) -> None:
    await two_tenants(runtime)
    rows: list[tuple[str, dict[str, Any]]] = [
        ("acme", {"created_at": ago(hours=1)}), ("acme", {"created_at": ago(hours=2)}), ("beta", {}), ("acme", over()),
        ("acme", {"workflow": "v"}), ("acme", {"trigger_type": "run"}),
    ]  # fmt: skip
    for number, (tenant, row) in enumerate(rows, 1):
        await put_run(runtime.database, tenant, number, **{"trigger_ref": "same" if number > 2 else f"{number}", **row})
    async with runtime.database.connection() as connection:
        going = {name: await runs.going_of(connection, "acme", name) for name in ("w", "v", "x")}
        assert going == {"w": [uid(2), uid(1), uid(6)], "v": [uid(5)], "x": []}
        asked = [("acme", "w", "test"), ("acme", "v", "test"), ("acme", "w", "run"), ("beta", "w", "test")]
        found = [await runs.run_of_trigger(connection, *one, "same") for one in asked]
        assert [one and one["run_id"].int for one in found] == [4, 5, 6, 3]
        assert await runs.run_of_trigger(connection, "acme", "w", "test", "sam") is None


@pytest.mark.req("P-12")
async def test_a_proposal_is_the_newest_run_about_it_that_goes_on(runtime: Any) -> None:
    await two_tenants(runtime)
    rows: list[tuple[str, str, dict[str, Any]]] = [
        ("acme", "p1:a", {"created_at": ago(hours=5)}), ("acme", "p1:b", {"created_at": ago(hours=4)}),
        ("acme", "p1:c", {"canceling": {"by": "ann"}}), ("acme", "p1:d", over()), ("beta", "p1:e", {}),
        ("acme", "p10:f", {}), ("acme", "p1:g", {"workflow": "v"}), ("acme", "p1:h", {"trigger_type": "other"}),
    ]  # fmt: skip
    for number, (tenant, ref, row) in enumerate(rows, 1):
        await put_run(runtime.database, tenant, number, **{"trigger_ref": ref, "requested_by": f"by {ref}", **row})
    async with runtime.database.connection() as connection:
        assert await runs.proposal(connection, "acme", "w", "test", "p1") == (uid(2), "by p1:b", None)
        for number, (run, status) in enumerate(((2, "approved"), (1, "requested"), (2, "requested")), 1):
            await put(runtime.database, "approvals", "acme", approval_id=number, run_id=run, status=status)
        assert await runs.proposal(connection, "acme", "w", "test", "p1") == (uid(2), "by p1:b", uid(3))
        assert await runs.proposal(connection, "acme", "w", "test", "p") is None


async def test_the_end_of_a_run_tells_who_may_have_shaped_it_and_who_asks(runtime: Any) -> None:
    await two_tenants(runtime)
    for number in (1, 2, 3, 4):
        more = {"parent_run_id": 10 if number < 3 else None, "extensions": int(number == 3)}
        await put_run(runtime.database, "acme", number, result={"n": number}, **more, **over())
    of_person = {"wait_id": 1, "run_id": 2, "result": {"by": "person:ann"}}
    of_nobody = {"wait_id": 2, "run_id": 1, "result": {"output": {}}}
    untraced = {"wait_id": 3, "run_id": 10, "correlation_key": str(uid(2)), "context": {"traced": None}}
    traced = {"wait_id": 4, "run_id": 10, "correlation_key": str(uid(1)), "context": {"traced": True}}
    of_another = {"wait_id": 5, "run_id": 11, "correlation_key": str(uid(2)), "context": {"traced": True}}
    for row in (of_person, of_nobody, untraced, traced, of_another):
        await put(runtime.database, "waits", "acme", **row)
    async with runtime.database.connection() as connection:
        found = [await runs.ending_of(connection, uid(number)) for number in (1, 2, 3, 4)]
    told = [(one["result"]["n"], bool(one["shaped"]), one["traced"]) for one in found]
    assert told == [(1, True, True), (2, True, False), (3, True, False), (4, True, False)]


@pytest.mark.req("Q-15")
async def test_those_who_share_an_effect_are_steps_of_runs_that_go_on(runtime: Any) -> None:
    await two_tenants(runtime)
    await put_run(runtime.database, "acme", 1)
    await put_run(runtime.database, "acme", 2, **over())
    await put_run(runtime.database, "beta", 3)
    key = shared_effects.name_of("k")
    rows: list[tuple[int, float, dict[str, Any]]] = [
        (1, 3, {}), (1, 4, {"status": "completed"}), (1, 2, {"status": "canceled"}), (1, 2, {"kind": "signal"}),
        (2, 9, {}), (1, 1, {"correlation_key": "other"}), (3, 9, {}), (1, 3, {}),
    ]  # fmt: skip
    for number, (run, hours, more) in enumerate(rows, 1):
        row = {"correlation_key": key, "kind": "shared", "created_at": ago(hours=hours), "step_key": f"s{number}"}
        await put(runtime.database, "waits", "beta" if run == 3 else "acme", wait_id=number, run_id=run, **row | more)
    await change(runtime.database, "UPDATE waits SET created_at = $1 WHERE wait_id = ANY ($2)", ago(), [uid(1), uid(8)])
    async with runtime.database.connection() as connection:
        found = [tuple(row) for row in await effects.sharing(connection, "acme", "k")]
    assert found == [(uid(1), f"s{n}", uid(n), waiting) for n, waiting in ((2, False), (1, True), (8, True))]


@pytest.mark.req("Q-15")
async def test_what_was_left_is_let_go_by_its_wait_and_once(runtime: Any) -> None:
    await two_tenants(runtime)
    rows = [
        ("acme", "k", "left", 5),
        ("acme", "held", "begun", 6),
        ("acme", "other", "left", 7),
        ("beta", "k", "left", 5),
    ]
    for tenant, key, status, wait in rows:
        await put(runtime.database, "effects", tenant, key=key, run_id=1, status=status, wait_id=wait)
    async with runtime.database.connection() as connection:
        left = {wait: await effects.left_by(connection, "acme", uid(wait)) for wait in (5, 6, 7, 8)}
        assert left == {5: True, 6: False, 7: True, 8: False}
        assert not await effects.abandon(connection, "acme", "k", uid(7))
        assert not await effects.abandon(connection, "acme", "held", uid(6))
        assert await effects.abandon(connection, "acme", "k", uid(5))
        assert not await effects.abandon(connection, "acme", "k", uid(5))
    states = await read(runtime.database, "SELECT tenant_id, key, status FROM effects ORDER BY tenant_id, key")
    assert states == [
        ("acme", "held", "begun"), ("acme", "k", "failed"), ("acme", "other", "left"), ("beta", "k", "left")
    ]  # fmt: skip


@pytest.mark.req("Q-21")
async def test_evidence_that_was_given_up_is_told_until_it_is_there_or_on_its_way(runtime: Any) -> None:
    await two_tenants(runtime)
    orders: dict[int, list[tuple[str, str]]] = {
        1: [("failed", "older"), ("failed", "newer")], 2: [("failed", "x"), ("pending", "")],
        3: [("failed", "x"), ("leased", "")], 4: [("failed", "x")], 5: [("failed", "x")], 6: [("dispatched", "")],
        7: [("failed", "theirs")], 8: [("failed", "x"), ("dispatched", "")],
    }  # fmt: skip
    count = 0
    for run, many in orders.items():
        tenant = "beta" if run == 7 else "acme"
        await put_run(runtime.database, tenant, run, audit_count=9, **over())
        for status, error in many:
            count += 1
            row = {"command_id": count, "run_id": run, "kind": "bundle", "status": status, "last_error": error}
            await put(runtime.database, "commands", tenant, **row)
    card = {"run_id": 6, "status": "failed", "last_error": "a card's"}
    await put(runtime.database, "commands", "acme", command_id=90, **card)
    for run, lines in ((4, 9), (5, 8), (6, 9)):
        await put(runtime.database, "bundles", "acme", run_id=run, lines=lines, sha256=f"of {run}")
    async with runtime.database.connection() as connection:
        failures = [await bundles.failures(connection, tenant) for tenant in ("acme", "beta")]
        assert failures == [[(uid(1), "newer"), (uid(5), "x"), (uid(8), "x")], [(uid(7), "theirs")]]
        states = [await bundles.state(connection, "acme", uid(run)) for run in orders]
        flags = [None if one is None else (one["bundled"], one["failed"]) for one in states]
        missing, given_up, there = (False, False), (False, True), (True, False)
        assert flags == [given_up, missing, missing, there, given_up, there, None, given_up]
        newest = [await bundles.newest(connection, "acme", uid(run)) for run in (4, 5, 6)]
        assert newest == ["of 4", None, "of 6"]
        assert await bundles.newest(connection, "beta", uid(4)) is None


@pytest.mark.req("P-14")
async def test_events_of_a_step_are_not_those_of_one_whose_key_begins_alike(runtime: Any) -> None:
    steps = "".join(f"  - {{id: {name}, do: probe.value.read, with: {{name: {name}}}}}\n" for name in ("a", "ab", "b"))
    run_id = await runtime.go(f"workflow: w\nversion: 1\nreference: r\nsteps:\n{steps}")
    ((key,),) = await read(runtime.database, "SELECT run_key FROM runs")
    async with runtime.database.connection() as connection:
        found = {name: await journal.of_step(connection, run_id, key, name) for name in ("a", "ab", "b", "c")}
        assert {name: {each.step for each in told} for name, (_, told) in found.items()} == {
            "a": {"a"}, "ab": {"ab"}, "b": {"b"}, "c": set()
        }  # fmt: skip
        last = found["a"][0]
        assert await journal.of_step(connection, run_id, key, "a", after=last) == (last, [])
