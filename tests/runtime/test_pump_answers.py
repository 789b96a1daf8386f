"""Answers of a pump: when each caller has one, what was sent twice before, and how sure its clock is."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from runtime.definition.workflow import load_workflow
from runtime.engine.commit import Claim
from runtime.engine.instructions import Over, Perform
from runtime.work import pump
from runtime.work.lease import Move, Moved, Sent
from runtime.work.pump import Pump
from tests.engine.conftest import Simulation
from tests.runtime.test_pump_barriers import last_of_two
from tests.support.pumping import (
    CATALOG,
    NOTHING,
    RUN_ID,
    SOON,
    SPAN,
    Pumping,
    World,
    met_wide,
    moved,
    settles,
    wide,
)


async def test_a_settle_is_answered_when_the_barrier_that_it_owed_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers that go on with the run then meet its next steps."""
    pumping, during = last_of_two(monkeypatch), list[bool]()
    move, barrier = pumping.move("p0"), Pump._barrier

    async def watched(self: Pump, gate: int) -> None:
        during.append(move.done.done())
        await barrier(self, gate)

    monkeypatch.setattr(Pump, "_barrier", watched)
    (found,) = await moved(pumping, move)
    assert (during, found.work) == ([False], Over())


@pytest.mark.req("Q-10")
async def test_a_barrier_leases_for_as_long_as_its_worker_does(monkeypatch: pytest.MonkeyPatch) -> None:
    pumping, spans = last_of_two(monkeypatch), list[Any]()
    append = pumping.committing

    async def committing(commit: Any) -> Any:
        spans.append(commit.lease)
        return await append(commit)

    monkeypatch.setattr(pumping, "committing", committing)
    await moved(pumping, pumping.move("p0"))
    assert spans == [SPAN, SPAN]


async def test_the_clock_of_what_was_read_begins_before_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    pumping, clock, asked = met_wide(monkeypatch, 2), [100.0], list[float]()
    load, meet = pump.load, pump.meet

    async def slow(*given: Any, **more: Any) -> Any:
        clock[0] += 3
        return await load(*given, **more)

    async def met(connection: Any, definitions: Any, view: Any, began: float) -> Any:
        asked.append(began)
        return await meet(connection, definitions, view, began)

    monkeypatch.setattr(pump, "load", slow)
    monkeypatch.setattr(pump, "meet", met)
    monkeypatch.setattr(pump, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    await pumping.pump._read(NOTHING, lock=False, afresh=False)
    await pumping.pump._read(NOTHING, lock=True, afresh=True)
    assert asked == [100.0, 103.0]


async def test_callers_of_a_pump_that_is_canceled_hear_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pumping, begun = met_wide(monkeypatch, 2), asyncio.Event()

    async def never(_: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(pumping, "committing", never)
    moves = [pumping.move(f"p{number}") for number in range(2)]
    callers = [asyncio.ensure_future(pumping.pump.append(move)) for move in moves]
    async with asyncio.timeout(SOON):
        await begun.wait()
        writing = pumping.pump._writing
        assert writing is not None
        writing.cancel()
        found = await asyncio.gather(*callers, return_exceptions=True)
    assert {type(each) for each in found} == {asyncio.CancelledError}
    assert all(move.done.cancelled() for move in moves)


@pytest.mark.parametrize("landed", [(True, False), (False, True), (False, False), (True, True)])
async def test_each_append_of_a_move_whose_answer_was_lost_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, landed: tuple[bool, bool]
) -> None:
    pumping = met_wide(monkeypatch, 2)
    commits = ["the first", "the second"]
    looked: list[str] = []

    async def lands(_: Any, commit: Any) -> bool:
        looked.append(commit)
        return landed[commits.index(commit)]

    monkeypatch.setattr(pump, "landed", lands)
    move, other = pumping.move("p0"), pumping.move("p1")
    for number, commit in enumerate(commits):
        made: Any = commit
        Sent(NOTHING, NOTHING, made, {move.claim: Over()}, float(number)).unanswered([move, other])
    met = pumping.recent[RUN_ID]
    left: list[Move] = await pumping.pump._found(NOTHING, met, [move, other])
    assert looked == commits
    assert left == ([other] if any(landed) else [move, other])
    if any(landed):
        assert move.done.result() == Moved(met, Over(), 0.0 if landed[0] else 1.0)


async def test_more_than_ten_steps_are_told_in_their_order_too(monkeypatch: pytest.MonkeyPatch) -> None:
    pumping = met_wide(monkeypatch, 12)
    await moved(pumping, *(pumping.move(f"p{number}") for number in (11, 2, 10, *range(2), *range(3, 10))))
    (told,) = pumping.world.told
    ended = [word.partition(".")[0] for word in told.split() if word.endswith(".succeeded")]
    assert ended == [f"p{number}" for number in range(12)]


async def test_a_step_is_told_with_the_epoch_of_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    pumping = met_wide(monkeypatch, 2, leased=1)
    claims = [pumping.world.lease("p0", 3), pumping.world.lease("p1", 7)]
    await moved(pumping, *(pumping.move(claim.key, claim=claim) for claim in claims))
    lines = [orjson.loads(line) for line in pumping.world.run.lines]
    started = {line["step"]: line["data"]["epoch"] for line in lines if line["type"] == "step.started"}
    assert (started["p0"], started["p1"]) == (3, 7)


async def test_who_goes_on_takes_the_step_after_the_one_that_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    text = wide(1) + "  - {id: y, do: probe.value.read, with: {name: x}, needs: [z]}\n"
    run = Simulation(load_workflow(text, "test.yaml", CATALOG), {}).open()
    run.claim("s")
    run.succeed("s")
    pumping = Pumping(World(run), monkeypatch, linger=0.0)
    claim = pumping.world.lease("p0")
    pumping.met()

    def begin(transition: Any, step: Any, *_: Any) -> Any:
        if step.key == "y":
            return Perform(step, NOTHING, NOTHING, None)
        return settles()(transition, step, NOTHING, NOTHING)

    monkeypatch.setattr(pump, "begin", begin)
    (found,) = await moved(pumping, pumping.move("p0", goes_on=True))
    assert (found.work.step.key, pumping.world.claims) == ("y", {"y": Claim("y", claim.id, 1)})
    moves = "p0.started p0.succeeded committed z.started z.succeeded committed y.started"
    assert pumping.world.told == [f"at hand, strict: {moves}, holds p0: version 4, 1 executing"]
