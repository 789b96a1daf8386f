"""A commit is all or nothing: against another of the same run, against a change of the policy, against itself."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from msgspec import structs

from core.errors import NotFoundError
from runtime.engine.life.transition import Transition
from runtime.engine.model.rows import QueueRow, wait_of
from runtime.store.commits import apply, apply_together
from runtime.store.views import load

HALTS = """
workflow: halts
version: 1
channels: {seen: {}}
steps:
  - {id: left, do: probe.effect.apply, with: {name: left}, set: {seen: no-list}, needs: []}
  - {id: right, do: probe.effect.apply, with: {name: right}, needs: []}
  - id: all
    foreach: ${{ state.seen }}
    needs: [left, right]
    steps:
      - {id: put, do: probe.effect.apply, with: {name: put}}
"""
DIAMOND = """
workflow: diamond
version: 1
reference: ${{ run.id }}
channels: {seen: {reduce: append}}
steps:
  - {id: top, do: probe.value.read, with: {name: top}}
  - {id: left, needs: [top], do: probe.effect.apply, with: {name: left}, set: {seen: "${{ 'left' }}"}}
  - {id: right, needs: [top], do: probe.effect.apply, with: {name: right}, set: {seen: "${{ 'right' }}"}}
  - {id: mid, needs: [top], do: probe.value.read, with: {name: mid}, set: {seen: "${{ 'mid' }}"}}
  - {id: bottom, needs: [left, right, mid], do: probe.effect.apply, with: {name: "${{ state.seen[0] }}"}}
