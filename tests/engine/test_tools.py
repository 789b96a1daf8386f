"""Tools of an agent: what a model sees of operations, people and workflows, and what it may say to them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.catalog import load_catalog
from connectors.operation import Operation
from core.errors import InputError
from runtime.engine.model.tools import Tool, ToolKind, of_operation, of_people, of_workflow, problems, tool_name

CATALOG = load_catalog().operations


def operation(schema: dict[str, Any], name: str = "http.thing.send") -> Operation:
    return Operation.model_validate(
        {
            "name": name,
            "handler": f"{name.split('.')[0]}:send",
            "side_effects": "none",
            "risk": "low",
            "summary": "x",
            "target": "x",
            "input_schema": {"type": "object"} | schema,
            "output_schema": {"type": "object"},
        }
    )


SECRET = {"type": "string", "x-secret": True}
DEEP = {
    "required": ["to", "auth"],
    "additionalProperties": False,
    "properties": {
        "to": {"type": "string", "x-evidence": "value", "x-language": "mrkdwn", "const": "x-secret"},
        "x-tra": {"type": "integer"},
        "auth": {"type": "object", "properties": {"token": SECRET, "user": {"type": "string"}}},
        "keys": {"type": "array", "items": {"type": "array", "items": {"$ref": "#/$defs/key"}}},
        "many": {"type": "array", "items": {"type": "object", "required": ["b"], "properties": {"a": SECRET, "b": {}}}},
        "map": {"type": "object", "additionalProperties": SECRET},
    },
    "$defs": {"key": SECRET},
    "anyOf": [{"required": ["to"]}],
}


def test_a_model_sees_neither_secrets_nor_our_marks_nor_what_is_fixed() -> None:
    seen = of_operation(operation(DEEP), fixed=["auth"]).parameters
    assert set(seen["properties"]) == {"to", "x-tra", "many", "map"}
    assert seen["required"] == ["to"]
    assert "anyOf" not in seen
    text = json.dumps(of_operation(operation(DEEP)).parameters)
    assert '"token"' not in text
    assert '"a"' not in text
    assert "x-evidence" not in text
    assert '"const": "x-secret"' in text
    assert '"map": {"type": "object", "additionalProperties": false}' in text


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_every_operation_can_be_a_tool(name: str) -> None:
    tool = of_operation(CATALOG[name])
    offer = tool.offer()["function"]
    assert isinstance(offer, dict)
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", str(offer["name"]))
    assert '"x-' not in json.dumps(offer)
    assert tool.source == name
    assert list(problems([tool])) == []


def test_headers_of_http_are_secret() -> None:
    tool = of_operation(CATALOG["http.request.send"])
    assert "headers" not in tool.parameters["properties"]
    with pytest.raises(InputError, match=r"arguments.headers.Cookie: is secret"):
        tool.read('{"method": "GET", "url": "https://a.example", "headers": {"Cookie": "x"}}', {})
    fixed = {"headers": {"Authorization": "Bearer x"}}
    assert tool.read('{"method": "GET", "url": "https://a.example"}', fixed)["headers"] == fixed["headers"]


UPDATE = of_operation(CATALOG["servicenow.record.update"], fixed=["table"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{broken", "arguments: is not JSON"),
        ("[]", "arguments: is not a JSON object"),
        ("[" * 100, "deeper than"),
        ('{"sys_id": "1", "sys_id": "2"}', "twice"),
        ('{"sys_id": "\\u0000", "fields": {"a": "1"}}', "cannot be stored"),
        ('{"sys_id": "1"}', "'fields' is a required property"),
        ("", "'sys_id' is a required property"),
        ('{"sys_id": "1", "fields": {}, "more": 1}', "more"),
        ('{"sys_id": "1", "fields": {"sys_id": "2"}}', "fields"),
        ('{"table": "sys_user", "sys_id": "1", "fields": {"a": "1"}}', "arguments.table: is fixed"),
        (json.dumps({"sys_id": "1", "fields": {"a": "x" * 300_000}}), "bytes long"),
        ('{"sys_id": "\ud800"}', "arguments"),
    ],
)
def test_arguments_are_checked_whole(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        UPDATE.read(text, {"table": "incident"})


def test_what_is_fixed_joins_the_input() -> None:
    read = UPDATE.read('{"sys_id": "1", "fields": {"state": "6"}}', {"table": "incident"})
    assert read == {"table": "incident", "sys_id": "1", "fields": {"state": "6"}}
    with pytest.raises(InputError, match="'table' is a required property"):
        UPDATE.read('{"sys_id": "1", "fields": {"state": "6"}}', {})


def test_what_the_declaration_fixes_is_not_the_models_to_give() -> None:
    declared = operation({"properties": {"sys_id": {}}}).model_copy(update={"params": {"table": "incident"}})
    tool = of_operation(declared)
    assert tool.read('{"sys_id": "1"}', {}) == {"sys_id": "1"}
    with pytest.raises(InputError, match=r"arguments\.table: is fixed"):
        tool.read('{"sys_id": "1", "table": "sys_user"}', {})


def test_conditions_at_the_top_count_even_though_no_model_sees_them() -> None:
    tool = of_operation(CATALOG["model.chat.complete"], fixed=["model", "prompt"])
    assert "oneOf" not in tool.parameters
    with pytest.raises(InputError, match="exactly one"):
        tool.read('{"messages": [{"role": "user", "content": "x"}]}', {"model": "m", "prompt": "x"})


@given(st.text(max_size=120))
def test_every_name_is_one_that_models_accept(source: str) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9_-]{0,64}\Z", tool_name(source))


def test_long_names_stay_apart() -> None:
    assert tool_name("a" * 64) == "a" * 64
    long = [tool_name("a" * 70 + end) for end in "xy"]
    assert long[0] != long[1]


def test_the_check_names_what_cannot_be_offered() -> None:
    first, second = operation({}, "http.a_b.c"), operation({}, "http.a.b_c")
    assert list(problems([of_operation(first), of_operation(second)])) == [
        "http.a_b.c and http.a.b_c are both called 'http_a_b_c'; give one of them a name of its own"
    ]
    assert list(problems([of_operation(first), of_operation(second, name="other")])) == []
    deep = DEEP | {
        "properties": DEEP["properties"] | {"auth": {"required": ["token"], "properties": {"token": SECRET}}}
    }
    needs = "http.thing.send: needs auth.token, which is secret and never offered to a model; fix auth"
    assert list(problems([of_operation(operation(deep))])) == [needs]
    assert list(problems([of_operation(operation(deep), fixed=["auth"])])) == []
    assert list(problems([of_operation(operation(DEEP), fixed=["two"])])) == [
        "http.thing.send: fixes 'two', which is no input of it"
    ]
    assert list(problems([of_workflow("", "", None)])) == [": needs a name"]
    many = [of_workflow(f"w{n}@1", "", None) for n in range(129)]
    assert list(problems(many)) == ["an agent has 128 tools at most, and this one has 129"]


def test_people_are_asked_in_the_models_words_and_answer_in_the_authors_form() -> None:
    form = {"type": "object", "properties": {"owner": {"type": "string"}, "sure": {"type": "boolean"}}}
    tool = of_people("who-owns-it", "Find the owner", form)
    assert tool.kind is ToolKind.PEOPLE
    assert tool.description == "Ask a person: Find the owner. The answer holds owner, sure."
    assert tool.read('{"question": "Who?"}', {}) == {"question": "Who?"}
    with pytest.raises(InputError):
        tool.read('{"question": "Who?", "owner": "me"}', {})


def test_a_workflow_takes_what_its_trigger_takes() -> None:
    trigger = {"type": "object", "required": ["number"], "properties": {"number": {"type": "string"}}}
    tool: Tool = of_workflow("owner-check@2", "Owner check", trigger)
    assert (tool.name, tool.source, tool.kind) == ("owner-check_2", "owner-check@2", ToolKind.WORKFLOW)
    assert tool.parameters == trigger
    with pytest.raises(InputError):
        tool.read("{}", {})
    assert of_workflow("w@1", "", None).read('{"a": 1}', {}) == {"a": 1}
