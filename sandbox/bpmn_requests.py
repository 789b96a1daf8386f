"""Requests to the BPMN stand-in, parsed as strictly as by the real engine: an unknown member is an error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from starlette.requests import Request

from sandbox.bpmn_state import EngineError
from sandbox.web import is_json

_LONGEST_POLL_MS: Final = 1_800_000
_TOPIC: Final = frozenset({"topicName", "lockDuration", "variables", "localVariables", "deserializeValues"})
_INVALID: Final = "InvalidRequestException"


def query_of(request: Request, *known: str) -> dict[str, str]:
    """The query parameters; an unknown one is an error."""
    if unknown := sorted(set(request.query_params) - set(known)):
        raise EngineError(400, f"Unknown query parameter: {', '.join(unknown)}", _INVALID)
    return dict(request.query_params)


async def body_of(request: Request, *known: str) -> dict[str, object]:
    """The body as a JSON object; an unknown property is an error."""
    if not is_json(request):
        raise EngineError(415, "Content-Type: application/json is needed", "NotSupportedException")
    try:
        value = json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise EngineError(400, f"Cannot parse JSON: {error}", "JsonParseException") from error
    return _object(value, "the body", frozenset(known))


def text_of(body: Mapping[str, object], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise EngineError(400, f"{name}: text is needed", _INVALID)
    return value


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """A request to ``fetchAndLock``. ``topics``: each topic's lock in seconds. ``wait_seconds``: the longest wait."""

    worker_id: str
    tasks_max: int
    topics: Mapping[str, float]
    wait_seconds: float

    @classmethod
    async def read(cls, request: Request) -> Self:
        body = await body_of(request, "workerId", "maxTasks", "usePriority", "asyncResponseTimeout", "topics")
        worker, topics = text_of(body, "workerId"), body.get("topics")
        if not worker:
            raise EngineError(400, "workerId is null", _INVALID)
        if not isinstance(topics, list):
            raise EngineError(400, "topics: a list is needed", _INVALID)
        locks: dict[str, float] = {}
        for topic in (_object(item, "a topic", _TOPIC) for item in topics):
            name = text_of(topic, "topicName")
            if not name:
                raise EngineError(400, "topicName is null", _INVALID)
            locks[name] = _count(topic, "lockDuration", least=1) / 1000
        wait = _count(body, "asyncResponseTimeout", default=0)
        if wait > _LONGEST_POLL_MS:
            raise EngineError(
                400, f"The asynchronous response timeout cannot be more than {_LONGEST_POLL_MS}", _INVALID
            )
        return cls(worker, _count(body, "maxTasks"), locks, wait / 1000)


def _object(value: object, what: str, known: frozenset[str]) -> dict[str, object]:
    if not isinstance(value, dict):
        raise EngineError(400, f"{what} is not a JSON object", _INVALID)
    if unknown := sorted(set(value) - known):
        raise EngineError(400, f'Unrecognized field "{unknown[0]}"', "UnrecognizedPropertyException")
    return value


def _count(body: Mapping[str, object], name: str, *, default: int | None = None, least: int = 0) -> int:
    value = body.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise EngineError(400, f"{name}: a whole number of at least {least} is needed", _INVALID)
    return value
