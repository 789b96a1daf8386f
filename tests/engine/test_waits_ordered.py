"""Orders of a wait as it begins and ends: the card of a task, the end of work elsewhere, another run (V-12, X-13)."""

from __future__ import annotations

from dataclasses import replace as copied
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from core.canonical import derived_id
from evidence.chain import Actor
from evidence.commitments import commit_fields
from runtime.engine import waits
from runtime.engine.events import RunContinued, WaitCanceled, WaitCompleted, WaitTimedOut
from runtime.engine.graph import ChildNode
from runtime.engine.instructions import OtherRun, Over, StartRun
from runtime.engine.states import StepState, WaitKind, WaitState
from runtime.engine.transition import Transition
from tests.engine.conftest import KEY, RUN_ID
from tests.engine.governing import CHILD, HEAD, governed
from tests.engine.test_folds import ANN, W, step, wait
from tests.engine.test_moves_told import ROW, transition
from tests.engine.test_waits_whole import GOES_ON, HEIR, TASK

pytestmark = pytest.mark.req("V-12")

WAITING = replace(step("a", StepState.WAITING), lease_epoch=7)


def waited(kind: WaitKind, context: Any = None) -> tuple[Transition, Any]:
    """A step that waits in a run in which another one executes."""
    open_ = wait(kind=kind, context=context)
    return transition(WAITING, step("other"), open_, parked={"a": f"wait:{W}"}), open_


def ordered(made: Transition) -> list[tuple[Any, ...]]:
    return [(row.kind, row.payload, row.ordering_key, row.command_id) for row in made.rows.commands]


def orders(*wanted: tuple[str, str, Any, str | None]) -> list[tuple[Any, ...]]:
    """These orders, as any transition would give them."""
    made = transition()
    for kind, name, payload, one_at_a_time in wanted:
        made.order(kind, name, payload, one_at_a_time=one_at_a_time)
    return ordered(made)


def of_task(what: str) -> tuple[str, str, Any, str | None]:
    return "task", f"{W}:{what}", {"task": str(W)}, str(W)


ENDS: Any = ("cancel", str(W), {"wait": str(W)}, None)
LATE: list[tuple[WaitKind, Any, list[Any]]] = [
    (WaitKind.TASK, None, [of_task("expired")]),
    (WaitKind.TIMER, None, []),
    (WaitKind.SIGNAL, {"abandons": False}, []),
    (WaitKind.SHARED, None, []),
    (WaitKind.EXTERNAL, None, [ENDS]),
    (WaitKind.EXTERNAL, {"abandons": True}, [ENDS]),
    (WaitKind.CHILD, None, [ENDS]),
    (WaitKind.CHILD, {"abandons": False}, [ENDS]),
    (WaitKind.CHILD, {"abandons": True}, []),
]


@pytest.mark.parametrize(("kind", "context", "wanted"), LATE)
def test_a_wait_that_is_late_ends_its_work_elsewhere(kind: WaitKind, context: Any, wanted: list[Any]) -> None:
    made, open_ = waited(kind, context)
    waits.time_out(made, WAITING, open_)
    assert [(one.event, one.step, one.actor.id) for one in made._told][:1] == [
        (WaitTimedOut(W, kind), "a", "counterseal"),
    ]  # fmt: skip
    assert [str(one.event.TYPE) for one in made._told][1:] == ["step.resumed"]
    assert ordered(made) == orders(*wanted)


@pytest.mark.parametrize("kind", [WaitKind.TASK, WaitKind.SIGNAL, WaitKind.EXTERNAL, WaitKind.CHILD])
@pytest.mark.parametrize("result", [{"output": {"x": 1}}, {"output": 1, "by": "somebody else"}, {"error": {}}])
def test_a_wait_that_is_completed_says_who_has_ended_it_and_shows_its_task(kind: WaitKind, result: Any) -> None:
    made, open_ = waited(kind)
    waits.complete(made, WAITING, open_, result, Actor("token", "t1"))
    (ended, resumed) = made._told
    assert isinstance(ended.event, WaitCompleted)
    assert (ended.step, ended.actor, resumed.event.TYPE) == ("a", Actor("token", "t1"), "step.resumed")
    assert (ended.event.kind, ended.event.result) == (kind, {**result, "by": "token:t1"})
    assert ended.event.committed == commit_fields(KEY, f"/wait/{W}", result)
    assert made.run.waits[W].result == {**result, "by": "token:t1"}
    assert ordered(made) == orders(*([of_task("completed")] if kind is WaitKind.TASK else []))


def test_a_task_that_is_put_anew_says_who_has_changed_what_it_asks() -> None:
    made, open_ = waited(WaitKind.TASK)
    waits.ask_anew(made, WAITING, open_, ANN)
    canceled, resumed = made._told
    assert (canceled.event, canceled.step, canceled.actor) == (WaitCanceled(W, WaitKind.TASK, "changed"), "a", ANN)
    assert resumed.event.TYPE == "step.resumed"
    assert ordered(made) == orders(of_task("canceled"))


def test_a_task_is_posted_one_message_at_a_time() -> None:
    run = governed(TASK).drive()
    (command,) = [row for row in run.commands.values() if row.kind == "task"]
    (row,) = run.waits.values()
    assert (command.payload, command.ordering_key) == ({"task": str(row.wait_id)}, f"task:{row.wait_id}")


