"""Origins of everything that an expression can read: a row for each variable, inside and outside of loops (P-14)."""

from __future__ import annotations

from dataclasses import replace as copied
from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace

from connectors.proposal import build_action
from core.identity import Role
from runtime.definition.workflow import load_workflow
from runtime.engine.contributors import mark
from runtime.engine.origins import Follower, carried, escaped, follower_of
from runtime.engine.plan import variables
from runtime.engine.replaying import unopened
from runtime.engine.tracing import _at, trace, value_at
from tests.engine.conftest import KEY, RUN_ID
from tests.engine.governing import CATALOG

pytestmark = pytest.mark.req("P-14")

FORM = "form: {type: object, properties: {x: {type: string}}}, assign: {group: g}"
TEXT = f"""
workflow: w
version: 1
reference: "${{{{ trigger.id }}}}"
channels:
  blank: {{}}
  none: {{initial: []}}
  said: {{initial: words}}
  made: {{initial: "${{{{ trigger.id }}}}"}}
  copy: {{initial: mine}}
  late: {{}}
  often: {{reduce: append}}
  talk: {{reduce: union}}
steps:
  - {{id: get, do: probe.value.read, with: {{name: x}}}}
  - {{id: form, task: {{title: t, {FORM}}}}}
  - {{id: ok, approve: {{summary: s, approvers: {{group: g}}}}}}
  - {{id: paid, wait: {{signal: pay, correlate: k}}}}
  - {{id: nap, wait: {{for: PT1H}}}}
  - {{id: kid, run: other, with: {{who: x}}}}
  - {{id: on, continue_with: {{workflow: other, with: {{who: x}}}}}}
  - {{id: write, set: {{late: "${{{{ steps.form.output.x }}}}"}}, reference: "${{{{ steps.get.output.ref }}}}"}}
  - {{id: later, set: {{late: "${{{{ steps.get.output.y }}}}"}}}}
  - id: each
    foreach: ${{{{ steps.get.output.rows }}}}
    as: row
    steps:
      - {{id: one, do: probe.value.read, with: {{name: "${{{{ row }}}}"}}, set: {{often: "${{{{ row.name }}}}"}}}}
      - id: inner
        foreach: ${{{{ row.cells }}}}
        as: cell
        steps: [{{id: two, do: probe.value.read, with: {{name: "${{{{ cell }}}}"}}}}]
  - id: both
    foreach: ${{{{ [trigger.a, steps.form.output.b] }}}}
    as: thing
    steps: [{{id: three, do: probe.value.read, with: {{name: x}}}}]
  - id: mix
    foreach: ${{{{ [steps.get.output.a, steps.get.output.b] }}}}
    as: bit
    steps: [{{id: five, do: probe.value.read, with: {{name: x}}}}]
  - while: ${{{{ size(state.often) < 2 }}}}
    id: again
    steps: [{{id: four, set: {{often: said}}}}]
  - id: end
    do: probe.effect.apply
    with: {{name: "${{{{ steps.get.output.n }}}}", value: "fixed", amount: "${{{{ size(trigger.id) }}}}"}}
"""
GET = "probe.value.read"
REQUESTER, WORKFLOW, PERSON, UNKNOWN = ["requester"], ["workflow"], ["person"], ["unknown"]


def field(path: str) -> list[str]:
    return [f"field:{GET}#/{path}", f"tool:{GET}"]


@cache
def workflow_of(text: str) -> Any:
    return load_workflow(text, "w.yaml", CATALOG)


def follower(starter: str = "requester", not_yet: tuple[str, ...] = ("later",), **more: Any) -> Follower:
    workflow = workflow_of(TEXT)
    run = replace(unopened(RUN_ID, KEY, workflow.graph), copied=["copy"], **more)
    run.state.status = dict.fromkeys((name for name in workflow.graph.leaves if name not in not_yet), "succeeded")
    run.state.origins = {"kid": carried(((("n",), [PERSON]), (("m",), [REQUESTER])))}
    values = variables(workflow.graph, run.state, {"trigger": {"id": "INC1"}}, "")
    return follower_of(run, workflow.graph, starter, workflow, values)


