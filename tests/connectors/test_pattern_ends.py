"""The ``$`` in a pattern of a schema is the end of the text: a line break at the end does not pass."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from connectors.catalog import Source, catalog_of, load_catalog
from connectors.schema import misfit, validator_of
from core.expressions import POLICY_LIMITS, Environment
from policy.model import Glob, Name
from runtime.definition import model

UPDATE = {"table": "u_entitlement", "sys_id": "42", "fields": {"u_state": "granted"}}


@pytest.mark.parametrize(
    ("operation", "values"),
    [
        ("servicenow.record.update", {**UPDATE, "fields": {"state\n": "7"}}),
        ("servicenow.record.update", {**UPDATE, "table": "incident\n"}),
        ("servicenow.record.update", {**UPDATE, "sys_id": "42\n"}),
        ("servicenow.incident.update", {"sys_id": "42", "fields": {"state\n": "7"}}),
        ("servicenow.record.get", {"table": "incident", "sys_id": "42", "fields": ["number\n"]}),
        ("slack.message.post", {"channel": "C0OPS\n", "text": "hello"}),
        ("bpmn.process.start", {"process": "papers\n"}),
        ("bpmn.process.start", {"process": "papers", "variables": {"a\n": "1"}}),
    ],
)
def test_a_trailing_line_break_passes_no_packaged_schema(operation: str, values: dict[str, Any]) -> None:
    validator = load_catalog().operations[operation].input_validator
    assert not validator.is_valid(values)
    assert validator.is_valid(_clean(values))


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {key.rstrip("\n"): _clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value.rstrip("\n") if isinstance(value, str) else value


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"pattern": "^[a-z]+$"}, "state", "state\n"),
        ({"pattern": "state$"}, "my state", "my state\n"),
        ({"pattern": "^(a|b$)"}, "b", "b\n"),
        ({"pattern": r"^\\$"}, "\\", "\\\n"),
        ({"propertyNames": {"pattern": "^[a-z]+$"}}, {"a": 1}, {"a\n": 1}),
        ({"patternProperties": {"^[a-z]+$": {}}, "additionalProperties": False}, {"a": 1}, {"a\n": 1}),
        ({"patternProperties": {"^[a-z]+$": {}}, "unevaluatedProperties": False}, {"a": 1}, {"a\n": 1}),
        ({"properties": {"pattern": {"pattern": "^a$"}}}, {"pattern": "a"}, {"pattern": "a\n"}),
        ({"properties": {"enum": {"pattern": "^a$"}}}, {"enum": "a"}, {"enum": "a\n"}),
        ({"$defs": {"const": {"pattern": "^a$"}}, "$ref": "#/$defs/const"}, "a", "a\n"),
        ({"$ref": "#/x-mine", "x-mine": {"pattern": "^a$"}}, "a", "a\n"),
        ({"items": {"anyOf": [{"pattern": "^a$"}]}}, ["a"], ["a\n"]),
    ],
)
def test_a_schema_of_ones_own_ends_where_it_says(schema: dict[str, Any], good: Any, bad: Any) -> None:
    validator = validator_of(schema)
    assert validator.is_valid(good)
    assert not validator.is_valid(bad)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": r"^\$$"}, "$"),
        ({"pattern": "^[$]$"}, "$"),
        ({"pattern": r"^[\]$]$"}, "$"),
        ({"const": {"pattern": "^a$"}}, {"pattern": "^a$"}),
        ({"enum": ["a$"]}, "a$"),
        ({"pattern": "^a$"}, "a"),
    ],
)
def test_a_dollar_that_is_no_end_stays_one(schema: dict[str, Any], value: Any) -> None:
    assert validator_of(schema).is_valid(value)


def test_the_message_shows_the_pattern_as_it_was_written() -> None:
    assert "must match the pattern ^a$" in str(misfit(validator_of({"pattern": "^a$"}), "a\n", where="input"))


def test_operations_of_ones_own_are_checked_so() -> None:
    text = """operations:
  - name: probe.effect.apply
    handler: probe:apply
    side_effects: none
    risk: low
    summary: s
    target: t
    input_schema: {type: object, properties: {name: {type: string, pattern: "^[a-z]+$"}}}
    output_schema: {type: object, properties: {name: {type: string, pattern: "^[a-z]+$"}}}
"""
    operation = catalog_of([Source("o.yaml", text)]).operations["probe.effect.apply"]
    for validator in (operation.input_validator, validator_of(operation.output_schema)):
        assert validator.is_valid({"name": "state"})
        assert not validator.is_valid({"name": "state\n"})


@pytest.mark.parametrize(
    ("kind", "good"),
    [
        (Name, "a"),
        (Glob, "a.*"),
        (model.Name, "a"),
        (model.WorkflowRef, "a@1"),
        (model.PersonName, "ann"),
    ],
)
def test_names_in_documents_end_where_they_say(kind: Any, good: str) -> None:
    adapter = TypeAdapter(kind)
    assert adapter.validate_python(good) == good
    with pytest.raises(ValidationError):
        adapter.validate_python(f"{good}\n")


def test_conditions_of_policies_end_where_they_say() -> None:
    environment = Environment({"x": "string"}, POLICY_LIMITS)
    expression = environment.compile("x.matches('^state$')", "bool")
    assert expression.test({"x": "state"}) is True
    assert expression.test({"x": "state\n"}) is False
