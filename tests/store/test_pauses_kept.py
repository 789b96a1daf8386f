"""Pauses as they are kept, what they hold up, and what follows their end: literal rows of two tenants."""

from __future__ import annotations

from typing import Any

import pytest

from evidence.chain import Actor
from runtime.store import pauses, streams
from tests.support.rows import ago, put, put_run, read, uid

# The rows are of no book.
pytestmark = pytest.mark.tampers

RUN = f"run:{uid(1)}"


async def two_tenants(runtime: Any) -> None:
    await runtime.tenant("acme")
    await runtime.tenant("beta")


async def kept(runtime: Any, tenant: str = "acme") -> tuple[Any, ...]:
    """Each pause with who, why; what was resumed."""
    rows = await read(runtime.database, "SELECT paused, resumed FROM tenants WHERE tenant_id = $1", tenant)
    ((paused, resumed),) = rows
    return {key: (value["by"], value["reason"]) for key, value in (paused or {}).items()}, paused is None, resumed


async def test_a_pause_is_kept_and_ended_in_its_tenant_with_its_line(runtime: Any) -> None:
    await two_tenants(runtime)
    over = f"run:{uid(1)}"
    await put_run(runtime.database, "acme", 1, status="failed", finished_at=ago(hours=1))
    pause, resume = pauses.pause, pauses.resume
    steps: list[tuple[Any, str, str, bool, dict[str, tuple[str, str]], list[str] | None]] = [
        (pause, "tenant", "ann", True, {"tenant": ("ann", "why")}, None),
        (pause, "tenant", "bob", False, {"tenant": ("ann", "why")}, None),
        (pause, over, "bob", True, {"tenant": ("ann", "why"), over: ("bob", "why")}, None),
        (resume, "workflow:w", "ann", False, {"tenant": ("ann", "why"), over: ("bob", "why")}, None),
        (resume, "tenant", "ann", True, {over: ("bob", "why")}, ["tenant"]),
        (resume, "tenant", "ann", False, {over: ("bob", "why")}, ["tenant"]),
        # What is paused anew while its steps are still to be set going is paused; that of a run that is over goes.
        (pause, "tenant", "eve", True, {"tenant": ("eve", "why")}, []),
        (resume, "tenant", "eve", True, {}, ["tenant"]),
        (pause, "workflow:w", "eve", True, {"workflow:w": ("eve", "why")}, ["tenant"]),
        (resume, "workflow:w", "eve", True, {}, ["tenant", "workflow:w"]),
    ]
    for change, key, by, changes, after, resumed in steps:
        async with runtime.database.transaction() as connection:
            assert await change(connection, "acme", key, Actor("person", by), "why") is changes
        assert await kept(runtime) == (after, after == {}, resumed)
    async with runtime.database.transaction() as connection:
        told = [(event["type"], event["actor"]["id"]) for event in (await streams.read(connection, "acme")).events]
    kinds = {pause: "pause.set", resume: "pause.lifted"}
    assert told == [(kinds[change], by) for change, _, by, changes, *_ in steps if changes]
    assert await kept(runtime, "beta") == ({}, True, None)


async def test_pauses_in_force_are_listed_with_those_of_runs_that_are_over(runtime: Any) -> None:
    await two_tenants(runtime)
    await put_run(runtime.database, "acme", 1, status="failed", finished_at=ago(hours=1))
    await put_run(runtime.database, "acme", 2)
    await put_run(runtime.database, "beta", 3, status="failed", finished_at=ago(hours=1))
    keys = ["workflow:w", f"run:{uid(2)}", RUN, f"run:{uid(3)}"]
    paused = {key: {"by": "ann", "reason": "", "at": f"2026-01-0{9 - n}"} for n, key in enumerate(keys)}
    paused["connector:c"] = {"by": "bob", "reason": "", "at": "2026-01-07"}
    await runtime.execute("UPDATE tenants SET paused = $1 WHERE tenant_id = 'acme'", paused)
    async with runtime.database.connection() as connection:
        found = await pauses.in_force(connection, "acme")
        assert await pauses.in_force(connection, "beta") == []
    listed = [(one["key"], one["value"]["by"], one["over"]) for one in found]
    mine = [(keys[3], "ann", False), ("connector:c", "bob", False), (RUN, "ann", True), (keys[1], "ann", False)]
    assert listed == [*mine, ("workflow:w", "ann", False)]


async def test_a_run_is_held_up_by_what_concerns_it(runtime: Any) -> None:
    await two_tenants(runtime)
    for number, row in enumerate(({}, {"workflow": "v"}, {"finished_at": ago(hours=1), "status": "failed"}), 1):
        await put_run(runtime.database, "acme", number, **row)
    wait = {"kind": "pause", "context": {"paused": "connector:c"}}
    rows = {1: {}, 2: {"status": "completed"}, 3: {}}
    for number, row in rows.items():
        await put(runtime.database, "waits", "acme", wait_id=number, run_id=number, **{**wait, **row})
    context = {"paused": "connector:d"}
    await put(runtime.database, "waits", "acme", wait_id=9, run_id=1, kind="signal", context=context)

    async def held(run: int, *keys: str, tenant: str = "acme") -> list[str]:
        await runtime.execute("UPDATE tenants SET paused = $1 WHERE tenant_id = 'acme'", {key: {} for key in keys})
        async with runtime.database.connection() as connection:
            return sorted(await pauses.of_run(connection, tenant, uid(run)))

    every = ("connector:c", "connector:d", RUN, "tenant", "workflow:w", "workflow:wo")
    assert await held(1, *every) == ["connector:c", RUN, "tenant", "workflow:w"]
    assert await held(2, *every) == ["tenant"]
    assert await held(3, *every) == []
    assert await held(1, *every, tenant="beta") == []
    assert await held(1, "workflow:v") == []