TOLD = {"state.copy": carried((((), [["signal:x"]]),)), "trigger": carried(((("a",), [PERSON]), (("b",), [WORKFLOW])))}
PATHS: dict[str, Any] = {
    "trigger": [REQUESTER],
    "trigger.id": [REQUESTER],
    "run.id": [WORKFLOW],
    "run.workflow": [WORKFLOW],
    "run.version": [WORKFLOW],
    "run.started_at": [WORKFLOW],
    "run.checkpoint": [WORKFLOW],
    "run.other": [UNKNOWN],
    "run": [UNKNOWN],
    "run.requested_by": [REQUESTER],
    "run.reference": [REQUESTER, field("ref")],
    "step.id": [WORKFLOW],
    "step": [UNKNOWN],
    "wait.token": [WORKFLOW],
    "wait": [UNKNOWN],
    "error.message": [UNKNOWN],
    "nothing": [UNKNOWN],
    "state.blank": [WORKFLOW],
    "state.none": [WORKFLOW],
    "state.said": [WORKFLOW],
    "state.made": [REQUESTER],
    "state.copy": [["signal:x"]],
    "state.late": [PERSON],
    "state.often": [field("rows/name"), WORKFLOW],
    "state.gone": [UNKNOWN],
    "state": [UNKNOWN],
    "steps.get.output": [[f"tool:{GET}"]],
    "steps.get.output.a.b": [field("a/b")],
    "steps.get.output.status": [field("status")],
    "steps.get.status": [WORKFLOW],
    "steps.get": [[f"tool:{GET}"]],
    "steps.none.output": [UNKNOWN],
    "steps.none.status": [WORKFLOW],
    "steps.form.output.x": [PERSON],
    "steps.ok.output.reason": [PERSON],
    "steps.paid.output.amount": [["signal:pay"]],
    "steps.nap.output": [WORKFLOW],
    "steps.kid.output.n": [PERSON],
    "steps.kid.output.m": [REQUESTER],
    "steps.kid.output": [PERSON, REQUESTER],
    "steps.kid.output.none": [UNKNOWN],
    "steps.on.output.run": [WORKFLOW],
    "steps.write.output": [WORKFLOW],
    "steps.each.output.count": [UNKNOWN],
    "item": [UNKNOWN],
    "row": [UNKNOWN],
    "index": [WORKFLOW],
}


@pytest.mark.parametrize("path", PATHS)
def test_a_variable_comes_from_there(path: str) -> None:
    assert sorted(follower(origins=TOLD).path(path, "end")) == sorted(PATHS[path])


WITHIN: list[tuple[str, str, Any]] = [
    ("one", "row", [field("rows")]),
    ("one", "row.a", [field("rows/a")]),
    ("one", "item.a", [field("rows/a")]),
    ("one", "index", [field("rows"), WORKFLOW]),
    ("one", "cell", [UNKNOWN]),
    ("two", "cell", [field("rows/cells")]),
    ("two", "cell.x", [field("rows/cells/x")]),
    ("two", "item.x", [field("rows/cells/x")]),
    ("two", "row.x", [field("rows/x")]),
    ("two", "index", [field("rows/cells"), WORKFLOW]),
    ("three", "thing", [PERSON, REQUESTER]),
    ("three", "thing.x", [PERSON, REQUESTER]),
    ("three", "row", [UNKNOWN]),
    ("five", "bit.x", [[f"tool:{GET}"]]),
    ("five", "index", [[f"tool:{GET}"], WORKFLOW]),
    ("four", "index", [WORKFLOW]),
    ("four", "item", [UNKNOWN]),
    ("get", "output.x", [field("x")]),
    ("get", "output", [[f"tool:{GET}"]]),
    ("get", "signal.by", [UNKNOWN]),
    ("get", "signal.payload.x", [field("x")]),
    ("form", "output.x", [PERSON]),
    ("form", "signal.by", [PERSON]),
    ("paid", "signal.payload.x", [["signal:pay"]]),
    ("paid", "signal.by", [["signal:pay"]]),
    ("kid", "signal.payload.n", [PERSON]),
    ("kid", "output.m", [REQUESTER]),
]


