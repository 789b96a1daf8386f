"""Chats as the types of the ``openai`` package describe them, in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from openai.types.chat import ChatCompletion
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from connectors.catalog import Catalog
from connectors.model.connector import ModelConnector, ModelSettings
from connectors.port import Call, Done

COMPLETE = "model.chat.complete"
STRICT = with_config(ConfigDict(extra="forbid"))(CompletionCreateParamsNonStreaming)
TOOL = {
    "type": "function",
    "function": {
        "name": "servicenow_incident_get",
        "description": "Read an incident",
        "parameters": {"type": "object", "properties": {"sys_id": {"type": "string"}}, "required": ["sys_id"]},
        "strict": False,
    },
}
CALLS = [
    {"id": "a", "type": "function", "function": {"name": "servicenow_incident_get", "arguments": '{"sys_id": "1"}'}},
    {"id": "b", "type": "function", "function": {"name": "unheard_of", "arguments": "{broken"}},
]


def completion(message: dict[str, Any]) -> dict[str, Any]:
    """A completion as the types know it, made strictly."""
    choice = {"index": 0, "finish_reason": "tool_calls", "logprobs": None, "message": {"role": "assistant"} | message}
    made = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-4o", "choices": [choice]}
    checked = ChatCompletion.model_validate(made, strict=True)
    kept: dict[str, Any] = checked.model_dump(mode="json")["choices"][0]["message"]
    return kept


def exhausted(value: Any) -> Any:
    """The value with all its iterables read: pydantic checks what is in an iterable when it is read."""
    if isinstance(value, dict):
        return {name: exhausted(item) for name, item in value.items()}
    return value if isinstance(value, str) or not isinstance(value, Iterable) else [exhausted(item) for item in value]


def test_the_types_refuse_what_is_no_chat() -> None:
    wrong = {"model": "m", "messages": [{"role": "tool", "content": "x"}]}
    with pytest.raises(ValidationError):
        exhausted(TypeAdapter(STRICT).validate_python(wrong))


@pytest.mark.parametrize(
    "choice", [None, "auto", "none", "required", {"type": "function", "function": {"name": TOOL["function"]["name"]}}]
)
async def test_a_chat_with_tools_goes_there_and_back(
    closing: Callable[[Any], Any], model_api: Any, make_call: Callable[..., Call], catalog: Catalog, choice: Any
) -> None:
    model: ModelConnector = closing(ModelConnector(ModelSettings(f"{model_api.url}/v1", "sk-test")))
    model_api.message, model_api.finish = completion({"content": None, "tool_calls": CALLS}), "tool_calls"
    asked = {"model": "gpt-4o", "messages": [{"role": "user", "content": "look"}], "tools": [TOOL]}
    asked |= {"tool_choice": choice} if choice else {}
    first = await model.perform(make_call(COMPLETE, asked))
    assert isinstance(first, Done)
    assert first.output["tool_calls"] == CALLS

    results = [{"role": "tool", "tool_call_id": call["id"], "content": "{}"} for call in CALLS]
    history = [*asked["messages"], {"role": "assistant", "content": None, "tool_calls": CALLS}, *results]
    asked |= {"messages": history, "parallel_tool_calls": True, "temperature": 0, "max_tokens": 100}
    assert catalog.operations[COMPLETE].input_validator.is_valid(asked)
    await model.perform(make_call(COMPLETE, asked))
    for sent in model_api.received:
        read = exhausted(TypeAdapter(STRICT).validate_python(sent))
        assert read == sent
    assert model_api.received[1] == asked