"""


async def held_view(runtime: Any, gate: Any) -> tuple[Any, Any, asyncio.Task[int]]:
    """A run whose step `left` is with a worker, as anybody would read it now."""
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(DIAMOND)
    started = await runtime.start("diamond")
    runtime.outside.gates["left"] = gate
    working = asyncio.create_task(runtime.worker("holder").work_off())
    await asyncio.wait_for(gate.reached.wait(), 60)
    async with runtime.database.connection() as connection:
        view = await load(connection, started.run_id, runtime.definitions.graphs)
    return view, (await runtime.definitions_of("acme", "diamond")).graph, working


async def stop(gate: Any, working: asyncio.Task[int]) -> None:
    gate.opened.set()
    await working


@pytest.mark.req("P-1")
@pytest.mark.req("V-8")
@pytest.mark.req("V-14")
async def test_parallel_steps_of_several_workers_meet_at_one_barrier(runtime: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(DIAMOND)
    runs = [(await runtime.start("diamond", ref=str(number))).run_id for number in range(4)]
    while any(await asyncio.gather(*(runtime.worker(f"w{number}").work_off() for number in range(5)))):
        pass
    for run_id in runs:
        assert await runtime.status(run_id) == "succeeded"
        barriers = await runtime.books.checkpoints(run=run_id)
        assert [barrier.superstep for barrier in barriers] == [0, 1, 2, 3]
        assert barriers[-1].state["channels"]["seen"] == ["left", "right", "mid"]
        await runtime.history(run_id)
    await runtime.at_rest()


@pytest.mark.req("P-1")
@pytest.mark.req("X-6")
async def test_a_barrier_of_several_workers_that_ends_its_run_leaves_no_place_taken(runtime: Any, gate: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(HALTS)
    run_id = (await runtime.start("halts")).run_id
    runtime.outside.gates["left"] = gate
    working = asyncio.create_task(runtime.worker("holder").work_off())
    await asyncio.wait_for(gate.reached.wait(), 60)
    await runtime.worker("other").work_off()
    await stop(gate, working)
    assert await runtime.status(run_id) == "failed_terminal"
    assert await runtime.books.places() == []


@pytest.mark.req("V-7")
@pytest.mark.req("X-17")
@pytest.mark.tampers  # one of the two commits writes what no expression gives
async def test_of_two_commits_on_one_version_one_is_applied_and_nothing_of_the_other(runtime: Any, gate: Any) -> None:
    view, graph, working = await held_view(runtime, gate)
    one, other = Transition(view, graph), Transition(view, graph)
    error = {"class": "transport", "code": "not_sent", "message": "no"}
    one.retry_later(view.run.steps["left"], one.rows.lease, error)
    other.message("card", uuid4(), "other")
    other.succeed(view.run.steps["left"], {"other": True}, {"seen": "other"})
    async with runtime.database.connection() as first, runtime.database.connection() as second:
        applied = await asyncio.gather(apply(first, one.commit()), apply(second, other.commit()))
    assert sorted(landed is not None for landed in applied) == [False, True]
    waits = await runtime.all("SELECT wait_id FROM waits")
    cards = await runtime.all("SELECT command_id FROM commands WHERE kind = 'card'")
    retrying = await runtime.books.step("left")
    if applied[0]:
        assert ([row["wait_id"] for row in waits], cards) == ([wait_of(view.run_id, view.run.steps["left"])], [])
        assert (retrying.status, retrying.eligible_in > timedelta(0)) == ("failed_retryable", True)
    else:
        assert (waits, len(cards)) == ([], 1)
        assert (retrying.status, retrying.eligible_in) == ("succeeded", None)
    version = await runtime.one("SELECT version, audit_count FROM runs")
    assert version["version"] == view.version + 1
    lines = await runtime.all("SELECT seq FROM run_lines WHERE run_id = $1 ORDER BY seq", view.run_id)
    assert [row["seq"] for row in lines] == list(range(version["audit_count"]))
    await stop(gate, working)


async def test_a_commit_that_the_database_refuses_in_part_leaves_nothing(runtime: Any, gate: Any) -> None:
    view, graph, working = await held_view(runtime, gate)
    transition = Transition(view, graph)
    transition.succeed(view.run.steps["left"], {}, {})
    rows = transition.commit()
    rows.queued = [QueueRow("twice", uuid4())] * 2
    before = await runtime.fingerprint()
    with pytest.raises(asyncpg.UniqueViolationError):
        async with runtime.database.connection() as connection:
            await apply(connection, rows)
    assert await runtime.fingerprint() == before
    await stop(gate, working)


@pytest.mark.tampers
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(("ahead", "admitted"), [(-60, True), (5, True), (60, False)])
async def test_no_append_is_of_a_time_that_is_still_to_come(
    runtime: Any, gate: Any, ahead: int, admitted: bool, together: bool
) -> None:
    view, graph, working = await held_view(runtime, gate)
    transition = Transition(structs.replace(view, now=view.now + timedelta(seconds=ahead)), graph)
    transition.succeed(view.run.steps["left"], {}, {})
    before = await runtime.fingerprint()
    async with runtime.database.connection() as connection:
        commit = transition.commit()
        applied = await (apply_together(connection, [commit]) if together else apply(connection, commit))
    unchanged = await runtime.fingerprint() == before
    if bool(applied) is not admitted:  # behind a line of the future nobody comes to an end
        working.cancel()
    else:
        await stop(gate, working)
    assert (bool(applied), unchanged) == (admitted, not admitted)


async def test_a_decision_is_void_once_the_policy_has_changed(runtime: Any, gate: Any) -> None:
    view, graph, working = await held_view(runtime, gate)
    judged = Transition(view, graph)
    judged.rows.stop = view.stop
    judged.succeed(view.run.steps["left"], {}, {})
    await runtime.execute("UPDATE tenants SET policy_digests = '{another}'")
    before = await runtime.fingerprint()
    async with runtime.database.connection() as connection:
        assert not await apply(connection, judged.commit())
    assert await runtime.fingerprint() == before
    await stop(gate, working)


@pytest.mark.req("O-2")
@pytest.mark.req("P-6")
async def test_a_command_is_written_once_under_its_deterministic_key(runtime: Any, gate: Any) -> None:
    view, graph, working = await held_view(runtime, gate)
    approval = uuid4()
    keys = set()
    for _ in range(2):
        async with runtime.database.connection() as connection:
            view = await load(connection, view.run_id, runtime.definitions.graphs)
            transition = Transition(view, graph)
            transition.message("remind", approval, "1")
            keys.add(transition.rows.commands[0].command_id)
            assert await apply(connection, transition.commit())
    assert len(keys) == 1
    assert len(await runtime.all("SELECT FROM commands WHERE kind = 'remind'")) == 1
    await stop(gate, working)


async def test_there_is_no_view_of_a_run_that_is_not_there(runtime: Any) -> None:
    async with runtime.database.connection() as connection:
        with pytest.raises(NotFoundError, match="There is no run"):
            await load(connection, uuid4(), runtime.definitions.graphs)