@pytest.mark.parametrize(("node", "path", "wanted"), WITHIN)
def test_what_a_node_alone_reads_comes_from_there(node: str, path: str, wanted: Any) -> None:
    assert sorted(follower(origins=TOLD).path(path, node)) == sorted(wanted)


@pytest.mark.parametrize(
    ("starter", "origins", "path", "wanted"),
    [
        ("trigger:http", TOLD, "trigger.a", [["trigger:http"]]),
        ("", TOLD, "trigger.a", [PERSON]),
        ("", TOLD, "trigger.b", [WORKFLOW]),
        ("", TOLD, "trigger.c", [UNKNOWN]),
        ("", TOLD, "trigger", [PERSON, WORKFLOW]),
        ("", None, "trigger.a", [UNKNOWN]),
        ("", {}, "state.copy", [UNKNOWN]),
        ("requester", {}, "state.copy", [UNKNOWN]),
        ("", TOLD, "run.requested_by", [PERSON, WORKFLOW]),
        ("", TOLD, "state.made", [UNKNOWN]),
    ],
)
def test_what_another_run_gave_is_as_it_was_told(starter: str, origins: Any, path: str, wanted: Any) -> None:
    assert sorted(follower(starter=starter, origins=origins).path(path, "end")) == sorted(wanted)


@pytest.mark.parametrize(
    ("not_yet", "path", "wanted"),
    [
        ((), "state.late", [field("y"), PERSON]),
        (("write",), "state.late", [field("y")]),
        (("write", "later"), "state.late", [WORKFLOW]),
        (("one", "four"), "state.often", [field("rows/name"), WORKFLOW]),
        (("write",), "run.reference", [REQUESTER]),
    ],
)
def test_a_channel_is_what_the_steps_that_are_done_or_repeat_have_written(
    not_yet: tuple[str, ...], path: str, wanted: Any
) -> None:
    assert sorted(follower(not_yet=not_yet).path(path, "end")) == sorted(wanted)


def test_where_agents_remember_turns_nobody_can_tell() -> None:
    found = follower()
    channels = {name: copied(channel, turns=True) for name, channel in found.graph.channels.items()}
    found.graph = copied(found.graph, channels=channels)
    assert sorted(found.path("state.said", "end")) == [UNKNOWN, WORKFLOW]


def test_the_words_of_a_step_that_was_added_are_not_the_authors() -> None:
    found = follower()
    leaf: Any = found.graph.leaves["end"]
    own = [(("name",), [field("n")]), (("value",), [WORKFLOW]), (("amount",), [REQUESTER])]
    assert sorted(found.template(leaf.inputs, "end")) == sorted(own)
    found.run.state.shaped = {"added.end": [mark(Role.STEP_ADDER, "person:eve", "end")]}
    own[1] = (("value",), [UNKNOWN])
    assert sorted(found.template(leaf.inputs, "end")) == sorted(own)
    assert found.template("no template", "end") == (((), [UNKNOWN]),)


def test_without_its_workflow_nobody_knows_where_results_come_from() -> None:
    known = follower()
    found = follower_of(known.run, known.graph, "requester", None, known.values)
    assert found.path("steps.get.output.x", "end") == [UNKNOWN]
    assert found.path("run.reference", "end") == [UNKNOWN]
    assert found.path("steps.form.output.x", "end") == [PERSON]


@pytest.mark.parametrize(("part", "pointed"), [("a", "a"), ("a/b", "a~1b"), ("a~b", "a~0b"), ("~1", "~01"), (3, "3")])
def test_a_part_of_a_pointer_is_escaped(part: str | int, pointed: str) -> None:
    assert escaped(part) == pointed


