"""Extensions by the state of the run: the steps that they may come before, and the gates that they come after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core.errors import InputError
from runtime.definition.workflow import check_past, read_extension, with_added
from runtime.engine.book.gates import gates_ahead
from runtime.engine.model.run import Failed, Loop, State

pytestmark = pytest.mark.req("V-6")

GATE = "approve: {summary: s, approvers: {group: g}}"
TEXT = f"""workflow: w
version: 1
channels: {{n: {{}}}}
steps:
- {{id: a, do: probe.case.open, on_failure: [{{id: in_branch, {GATE}}}]}}
- {{id: ask, {GATE}}}
- {{id: fork, if: '${{{{ true }}}}', then: [{{id: in_then, {GATE}}}], else: [{{id: in_else, {GATE}}}]}}
- id: each
  foreach: ${{{{ [1, 2] }}}}
  steps: [{{id: one, {GATE}}}, {{id: other, wait: {{for: PT1H}}}}]
- {{id: nap, wait: {{for: PT1H}}}}
- {{id: last, {GATE}}}
"""
BEGUN: dict[str, tuple[str, Any]] = {
    "over": ("status", {"a": "succeeded"}),
    "open": ("open", ["a"]),
    "parked": ("parked", {"ask": "gate:x"}),
    "in its branch": ("failures", {"a": Failed("on_failure", {})}),
    "a condition": ("branches", {"fork": True}),
    "a loop": ("loops", {"each": Loop("item", 2, 1, {})}),
}


@pytest.fixture(scope="module")
def graph(compiled: Callable[[str], Any]) -> Any:
    return compiled(TEXT).graph


def extension(*before: str) -> Any:
    return read_extension({"steps": [{"id": "new", "set": {"n": 1}}], "before": list(before)})


def steps(*told: str) -> list[Any]:
    """Steps with these ids (none: "-") and needs: ``b<a,c``; ``b<`` needs nothing."""
    made: list[dict[str, Any]] = []
    for one in told:
        name, explicit, needs = one.partition("<")
        made.append({"set": {"n": 1}} | ({} if name == "-" else {"id": name}))
        if explicit:
            made[-1]["needs"] = [need for need in needs.split(",") if need]
    return list(read_extension({"steps": made, "before": []}).steps)


@pytest.mark.parametrize(
    ("old", "new", "before", "gates", "needs"),
    [
        ("a b", "x", "", "", [None, None, None]),
        ("a b", "x y", "b", "", [None, ("a", "y"), ("a",), None]),
        ("a b", "x", "a", "", [("x",), None, ()]),
        ("a b c", "x", "b c", "", [None, ("a", "x"), ("b", "x"), ("a",)]),
        ("a b c", "x", "c b", "", [None, ("a", "x"), ("b", "x"), ("b",)]),
        ("a b<", "x", "b", "", [None, ("x",), ()]),
        ("a b c<a,b", "x", "c", "", [None, None, ("a", "b", "x"), ("a", "b")]),
        ("a b", "x<a", "b", "", [None, ("a", "x"), ("a",)]),
        ("a b", "x<", "b", "", [None, ("a", "x"), ()]),
        # Steps without an id have the name of their kind and place, also behind steps that were added earlier.
        ("a b", "-", "b", "", [None, ("a", "set_2"), ("a",)]),
        ("a b", "x -", "b", "", [None, ("a", "set_3"), ("a",), None]),
        ("- -", "x", "set_1", "", [None, ("set_0", "x"), ("set_0",)]),
        # With open gates.
        ("a b", "x", "", "a", [None, None, ("b", "a")]),
        ("a b", "x y", "", "a", [None, None, ("b", "a"), None]),
        ("a b", "x y<", "", "a", [None, None, ("b", "a"), ("a",)]),
        ("a b", "x< y<a,x", "", "b a", [None, None, ("b", "a"), ("a", "x", "b")]),
        ("a b c", "x", "c", "a", [None, None, ("b", "x"), ("b", "a")]),
        ("a b c", "x", "b", "a", [None, ("a", "x"), None, ("a",)]),
        ("a b c", "x -", "b", "c", [None, ("a", "set_4"), None, ("a", "c"), None]),
        ("a b c", "x<", "b", "c", [None, ("a", "x"), None, ("c",)]),
    ],
)
def test_what_is_added_waits_as_what_it_comes_before_and_for_each_gate(
    old: str, new: str, before: str, gates: str, needs: list[Any]
) -> None:
    added = extension(*before.split()).model_copy(update={"steps": tuple(steps(*new.split()))})
    made = with_added(steps(*old.split()), added, gates.split())
    assert [step.id or "-" for step in made] == [one.partition("<")[0] for one in f"{old} {new}".split()]
    assert [step.needs for step in made] == needs


@pytest.mark.parametrize("how", BEGUN)
def test_what_has_begun_waits_for_nothing_new(graph: Any, how: str) -> None:
    part, held = BEGUN[how]
    [name] = held
    state = State(channels={}, **{part: held})
    check_past(graph, state, extension())
    check_past(graph, state, extension("nap", "last"))
    for before in ((name,), ("last", name), (name, "last")):
        with pytest.raises(InputError) as caught:
            check_past(graph, state, extension(*before))
        words = f"names {name!r}, which has begun already; what has begun cannot wait for something new"
        assert (caught.value.where, caught.value.message) == ("before", words)


def test_only_what_stands_in_the_outermost_list_has_a_past(graph: Any) -> None:
    """A step inside another is none that an extension could name; the compiler refuses it."""
    state = State(channels={}, status={"in_then": "succeeded"}, open=["each[0].one"])
    check_past(graph, state, extension("in_then", "one", "each", "fork"))


ALL = ("a", "ask", "each", "fork", "last")


@pytest.mark.parametrize(
    ("state", "gates"),
    [
        (State(channels={}), ALL),
        (State(channels={}, open=["ask"], status={"a": "succeeded"}), ("ask", "each", "fork", "last")),
        (State(channels={}, status=dict.fromkeys(("a", "ask", "fork"), "succeeded")), ("each", "last")),
        (State(channels={}, failures={"a": Failed("on_failure", {})}, status={"in_branch": "succeeded"}), ALL[1:]),
        (State(channels={}, branches={"fork": True}, status=dict.fromkeys(("in_then", "in_else"), "skipped")),
         ("a", "ask", "each", "last")),
        # Another iteration may still come to it.
        (State(channels={}, loops={"each": Loop("item", 2, 1, {0: 1})}, status={"each[0].one": "succeeded"}), ALL),
        (State(channels={}, status=dict.fromkeys(ALL, "skipped")), ()),
    ],
)  # fmt: skip
def test_a_gate_is_ahead_until_it_is_decided_or_skipped(graph: Any, state: State, gates: tuple[str, ...]) -> None:
    assert gates_ahead(graph, state, lambda child: False) == gates
