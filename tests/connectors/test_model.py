from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import httpx
import pytest

from connectors.exchange import retry_after_seconds
from connectors.model.connector import ModelConnector, ModelSettings
from connectors.port import Call, Done, NotSent, ProbeVerdict, Refused, Usage
from core.errors import ConfigurationError

COMPLETE = "model.chat.complete"
ASK = {"model": "gpt-4o", "prompt": "hi"}
MakeCall = Callable[..., Call]
Build = Callable[..., ModelConnector]


@pytest.fixture
def build(closing: Callable[[Any], Any], model_api: Any) -> Build:
    def make(key: str = "sk-test", provider: str = "openai", url: str | None = None) -> ModelConnector:
        settings = ModelSettings(f"{url or model_api.url}/v1", key, provider)
        connector: ModelConnector = closing(ModelConnector(settings))
        return connector

    return make


@pytest.mark.req("Q-21")
async def test_text_comes_with_its_cost(build: Build, make_call: MakeCall, model_api: Any) -> None:
    outcome = await build().perform(make_call(COMPLETE, ASK | {"system": "be brief", "temperature": 0.2}))
    assert isinstance(outcome, Done)
    assert outcome.output == {"text": "hello", "model": "gpt-4o", "finish_reason": "stop"}
    assert outcome.external_id == "chatcmpl-1"
    assert outcome.usage == Usage("openai", "gpt-4o", 1000, 100, "0.0035")
    assert model_api.received == [
        {
            "model": "gpt-4o",
            "temperature": 0.2,
            "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
        }
    ]


@pytest.mark.parametrize(("model", "provider"), [("unheard-of-9", "openai"), ("gpt-4o", "unheard-of")])
async def test_an_unknown_price_is_no_price(build: Build, make_call: MakeCall, model: str, provider: str) -> None:
    outcome = await build(provider=provider).perform(make_call(COMPLETE, ASK | {"model": model}))
    assert isinstance(outcome, Done)
    assert outcome.usage == Usage(provider, model, 1000, 100, None)


@pytest.mark.parametrize(("cached", "cost"), [(0, "0.0035"), (400, "0.003"), (1000, "0.00225"), (9999, "0.00225")])
async def test_cached_tokens_cost_what_cached_tokens_cost(
    build: Build, make_call: MakeCall, model_api: Any, cached: int, cost: str
) -> None:
    model_api.usage["prompt_tokens_details"] = {"cached_tokens": cached}
    outcome = await build().perform(make_call(COMPLETE, ASK))
    assert isinstance(outcome, Done)
    assert outcome.usage is not None
    assert (outcome.usage.input_tokens, Decimal(outcome.usage.cost_usd or "0")) == (1000, Decimal(cost))


async def test_a_version_without_a_price_costs_what_was_asked_for(
    build: Build, make_call: MakeCall, model_api: Any
) -> None:
    model_api.answers_as = "internal-deployment-7"
    outcome = await build().perform(make_call(COMPLETE, ASK))
    assert isinstance(outcome, Done)
    assert outcome.usage == Usage("openai", "internal-deployment-7", 1000, 100, "0.0035")


async def test_json_is_parsed_when_it_was_asked_for(build: Build, make_call: MakeCall, model_api: Any) -> None:
    model_api.text = '{"priority": "1"}'
    call = make_call(
        COMPLETE, {"model": "m", "messages": [{"role": "user", "content": "x"}], "response_format": "json"}
    )
    outcome = await build().perform(call)
    assert isinstance(outcome, Done)
    assert outcome.output["json"] == {"priority": "1"}
    assert model_api.received[0]["response_format"] == {"type": "json_object"}


@pytest.mark.parametrize("text", ["not json", "[" * 100, '{"a": 1, "a": 2}'])
async def test_json_that_is_none_may_be_asked_for_again(
    build: Build, make_call: MakeCall, model_api: Any, text: str
) -> None:
    model_api.text = text
    outcome = await build().perform(make_call(COMPLETE, ASK | {"response_format": "json"}))
    assert isinstance(outcome, NotSent)
    assert outcome.usage is not None
    assert outcome.usage.input_tokens == 1000


async def test_a_refusal_is_final_and_has_its_cost(build: Build, make_call: MakeCall, model_api: Any) -> None:
    model_api.text = None
    outcome = await build().perform(make_call(COMPLETE, ASK))
    assert isinstance(outcome, Refused)
    assert outcome.usage is not None


@pytest.mark.req("Q-18")
@pytest.mark.parametrize("kind", [500, 503, "hang", "reset"])
async def test_whatever_fails_may_be_repeated(build: Build, make_call: MakeCall, model_api: Any, kind: Any) -> None:
    model_api.app.fail("completions", kind)
    outcome = await build().perform(make_call(COMPLETE, ASK, timeout=0.3 if kind == "hang" else 5.0))
    assert isinstance(outcome, NotSent)


@pytest.mark.req("Q-18")
async def test_rate_limits_say_when(build: Build, make_call: MakeCall, model_api: Any, closed_url: str) -> None:
    model_api.app.fail("completions", 429, Retry_After="20")
    outcome = await build().perform(make_call(COMPLETE, ASK))
    assert isinstance(outcome, NotSent)
    assert outcome.retry_after_seconds == 20
    assert isinstance(await build(url=closed_url).perform(make_call(COMPLETE, ASK)), NotSent)


async def test_a_retry_date_counts_from_the_answers_date(build: Build, make_call: MakeCall, model_api: Any) -> None:
    headers = httpx.Headers({"Date": "Wed, 21 Oct 2015 07:28:00 GMT", "Retry-After": "Wed, 21 Oct 2015 07:29:30 GMT"})
    assert retry_after_seconds(headers) == 90
    model_api.app.fail("completions", 503, Retry_After="Wed, 21 Oct 2015 07:28:00 GMT")
    outcome = await build().perform(make_call(COMPLETE, ASK))
    assert isinstance(outcome, NotSent)
    assert outcome.retry_after_seconds == 0
    assert retry_after_seconds(httpx.Headers({"Retry-After": "soon"})) is None


@pytest.mark.req("Q-18")
async def test_a_wrong_key_is_final(build: Build, make_call: MakeCall) -> None:
    outcome = await build(key="sk-wrong").perform(make_call(COMPLETE, ASK))
    assert outcome == Refused("unauthorized", "the model API answered 401: Incorrect API key provided")
    assert await build().check() == (True, "reachable and authorised")


async def test_an_answer_that_is_none_may_be_repeated(build: Build, make_call: MakeCall, model_api: Any) -> None:
    model_api.app.fail("completions", 200)
    assert isinstance(await build().perform(make_call(COMPLETE, ASK)), NotSent)
    probe = await build().probe(make_call(COMPLETE, ASK), seconds_since_intent=0)
    assert probe.verdict is ProbeVerdict.NOT_APPLIED


def test_settings() -> None:
    assert "sk-secret" not in repr(ModelSettings("https://a.example/v1", "sk-secret"))
    with pytest.raises(ConfigurationError, match="COUNTERSEAL_MODEL_URL"):
        ModelConnector(ModelSettings("api.example/v1", "k"))
