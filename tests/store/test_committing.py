"""Commits of several runs in one statement: each is all or nothing by itself, and none waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from runtime.engine.life.transition import Transition
from runtime.engine.model.rows import Commit, QueueRow, RecordRow
from runtime.engine.model.states import RunState
from runtime.store.commits import Applied, apply, apply_together, can_go_together
from runtime.store.views import load
from runtime.work import committer as committing
from runtime.work.committer import committer

ONE = """
workflow: one
version: 1
reference: ${{ run.id }}
steps:
  - {id: only, do: probe.effect.apply, with: {name: "${{ trigger.name }}"}}
"""
RUNS = 3


@dataclass
class Held:
    """Several runs, each with its only step at a worker that waits for its call."""

    runtime: Any
    views: list[Any]
    graph: Any

    def settle(self, which: int) -> Commit:
        """The commit that ends the step of this run, and the run."""
        view = self.views[which]
        transition = Transition(view, self.graph)
        transition.succeed(view.run.steps["only"], {"settled": which}, {})
        return transition.commit()

    async def ended(self) -> list[bool]:
        """Say of each run if its step is over and its output written; nothing is ever written in part."""
        found = []
        for view in self.views:
            step = await self.runtime.books.step(run=view.run_id)
            run = await self.runtime.one("SELECT version, audit_count FROM runs WHERE run_id = $1", view.run_id)
            lines = await self.runtime.one("SELECT count(*) AS n FROM run_lines WHERE run_id = $1", view.run_id)
            place = await self.runtime.one("SELECT FROM queue WHERE run_id = $1", view.run_id)
            over = step.status == "succeeded"
            assert (step.output is not None, run["version"] > view.version, place is None) == (over, over, over)
            assert lines["n"] == run["audit_count"]
            assert (await self.runtime.books.chain(view.run_id)).problem is None
            found.append(over)
        return found


@pytest.fixture
async def held(runtime: Any) -> AsyncIterator[Held]:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(ONE)
    gates = [runtime.gate_type() for _ in range(RUNS)]
    runs, working = [], []
    for number, gate in enumerate(gates):
        runtime.outside.gates[f"r{number}"] = gate
        runs.append((await runtime.start("one", {"name": f"r{number}"}, ref=str(number))).run_id)
        working.append(asyncio.create_task(runtime.worker(f"w{number}").work_off()))
        await asyncio.wait_for(gate.reached.wait(), 60)
    async with runtime.database.connection() as connection:
        views = [await load(connection, run_id, runtime.definitions.graphs) for run_id in runs]
    yield Held(runtime, views, (await runtime.definitions_of("acme", "one")).graph)
    for gate in gates:
        gate.opened.set()
    await asyncio.gather(*working)
    for run_id in runs:
        assert await runtime.status(run_id) == "succeeded"
    await runtime.at_rest()


async def together(held: Held, commits: Sequence[Commit]) -> set[UUID]:
    async with held.runtime.database.connection() as connection:
        return {*await apply_together(connection, commits)}


async def test_commits_of_several_runs_are_one_transaction(held: Held) -> None:
    commits = [held.settle(number) for number in range(RUNS)]
    assert await together(held, commits) == {view.run_id for view in held.views}
    assert await held.ended() == [True] * RUNS
    writers = await held.runtime.all("SELECT DISTINCT xmin::text FROM runs")
    assert len(writers) == 1


@pytest.mark.req("V-7")
async def test_one_whose_run_moved_on_is_left_out_whole_and_the_others_are_not(held: Held) -> None:
    stale = held.settle(1)
    stale.expected_version -= 1
    assert await together(held, [held.settle(2), stale, held.settle(0)]) == {
        held.views[0].run_id,
        held.views[2].run_id,
    }
    assert await held.ended() == [True, False, True]


async def test_one_that_was_decided_under_another_policy_is_left_out(held: Held) -> None:
    judged = held.settle(0)
    judged.stop = -1
    assert await together(held, [judged, held.settle(1)]) == {held.views[1].run_id}
    assert await held.ended() == [False, True, False]


async def test_two_statements_with_the_same_runs_do_not_deadlock_and_each_run_moves_once(held: Held) -> None:
    forth = [held.settle(number) for number in range(RUNS)]
    back = [held.settle(number) for number in reversed(range(RUNS))]
    first, second = await asyncio.gather(together(held, forth), together(held, back))
    assert not first & second
    assert first | second == {view.run_id for view in held.views}
    assert await held.ended() == [True] * RUNS


class Busy:
    """A committer whose only writer is held up, so that what comes meanwhile waits."""

    def __init__(self, held: Held) -> None:
        self.held = held
        self.committer = committer(held.runtime.database.connection, writers=1)

    async def while_busy(self, commits: Sequence[Commit]) -> list[Any]:
        """Apply the first while its run is locked by another, the rest behind it; whether each was, or why not."""
        async with self.held.runtime.database.transaction() as lock:
            await lock.execute("SELECT FROM runs WHERE run_id = $1 FOR UPDATE", commits[0].run_id)
            tasks = [asyncio.create_task(self.committer.apply(commit)) for commit in commits]
            while not await self.held.runtime.one("SELECT 1 FROM pg_locks WHERE NOT granted"):
                assert not all(task.done() for task in tasks), "nobody waited"
        results = await asyncio.gather(*tasks, return_exceptions=True)
        return [result if isinstance(result, BaseException) else result is not None for result in results]


async def test_what_comes_while_the_writer_is_busy_goes_together(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    async def counted(connection: Any, commits: Sequence[Commit]) -> dict[UUID, Applied]:
        sizes.append(len(commits))
        return await apply_together(connection, commits)

    monkeypatch.setattr(committing, "apply_together", counted)
    assert await Busy(held).while_busy([held.settle(number) for number in range(RUNS)]) == [True] * RUNS
    assert sizes == [RUNS - 1]
    assert await held.ended() == [True] * RUNS


async def test_two_commits_of_one_run_never_share_a_statement(held: Held) -> None:
    commits = [held.settle(0), held.settle(1), held.settle(1), held.settle(1)]
    assert sorted(await Busy(held).while_busy(commits)) == [False, False, True, True]
    assert await held.ended() == [True, True, False]


async def test_what_the_database_refuses_of_one_costs_the_others_nothing(held: Held) -> None:
    refused = held.settle(1)
    refused.queued = [QueueRow("twice", uuid4())] * 2
    one, other, third = await Busy(held).while_busy([held.settle(0), refused, held.settle(2)])
    assert (one, third) == (True, True)
    assert "pk_queue" in str(other)
    assert await held.ended() == [True, False, True]


async def test_leases_of_another_span_go_for_themselves(held: Held) -> None:
    longer = held.settle(2)
    longer.lease = timedelta(minutes=5)
    assert await Busy(held).while_busy([held.settle(0), held.settle(1), longer]) == [True] * RUNS


async def test_who_does_not_listen_any_more_stops_nobody(held: Held) -> None:
    busy = Busy(held)
    async with held.runtime.database.transaction() as lock:
        await lock.execute("SELECT FROM runs WHERE run_id = $1 FOR UPDATE", held.views[0].run_id)
        first, gone, third = (asyncio.create_task(busy.committer.apply(held.settle(n))) for n in range(RUNS))
        while not await held.runtime.one("SELECT 1 FROM pg_locks WHERE NOT granted"):
            assert not first.done(), "it waited for nobody"
        gone.cancel()
    assert await first
    assert await third
    assert await held.ended() == [True] * RUNS


async def test_what_ends_all_the_rest_of_a_run_goes_alone(held: Held) -> None:
    ends = held.settle(0)
    assert can_go_together(ends)
    ends.cancels_rest = True
    assert not can_go_together(ends)
    async with held.runtime.database.connection() as connection:
        assert await apply(connection, ends)


def test_a_commit_with_a_record_never_shares_a_statement() -> None:
    """Refuse neighbours: what refuses a record refuses its statement whole."""
    commit = Commit(uuid4(), "acme", "main", 1, 0, RunState.RUNNING, 0, 1)
    assert can_go_together(commit)
    commit.records = [RecordRow("c", "k", {})]
    assert not can_go_together(commit)
