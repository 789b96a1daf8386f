"""Answers of a pump: when each caller has one, what was sent twice before, and how sure its clock is."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.engine.instructions import Over
from runtime.work import pump
from runtime.work.lease import Move, Moved, Sent
from runtime.work.pump import Pump
from tests.runtime.test_pump_barriers import last_of_two
from tests.support.pumping import NOTHING, RUN_ID, SOON, SPAN, met_wide, moved


async def test_a_settle_is_answered_when_the_barrier_that_it_owed_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever goes on with the run then meets its next steps."""
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
