"""Each key beside each kind of step: the kinds that may have it, and those that may not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core.errors import DefinitionError
from runtime.definition.workflow import load_workflow

pytestmark = pytest.mark.req("X-1")

KINDS = {
    "do": "id: a, do: probe.case.open",
    "approve": "id: a, approve: {summary: s, approvers: {group: g}}",
    "wait": "wait: {signal: s}",
    "task": "id: a, task: {title: t, form: {type: object, properties: {ok: {type: boolean}}}, assign: {group: g}}",
    "run": "id: a, run: other",
    "continue_with": "continue_with: {workflow: other}",
    "agent": "id: a, agent: {model: m, instructions: i, input: i}",
    "set": "",
    "if": "if: '${{ true }}'",
    "foreach": "foreach: '${{ [1] }}'",
    "while": "while: '${{ true }}'",
}
INNER = "[{reference: x}]"
KEYS = {
    "set": "{n: 1}",
    "reference": "x",
    "on_failure": INNER,
    "on_timeout": INNER,
    "on_rejected": INNER,
    "with": "{x: 1}",
    "timeout": "PT1H",
    "abandon": "true",
    "inherit": "[n]",
    "then": INNER,
    "else": INNER,
    "as": "row",
    "max_parallel": "2",
    "max": "2",
    "steps": INNER,
}
LEAF = {"set", "reference", "on_failure"}
WAITS = LEAF | {"on_timeout"}
TAKES = {
    "do": WAITS | {"with", "timeout", "on_rejected"},
    "approve": WAITS | {"on_rejected"},
    "wait": WAITS | {"timeout"},
    "task": WAITS | {"timeout"},
    "run": WAITS | {"with", "timeout", "abandon", "inherit"},
    "continue_with": LEAF,
    "agent": WAITS | {"on_rejected", "timeout"},
    "set": LEAF,
    "if": {"then", "else"},
    "foreach": {"as", "max_parallel", "steps"},
    "while": {"max", "steps"},
}


def text_of(kind: str, keys: set[str]) -> str:
    parts = [part for part in (KINDS[kind], *(f"{key}: {KEYS[key]}" for key in sorted(keys))) if part]
    return f"workflow: w\nversion: 1\nchannels: {{n: {{}}}}\nsteps:\n- {{{', '.join(parts)}}}\n"


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_has_its_own_keys_and_no_others(compiled: Callable[[str], Any], kind: str) -> None:
    whole = compiled(text_of(kind, TAKES[kind])).graph.root.nodes
    assert len(whole) == 1
    with pytest.raises(DefinitionError) as caught:
        compiled(text_of(kind, set(KEYS)))
    foreign = {f"{key!r} does not belong to a step with {kind!r}." for key in KEYS.keys() - TAKES[kind]}
    assert {one.message for one in caught.value.problems} == foreign


@pytest.mark.parametrize(
    ("kind", "lacks", "message", "remedy"),
    [
        ("if", "then", "This condition has no `then`.", "Add the steps that it leads to."),
        ("foreach", "steps", "This loop has no `steps`.", "Add what is to be done each time."),
        ("while", "steps", "This loop has no `steps`.", "Add what is to be done each time."),
    ],
)
def test_a_composite_has_something_inside(
    compiled: Callable[[str], Any], kind: str, lacks: str, message: str, remedy: str
) -> None:
    for text in (
        text_of(kind, TAKES[kind] - {lacks}),
        text_of(kind, TAKES[kind]).replace(f"{lacks}: {INNER}", f"{lacks}: []"),
    ):
        with pytest.raises(DefinitionError) as caught:
            compiled(text)
        assert [(one.message, one.remedy) for one in caught.value.problems] == [(message, remedy)]


@pytest.mark.parametrize("kind", KINDS)
def test_people_and_expressions_name_steps_of_these_kinds(compiled: Callable[[str], Any], kind: str) -> None:
    text = text_of(kind, TAKES[kind]).replace("id: a, ", "")
    if kind not in ("do", "approve", "task", "run", "agent"):
        [node] = compiled(text).graph.root.nodes
        assert node.id == f"{kind}_0"
        return
    with pytest.raises(DefinitionError) as caught:
        compiled(text)
    [problem] = caught.value.problems
    assert (problem.message, problem.remedy) == (
        "This step has no id.",
        "Give it one: expressions and people refer to it.",
    )


def graph_of(compiled: Callable[[str], Any], *steps: str) -> Any:
    return compiled("\n".join(["workflow: w\nversion: 1\nchannels: {n: {}}\nsteps:", *steps])).graph


@pytest.mark.parametrize("needs", ["a, b", "b, a", "a, c, b"])
def test_a_step_sees_all_that_it_needs(compiled: Callable[[str], Any], needs: str) -> None:
    calls = [f"- {{id: {name}, needs: [], do: probe.case.open}}" for name in ("a", "b", "c")]
    sums = "${{ [steps.a.output, steps.b.output, steps.a.status, steps.b.status] }}"
    graph = graph_of(compiled, *calls, f"- {{id: d, needs: [{needs}], set: {{n: '{sums}'}}}}")
    assert (graph.read, graph.root.nodes[-1].needs) == ({"a", "b"}, tuple(needs.split(", ")))


@pytest.mark.parametrize(("text", "abandons"), [("", False), (", abandon: false", False), (", abandon: true", True)])
def test_a_child_is_abandoned_where_that_is_true(compiled: Callable[[str], Any], text: str, abandons: bool) -> None:
    [child] = graph_of(compiled, f"- {{id: a, run: other{text}}}").root.nodes
    assert child.abandons is abandons


@pytest.mark.parametrize(
    ("text", "group", "seconds"),
    [
        ("", "owners", 7200),
        (", on_timeout: {escalate: leads}", "leads", 7 * 24 * 3600),
        (", on_timeout: {escalate: leads, expires: PT1H}", "leads", 3600),
        (", on_timeout: [{set: {n: 1}}]", None, None),
    ],
)
def test_a_step_says_for_itself_what_follows_a_late_answer(
    declarations: Callable[..., Any], text: str, group: str | None, seconds: int | None
) -> None:
    asks = ("kind: durable", "kind: durable\n    on_timeout: {escalate: owners, expires: PT2H}")
    source = f"workflow: w\nversion: 1\nchannels: {{n: {{}}}}\nsteps: [{{id: a, do: probe.case.open{text}}}]\n"
    [step] = load_workflow(source, "w.yaml", declarations(asks)).graph.root.nodes
    branches: Any = getattr(step, "branches", {})
    [late] = branches["on_timeout"].nodes
    if group is None:
        assert type(late).__name__ == "SetNode"
        return
    told = {"group": group, "of": 1, "source": "group"}
    assert (late.terms["approvers"], late.terms["expires_seconds"]) == ([told], seconds)
