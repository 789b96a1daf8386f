"""A key that is written and left empty is a mistake: it never means "always", and never the same as no key."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from jsonschema import Draft202012Validator

from connectors.catalog import Source, catalog_of, load_catalog
from core.documents import load_document
from core.errors import DefinitionError, InputError, Problem
from policy.load import load_policy
from runtime.definition.catalog import operation_facts
from runtime.definition.people import load_directory
from runtime.definition.schemas import SchemaName, schema_text
from runtime.definition.workflow import load_workflow, read_extension

POLICY = """policy: p
version: 1
rules:
  - id: a
    match: {operation: slack.message.post}
    when: WHEN
    outcome: allow
"""
STEP = "do: transform.data.apply, with: {value: {}}"
WORKFLOW = f"workflow: w\nversion: 1\nsteps:\n  - {{id: first, {STEP}}}\n"


def _problems(load: Callable[[], object]) -> tuple[Problem, ...]:
    with pytest.raises(DefinitionError) as caught:
        load()
    return caught.value.problems


def _policy(text: str) -> tuple[Problem, ...]:
    return _problems(lambda: load_policy(text, "p.yaml", operation_facts(load_catalog())))


@pytest.mark.parametrize("empty", ["", "~", "null", "''", '""', "|\n", "'  '", '"\\n"', '" \\t\\n"'])
def test_a_rule_with_an_empty_condition_does_not_load(empty: str) -> None:
    (problem,) = _policy(POLICY.replace("WHEN", empty))
    assert (problem.file, problem.line, problem.column) == ("p.yaml", 6, 5)
    assert "when" in problem.message or "rule a" in problem.message
    if empty.strip("'\" \\tn|") == "" and " " not in empty and "\\" not in empty:
        assert "has no value" in problem.message
        assert problem.remedy == "Write its value, or take the key out."


def test_a_rule_without_a_condition_still_fires_always() -> None:
    text = POLICY.replace("    when: WHEN\n", "")
    assert load_policy(text, "p.yaml", operation_facts(load_catalog())).rules[0].condition.test({}) is True


@pytest.mark.parametrize("key", ["connector", "because", "escalate", "expires", "tier", "two_person", "approvers"])
def test_no_key_of_a_rule_may_be_empty(key: str) -> None:
    place = "    match: {operation: slack.message.post, connector: }\n" if key == "connector" else f"    {key}:\n"
    text = POLICY.replace("    when: WHEN\n", place)
    if key == "connector":
        text = text.replace("    match: {operation: slack.message.post}\n", "")
    assert any(key in problem.message for problem in _policy(text))


@pytest.mark.parametrize("empty", ["", "~", "''", "' '"])
@pytest.mark.parametrize(
    "step",
    [
        f"{{id: s, if: EMPTY, then: [{{id: t, {STEP}}}]}}",
        f"{{id: s, while: EMPTY, max: 3, steps: [{{id: t, {STEP}}}]}}",
        f"{{id: s, foreach: EMPTY, as: item, steps: [{{id: t, {STEP}}}]}}",
        f"{{id: s, {STEP}, if: EMPTY}}",
        f"{{id: s, {STEP}, reference: EMPTY}}",
        "{id: s, wait: {until: EMPTY}}",
        "{id: s, wait: {signal: go, correlate: EMPTY}}",
        "{id: s, wait: {for: PT1H, until: EMPTY}}",
    ],
)
def test_no_expression_of_a_step_may_be_empty(step: str, empty: str) -> None:
    text = WORKFLOW + "  - " + step.replace("EMPTY", empty) + "\n"
    problems = _problems(lambda: load_workflow(text, "w.yaml", load_catalog()))
    assert {(problem.file, problem.line) for problem in problems} == {("w.yaml", 5)}
    assert any("the key is here and has no value" in problem.message for problem in problems)


@pytest.mark.parametrize("key", ["needs", "timeout", "on_failure", "on_timeout", "set", "with", "abandon"])
def test_no_other_key_of_a_step_may_be_empty(key: str) -> None:
    text = f"{WORKFLOW}  - {{id: s, {STEP.partition(', with')[0] if key == 'with' else STEP}, {key}: }}\n"
    (problem, *_) = _problems(lambda: load_workflow(text, "w.yaml", load_catalog()))
    assert (problem.line, key in problem.message) == (5, True)


@pytest.mark.parametrize(
    "top",
    [
        "triggers: {servicenow: {table: incident, when: }}",
        "triggers: {servicenow: }",
        "caps: {max_writes_per_run: }",
        "sla:",
        "retention:",
        "reference:",
        "reference: '  '",
        "triggers: {servicenow: {table: incident, dedupe: ' '}}",
        "channels: {notes: {keep: }}",
    ],
)
def test_no_key_of_a_workflow_may_be_empty(top: str) -> None:
    problems = _problems(lambda: load_workflow(f"{WORKFLOW}{top}\n", "w.yaml", load_catalog()))
    assert all(problem.line == 5 for problem in problems)


def test_null_is_a_value_where_anything_may_stand() -> None:
    text = (
        WORKFLOW.replace("value: {}", "value: {a: null, b: [null]}")
        + "channels: {note: {initial: null}}\nresult: null\n"
    )
    assert load_workflow(text, "w.yaml", load_catalog()).name == "w"


def test_a_person_without_an_account_has_no_empty_key() -> None:
    text = "directory: d\npeople:\n  - {id: ann, name: Ann, slack: }\n"
    (problem,) = _problems(lambda: load_directory(text, "d.yaml"))
    assert (problem.line, problem.message) == (3, "people[0].slack: the key is here and has no value.")


def test_a_declaration_has_no_empty_key() -> None:
    text = """operations:
  - name: probe.effect.apply
    handler: probe:apply
    side_effects: none
    risk: low
    summary: s
    target: t
    writes:
    input_schema: {type: object}
    output_schema: {type: object}
"""
    (problem,) = _problems(lambda: catalog_of([Source("o.yaml", text)]))
    assert (problem.line, problem.message) == (8, "operations[0].writes: the key is here and has no value.")


def test_an_added_step_has_no_empty_key() -> None:
    step = {"id": "s", "do": "transform.data.apply", "with": {"data": None}}
    assert read_extension({"steps": [step]}).steps[0].id == "s"
    with pytest.raises(InputError, match="has no value") as caught:
        read_extension({"steps": [{**step, "needs": None}]})
    assert caught.value.where == "steps[0].needs"


def test_editors_say_so_too() -> None:
    for empty in ("null", "''", "' '"):
        value = load_document(POLICY.replace("WHEN", empty), "p.yaml").value
        faults = Draft202012Validator(json.loads(schema_text(SchemaName.POLICY))).iter_errors(value)
        assert {tuple(fault.path) for fault in faults} == {("rules", 0, "when")}
