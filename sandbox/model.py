"""A stand-in for an OpenAI-compatible model: it classifies tickets by keywords, deterministically.

A model named ``script-…`` follows a script instead (``sandbox.model_scripts``). ``script-given`` answers with the
messages of ``POST /_sandbox/turns``, one per turn. Any other model that is offered tools follows ``script-gullible``.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sandbox.faults import FaultMiddleware, FaultTable, faults_endpoint
from sandbox.model_scripts import NAMES, ORDINARY, PREFIX, Chat, Turn, misuse, play

_PRIORITIES: Final = (
    ("1", re.compile(r"\b(outage|down|payroll|production|everyone)\b", re.IGNORECASE)),
    ("3", re.compile(r"\b(password|vpn|laptop|printer)\b", re.IGNORECASE)),
)
_GROUPS: Final = (
    ("network", re.compile(r"\b(vpn|network|wifi|wi-fi|dns|firewall|router|switch)\b", re.IGNORECASE)),
    ("database", re.compile(r"\b(database|sql|postgres|postgresql|oracle|query|replica)\b", re.IGNORECASE)),
)
_CATEGORIES: Final = (
    ("network", _GROUPS[0][1]),
    ("database", _GROUPS[1][1]),
    ("hardware", re.compile(r"\b(laptop|printer|monitor|keyboard|dock)\b", re.IGNORECASE)),
    ("software", re.compile(r"\b(outage|down|payroll|production|password|error|crash|app)\b", re.IGNORECASE)),
)
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s|\n")
_SUMMARY_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class ModelConfig:
    port: int = 0
    api_key: str = "sk-sandbox"
    models: tuple[str, ...] = ("gpt-4o-mini", "gpt-4o")
    clock: Callable[[], float] = time.time


class ModelError(Exception):
    """A refusal in OpenAI's shape."""

    def __init__(self, status: int, message: str, kind: str = "invalid_request_error", code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.code = code

    def response(self) -> JSONResponse:
        return JSONResponse(_error(str(self), self.kind, self.code), self.status)


def _error(message: str, kind: str, code: str | None) -> dict[str, object]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _fault_body(status: int) -> dict[str, object]:
    if status == 429:
        return _error("Rate limit reached (injected by the sandbox)", "requests", "rate_limit_exceeded")
    return _error("The server had an error (injected by the sandbox)", "server_error", None)


class Model:
    """The model's stand-in: ``app``, ``faults`` and ``completions``, each answered request body, oldest first."""

    def __init__(self, config: ModelConfig | None = None) -> None:
        self.config = config or ModelConfig()
        self.url = ""
        self.faults = FaultTable(_fault_body, only=r"^/v1/")
        self.completions: list[Mapping[str, object]] = []
        self.turns: list[Turn] = []
        self.app = Starlette(
            routes=[
                Route("/v1/chat/completions", self._guard(self._complete), methods=["POST"]),
                Route("/v1/models", self._guard(self._models), methods=["GET"]),
                Route("/_sandbox/faults", self._inject, methods=["GET", "POST", "DELETE"]),
                Route("/_sandbox/turns", self._given, methods=["GET", "POST"]),
                Route("/_sandbox/completions", self._listed, methods=["GET"]),
            ],
            middleware=[Middleware(FaultMiddleware, table=self.faults)],
        )

    async def close(self) -> None:
        self.faults.clear()

    def _guard(self, handler: Callable[[bytes], Response]) -> Callable[[Request], object]:
        async def guarded(request: Request) -> Response:
            scheme, _, key = request.headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(key.encode(), self.config.api_key.encode()):
                return ModelError(401, "Incorrect API key provided.", code="invalid_api_key").response()
            try:
                return handler(await request.body())
            except ModelError as error:
                return error.response()

        return guarded

    async def _inject(self, request: Request) -> Response:
        return await faults_endpoint(request, self.faults)

    async def _listed(self, _request: Request) -> Response:
        return JSONResponse({"completions": self.completions})

    async def _given(self, request: Request) -> Response:
        """Set or show the messages of ``script-given``, one per turn. The last one repeats."""
        if request.method == "POST":
            try:
                turns = json.loads(await request.body())
            except ValueError as error:
                return JSONResponse({"error": str(error)}, 400)
            if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
                return JSONResponse({"error": "a list of messages is needed"}, 400)
            self.turns = turns
        return JSONResponse({"turns": self.turns})

    def _models(self, _body: bytes) -> Response:
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "sandbox"} for name in self.config.models]
        return JSONResponse({"object": "list", "data": models})

    def _complete(self, raw: bytes) -> Response:
        request = _parsed(raw)
        messages = _messages(request)
        answer = self._answered(request, messages)
        completion = answer.get("content") or json.dumps(answer.get("tool_calls"))
        usage = {
            "prompt_tokens": sum(_tokens(text) for _, text in messages),
            "completion_tokens": _tokens(str(completion)),
        }
        self.completions.append(request)
        model = request.get("model", self.config.models[0])
        choice = {"index": 0, "message": {"role": "assistant", "refusal": None, **answer}}
        finish = "tool_calls" if answer.get("tool_calls") else "stop"
        return JSONResponse(
            {
                "id": "chatcmpl-" + hashlib.sha256(raw).hexdigest()[:24],
                "object": "chat.completion",
                "created": int(self.config.clock()),
                "model": model if isinstance(model, str) else self.config.models[0],
                "choices": [choice | {"logprobs": None, "finish_reason": finish}],
                "usage": usage | {"total_tokens": sum(usage.values())},
            }
        )

    def _answered(self, request: Mapping[str, object], messages: list[tuple[str, str]]) -> Turn:
        """Compute the assistant's next message."""
        model = request.get("model")
        scripted = isinstance(model, str) and model.startswith(PREFIX)
        offered = _offered(request)
        if not scripted and not offered and all(role != "tool" for role, _ in messages):
            asked = next((text for role, text in reversed(messages) if role == "user"), None)
            if asked is None:
                raise ModelError(400, "messages: a user message is needed")
            return {"content": _answer(classify(asked), request.get("response_format"))}
        chat, script = Chat(_said(request), offered), str(model).removeprefix(PREFIX) if scripted else ORDINARY
        if script == "given" and self.turns:
            return self.turns[min(chat.turn, len(self.turns) - 1)]
        if script not in NAMES:
            known = ", ".join([*NAMES, "given"])
            raise ModelError(404, f"The script {script!r} does not exist; known: {known}", code="model_not_found")
        return play(script, chat)


