"""Tools of chats: what is offered, what the model asks for, and what no caller could use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from connectors.catalog import Catalog
from connectors.model.connector import ModelConnector, ModelSettings
from connectors.model.tools import ARGUMENT_BYTES_MAX, CALLS_MAX, tool_calls
from connectors.port import Call, Done, NotSent, Refused
from connectors.schema import misfit
from core.errors import InputError

COMPLETE = "model.chat.complete"
MakeCall = Callable[..., Call]

LOOKUP: dict[str, Any] = {
    "type": "function",
    "function": {"name": "servicenow_incident_get", "parameters": {"type": "object", "properties": {}}},
}
ASK: dict[str, Any] = {"model": "gpt-4o", "prompt": "hi", "tools": [LOOKUP]}
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function", "function": {}}]},
    {"role": "tool", "tool_call_id": "a", "content": "{}"},
]
HISTORY[1]["tool_calls"][0]["function"] = {"name": "servicenow_incident_get", "arguments": "{}"}


def one(call: str | None = "a", name: Any = "get", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {"id": call, "type": "function", "function": {"name": name, "arguments": arguments}} | more


@pytest.fixture
def model(closing: Callable[[Any], Any], model_api: Any) -> ModelConnector:
    built: ModelConnector = closing(ModelConnector(ModelSettings(f"{model_api.url}/v1", "sk-test")))
    return built


async def test_tools_go_out_and_calls_come_back(model: ModelConnector, make_call: MakeCall, model_api: Any) -> None:
    model_api.message = {"content": None, "tool_calls": [one(), one("b", "shout", "{broken")]}
    model_api.finish = "tool_calls"
    asked = {"model": "m", "messages": HISTORY, "tools": [LOOKUP], "tool_choice": "required"}
    outcome = await model.perform(make_call(COMPLETE, asked | {"parallel_tool_calls": False}))
    assert isinstance(outcome, Done)
    calls = [one(), one("b", "shout", "{broken")]
    assert outcome.output == {"text": "", "model": "m", "finish_reason": "tool_calls", "tool_calls": calls}
    assert outcome.usage is not None
    assert model_api.received == [asked | {"parallel_tool_calls": False}]


async def test_an_answer_without_calls_is_as_before(model: ModelConnector, make_call: MakeCall, model_api: Any) -> None:
    model_api.message = {"tool_calls": []}
    outcome = await model.perform(make_call(COMPLETE, ASK))
    assert isinstance(outcome, Done)
    assert outcome.output == {"text": "hello", "model": "gpt-4o", "finish_reason": "stop"}


async def test_calls_beside_json_leave_the_text_alone(
    model: ModelConnector, make_call: MakeCall, model_api: Any
) -> None:
    model_api.message = {"content": "let me look", "tool_calls": [one()]}
    outcome = await model.perform(make_call(COMPLETE, ASK | {"response_format": "json"}))
    assert isinstance(outcome, Done)
    assert "json" not in outcome.output


@pytest.mark.parametrize(("said", "told"), [("eos", "eos"), (None, "unknown"), ("x" * 5000, "x" * 100)])
async def test_a_reason_that_nobody_knows_stays_text(
    model: ModelConnector, make_call: MakeCall, model_api: Any, said: Any, told: str
) -> None:
    model_api.finish = said
    outcome = await model.perform(make_call(COMPLETE, ASK))
    assert isinstance(outcome, Done)
    assert outcome.output["finish_reason"] == told


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ("all", "must be a list"),
        ([3], r"tool_calls\[0\]: must be an object"),
        ([one(type="custom")], "must be the call of a function"),
        ([one(function=None)], "must be the call of a function"),
        ([one(), one("b", "")], r"tool_calls\[1\].function.name: must be a text of 1 to 256"),
        ([one(name=None)], "function.name"),
        ([one(name="n" * 257)], "function.name"),
        ([one(arguments=["x"])], "arguments: must be a text or an object"),
        ([one(7)], "id: must be a text"),
        ([one("i" * 257)], "id: must be a text"),
        ([one(), one("b"), one()], "has 2 calls with the id 'a'"),
        ([one(None), one("call_1")], "has 2 calls with the id 'call_1'"),
        ([one(str(n)) for n in range(CALLS_MAX + 1)], "has 129 calls; at most 128"),
        ([one(arguments="é" * (ARGUMENT_BYTES_MAX // 2 + 1))], "262146 bytes long; at most 262144"),
    ],
)
async def test_calls_that_nobody_could_answer_are_asked_for_again(
    model: ModelConnector, make_call: MakeCall, model_api: Any, calls: Any, words: str
) -> None:
    model_api.message = {"content": None, "tool_calls": calls}
    outcome = await model.perform(make_call(COMPLETE, ASK))
    assert isinstance(outcome, NotSent)
    assert outcome.usage is not None
    with pytest.raises(InputError, match=words):
        tool_calls(model_api.message)


@pytest.mark.parametrize(
    "calls",
    [
        [one(str(n)) for n in range(CALLS_MAX)],
        [one(arguments="é" * (ARGUMENT_BYTES_MAX // 2))],
        [one(name="n" * 256), one("i" * 256, "n")],
    ],
)
def test_the_most_that_a_call_may_be_is_taken(calls: Any) -> None:
    assert tool_calls({"tool_calls": calls}) == calls


def test_what_servers_say_in_other_ways_is_understood() -> None:
    assert tool_calls({"tool_calls": None}) == []
    bare = {"function": {"name": "get"}}
    assert tool_calls({"tool_calls": [bare, one("", "get", {"a": "ü"})]}) == [
        one("call_1", "get", ""),
        one("call_2", "get", '{"a": "ü"}'),
    ]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"tools": [LOOKUP, LOOKUP]}, "'servicenow_incident_get' is taken twice"),
        ({"tool_choice": {"type": "function", "function": {"name": "other"}}}, "no tool has the name 'other'"),
    ],
)
async def test_tools_that_contradict_themselves_are_not_sent(
    model: ModelConnector, make_call: MakeCall, model_api: Any, more: dict[str, Any], words: str
) -> None:
    outcome = await model.perform(make_call(COMPLETE, ASK | more))
    assert isinstance(outcome, Refused)
    assert words in outcome.message
    assert model_api.received == []


CHOICE = {"type": "function", "function": {"name": "servicenow_incident_get"}}


@pytest.mark.parametrize(
    "values", [ASK, ASK | {"tool_choice": "auto"}, ASK | {"tool_choice": CHOICE}, {"model": "m", "messages": HISTORY}]
)
def test_the_declaration_takes_chats_with_tools(catalog: Catalog, values: dict[str, Any]) -> None:
    assert catalog.operations[COMPLETE].input_validator.is_valid(values)


def said(**message: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [message]}


CALLS = HISTORY[1]["tool_calls"]


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"model": "m", "prompt": "x", "tool_choice": "auto"}, "input"),
        (ASK | {"tool_choice": "maybe"}, "tool_choice"),
        (ASK | {"tools": []}, "tools"),
        (ASK | {"tools": [LOOKUP] * 129}, "tools"),
        (ASK | {"tools": [LOOKUP | {"function": {"name": "a.b"}}]}, "name"),
        (said(role="user"), "messages"),
        (said(role="user", content=None), "content"),
        (said(role="user", content="x", tool_calls=CALLS), "tool_calls"),
        (said(role="user", content="x", tool_call_id="a"), "tool_call_id"),
        (said(role="assistant"), "messages"),
        (said(role="assistant", content=None), "content"),
        (said(role="tool", content="x"), "messages"),
        (said(role="tool", content=None, tool_call_id="a"), "content"),
        (said(role="tool", content="x", tool_call_id="a", tool_calls=CALLS), "tool_calls"),
        (said(role="function", content="x"), "role"),
    ],
)
def test_the_declaration_names_the_place(catalog: Catalog, values: dict[str, Any], place: str) -> None:
    validator = catalog.operations[COMPLETE].input_validator
    assert not validator.is_valid(values)
    assert place in str(misfit(validator, values, where="input"))
