"""Votes and signals on a run with many steps at once: they commute with all that is told of other steps (X-6, X-17)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from random import Random
from typing import Any
from uuid import UUID

import pytest

from connectors.port import Done
from runtime.engine.book.instructions import open_wait
from runtime.engine.life.transition import Transition
from runtime.engine.model.events import ApprovalReminded
from runtime.requests import signaling
from runtime.requests.voting import VoteRequest
from runtime.store.commits import apply
from runtime.store.views import load
from tests.support.insides import between_reading_and_append_of_votes
from tests.support.runtime_stage import ALLOW_ALL

WIDE = """
workflow: wide
version: 1
channels: {names: {reduce: append}}
steps:
  - id: each
    foreach: ${{ trigger.items }}
    max_parallel: 1000
    steps:
      - {id: put, do: probe.effect.apply, with: {name: "${{ item }}"}, set: {names: "${{ item }}"}}
  - {id: last, do: probe.effect.apply, with: {name: last}}
"""
# Whoever sees that may do it, and for what begins with q two owners are asked first.
ASKED = """
policy: asked
version: 1
rules:
  - {id: everything, match: {connector: probe}, outcome: allow}
  - id: asked
    match: {connector: probe}
    when: action.fields.name.startsWith('q')
    outcome: needs_approval
    approvers: [{group: owners, of: 2}]
    remind: [PT1H]
"""
HEARD = """
workflow: wide
version: 1
channels: {names: {reduce: append}}
steps:
  - {id: word, wait: {signal: word, correlate: "${{ trigger.name }}"}}
  - id: each
    needs: []
    foreach: ${{ trigger.items }}
    max_parallel: 1000
    steps:
      - {id: put, do: probe.effect.apply, with: {name: "${{ item }}"}, set: {names: "${{ item }}"}}
"""
QUESTIONS = ["q0", "q1"]


class Held:
    """A run with calls that are under way at two workers, and people who answer meanwhile."""

    def __init__(self, runtime: Any, names: list[str]) -> None:
        self.runtime, self.names = runtime, names
        self.gates = {name: runtime.gate_type(after_effect=True) for name in names}
        self.run_id = UUID(int=0)

    async def settle(self, name: str) -> None:
        """Let this call end, until that is told."""
        step = f"each[{self.names.index(name) + len(self.asked)}].put"
        self.gates[name].opened.set()

        async def told() -> bool:
            lines = await self.runtime.books.events(self.run_id, type="action.succeeded")
            return step in {line.step for line in lines}

        await self.runtime.until(told)

    asked: tuple[str, ...] = ()

    async def question(self, name: str) -> UUID:
        step = f"each[{QUESTIONS.index(name)}].put"
        rows = await self.runtime.books.approvals(run=self.run_id)
        found: UUID = next(row.id for row in rows if row.step == step)
        return found

    async def over(self, status: str = "succeeded") -> list[Any]:
        for gate in self.gates.values():
            gate.opened.set()

        async def ended() -> bool:
            return (await self.runtime.books.run(self.run_id)).finished_at is not None

        await self.runtime.until(ended)
        assert await self.runtime.status(self.run_id) == status, await self.runtime.error(self.run_id)
        await self.runtime.history(self.run_id)
        await self.runtime.at_rest()
        return list(await self.runtime.books.events(self.run_id))


@asynccontextmanager
async def under_way(runtime: Any, count: int, text: str = WIDE, policy: str = ASKED) -> AsyncIterator[Held]:
    """So many calls are held up at two workers, and whatever asks people has asked."""

    def alike(done: Done) -> Done:
        return Done({"name": done.output["name"]}) if "name" in done.output else done

    runtime.outside.reshape = alike
    if not await runtime.books.runs():
        await runtime.tenant(concurrency=100)
        await runtime.policy(policy)
        await runtime.publish(text)
        for person in ("olga", "otto"):
            await runtime.person(person, ("owners",))
    held = Held(runtime, [f"i{number:02}" for number in range(count)])
    held.asked = tuple(QUESTIONS) if policy is ASKED else ()
    runtime.outside.gates.update(held.gates)
    ref = str(len(await runtime.books.runs()))
    stop, trigger = asyncio.Event(), {"items": [*held.asked, *held.names], "name": ref}
    held.run_id = (await runtime.start("wide", trigger, ref=ref)).run_id
    workers = [runtime.worker(owner, concurrency=count) for owner in ("a", "b")]
    tasks = [asyncio.create_task(worker.run(stop)) for worker in workers]
    try:
        async with asyncio.timeout(60):
            await asyncio.gather(*(gate.reached.wait() for gate in held.gates.values()))

        async def parked() -> bool:
            return (await runtime.events(held.run_id)).count("step.parked") == len(held.asked or ("word",))

        await runtime.until(parked)
        yield held
    finally:
        stop.set()
        await asyncio.wait_for(asyncio.gather(*tasks), 60)


class Between:
    """Holds votes up between their reading and their append."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads: dict[str, int] = defaultdict(int)
        self.read: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.go: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        between_reading_and_append_of_votes(monkeypatch, self._held_up)

    async def _held_up(self, request: VoteRequest, judging: Awaitable[Any]) -> Any:
        found, who = await judging, f"{request.person_id}:{request.approval_id}"
        self.reads[who] += 1
        self.read[who].set()
        await self.go[who].wait()
        return found


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Between:
    return Between(monkeypatch)