def classify(text: str) -> dict[str, str]:
    """Category, priority ("1" | "3" | "4") and group by keywords of the text; summary is its first sentence."""
    summary = _SENTENCE_END.split(text.strip(), maxsplit=1)[0]
    return {
        "category": next((name for name, words in _CATEGORIES if words.search(text)), "inquiry"),
        "priority": next((name for name, words in _PRIORITIES if words.search(text)), "4"),
        "summary": summary[:_SUMMARY_CHARS],
        "group": next((name for name, words in _GROUPS if words.search(text)), "service-desk"),
    }


def _answer(fields: Mapping[str, str], response_format: object) -> str:
    kind = response_format.get("type") if isinstance(response_format, dict) else "text"
    if kind == "json_object":
        return json.dumps(fields)
    if kind == "json_schema":
        return json.dumps({name: fields.get(name, "") for name in _schema_names(response_format, fields)})
    if kind != "text":
        raise ModelError(400, f"response_format.type: {kind!r} is not text, json_object or json_schema")
    return f"Priority {fields['priority']}, {fields['category']}, for {fields['group']}: {fields['summary']}"


def _schema_names(response_format: object, fields: Mapping[str, str]) -> list[str]:
    """The properties of the schema: a strict schema refuses all others, so the answer has only these."""
    wrapped = response_format.get("json_schema") if isinstance(response_format, dict) else None
    schema = wrapped.get("schema") if isinstance(wrapped, dict) else None
    if not isinstance(schema, dict):
        raise ModelError(400, "response_format.json_schema.schema: an object is needed")
    properties = schema.get("properties")
    return list(properties) if isinstance(properties, dict) and properties else list(fields)


def _parsed(raw: bytes) -> dict[str, object]:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ModelError(400, "We could not parse the JSON body of your request.") from error
    if not isinstance(value, dict):
        raise ModelError(400, "The body must be a JSON object.")
    if value.get("stream"):
        raise ModelError(400, "stream: the sandbox model answers in one piece only", code="unsupported_value")
    return value


def _messages(request: Mapping[str, object]) -> list[tuple[str, str]]:
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ModelError(400, "messages: a list with at least one message is needed")
    read: list[tuple[str, str]] = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ModelError(400, f"messages[{index}]: an object with role and content is needed")
        read.append((message["role"], _content(index, message)))
    return read


def _said(request: Mapping[str, object]) -> list[Mapping[str, Any]]:
    """The whole messages, checked: each call has exactly one result."""
    messages = cast(list[Mapping[str, Any]], request["messages"])
    try:
        wrong = misuse(messages)
    except (AttributeError, KeyError, TypeError):
        wrong = "tool_calls: each needs an id, and function with name and arguments"
    if wrong is not None:
        raise ModelError(400, wrong)
    return messages


def _offered(request: Mapping[str, object]) -> tuple[str, ...]:
    tools = request.get("tools") or []
    try:
        return tuple(tool["function"]["name"] for tool in cast(list[Any], tools))
    except (KeyError, TypeError):
        raise ModelError(400, "tools: each needs a function with a name") from None


def _content(index: int, message: Mapping[str, object]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if content is None and message["role"] == "assistant" and message.get("tool_calls"):
        return json.dumps(message["tool_calls"])
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    raise ModelError(400, f"messages[{index}].content: text is needed")


def _tokens(text: str) -> int:
    return max(1, math.ceil(len(text.split()) * 1.3))
