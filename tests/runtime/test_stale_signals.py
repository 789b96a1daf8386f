"""A signal that names a wait, by its token or by the version of the commit that opened it, is for that wait alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runtime.requests.views import RunReader
from tests.support.runtime_durable import correlation
from tests.support.runtime_kept_signals import HEAD, MORE, PAID, TRIGGER, begun

OTHER = "  - {id: other, wait: {signal: other}, needs: []}\n"
CASE = "workflow: opening\nversion: 1\nsteps:\n  - {id: case, do: probe.case.open, with: {name: a}}\n"


async def opened(runtime: Any, run_id: Any, step: str) -> tuple[str, int]:
    """Look the token and the version of a wait up, as the faces show them."""
    wait = await runtime.books.wait(run=run_id, step=step)
    return wait.token, (await RunReader(runtime.faces, runtime.definitions).waits("acme", run_id))[wait.id]


async def recorded(runtime: Any, answer: Any, code: str) -> None:
    """Assert that it is on record with this code, and kept for nobody."""
    assert answer.code == code
    notice = await runtime.books.notice(id=answer.id)
    assert (notice.processed, notice.result["code"]) == (True, code)
    assert code in [event.data["code"] for event in await runtime.books.audit(type="signal.ignored")]


@pytest.mark.req("X-16", "X-17")
@pytest.mark.parametrize("by", ["token", "version", "both"])
async def test_what_is_for_a_wait_that_has_ended_ends_no_other(runtime: Any, by: str) -> None:
    (run_id,) = await begun(runtime, HEAD + PAID + MORE)
    token, version = await opened(runtime, run_id, "paid")
    named: dict[str, Any] = {"token": token, "version": version}
    named = named if by == "both" else {by: named[by]}
    assert (await runtime.signal("paid:c1", {"amount": 1}, id="1", **named)).code == "delivered"
    for meanwhile in ("before it waits again", "while it waits again"):
        late = await runtime.signal("paid:c1", {"amount": 2}, id=meanwhile, **named)
        await recorded(runtime, late, "already_ended")
        assert (late.run_id, late.step) == (run_id, "paid")
        await runtime.go_on()
    assert await runtime.steps(run_id) == {"paid": "succeeded", "more": "waiting"}
    again = await runtime.signal("paid:c1", {"amount": 2}, id="before it waits again", **named)
    assert (again.code, again.repeated) == ("already_ended", True)


@pytest.mark.req("X-17")
async def test_what_is_for_a_run_that_is_over_starts_no_other(runtime: Any) -> None:
    (first,) = await begun(runtime, HEAD + PAID)
    _, version = await opened(runtime, first, "paid")
    for name, code in (("1", "delivered"), ("2", "already_ended")):
        assert (await runtime.signal("paid:c1", {"amount": 1}, id=name, version=version)).code == code
    await runtime.go_on()
    second = (await runtime.start("w", TRIGGER, ref="2")).run_id
    await runtime.go_on()
    assert (await runtime.status(first), await runtime.status(second)) == ("succeeded", "waiting")


@pytest.mark.req("X-17")
async def test_the_version_of_a_wait_is_that_of_the_commit_that_opened_it(runtime: Any) -> None:
    """Other steps go on meanwhile: the run is at another version by then, and the wait is the same."""
    (run_id,) = await begun(runtime, HEAD + PAID.replace("set:", "needs: [], set:") + OTHER)
    _, version = await opened(runtime, run_id, "paid")
    assert (await runtime.signal("other:c1", {})).code == "delivered"
    await runtime.worker().work_off()
    now = (await runtime.books.run(run_id)).version
    assert now > version
    for wrong in sorted({version - 1, version + 1, now}):
        await recorded(runtime, await runtime.signal("paid:c1", {"amount": 1}, id=f"v{wrong}", version=wrong), "stale")
    assert (await runtime.signal("paid:c1", {"amount": 1}, version=version)).code == "delivered"


@pytest.mark.req("X-16")
@pytest.mark.parametrize("by", ["unknown token", "token of another", "right token, other version"])
async def test_what_names_no_wait_of_this_key_is_stale(runtime: Any, by: str) -> None:
    (run_id,) = await begun(runtime, HEAD + PAID.replace("set:", "needs: [], set:") + OTHER)
    token, version = await opened(runtime, run_id, "paid")
    others, _ = await opened(runtime, run_id, "other")
    signals: Any = {
        "unknown token": {"token": "guessed"},
        "token of another": {"token": others},
        "right token, other version": {"token": token, "version": version + 1},
    }[by]
    await recorded(runtime, await runtime.signal("paid:c1", {"amount": 1}, id="s", **signals), "stale")
    assert await runtime.sweep() == 0
    assert (await runtime.books.wait(run=run_id, step="paid")).status == "waiting"


@pytest.mark.req("X-16")
@pytest.mark.parametrize("by", ["token", "version"])
async def test_what_comes_before_its_own_wait_is_parked_on_is_kept_for_it(runtime: Any, gate: Any, by: str) -> None:
    """A durable operation is answered while its call is still under way: its wait is open, its step not parked."""
    await begun(runtime, CASE, refs="")
    runtime.outside.gates["a"] = gate
    run_id = (await runtime.start("opening")).run_id
    working = asyncio.create_task(runtime.worker().work_off())
    await asyncio.wait_for(gate.reached.wait(), 60)
    token, version = await opened(runtime, run_id, "case")
    named: dict[str, Any] = {"token": token} if by == "token" else {"version": version}
    early = await runtime.signal(correlation(run_id), {"papers": 1}, id="early", **named)
    assert (early.code, early.run_id) == ("kept", run_id)
    gate.opened.set()
    await working
    await runtime.go_on()
    assert await runtime.status(run_id) == "succeeded"
    assert (await runtime.books.notice(id="early")).result["code"] == "delivered"