VALUES = {
    "steps.a.output": {"b": {"c": 1}, "d/e": 2},
    "steps.a.output.b": {"c": 3},
    "state.x": None,
    "trigger": {"id": 1},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("trigger", ("", {"id": 1})),
        ("trigger.id", ("/id", 1)),
        ("state.x", ("", None)),
        ("steps.a.output.b.c", ("/c", 3)),
        ("steps.a.output.d/e", ("/d~1e", 2)),
        ("steps.b.output", None),
        ("nothing", None),
    ],
)
def test_the_value_of_a_path_is_found_in_the_longest_variable(path: str, found: Any) -> None:
    assert value_at(VALUES, path) == found


def test_each_argument_of_an_action_has_its_origins_and_the_paths_that_it_is_made_of() -> None:
    found = follower()
    operation = CATALOG.operations["probe.effect.apply"]
    action = build_action(operation, {"name": "n", "value": "fixed"})
    found.values = {"steps.get.output": {"n": "n", "m": 1}, "trigger": {"id": "INC1"}}
    leaf: Any = found.graph.leaves["end"]
    made = trace(found, "end", leaf.inputs, operation, action)
    assert made.facts == {
        "origin.amount": [],
        "carries.amount": [],
        "origin.name": [field("n")],
        "carries.name": [f"{GET}#/n"],
        "origin.value": [WORKFLOW],
        "carries.value": [],
    }
    assert {name: [one["path"] for one in told["sources"]] for name, told in made.told["arguments"].items()} == {
        "name": ["steps.get.output.n"],
        "value": [],
    }
    (source,) = made.told["arguments"]["name"]["sources"]
    assert (source["pointer"], len(source["digest"]), made.told["matcher"]) == ("/n", 64, 1)


@pytest.mark.parametrize(
    ("params", "place", "wanted"),
    [
        ({}, ("name",), [REQUESTER]),
        ({"name": "x"}, ("name",), [WORKFLOW]),
        ({"name": "x"}, ("name", "part"), [WORKFLOW]),
        ({"other": "x"}, ("name", "part"), [REQUESTER]),
        ({}, ("fields",), [PERSON, UNKNOWN]),
        ({}, ("fields", "a"), [PERSON]),
        ({}, ("fields", "c"), [UNKNOWN]),
        ({}, ("none",), [UNKNOWN]),
    ],
)
def test_what_the_declaration_fixes_is_its_authors(params: Any, place: tuple[str, ...], wanted: Any) -> None:
    made = ((("name",), [REQUESTER]), (("fields", "a"), [PERSON]), (("fields", "b"), [UNKNOWN]))
    operation = CATALOG.operations["probe.effect.apply"].model_copy(update={"params": params})
    assert _at(made, place, operation) == wanted


def test_each_field_that_is_written_has_origins_of_its_own() -> None:
    found = follower()
    source = workflow_of(
        "workflow: w\nversion: 1\nreference: r\nsteps:\n"
        "  - {id: a, do: probe.record.update, with: {name: '${{ trigger.id }}',"
        " fields: {priority: '1', owner: '${{ trigger.s }}'}}}\n"
    ).graph.leaves["a"]
    operation = CATALOG.operations["probe.record.update"]
    action = build_action(operation, {"name": "n", "fields": {"priority": "1", "owner": "2"}})
    found.values = {"trigger": {"id": "n", "s": "2"}}
    made = trace(found, "end", source.inputs, operation, action)
    told: Any = made.told["arguments"]
    assert {name: [one["path"] for one in told[name]["sources"]] for name in told} == {
        "fields": ["trigger.s"], "name": ["trigger.id"], "owner": ["trigger.s"], "priority": [],
    }  # fmt: skip
    assert {name: value for name, value in made.facts.items() if name.startswith("origin.")} == {
        "origin.name": [REQUESTER], "origin.fields": [WORKFLOW, REQUESTER],
        "origin.owner": [REQUESTER], "origin.priority": [WORKFLOW],
    }  # fmt: skip
