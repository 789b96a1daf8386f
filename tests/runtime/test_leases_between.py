"""Facts between two leases of a step: who comes next knows them, and nothing is counted twice or left out."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from connectors.port import NotSent
from core.db import CLOCK_ERROR_MAX, DatabaseClock
from runtime.keep import sweeper
from runtime.store import claims
from runtime.store.commits import apply
from runtime.work import driving, pump
from runtime.work.driving import Drive
from runtime.work.holding import Tools, claim_of
from runtime.work.lease import Lease
from runtime.work.setbacks import set_back
from tests.support.for_all import ForAll

LEASE = timedelta(seconds=30)
TWO = """
workflow: w
version: 1
reference: ${{ run.id }}
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}}
  - {id: b, do: probe.effect.apply, with: {name: b}}
"""
WIDE = """
workflow: w
version: 1
reference: ${{ run.id }}
steps:
  - foreach: "${{ ['x', 'y'] }}"
    as: item
    max_parallel: 2
    steps: [{id: each, do: probe.effect.apply, with: {name: "${{ item }}"}}]
"""


async def begun(runtime: Any, text: str) -> UUID:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(text)
    run: UUID = (await runtime.start("w")).run_id
    return run


def tools(runtime: Any, owner: str) -> Tools:
    return Tools(runtime.database, runtime.definitions, ForAll(runtime.connectors), owner, LEASE)


async def drive(runtime: Any, worker: Tools) -> None:
    """A worker claims one step, and goes on until that leads no further."""
    began = Lease.now()
    async with runtime.database.connection() as connection:
        (record,) = await claims.claim_next(connection, worker.owner, LEASE)
    await Drive(worker).run(record, began)


async def held_up(runtime: Any, worker: Tools, gate: Any, *names: str) -> tuple[asyncio.Task[None], str]:
    """A worker that hangs in its call of one of these names, and which one it is."""
    runtime.outside.gates = dict.fromkeys(names, gate)
    task = asyncio.create_task(drive(runtime, worker))
    await asyncio.wait_for(gate.reached.wait(), 60)
    runtime.outside.gates = {}
    return task, str(runtime.outside.last_call.input["name"])


def called(runtime: Any) -> list[str]:
    return [call.input["name"] for call in runtime.outside.effects]


@pytest.mark.usefixtures("quiet")
@pytest.mark.req("Q-8")
async def test_a_silent_end_of_a_lease_after_a_setback_is_counted(
    runtime: Any, gate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await begun(runtime, TWO)

    def broken(*_: Any) -> Any:
        raise RuntimeError("a fault of ours")

    with monkeypatch.context() as patched:
        patched.setattr(driving, "begin", broken)
        await runtime.worker().work_off()
    await runtime.trouble.expire_leases()
    assert await runtime.sweep() == 1
    error = (await runtime.books.step("a")).error
    assert (error.get("setbacks"), "leases" in error) == (1, False)
    for count in (1, 2):
        await runtime.crash(runtime.gate_type(), "a")
        assert (await runtime.books.step("a")).error.get("leases") == count
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"


@pytest.mark.req("Q-9")
async def test_who_tells_an_outcome_behind_its_lease_takes_no_next_step_with_it(runtime: Any, gate: Any) -> None:
    run_id = await begun(runtime, TWO)
    slow, _ = await held_up(runtime, tools(runtime, "slow"), gate, "a")
    await runtime.trouble.expire_leases()
    assert await runtime.sweep() == 1
    gate.opened.set()
    await slow
    assert (await runtime.books.statuses_of(run_id))["a"] == "succeeded"
    assert [(place.step, place.status) for place in await runtime.books.places()] == [("b", "claimable")]
    assert called(runtime) == ["a"]
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), called(runtime)) == ("succeeded", ["a", "b"])


@pytest.mark.req("Q-9")
async def test_who_has_met_a_step_before_another_had_it_finds_out_what_that_one_did(
    runtime: Any, gate: Any, late_gate: Any
) -> None:
    """The first worker knows the run, and holds one of its steps; another has called for the second one, and dies."""
    run_id = await begun(runtime, WIDE)
    first = tools(runtime, "first")
    slow, one = await held_up(runtime, first, gate, "x", "y")
    dying, other = await held_up(runtime, tools(runtime, "dying"), late_gate, "x", "y")
    dying.cancel()
    await asyncio.wait({dying})
    (place,) = [place for place in await runtime.books.places() if place.owner == "dying"]
    await runtime.trouble.expire_leases(step=place.step)
    await runtime.time_passes()
    assert await runtime.sweep() == 1
    await drive(runtime, first)
    assert (called(runtime), runtime.outside.probes) == ([other], 1)
    gate.opened.set()
    await slow
    assert (await runtime.status(run_id), called(runtime)) == ("succeeded", [other, one])


@pytest.mark.usefixtures("quiet")
@pytest.mark.req("Q-8", "Q-9")
async def test_a_setback_under_a_lease_that_has_run_out_is_none(runtime: Any) -> None:
    run_id = await begun(runtime, TWO)
    async with runtime.database.connection() as connection:
        (record,) = await claims.claim_next(connection, "late", LEASE)
    await runtime.trouble.expire_leases()
    assert await runtime.sweep() == 1
    claim, owner = claim_of(record)
    before = await runtime.events(run_id)
    async with runtime.database.transaction() as connection:
        await set_back(connection, runtime.definitions, run_id, claim, owner, RuntimeError("a fault of ours"))
    assert await runtime.events(run_id) == before
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"


@pytest.mark.parametrize(("more", "by_the_book"), [(timedelta(0), False), (timedelta(microseconds=1), True)])
async def test_by_a_clock_that_may_be_wrong_nothing_is_decided_at_hand(
    runtime: Any, monkeypatch: pytest.MonkeyPatch, more: timedelta, by_the_book: bool
) -> None:
    locked = []

    async def counted(connection: Any, commit: Any) -> Any:
        locked.append(commit)
        return await apply(connection, commit)

    monkeypatch.setattr(DatabaseClock, "error", CLOCK_ERROR_MAX + more)
    monkeypatch.setattr(pump, "apply", counted)
    run_id = await runtime.go(TWO)
    assert (await runtime.status(run_id), bool(locked)) == ("succeeded", by_the_book)


async def test_a_wait_is_not_set_back_by_an_outage(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime.outside.script["a"] = [NotSent("not now")]
    run_id = await runtime.go(TWO)
    before = await runtime.events(run_id)

    async def away(*_: Any) -> Any:
        raise asyncpg.CannotConnectNowError("the database system is starting up")

    await runtime.trouble.make_waits_due()
    with monkeypatch.context() as patched:
        patched.setattr(sweeper, "apply", away)
        assert await runtime.sweep() == 0
    assert await runtime.events(run_id) == before
    assert "setbacks" not in ((await runtime.books.wait()).context or {})
    await runtime.wait_is_due()
    assert await runtime.status(run_id) == "succeeded"