@pytest.mark.parametrize("ended_by", [WaitCompleted, WaitTimedOut])
@pytest.mark.parametrize("handled", [False, True])
def test_a_wait_that_ends_badly_fails_its_step_now_or_when_its_branch_takes_over(
    monkeypatch: pytest.MonkeyPatch, ended_by: Any, handled: bool
) -> None:
    error: Any = {"class": "timeout", "code": "expired", "message": "Late."}
    made, open_ = waited(WaitKind.TASK)
    monkeypatch.setattr(type(made.graph), "fails_run", lambda *_: not handled)
    waits.end_badly(made, WAITING, open_, ended_by, error)
    first, second = (one.event for one in made._told)
    assert first == ended_by(W, WaitKind.TASK, result={"error": error} if handled else None)
    assert str(second.TYPE) == ("step.resumed" if handled else "step.failed")


# -- other runs --------------------------------------------------------------------------------------------------------


def start(text: str, again: int = 0, shaped: Any = None) -> StartRun:
    run = governed(text)
    made = Transition(run.view(), run.workflow.graph)
    made.run.state.shaped = shaped or {}
    work = waits.begin(made, replace(run.rows["a"], again=again), made.leaf("a"), run.nonce)
    assert isinstance(work, StartRun)
    return work


@pytest.mark.req("X-13")
@pytest.mark.parametrize("text", [CHILD, GOES_ON, HEIR])
def test_each_time_that_a_step_begins_it_starts_a_run_of_its_own(text: str) -> None:
    ids = [start(text, again).run_id for again in (0, 1, 2, 12)]
    assert ids == [derived_id(RUN_ID, f"run:a{mark}") for mark in ("", "#1", "#2", "#12")]


READS = HEAD.replace("steps:", "channels: {n: {initial: 1}, m: {initial: 1}}\nsteps:") + (
    "  - {id: a, run: other, with: {who: '${{ string(state.n) }}'}}\n"
)


@pytest.mark.req("X-13")
def test_a_run_within_is_shaped_by_those_who_shaped_its_own_input() -> None:
    marks = {"state.n": ["updater  person:n"], "state.m": ["updater  person:m"], "run": ["updater  person:r"]}
    assert start(READS, shaped=marks).shaped == ("updater  person:n", "updater  person:r")


@pytest.mark.req("P-8")
def test_a_run_within_inherits_the_channels_as_they_are_now() -> None:
    run = governed(HEIR)
    made = Transition(run.view(), run.workflow.graph)
    made.run.state.channels = {"seen": [9], "last": "now"}  # a barrier was crossed in this same append
    work = waits.begin(made, run.rows["a"], made.leaf("a"), run.nonce)
    assert isinstance(work, StartRun)
    assert {name: one.value for name, one in work.inherited.items()} == {"seen": [9], "last": "now"}


@pytest.mark.req("X-13")
@pytest.mark.parametrize("problem", ["", "There is no other."])
def test_a_run_that_could_not_be_started_fails_the_step_in_the_words_of_the_problem(problem: str) -> None:
    made = transition()
    work = StartRun(ROW, W, "other", None, {}, True)
    made.graph = governed(CHILD).workflow.graph
    assert waits.started(made, work, OtherRun(problem=problem), lambda: "n1") == Over()
    assert [(one.event.TYPE, getattr(one.event, "detail", None)) for one in made._told] == [
        ("step.failed", {"class": "definition", "code": "not_started", "message": problem}),
    ]  # fmt: skip


@pytest.mark.req("P-14")
def test_a_run_that_nobody_else_has_shaped_says_nothing_of_it() -> None:
    made = transition()
    made.graph = governed(CHILD).workflow.graph
    waits.started(made, StartRun(ROW, W, "other", None, {}, True), OtherRun("running"), lambda: "n1")
    assert made._told[0].event == RunContinued(W, "other", None, None, None)


ORIGINS: Any = {"trigger": []}


@pytest.mark.req("P-14")
@pytest.mark.parametrize(("origins", "traced"), [(None, {}), ({}, {"traced": True}), (ORIGINS, {"traced": True})])
@pytest.mark.parametrize("abandons", [True, False])
@pytest.mark.parametrize("timeout", [None, timedelta(minutes=5)])
def test_a_step_waits_for_the_run_that_it_has_started(
    origins: Any, traced: dict[str, Any], abandons: bool, timeout: Any
) -> None:
    run = governed(CHILD)
    run.claim("a")
    made = Transition(run.view(), run.workflow.graph)
    leaf = made.graph.leaves["a"]
    assert isinstance(leaf, ChildNode)
    leaf = copied(leaf, abandons=abandons, timeout=timeout)
    made.graph = copied(made.graph, leaves={"a": leaf})
    child = derived_id(RUN_ID, "run:a")
    work = StartRun(made.run.steps["a"], child, "other", 3, {}, True, origins=origins)
    other = OtherRun("running", shaped=("updater  person:n",), origins=[["x"]], used={"turns": 1})
    assert waits.started(made, work, other, lambda: "n1") == Over()
    assert made._told[0].event == RunContinued(child, "other", ["updater  person:n"], [["x"]], {"turns": 1})
    (row,) = made.run.waits.values()
    assert (row.kind, row.status, row.token, row.due_in) == (WaitKind.CHILD, WaitState.WAITING, "n1", timeout)
    assert (row.correlation_key, row.context) == (str(child), {"run": str(child), "abandons": abandons, **traced})
