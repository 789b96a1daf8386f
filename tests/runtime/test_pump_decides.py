"""The pump of a run: what it decides on, a state at hand or the book, and what it asks of the database."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from core.db import CLOCK_ERROR_MAX
from runtime.engine.instructions import Next, Over
from runtime.engine.transition import Transition
from runtime.engine.windows import NeedsItems
from runtime.work import pump
from tests.support.pumping import RUN_ID, SPAN, SYSTEMS, Pumping, World, met_wide, moved, settles, unready


@pytest.mark.parametrize(
    ("more", "hand"),
    [({}, True), ({"behind": True}, False), ({"drifted": True}, True)],
)
async def test_a_state_that_lacks_what_is_in_the_book_decides_nothing(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, bool], hand: bool
) -> None:
    pumping = Pumping(World.of(3), monkeypatch)
    pumping.pump.drives = 1
    pumping.met(**more)
    monkeypatch.setattr(pump, "LINGER_SECONDS", 0.0)
    await moved(pumping, pumping.move("p0"))
    assert [each.partition(":")[0] for each in pumping.world.told] == (
        ["at hand"] if hand else ["locks p0", "reads lock since version 3", "on the book"]
    )


@pytest.mark.parametrize(("more", "hand"), [(timedelta(0), True), (timedelta(microseconds=1), False)])
async def test_by_a_clock_that_may_be_wrong_the_book_is_read(
    monkeypatch: pytest.MonkeyPatch, more: timedelta, hand: bool
) -> None:
    pumping = Pumping(World.of(1), monkeypatch)
    pumping.world.error = CLOCK_ERROR_MAX + more
    pumping.met()
    await moved(pumping, pumping.move("p0"))
    assert pumping.world.told[0].partition(",")[0] == ("at hand" if hand else "locks p0")
    assert len(pumping.world.told) == (1 if hand else 3)


async def test_what_is_decided_at_hand_has_the_time_of_the_clock_and_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pumping = Pumping(World.of(1), monkeypatch)
    pumping.world.error = timedelta(milliseconds=200)
    met = pumping.met()
    met.clock.now = lambda: met.view.now + timedelta(seconds=7)  # type: ignore[method-assign]
    seen: list[Any] = []

    def build(transition: Transition, step: Any, *_: Any) -> Next:
        seen.append((transition.view.now - met.view.now, transition.view.error))
        return settles()(transition, step, *_)

    await moved(pumping, pumping.move("p0", build))
    assert seen == [(timedelta(seconds=7), timedelta(milliseconds=200))]


@pytest.mark.parametrize("known", [True, False])
async def test_each_append_knows_what_this_worker_may_call_and_for_how_long_it_leases(
    monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    pumping = Pumping(World.of(1), monkeypatch)
    if known:
        pumping.met()
    seen: list[Any] = []

    def build(transition: Transition, *given: Any) -> Next:
        seen.append((transition.systems, transition.ready, transition.rows.lease, transition.graph, given[1]))
        return settles()(transition, *given)

    await moved(pumping, pumping.move("p0", build))
    workflow = pumping.world.run.workflow
    assert seen == [(SYSTEMS, unready, SPAN, workflow.graph, workflow)]


async def test_others_append_in_between_and_the_state_at_hand_has_drifted(monkeypatch: pytest.MonkeyPatch) -> None:
    """An append that commutes is still decided at hand, and the answer to the last one says that it was the last."""
    pumping = met_wide(monkeypatch, 4, leased=3, drives=1)
    monkeypatch.setattr(pump, "LINGER_SECONDS", 0.0)
    read = pumping.recent[RUN_ID]
    pumping.world.before[0] = lambda: pumping.world.elsewhere("p3")
    await moved(pumping, pumping.move("p0"))
    met = pumping.recent[RUN_ID]
    assert (met.drifted, met.seen, met.view.version, met.exact is read.exact) == (True, 5, 4, True)
    await moved(pumping, pumping.move("p1"))
    met = pumping.recent[RUN_ID]
    assert (met.drifted, met.seen, met.view.version, met.exact is read.exact) == (True, 6, 5, True)
    assert pumping.world.told == [
        "elsewhere: p3.started p3.succeeded: version 4, 3 executing",
        "at hand: p0.started p0.succeeded, holds p0: version 5, 2 executing",
        "at hand: p1.started p1.succeeded, holds p1: version 6, 1 executing",
    ]
    del pumping.world.told[:]
    await moved(pumping, pumping.move("p2"))
    # By the state at hand p3 executes still: so the settle commutes, and its answer says that it was the last.
    assert pumping.world.told == [
        "at hand: p2.started p2.succeeded, holds p2: version 7, 0 executing",
        "reads since version 3",
        "at hand, strict: committed: version 8, 1 executing",
    ]
    met = pumping.recent[RUN_ID]
    assert (met.drifted, met.seen, met.exact is met.view) == (False, 8, True)


async def test_what_does_not_commute_is_not_tried_on_a_state_that_has_drifted(monkeypatch: pytest.MonkeyPatch) -> None:
    pumping = Pumping(World.of(2, leased=1), monkeypatch)
    pumping.world.elsewhere("p1")
    pumping.met(drifted=True)
    del pumping.world.told[:]
    await moved(pumping, pumping.move("p0"))
    assert pumping.world.told == [
        "locks p0",
        "reads lock since version 4",
        "on the book, strict: p0.started p0.succeeded committed: version 5, 1 executing",
    ]


@pytest.mark.parametrize("recounted", [False, True])
async def test_what_a_rule_has_counted_goes_only_if_nobody_was_in_between(
    monkeypatch: pytest.MonkeyPatch, recounted: bool
) -> None:
    pumping = met_wide(monkeypatch, 2, leased=1, drives=1)
    monkeypatch.setattr(pump, "LINGER_SECONDS", 0.0)

    def counts(transition: Transition, step: Any, *_: Any) -> Next:
        transition.rows.recounted = recounted
        return settles()(transition, step, *_)

    pumping.world.before[0] = lambda: pumping.world.elsewhere("p1")
    await moved(pumping, pumping.move("p0", counts))
    told = pumping.world.told[1:]
    if recounted:
        assert told == [
            "at hand, strict: p0.started p0.succeeded, holds p0: refused",
            "locks p0",
            "reads lock since version 3",
            "on the book, strict: p0.started p0.succeeded committed: version 5, 1 executing",
        ]
    else:
        assert told[0] == "at hand: p0.started p0.succeeded, holds p0: version 5, 0 executing"


async def test_a_gate_that_has_moved_is_seen_on_the_book(monkeypatch: pytest.MonkeyPatch) -> None:
    pumping = met_wide(monkeypatch, 2, drives=1)
    monkeypatch.setattr(pump, "LINGER_SECONDS", 0.0)
    pumping.world.before[0] = pumping.world.gate_moves
    await moved(pumping, pumping.move("p0"))
    assert pumping.world.told == [
        "at hand: p0.started p0.succeeded, holds p0: refused",
        "locks p0",
        "reads lock since version 3",
        "on the book: p0.started p0.succeeded: version 4, 1 executing",
    ]


async def test_items_that_are_not_kept_are_read_from_the_first_line_on(monkeypatch: pytest.MonkeyPatch) -> None:
    pumping = met_wide(monkeypatch, 2)
    needs = iter([True, False])

    def build(transition: Transition, step: Any, *_: Any) -> Next:
        if step.key == "p0" and next(needs):
            raise NeedsItems
        return settles()(transition, step, *_)

    found = await moved(pumping, pumping.move("p0", build), pumping.move("p1"))
    assert [each.work for each in found] == [Over(), Over()]
    assert [each.partition(":")[0] for each in pumping.world.told] == [
        "locks p0 p1", "reads lock afresh since version 3", "on the book, strict"
    ]  # fmt: skip