async def test_votes_of_a_wide_run_go_in_at_the_first_try(runtime: Any, between: Between) -> None:
    """Two questions are decided while sixteen steps run; each vote is decided on before, and lands after, a settle."""
    async with under_way(runtime, 16) as held:
        names = iter(held.names)
        for name in QUESTIONS:
            question = await held.question(name)
            for person in ("olga", "otto"):
                vote, who = asyncio.create_task(runtime.vote(person, "approve", on=question)), f"{person}:{question}"
                await between.read[who].wait()
                await held.settle(next(names))
                between.go[who].set()
                assert (await vote).counted
                assert between.reads[who] == 1
        events = await held.over()
    assert sorted(event.data["number"] for event in events if event.type == "checkpoint.committed") == [0, 1, 2, 3]


@pytest.mark.req("U-5")
async def test_two_people_at_the_same_moment_are_both_counted(runtime: Any, between: Between) -> None:
    """Both have decided on the question without votes; whoever is second decides again on what the first has left."""
    async with under_way(runtime, 2) as held:
        question = await held.question("q0")
        people = ("olga", "otto")
        votes = [asyncio.create_task(runtime.vote(person, "approve", on=question)) for person in people]
        for person in people:
            await between.read[f"{person}:{question}"].wait()
        for person in people:
            between.go[f"{person}:{question}"].set()
        answers = await asyncio.gather(*votes)
        assert sorted(answer.status for answer in answers) == ["approved", "requested"]
        assert sorted(between.reads[f"{person}:{question}"] for person in people) == [1, 2]
        other = await held.question("q1")
        for person in people:
            between.go[f"{person}:{other}"].set()
            assert (await runtime.vote(person, "approve", on=other)).counted
        events = await held.over()
    decided = [event.step for event in events if event.type == "approval.decided"]
    assert sorted(decided) == ["each[0].put", "each[1].put"]


async def test_a_vote_that_commits_a_barrier_has_seen_everything(runtime: Any, between: Between) -> None:
    """Nothing runs beside the two questions: the vote that decides one has to see a vote on the other."""
    async with under_way(runtime, 1) as held:
        await held.settle("i00")

        async def waits() -> bool:
            return bool(await runtime.status(held.run_id) == "waiting_approval")

        await runtime.until(waits)
        first, second = [await held.question(name) for name in QUESTIONS]
        for who in (f"olga:{first}", f"olga:{second}", f"otto:{second}"):
            between.go[who].set()
        assert (await runtime.vote("olga", "approve", on=first)).counted
        vote = asyncio.create_task(runtime.vote("otto", "approve", on=first))
        await between.read[f"otto:{first}"].wait()
        assert (await runtime.vote("olga", "approve", on=second)).counted
        between.go[f"otto:{first}"].set()
        assert (await vote).status == "approved"
        assert (between.reads[f"otto:{first}"], between.reads[f"olga:{second}"]) == (2, 1)
        assert (await runtime.vote("otto", "approve", on=second)).counted
        await held.over()


