"""The times of lines: bounds of the database's time that never run back for one step."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from core.errors import ConsistencyError
from evidence.events import Actor
from runtime.engine.book.fold import fold
from runtime.engine.book.recorded import RecordedEvent
from runtime.engine.book.snapshot import pack, unpack
from runtime.engine.life.transition import Transition
from runtime.engine.model.events import StepSetBack, StepStarted
from runtime.engine.model.run import RunView

WORKER = Actor("worker", "w")
SECOND = timedelta(seconds=1)
STEPS = """
workflow: w
version: 1
channels: {seen: {}}
steps:
  - {id: a, do: probe.value.read, with: {name: a}}
  - {id: b, do: probe.value.read, with: {name: b}, needs: []}
"""


@pytest.fixture
def begun(simulate: Callable[..., Any]) -> tuple[RunView, Any]:
    """A run with two steps, and its graph."""
    run = simulate(STEPS)
    return run.view(), run.workflow.graph


def told_by(view: RunView, graph: Any) -> list[tuple[str, timedelta]]:
    """The lines of step ``a`` from begin to end, each with how long it is after the view's time."""
    transition = Transition(view, graph)
    step = transition.started(replace(view.run.steps["a"], lease_owner="w", lease_epoch=1))
    transition.succeed(step, {}, {})
    lines = [orjson.loads(line) for line in transition.commit().lines]
    return [(line["type"], datetime.fromisoformat(line["ts"]) - view.now) for line in lines if line["step"] == "a"]


def test_an_outcome_has_the_upper_bound_and_all_else_the_lower_one(begun: Any) -> None:
    view, graph = begun
    assert told_by(replace(view, error=SECOND), graph) == [("step.started", 0 * SECOND), ("step.succeeded", SECOND)]


def test_where_the_clock_runs_back_a_step_s_time_stands_still(begun: Any) -> None:
    view, graph = begun
    view = replace(view, run=replace(view.run, times={"a": view.now + SECOND, "b": view.now + 9 * SECOND}))
    assert told_by(view, graph) == [("step.started", SECOND), ("step.succeeded", SECOND)]


def test_a_line_before_the_last_one_of_its_step_follows_from_nothing(begun: Any) -> None:
    view, graph = begun
    run, at = view.run.copy(), view.now
    run.times = {"a": at, "b": at + SECOND}
    event = StepStarted("set", 0, 1)
    with pytest.raises(ConsistencyError, match="time of b runs back"):
        fold(run, RecordedEvent(event, WORKER, at, "b"), graph)
    assert fold(run, RecordedEvent(event, WORKER, at, "a"), graph).times["a"] == at
    later = fold(run, RecordedEvent(StepSetBack(1), WORKER, at + 3 * SECOND, "a"), graph)
    assert later.times == {"a": at + 3 * SECOND, "b": at + SECOND}
    with pytest.raises(ConsistencyError, match="time of a runs back"):
        fold(later, RecordedEvent(StepSetBack(2), WORKER, at + 2 * SECOND, "a"), graph)


def test_the_times_of_open_steps_are_kept_and_no_others(begun: Any) -> None:
    view, _ = begun
    run = view.run.copy()
    run.times = {"a": view.now, "gone": view.now}
    assert unpack(pack(run.rest(), view.head), run.run_id, run.run_key)[0].times == {"a": view.now}
