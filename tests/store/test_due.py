"""Things that a sweep finds to be due, among literal rows of two tenants, with what is not due beside them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from runtime.engine.model.rows import Claim
from runtime.store import sweeps
from runtime.store.inbox import StoredSignal
from tests.support.rows import ago, change, put, put_run, read, uid

# The rows are of no book.
pytestmark = pytest.mark.tampers

LEASE = timedelta(seconds=30)


async def two_tenants(runtime: Any) -> None:
    await runtime.tenant("acme")
    await runtime.tenant("beta")


async def due(runtime: Any, *, whole: bool = True) -> sweeps.Due:
    async with runtime.database.connection() as connection:
        return await sweeps.due(connection, LEASE, whole=whole)


async def put_wait(runtime: Any, tenant: str, number: int, run: int, **columns: Any) -> None:
    await put(runtime.database, "waits", tenant, wait_id=number, run_id=run, **columns)


async def test_of_waits_those_are_due_whose_time_has_come_by_tenant_in_turn(runtime: Any) -> None:
    await two_tenants(runtime)
    await put_wait(runtime, "acme", 1, 1, due_at=ago(hours=3), created_at=ago(hours=4), step_key="one")
    await put_wait(runtime, "acme", 2, 2, due_at=ago(hours=2), created_at=ago(hours=9), step_key="two")
    await put_wait(runtime, "beta", 3, 3, due_at=ago(hours=1), created_at=ago(hours=1), step_key="three")
    await put_wait(runtime, "acme", 4, 4, due_at=ago(hours=-1), created_at=ago(hours=8))
    await put_wait(runtime, "acme", 5, 5, due_at=ago(hours=5), status="completed")
    await put_wait(runtime, "acme", 6, 6)
    waits = (await due(runtime)).waits
    assert {wait[:3] for wait in waits[:2]} == {(uid(1), "one", uid(1)), (uid(3), "three", uid(3))}
    assert waits[2][:3] == (uid(2), "two", uid(2))
    ages = {wait: age for _, _, wait, age in waits}
    assert ages == {uid(n): pytest.approx(h * 3600, abs=300) for n, h in ((1, 4), (2, 9), (3, 1))}


async def test_of_leases_those_are_found_that_have_run_out_by_tenant_in_turn(runtime: Any) -> None:
    """A tenant with many of them holds up nobody: each tenant's oldest one comes before anybody's second one."""
    await two_tenants(runtime)
    rows = [("acme", 1, 9.0), ("acme", 2, 8.0), ("acme", 3, 7.0), ("beta", 4, 1.0), ("beta", 5, -1.0)]
    for tenant, run, seconds in rows:
        held = {"owner": "w", "lease_id": 10 + run, "epoch": 20 + run, "step_key": f"s{run}", "status": "leased"}
        await put(runtime.database, "queue", tenant, run_id=run, expires_at=ago(seconds=seconds), **held)
    leases = (await due(runtime)).leases
    assert leases == tuple((uid(run), Claim(f"s{run}", uid(10 + run), 20 + run)) for run in (1, 4, 2, 3))


async def test_a_backlog_of_one_tenant_leaves_room_for_every_other(runtime: Any) -> None:
    await two_tenants(runtime)
    backlog = "INSERT INTO {0} SELECT (jsonb_populate_record(NULL::{0}, to_jsonb(r) || jsonb_build_object({1}))).* "
    many = "FROM {0} r, generate_series(1000, {2}) n WHERE r.tenant_id = 'acme'"
    of_wait = "'wait_id', lpad(to_hex(n), 32, '0')"
    await put_wait(runtime, "acme", 1, 1, due_at=ago(hours=3))
    await put_wait(runtime, "beta", 2, 2, due_at=ago(hours=1))
    await change(runtime.database, (backlog + many).format("waits", of_wait, 1000 + 2 * sweeps.BATCH))
    held = {"owner": "w", "lease_id": 7, "status": "leased"}
    await put(runtime.database, "queue", "acme", run_id=1, expires_at=ago(hours=3), **held)
    await put(runtime.database, "queue", "beta", run_id=2, expires_at=ago(hours=1), **held)
    of_run = "'run_id', lpad(to_hex(n), 32, '0')"
    await change(runtime.database, (backlog + many).format("queue", of_run, 1000 + 2 * sweeps.BATCH))
    found = await due(runtime)
    assert (len(found.waits), len(found.leases)) == (sweeps.BATCH, sweeps.BATCH)
    assert (uid(2) in [run for run, *_ in found.waits], uid(2) in [run for run, _ in found.leases]) == (True, True)


async def test_more_tenants_than_a_sweep_takes_rows_share_it(runtime: Any) -> None:
    await runtime.tenant("acme")
    many, last = (
        "SELECT (jsonb_populate_record(NULL::{0}, to_jsonb(r) || jsonb_build_object({1}))).*",
        11 * sweeps.BATCH,
    )
    every = f"INSERT INTO {{0}} {many} FROM {{0}} r, generate_series(1000, {1000 + last}) n"
    await put_wait(runtime, "acme", 1, 1, due_at=ago(hours=3))
    stream = "'tenant_id', 't' || n, 'stream_id', lpad(to_hex(n), 32, '0')"
    await change(runtime.database, every.format("tenants", stream))
    await change(runtime.database, every.format("waits", "'tenant_id', 't' || n, 'wait_id', lpad(to_hex(n), 32, '0')"))
    assert len((await due(runtime)).waits) == sweeps.BATCH


async def test_a_tenant_whose_policy_or_pauses_have_changed_is_followed(runtime: Any) -> None:
    for tenant in ("one", "two", "three"):
        await runtime.tenant(tenant)
    assert (await due(runtime)).changed == ()
    await runtime.execute("UPDATE tenants SET resumed = '{tenant}' WHERE tenant_id = 'one'")
    await runtime.execute("UPDATE tenants SET judge_after = $1 WHERE tenant_id = 'two'", uid(0))
    assert sorted((await due(runtime)).changed) == ["one", "two"]


@pytest.mark.req("V-6")
async def test_an_open_run_is_closed_when_its_time_is_over_and_it_has_begun(runtime: Any) -> None:
    await two_tenants(runtime)
    over = {"open_until": ago(minutes=1)}
    await put_run(runtime.database, "acme", 1, **over)
    await put_run(runtime.database, "beta", 2, **over)
    await put_run(runtime.database, "acme", 3, **over, status="queued")
    await put_run(runtime.database, "acme", 4, **over, status="succeeded", finished_at=ago(hours=1))
    await put_run(runtime.database, "acme", 5, open_until=ago(minutes=-1))
    await put_run(runtime.database, "acme", 6)
    assert sorted((await due(runtime)).long_open) == [uid(1), uid(2)]


@pytest.mark.req("Q-15")
async def test_an_end_that_nobody_was_told_of_is_found_now_and_then(runtime: Any) -> None:
    await two_tenants(runtime)
    await put_run(runtime.database, "acme", 1)
    await put_run(runtime.database, "acme", 2, status="failed", finished_at=ago(hours=1))
    effects = {
        "done": ("succeeded", 1), "failed": ("failed", 1), "left": ("left", 1), "held": ("intended", 2),
        "going": ("in_doubt", 1), "begun": ("begun", 2), "told": ("succeeded", 1), "other": ("succeeded", 1),
    }  # fmt: skip
    for number, (key, (status, run)) in enumerate(effects.items()):
        await put(runtime.database, "effects", "acme", key=key, run_id=run, status=status)
        wait = {"kind": "shared", "context": {"shared": key}}
        more = {"told": {"status": "completed"}, "other": {"kind": "signal"}}.get(key, {})
        await put_wait(runtime, "acme", 10 + number, 1, **{**wait, **more})
    await put(runtime.database, "effects", "acme", key="theirs", run_id=1, status="succeeded")
    await put_wait(runtime, "beta", 30, 3, kind="shared", context={"shared": "theirs"})
    await put_wait(runtime, "acme", 31, 1, kind="shared", context={"shared": "done"})
    found = (await due(runtime)).untold
    assert sorted(found) == [("acme", "done"), ("acme", "failed"), ("acme", "held"), ("acme", "left")]
    assert (await due(runtime, whole=False)).untold == ()


def kept(notice: str, run: int | None, tenant: str = "acme", source: str = "signal") -> StoredSignal:
    return StoredSignal(tenant, source, notice, None if run is None else uid(run))


@pytest.mark.req("V-10")
async def test_a_kept_signal_is_found_with_the_wait_that_it_is_for(runtime: Any) -> None:
    await two_tenants(runtime)
    for run, (tenant, hours) in enumerate((("acme", 9), ("acme", 9), ("beta", 9), ("acme", 2), ("acme", 9)), 1):
        await put_run(runtime.database, tenant, run, created_at=ago(hours=hours))

    async def came(notice: str, key: str | None, hours: float, tenant: str = "acme", **more: Any) -> None:
        row = {"notification_id": notice, "correlation_key": key, "received_at": ago(hours=hours), **more}
        await put(runtime.database, "inbox", tenant, **row)

    await put_wait(runtime, "acme", 10, 1, correlation_key="a")
    await came("second", "a", 3)
    await came("first", "a", 4)
    await came("processed", "a", 5, processed_at=ago(hours=1))
    await put_wait(runtime, "acme", 11, 2, correlation_key="b", parked=False)
    await came("not parked", "b", 3)
    await put_wait(runtime, "acme", 12, 2, correlation_key="c", status="completed")
    await came("over", "c", 3)
    await put_wait(runtime, "beta", 13, 3, correlation_key="d")
    await came("of another tenant", "d", 3)
    await came("theirs", "d", 3, tenant="beta")
    await put_wait(runtime, "acme", 14, 4, correlation_key="e")
    await came("before its run", "e", 3, result={"run": None})
    await put_wait(runtime, "acme", 15, 5, correlation_key="f")
    await came("for another run", "f", 3, result={"run": str(uid(2))})
    await put_wait(runtime, "acme", 16, 5, correlation_key="g", kind="child")
    await came("a signal to a child's wait", "g", 3)
    await came("child", "g", 2, source="run")
    await put_wait(runtime, "acme", 17, 5, correlation_key="h")
    await came("a child's result to a signal's wait", "h", 3, source="run")
    expected = [kept("first", 1), kept("theirs", 3, "beta"), kept("child", 5, source="run")]
    assert sorted((await due(runtime)).signals, key=lambda one: one.notification_id) == [expected[2], *expected[:2]]


@pytest.mark.req("V-10")
async def test_a_signal_is_kept_for_30_days_and_a_child_s_result_for_as_long_as_it_takes(runtime: Any) -> None:
    await two_tenants(runtime)
    ages = {"long": 31.0, "longer": 40.0, "not yet": 29.9}
    for notice, days in ages.items():
        row = {"notification_id": notice, "correlation_key": f"key {notice}", "received_at": ago(days=days)}
        await put(runtime.database, "inbox", "acme", **row)
        await put(runtime.database, "inbox", "acme", **row, source="run")
        await put(runtime.database, "inbox", "beta", **row, processed_at=ago(days=1))
    await put(runtime.database, "inbox", "beta", notification_id="of no wait", received_at=ago(days=50))
    assert (await due(runtime)).signals == (kept("longer", None), kept("long", None))
    assert (await due(runtime, whole=False)).signals == (kept("longer", None), kept("long", None))


async def test_messages_and_steps_that_nobody_finished_are_set_free_and_no_others(runtime: Any) -> None:
    await two_tenants(runtime)
    for number, (status, hours) in enumerate((("leased", 1), ("leased", -1), ("pending", 1), ("failed", 1)), 1):
        lease = {"lease_owner": "d", "lease_expires_at": ago(hours=hours)}
        await put(runtime.database, "commands", "acme", command_id=number, run_id=1, status=status, **lease)
    held = {"owner": "w", "lease_id": 7}
    for number, (status, minutes) in enumerate((("sent", 1), ("sent", -1), ("leased", 1), ("leased", -0.2)), 1):
        row = {"run_id": number, "step_id": number, "status": status, "expires_at": ago(minutes=minutes), **held}
        await put(runtime.database, "queue", "beta", **row)
    found = await due(runtime)
    assert found.freed == 2
    assert [(run, claim.key, claim.id, claim.epoch) for run, claim in found.leases] == [(uid(3), "s", uid(7), 0)]
    commands = "SELECT status, lease_owner, lease_expires_at IS NULL FROM commands ORDER BY command_id"
    free, leased = ("pending", None, True), ("leased", "d", False)
    kinds = [free, leased, ("pending", "d", False), ("failed", "d", False)]
    assert await read(runtime.database, commands) == kinds
    places = "SELECT status, owner, expires_at IS NULL FROM queue ORDER BY run_id"
    rows = [("claimable", None, True), ("sent", "w", False), ("leased", "w", False), ("leased", "w", False)]
    assert await read(runtime.database, places) == rows


@pytest.mark.req("X-20")
async def test_a_run_is_due_to_be_purged_when_nothing_holds_it_any_more(runtime: Any) -> None:
    await two_tenants(runtime)
    over = {"status": "succeeded", "finished_at": ago(days=90), "audit_count": 7}
    past = {**over, "purge_at": ago(days=1)}
    runs: dict[int, dict[str, Any]] = {
        1: past, 2: {**over, "purge_at": ago(days=-1)}, 3: {**past, "parent_run_id": 4}, 4: {}, 5: past, 6: past,
        7: past, 8: past, 9: past, 10: past, 11: {**past, "parent_run_id": 1}, 12: {**over, "purged_at": ago(days=9)},
        13: {**over, "inherits": True, "parent_run_id": 12},
        14: {"inherits": True, "parent_run_id": 12, "audit_count": 7},
        15: {**over, "inherits": True, "parent_run_id": 1}, 16: {**over, "parent_run_id": 12},
        17: {**over, "inherits": True, "parent_run_id": 12, "purged_at": ago(days=1)},
    }  # fmt: skip
    for number, row in runs.items():
        await put_run(runtime.database, "beta" if number == 10 else "acme", number, **row)
        if number != 5:
            lines = 6 if number == 6 else 7
            await put(runtime.database, "bundles", "acme", run_id=number, lines=lines)
    for run, status, days in ((7, "pending", 29), (8, "leased", 29), (9, "pending", 31), (1, "failed", 1)):
        row = {"command_id": run, "run_id": run, "status": status, "created_at": ago(days=days)}
        await put(runtime.database, "commands", "acme", **row)
    assert sorted(run.int for run in (await due(runtime)).purges) == [1, 9, 10, 11, 13]