@pytest.mark.req("V-12")
async def test_a_vote_sees_what_a_keeper_has_told_of_its_question(runtime: Any, between: Between) -> None:
    """A reminder changes the wait which the vote ends, and its time is later than the vote's."""
    async with under_way(runtime, 2) as held:
        for name in QUESTIONS:
            question = await held.question(name)
            vote, who = asyncio.create_task(runtime.vote("olga", "approve", on=question)), f"olga:{question}"
            await between.read[who].wait()
            async with runtime.database.transaction() as connection:
                view = await load(connection, held.run_id, runtime.definitions.graphs, lock=True)
                transition = Transition(view, (await runtime.definitions_of("acme", "wide")).graph)
                step = f"each[{QUESTIONS.index(name)}].put"
                wait = open_wait(view.run, step)
                assert wait is not None
                transition.tell(ApprovalReminded(question, wait.wait_id, 1, 3600), step=step)
                assert await apply(connection, transition.commit())
                between.go[who].set()
                # The vote waits for the run's row, and sees what the keeper has told when it has that.
                await runtime.until("SELECT FROM pg_locks WHERE NOT granted")
            assert (await vote).counted
            assert between.reads[who] == 2
            between.go[f"otto:{question}"].set()
            assert (await runtime.vote("otto", "approve", on=question)).counted
        await held.over()


@pytest.mark.req("X-17")
@pytest.mark.parametrize("last", ["approve", "reject"])
async def test_whatever_the_order_of_votes_and_settles_the_state_is_one(
    runtime: Any, between: Between, last: str
) -> None:
    """Votes on two questions are decided early and land late, among the settles of other steps at two workers."""
    found, orders = [], set()
    for seed in range(4):
        chance = Random(seed)
        async with under_way(runtime, 10) as held:
            open_to_the_end, first, second = held.names[-1], *[await held.question(name) for name in QUESTIONS]
            votes = [("olga", "approve", first), ("otto", "approve", first), ("olga", last, second)]
            votes += [("otto", last, second)] if last == "approve" else []
            todo: list[Any] = [*held.names[:-1], *votes, *votes]
            chance.shuffle(todo)
            tasks: dict[str, Any] = {}
            for what in todo:
                if isinstance(what, str):
                    await held.settle(what)
                    continue
                person, choice, question = what
                if (who := f"{person}:{question}") not in tasks:
                    tasks[who] = asyncio.create_task(runtime.vote(person, choice, on=question))
                    await between.read[who].wait()
                else:
                    between.go[who].set()
                    assert (await tasks[who]).counted
            assert open_to_the_end not in await runtime.books.statuses_of(held.run_id)
            events = await held.over("succeeded" if last == "approve" else "failed_terminal")
        await runtime.trouble.forget_refusals()  # the same is asked again with the next seed
        orders.add(tuple(event.type for event in events if event.type.startswith(("approval.voted", "action.succ"))))
        steps = await runtime.books.steps(run=held.run_id)
        told = {
            step.key: [step.output, step.status, *(event.type for event in events if event.step == step.key)]
            for step in steps
        }
        state = await runtime.state(held.run_id)
        state["parked"] = [*state.get("parked", {})]  # a wait's id is made of its run's
        found.append((state, await runtime.error(held.run_id), told))
    assert len(orders) == 4
    assert found[1:] == found[:1] * 3


async def test_a_signal_commutes_with_the_steps_that_run_beside_its_wait(
    runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals: Any = signaling
    reads, read = [], signals.load
    async with under_way(runtime, 4, HEARD, ALLOW_ALL) as held:

        async def overtaken(*named: Any, lock: bool, **more: Any) -> Any:
            found = await read(*named, lock=lock, **more)
            reads.append(lock)
            await held.settle(held.names[len(reads) - 1])
            return found

        monkeypatch.setattr(signaling, "load", overtaken)
        assert (await runtime.signal("word:0", {"said": 1})).code == "delivered"
        assert reads == [False]
        await held.over()
