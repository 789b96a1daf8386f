"""The variables of expressions, from a state alone: what is seen from where, and what is not there (X-4)."""

from __future__ import annotations

from typing import Any

import pytest

from core.errors import ExpressionError
from runtime.engine.graph import NO_GRAPH, Graph, Scope
from runtime.engine.plan import Evaluated, PlanError, variables
from runtime.engine.run import Failed, Loop, State

pytestmark = pytest.mark.req("X-4")

GRAPH = Graph("w", 1, "", {}, Scope(()), {}, frozenset(), failed={"mend": "breaks", "tell": "sends"})
CONSTANTS = {"trigger": {"n": 1}, "run.id": "r1", "run.reference": "old"}


def state() -> State:
    """Two loops, one within the other, each with a step of its own; steps of all scopes have equal names."""
    return State(
        channels={"seen": [1], "last.name": "dotted"},
        outputs={
            "read": {"of": "all"},
            "same": {"of": "all"},
            "each[0].same": {"of": "each 0"},
            "each[1].same": {"of": "each 1"},
            "each[1].read": None,
            "each[1].inner[2].same": {"of": "inner"},
        },
        status={"read": "succeeded", "same": "skipped", "each[1].same": "failed", "each[1].inner[2].same": "succeeded"},
        loops={
            "each": Loop("row", 3, 2, {0: "a", 1: "b"}),
            "each[1].inner": Loop("cell", 9, 3, {2: "c"}),
            "again": Loop("", None, 4, {3: None}),
        },
        failures={
            "breaks": Failed("on_failure", {"class": "timeout", "code": "late", "message": "m", "more": 1}),
            "each[1].sends": Failed("on_timeout", {"class": "transport"}),
        },
        reference="new",
    )


@pytest.mark.parametrize(
    ("key", "seen"),
    [
        ("x", {"read": {"of": "all"}, "same": {"of": "all"}}),
        ("each[0].x", {"read": {"of": "all"}, "same": {"of": "each 0"}}),
        ("each[1].x", {"read": None, "same": {"of": "each 1"}}),
        ("each[1].inner[2].x", {"read": None, "same": {"of": "inner"}}),
        ("again[3].x", {"read": {"of": "all"}, "same": {"of": "all"}}),
    ],
)
def test_an_expression_sees_the_step_of_the_innermost_scope(key: str, seen: dict[str, Any]) -> None:
    values = variables(GRAPH, state(), CONSTANTS, key)
    assert {name: values[f"steps.{name}.output"] for name in seen} == seen


@pytest.mark.parametrize(
    ("key", "status"),
    [("x", "skipped"), ("each[0].x", "skipped"), ("each[1].x", "failed"), ("each[1].inner[2].x", "succeeded")],
)
def test_a_status_is_that_of_the_innermost_scope_that_has_one(key: str, status: str) -> None:
    assert variables(GRAPH, state(), CONSTANTS, key)["steps.same.status"] == status


@pytest.mark.parametrize(
    ("key", "own"),
    [
        ("x", {"step.id": "x"}),
        ("each[0].x", {"step.id": "x", "index": 0, "item": "a", "row": "a"}),
        ("each[1].inner[2].y", {"step.id": "y", "index": 2, "item": "c", "cell": "c", "row": "b"}),
        ("again[3].x", {"step.id": "x", "index": 3}),
        ("each[7].bot/1/1", {"step.id": "bot/1/1"}),
        ("gone[0].bot/1/1", {"step.id": "bot/1/1"}),
        ("each[1].bot/1/1", {"step.id": "bot/1/1", "index": 1, "item": "b", "row": "b"}),
        ("mend", {
            "step.id": "mend", "error.class": "timeout", "error.code": "late", "error.message": "m", "error.more": 1,
        }),
        ("each[1].tell", {"step.id": "tell", "index": 1, "item": "b", "row": "b", "error.class": "transport"}),
        ("each[1].mend", {
            "step.id": "mend", "index": 1, "item": "b", "row": "b", "error.class": "timeout", "error.code": "late",
            "error.message": "m", "error.more": 1,
        }),
    ],
)  # fmt: skip
def test_a_node_has_its_own_id_items_and_error_besides_the_runs_constants(key: str, own: dict[str, Any]) -> None:
    found = dict(variables(GRAPH, state(), CONSTANTS, key))
    assert found == {"trigger": {"n": 1}, "run.id": "r1", "run.reference": "new", **own}
    unnamed = state()
    unnamed.reference = None
    assert variables(GRAPH, unnamed, CONSTANTS, key)["run.reference"] == "old"
    assert CONSTANTS["run.reference"] == "old"


def test_an_iteration_that_is_over_has_no_variables_but_for_an_agents_call() -> None:
    for key in ("gone[0].x", "each[7].x"):
        with pytest.raises(KeyError):
            variables(GRAPH, state(), CONSTANTS, key)


@pytest.mark.parametrize(
    "name",
    [
        "steps.none.output",
        "steps.none.status",
        "steps.each.output",
        "steps.inner.same.output",
        "what.same.output",
        "no",
    ],
)
def test_what_is_not_there_is_missed_under_its_own_name(name: str) -> None:
    values = variables(GRAPH, state(), CONSTANTS, "each[1].x")
    with pytest.raises(KeyError) as raised:
        values[name]
    assert raised.value.args == (name,)
    assert values["state.seen"] == [1]
    assert values["state.last.name"] == "dotted"
    with pytest.raises(KeyError):
        values["state.none"]


class Choice:
    """An expression that gives one of its variables."""

    references = frozenset({"run.checkpoint"})

    def __init__(self, name: str) -> None:
        self.name = name

    def render(self, values: Any) -> Any:
        try:
            return values[self.name]
        except KeyError as error:
            raise ExpressionError(f"has no {error}") from None

    def literals(self) -> Any:
        return {}


def test_a_choice_is_noted_with_its_key_and_sees_the_next_checkpoint() -> None:
    choices = Evaluated(NO_GRAPH, CONSTANTS, 8)
    assert choices.choose(state(), Choice("run.checkpoint"), "if_1") == 8
    assert choices.choose(state(), Choice("item"), "each[1].if_2") == "b"
    assert choices.made == [["if_1", 8], ["each[1].if_2", "b"]]
    with pytest.raises(PlanError) as raised:
        choices.choose(state(), Choice("none"), "each[1].if_3")
    assert (raised.value.node, str(raised.value)) == ("each[1].if_3", "each[1].if_3: has no 'none'")
    assert len(choices.made) == 2
