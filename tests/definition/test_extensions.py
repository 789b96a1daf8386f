"""Extensions by the state of the run: the steps that they may come before, and the gates that they come after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core.errors import InputError
from runtime.definition.workflow import check_past, open_gates, read_extension
from runtime.engine.run import Failed, Loop, State

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


@pytest.mark.parametrize(
    ("open_", "parked", "gates"),
    [
        ([], [], ()),
        (["ask"], [], ("ask",)),
        ([], ["ask"], ("ask",)),
        (["a", "nap"], ["each[0].other"], ()),
        (["in_branch"], ["last"], ("a", "last")),
        (["last"], ["in_then", "ask"], ("ask", "fork", "last")),
        (["each[1].one"], ["each[0].one", "in_else"], ("each", "fork")),
    ],
)
def test_new_steps_come_after_the_steps_that_hold_an_open_gate(
    graph: Any, open_: list[str], parked: list[str], gates: tuple[str, ...]
) -> None:
    state = State(channels={}, open=open_, parked=dict.fromkeys(parked, "gate:x"), status={"ask": "succeeded"})
    assert open_gates(graph, state) == gates
