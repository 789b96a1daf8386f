"""Completes chats (``model.chat.complete``) and reports usage. It has no side effect: a failed call can be repeated."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

import genai_prices
import httpx

from connectors.exchange import BODY_BYTES_MAX, Answer, exchange, harmless, http_url, json_of, public_address, tls
from connectors.model.tools import misuse, tool_calls
from connectors.port import Call, Done, Failure, NothingBefore, NotSent, Outcome, Probe, ProbeVerdict, Refused, Usage
from core.bounded_json import parse
from core.canonical import Json, JsonObject
from core.errors import InputError

_CODES = {400: "invalid", 401: "unauthorized", 403: "forbidden", 404: "not_found"}
_AS_GIVEN = ("temperature", "max_tokens", "tools", "tool_choice", "parallel_tool_calls")
FINISH_CHARS_MAX = 100


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """An OpenAI-compatible API: ``base_url`` ends in ``/v1``; ``provider`` is its name in the price table."""

    base_url: str
    api_key: str = field(repr=False)
    provider: str = "openai"


class ModelConnector(NothingBefore):
    """One provider."""

    def __init__(self, settings: ModelSettings) -> None:
        http_url(settings.base_url, "the model address", "COUNTERSEAL_MODEL_URL", "https://api.openai.com/v1")
        self._settings = settings
        self._url = settings.base_url.rstrip("/")
        self._client = httpx.AsyncClient(verify=tls(), headers={"Authorization": f"Bearer {settings.api_key}"})

    @property
    def target(self) -> str:
        """The address."""
        return public_address(self._url)

    async def perform(self, call: Call) -> Outcome:
        """Get one completion. An answer whose JSON or tool calls cannot be read is a failure, with its usage."""
        wrong = misuse(call.input)
        if wrong is not None:
            return Refused("invalid", wrong)
        request = self._client.build_request("POST", f"{self._url}/chat/completions", json=_request(call.input))
        reply = await exchange(self._client, request, effect=False, timeout_seconds=call.timeout_seconds)
        body = harmless(json_of(reply, "the model", _refusal))
        if isinstance(body, Failure):
            return body
        return _outcome(body if isinstance(body, dict) else {}, call, self._settings.provider)

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Probe:
        """Answer *not applied*: a completion has no side effect and is safe to repeat."""
        return Probe(ProbeVerdict.NOT_APPLIED, f"{call.operation} changes nothing outside, so it can be repeated")

    async def check(self) -> tuple[bool, str]:
        """List the models."""
        request = self._client.build_request("GET", f"{self._url}/models")
        reply = await exchange(self._client, request, effect=False, timeout_seconds=10.0)
        if not isinstance(reply, Answer):
            return False, reply.message
        return (True, "reachable and authorised") if reply.ok else (False, _refusal(reply).message)

    async def aclose(self) -> None:
        """Release connections."""
        await self._client.aclose()


def _request(values: JsonObject) -> JsonObject:
    messages: list[Json] = []
    if "system" in values:
        messages.append({"role": "system", "content": values["system"]})
    given = values.get("messages")
    messages += given if isinstance(given, list) else [{"role": "user", "content": values.get("prompt")}]
    body: JsonObject = {"model": values.get("model"), "messages": messages}
    if values.get("response_format") == "json":
        body["response_format"] = {"type": "json_object"}
    return body | {name: values[name] for name in _AS_GIVEN if name in values}


def _outcome(body: JsonObject, call: Call, provider: str) -> Outcome:
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        return NotSent("the model's answer holds no choice")
    asked = str(call.input.get("model"))
    model = str(body.get("model") or asked)
    usage = _usage(body.get("usage"), provider, model, asked)
    finish = str(choice.get("finish_reason") or "unknown")[:FINISH_CHARS_MAX]
    text = message.get("content")
    try:
        calls = tool_calls(message)
    except InputError as error:
        return NotSent(f"{error} (finish reason: {finish})", usage=usage)
    if calls and text is None:
        text = ""
    if not isinstance(text, str):
        return Refused("no_text", f"the model gave no text: {message.get('refusal') or finish}", usage)
    output: JsonObject = {"text": text, "model": model, "finish_reason": finish}
    if calls:
        output["tool_calls"] = calls
    elif call.input.get("response_format") == "json":
        try:
            output["json"] = parse(text.encode(errors="replace"), bytes_max=BODY_BYTES_MAX, where="the model's text")
        except InputError as error:
            return NotSent(f"{error} (finish reason: {finish})", usage=usage)
    external_id = body.get("id")
    return Done(output, external_id if isinstance(external_id, str) else None, usage=usage)


def _usage(value: Json, provider: str, model: str, asked: str) -> Usage:
    counts = value if isinstance(value, dict) else {}
    details = counts.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else 0
    tokens_in, tokens_out = _count(counts.get("prompt_tokens")), _count(counts.get("completion_tokens"))
    cost = _cost(provider, model, tokens_in, tokens_out, cached)
    cost = _cost(provider, asked, tokens_in, tokens_out, cached) if cost is None and asked != model else cost
    return Usage(provider, model, tokens_in, tokens_out, format(cost, "f") if cost is not None else None)


def _cost(provider: str, model: str, tokens_in: int, tokens_out: int, cached: int) -> Decimal | None:
    """The cost by the price table that ships with genai-prices; None for a model that it does not know."""
    tokens = genai_prices.Usage(
        input_tokens=tokens_in, output_tokens=tokens_out, cache_read_tokens=min(cached, tokens_in) or None
    )
    try:
        price = genai_prices.calc_price(tokens, model, provider_id=provider)
    except (LookupError, ValueError):
        return None
    return Decimal(price.total_price)


def _count(value: Json) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _refusal(answer: Answer) -> Refused:
    """The provider's own words: ``{"error": {"message"}}``."""
    message = f"the model API answered {answer.status}: {answer.words() or 'without an explanation'}"
    return Refused(_CODES.get(answer.status, f"http_{answer.status}"), message)
