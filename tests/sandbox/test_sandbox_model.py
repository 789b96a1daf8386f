"""The model stand-in speaks the chat completions format and classifies the same way every time."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from sandbox.faults import Fault
from sandbox.world import World

HEADERS = {"Authorization": "Bearer sk-sandbox"}


def ticket(text: str, kind: str = "json_object") -> dict[str, Any]:
    messages = [{"role": "system", "content": "Classify the ticket."}, {"role": "user", "content": text}]
    return {"model": "gpt-4o-mini", "messages": messages, "response_format": {"type": kind}}


@pytest.mark.parametrize(
    ("text", "priority", "group"),
    [
        ("Payroll is down. Nobody can log in.", "1", "service-desk"),
        ("VPN drops every hour", "3", "network"),
        ("The SQL replica lags", "4", "database"),
        ("Where do I find the form? I looked.", "4", "service-desk"),
        ("The download is slow", "4", "service-desk"),
    ],
)
async def test_it_classifies_by_keywords(
    world: World, plain: httpx.AsyncClient, text: str, priority: str, group: str
) -> None:
    url = f"{world.model.url}/v1/chat/completions"
    answers = [(await plain.post(url, json=ticket(text), headers=HEADERS)).json() for _ in range(2)]
    content = json.loads(answers[0]["choices"][0]["message"]["content"])
    assert (content["priority"], content["group"]) == (priority, group)
    assert (
        content["summary"] == text.split(". ")[0].split("? ")[0] + text[len(text.split(". ")[0].split("? ")[0]) :][:1]
    )
    usage = answers[0]["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 0
    assert (answers[0]["model"], answers[0]["object"]) == ("gpt-4o-mini", "chat.completion")
    assert answers[0]["choices"] == answers[1]["choices"]


async def test_a_schema_is_answered_with_its_own_properties(world: World, plain: httpx.AsyncClient) -> None:
    request = ticket("Printer jam", "json_schema")
    schema = {"type": "object", "properties": {"priority": {"type": "string"}}, "additionalProperties": False}
    request["response_format"]["json_schema"] = {"name": "t", "strict": True, "schema": schema}
    answer = await plain.post(f"{world.model.url}/v1/chat/completions", json=request, headers=HEADERS)
    assert json.loads(answer.json()["choices"][0]["message"]["content"]) == {"priority": "3"}


async def test_refusals_are_in_openais_shape(world: World, plain: httpx.AsyncClient) -> None:
    url = f"{world.model.url}/v1/chat/completions"
    world.model.faults.inject(Fault("completions", status=429, skip=4, headers={"Retry-After": "2"}))
    cases = [
        (await plain.post(url, json=ticket("x")), 401, "invalid_api_key"),
        (await plain.post(url, json=ticket("x"), headers={"Authorization": "Bearer no"}), 401, "invalid_api_key"),
        (await plain.post(url, content=b"{", headers=HEADERS), 400, None),
        (await plain.post(url, json={"messages": [{"role": "system", "content": "x"}]}, headers=HEADERS), 400, None),
        (await plain.post(url, json=ticket("x"), headers=HEADERS), 429, "rate_limit_exceeded"),
    ]
    for answer, status, code in cases:
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert world.model.completions == []
    models = await plain.get(f"{world.model.url}/v1/models", headers=HEADERS)
    assert models.json()["data"][0]["id"] == "gpt-4o-mini"