async def test_steps_behind_a_pause_are_found_in_an_order_and_so_many(runtime: Any) -> None:
    await two_tenants(runtime)
    rows: list[tuple[str, str, dict[str, Any]]] = [
        ("acme", "b", {}), ("acme", "a", {}), ("acme", "c", {}), ("beta", "a", {}), ("acme", "a", {"kind": "shared"}),
        ("acme", "a", {"status": "completed"}), ("acme", "b", {}),
    ]  # fmt: skip
    for number, (tenant, key, row) in enumerate(rows, 1):
        wait = {"kind": "pause", "context": {"paused": key}, "step_key": f"s{number}", **row}
        await put(runtime.database, "waits", tenant, wait_id=number, run_id=10 * number, **wait)
    async with runtime.database.connection() as connection:
        found = [await pauses.parked(connection, "acme", ["a", "b"], most) for most in (9, 2)]
    every = [(uid(10 * number), f"s{number}", uid(number)) for number in (2, 1, 7)]
    assert found == [every, every[:2]]


async def test_open_questions_come_in_pages_and_their_cards_once_for_a_change(runtime: Any) -> None:
    await two_tenants(runtime)
    for run, workflow in ((1, "w"), (2, "v"), (3, "w")):
        await put_run(runtime.database, "beta" if run == 3 else "acme", run, workflow=workflow)
    rows = [(1, 1, "requested"), (2, 1, "approved"), (3, 2, "requested"), (4, 1, "requested"), (5, 3, "requested")]
    for number, run, status in rows:
        tenant = "beta" if run == 3 else "acme"
        await put(runtime.database, "approvals", tenant, approval_id=number, run_id=run, status=status)
    every = [uid(number) for number in (1, 2, 3, 4)]
    async with runtime.database.connection() as connection:
        first = await pauses.questions(connection, "acme", uid(0), 2)
        second = await pauses.questions(connection, "acme", first[-1], 2)
        assert (first, second) == ([uid(1), uid(3)], [uid(4)])
        assert [await pauses.open_questions(connection, tenant) for tenant in ("acme", "beta")] == [3, 1]

        async def drawn(number: int, *resumed: str, paused: tuple[str, ...] = ()) -> list[Any]:
            """The questions whose cards are ordered by this change."""
            change = pauses.Change("acme", number, frozenset(paused), resumed, None)
            await pauses.redraw(connection, change, every)
            await pauses.redraw(connection, change, every)
            sql = "SELECT tenant_id, run_id, kind, status, ordering_key, payload FROM commands ORDER BY ordering_key"
            orders = await read(runtime.database, sql)
            await connection.execute("UPDATE commands SET status = 'dispatched', tenant_id = 'beta'")
            return [row for row in orders if row[0] == "acme"]

        def cards(*questions: tuple[int, int]) -> list[Any]:
            every = [(uid(run), str(uid(one))) for one, run in questions]
            return [("acme", run, "card", "pending", f"approval:{one}", {"approval": one}) for run, one in every]

        assert await drawn(1, "workflow:w") == cards((1, 1), (4, 1))
        assert await drawn(1, "tenant") == cards((3, 2))  # the others were ordered for this change
        assert await drawn(2, paused=(f"run:{uid(2)}",)) == cards((3, 2))
        assert await drawn(3, "workflow:x") == []
        assert await drawn(4, "connector:c") == cards((1, 1), (3, 2), (4, 1))
        assert await drawn(5, paused=("tenant",)) == cards((1, 1), (3, 2), (4, 1))


async def test_a_keeper_notes_how_far_it_has_come_with_the_change_that_it_follows(runtime: Any) -> None:
    await two_tenants(runtime)
    await runtime.execute("UPDATE tenants SET resumed = '{tenant}', judge_after = $1, stop_number = 4", uid(0))
    state = "SELECT tenant_id, judge_after, resumed FROM tenants ORDER BY tenant_id"
    async with runtime.database.connection() as connection:
        change = await pauses.change(connection, "acme")
        assert change == pauses.Change("acme", 4, frozenset(), ("tenant",), uid(0))
        await runtime.execute("UPDATE tenants SET paused = '{\"tenant\": {}}', stop_number = 5")
        (number,) = (await read(runtime.database, "SELECT stop_number FROM tenants"))[0]
        await runtime.execute("UPDATE tenants SET judge_after = $1, resumed = '{tenant}'", uid(0))
        await pauses.followed(connection, change, None, over=True)
        untouched = [("acme", uid(0), ["tenant"]), ("beta", uid(0), ["tenant"])]
        assert await read(runtime.database, state) == untouched
        newer = await pauses.change(connection, "acme")
        assert newer == pauses.Change("acme", number, frozenset({"tenant"}), ("tenant",), uid(0))
        await pauses.followed(connection, newer, uid(9), over=False)
        assert await read(runtime.database, state) == [("acme", uid(9), ["tenant"]), untouched[1]]
        await pauses.followed(connection, newer, None, over=True)
        assert await read(runtime.database, state) == [("acme", None, None), untouched[1]]
