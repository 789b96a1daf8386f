"""The planner on a state alone: which scopes are done, and which leaves begin again (P-1)."""

from __future__ import annotations

from dataclasses import replace as copied
from functools import cache
from typing import Any

import pytest

from runtime.definition.workflow import load_workflow
from runtime.engine.agent_state import Agent, Stage
from runtime.engine.graph import NO_GRAPH, Graph
from runtime.engine.plan import Evaluated, PlanError, Planner
from runtime.engine.run import Loop, State
from runtime.engine.states import RunState
from runtime.engine.transition import Transition
from tests.engine.agents import piloted
from tests.engine.governing import CATALOG, HEAD
from tests.engine.test_drafts import view_of
from tests.engine.test_folds import run_of, step
from tests.support.agents import agent, says

pytestmark = pytest.mark.req("P-1")

# A leaf, and beside it a condition that is over at once; both stand in a loop, too.
BESIDE = (
    "  - {id: a, do: probe.value.read, with: {name: x}}\n"
    "  - if: ${{ trigger.n == 1 }}\n    id: c\n    needs: []\n"
    "    then: [{id: y, do: probe.value.read, with: {name: x}}]\n"
)
LOOPED = "  - id: each\n    foreach: ${{ [7, 8] }}\n    steps:\n" + "".join(
    f"    {line}\n" for line in BESIDE.splitlines()
)


@cache
def graph(text: str) -> Graph:
    return load_workflow(HEAD + text, "w.yaml", CATALOG).graph


def planned(text: str, state: State, n: int = 0) -> tuple[bool, list[str]]:
    planner = Planner(state, Evaluated(graph(text), {"trigger": {"n": n}}, 3), {})
    return planner.advance(graph(text).root, ""), [one.key for one in planner.ready]


@pytest.mark.parametrize("n", [0, 1])
def test_a_scope_is_done_when_every_node_of_it_is_in_whatever_order_they_end(n: int) -> None:
    state = State({})
    assert planned(BESIDE, state, n) == (False, ["a", "y"] if n else ["a"])
    state.open = []
    if n:
        state.status["y"] = "succeeded"
        assert planned(BESIDE, state, n) == (False, ["a"])
        state.open = []
    state.status["a"] = "succeeded"
    assert planned(BESIDE, state, n) == (True, [])
    assert state.status == {"a": "succeeded", "c": "succeeded", "y": "succeeded" if n else "skipped"}


def test_an_iteration_is_over_when_every_node_of_it_is() -> None:
    state = State({})
    assert planned(LOOPED, state) == (False, ["each[0].a"])
    assert state.loops == {"each": Loop("item", 2, 1, {0: 7})}
    state.open, state.status["each[0].a"] = [], "succeeded"
    planner = Planner(state, Evaluated(graph(LOOPED), {"trigger": {"n": 0}}, 4), {}, items={"each": [7, 8]})
    assert planner.advance(graph(LOOPED).root, "") is False
    assert [one.key for one in planner.ready] == ["each[1].a"]
    assert state.loops == {"each": Loop("item", 2, 2, {1: 8})}
    assert state.status == {"each[1].c": "succeeded", "each[1].y": "skipped"}, "what is skipped is of its iteration"


NESTED = (
    "  - id: each\n    foreach: ${{ [7] }}\n    steps:\n"
    "      - if: ${{ trigger.n == 1 }}\n        id: c\n        needs: []\n        then:\n"
    "          - {id: y, do: probe.value.read, with: {name: x}}\n"
    "          - if: ${{ trigger.n == 2 }}\n            id: d\n"
    "            then: [{id: t, do: probe.value.read, with: {name: x}}]\n"
    "            else: [{id: e, do: probe.value.read, with: {name: x}}]\n"
    "        else: [{id: n, do: probe.value.read, with: {name: x}}]\n"
)


@pytest.mark.req("X-11")
def test_a_branch_that_is_not_taken_is_skipped_with_all_that_is_within_it_in_its_iteration() -> None:
    state = State({})
    assert planned(NESTED, state) == (False, ["each[0].n"])
    assert state.status == dict.fromkeys(("each[0].y", "each[0].d", "each[0].t", "each[0].e"), "skipped")
    assert state.branches == {"each[0].c": False}


@pytest.mark.req("X-12")
def test_items_that_cannot_be_recorded_are_refused_with_the_cause() -> None:
    with pytest.raises(PlanError) as raised:
        planned(
            "  - {id: each, foreach: '${{ [[trigger.n]] }}', steps: [{id: a, set: {}, reference: x}]}\n",
            State({}),
            2**60,
        )
    assert raised.value.node == "each"
    cause = "has an item that cannot be recorded: has no canonical JSON form: Integer exceeds 53-bit range"
    assert raised.value.error.message == cause


def test_an_agent_that_begins_anew_is_planned_itself_and_one_that_waits_by_its_turns() -> None:
    of = piloted(agent(), says("Done.")).workflow.graph
    known = Agent(Stage.BEGUN)

    def found(**more: Any) -> tuple[list[str], list[str]]:
        state = State({}, agents={"triage": known.copy()}, **more)
        planner = Planner(state, Evaluated(of, {"trigger": {}}, 3), {})
        assert planner.advance(of.root, "") is False
        return [one.key for one in planner.ready], state.open

    assert found() == (["triage"], ["triage"])
    assert found(open=["triage"]) == ([], ["triage"])
    keys, opened = found(parked={"triage": "wait:1"})
    assert keys == opened
    assert all(key.startswith("triage/") for key in keys)


ROUNDS = (
    "  - while: ${{ trigger.n == 1 }}\n    id: loop\n    max: 2\n"
    "    steps: [{id: x, do: probe.value.read, with: {name: x}}]\n"
)


@pytest.mark.req("X-12")
def test_a_loop_that_goes_round_too_often_says_so_with_the_remedy() -> None:
    state = State({}, loops={"loop": Loop("", None, 2, {})})
    with pytest.raises(PlanError) as raised:
        planned(ROUNDS, state, 1)
    assert (raised.value.node, raised.value.error.message) == (
        "loop", "still holds after 2 iterations; at most 2 are done",
    )  # fmt: skip
    assert raised.value.error.remedy == "Raise `max`, or let the condition end."
    assert planned(ROUNDS, State({}, loops={"loop": Loop("", None, 2, {})}), 0) == (True, [])
    begun = State({}, loops={"loop": Loop("", None, 1, {})})
    assert planned(ROUNDS, begun, 1) == (False, ["loop[1].x"])
    assert begun.loops == {"loop": Loop("", None, 2, {1: None})}


class Sees:
    """A result that says what it sees."""

    references = frozenset[str]()

    def render(self, values: Any) -> Any:
        return {"step": values["step.id"], "item": values.get("item"), "checkpoint": values["run.checkpoint"]}

    def literals(self) -> Any:
        return {}


@pytest.mark.req("P-8")
def test_the_result_of_a_run_is_of_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Transition(view_of(run_of(step("each[0].x"))), copied(NO_GRAPH, result=Sees()))
    closed: list[Any] = []
    monkeypatch.setattr(made, "close", lambda *given, **more: closed.append((*given, more)))
    made.conclude()
    assert closed == [(RunState.SUCCEEDED, {"result": {"step": "", "item": None, "checkpoint": 3}})]
