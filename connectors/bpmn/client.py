"""The Camunda 7 REST API over HTTP: reads answers into JSON or a ``Failure``, and converts process variables.

Errors: https://docs.camunda.org/manual/7.21/reference/rest/overview/#error-handling. Authentication:
https://docs.camunda.org/manual/7.21/reference/rest/overview/authentication/ (basic, or none at all). Operaton serves
the same under the same paths. Variables are ``{"value", "type", "valueInfo"}``; their types:
https://docs.camunda.org/manual/7.21/user-guide/process-engine/variables/#supported-variable-values
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import httpx

from connectors.exchange import BODY_BYTES_MAX, Answer, exchange, harmless, http_url, json_of, tls
from connectors.port import Failure, NotSent, Refused
from core import bounded_json
from core.canonical import Json, JsonObject, canonical_bytes
from core.errors import ConfigurationError, InputError

OWN_PREFIX = "counterseal_"
TEXT_LENGTH_MAX = 4000
INTEGER_MAX = 2**31 - 1
_JSON_FORMAT = "application/json"
_SCALARS: dict[type, str] = {type(None): "Null", bool: "Boolean", float: "Double", str: "String"}
MESSAGE_LENGTH = 500
NOT_FOUND = "not_found"
_SYSTEM = "the BPMN engine"
_CODES = {400: "invalid", 401: "unauthorized", 403: "forbidden", 405: "not_allowed"}
# The engine's own errors for a missing thing; a 404 without one comes from a wrong address or a proxy.
_ENGINE_ERRORS = frozenset({"RestException", "InvalidRequestException"})


@dataclass(frozen=True, slots=True)
class BpmnSettings:
    """The settings of one engine, and of its callbacks to us.

    ``url`` is the REST API's root, such as ``https://bpm.example/engine-rest``. ``callback_url`` is Counterseal's own
    public root; a process gets a callback address below it, to report its end. ``topic`` is the topic of the external
    tasks by which a process reports instead. The engine locks these for ``worker_id``, which is the same for every
    worker of an installation, so any worker can acknowledge a task that another has fetched. A process that is absent
    may still be starting until ``transaction_limit_seconds`` have passed.

    The engine's history level must be ``activity`` or more (its default is ``full``). Otherwise an ended process cannot
    be found, and would be started twice after a crash.
    """

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    callback_url: str | None = None
    topic: str = "counterseal"
    worker_id: str = "counterseal"
    transaction_limit_seconds: float = 60.0


class EngineClient:
    """One engine. Safe for concurrent use."""

    def __init__(self, settings: BpmnSettings) -> None:
        setting, example = "COUNTERSEAL_BPMN_URL", "https://bpm.example/engine-rest"
        url = http_url(settings.url, "the BPMN engine's address", setting, example)
        if (settings.username is None) != (settings.password is None):
            raise ConfigurationError(
                "the BPMN engine's user name and password belong together, and only one of them is set.",
                remedy="Set both COUNTERSEAL_BPMN_USERNAME and COUNTERSEAL_BPMN_PASSWORD, or neither.",
            )
        if settings.callback_url is not None:
            what = "the address for callbacks"
            http_url(settings.callback_url, what, "COUNTERSEAL_BPMN_CALLBACK_URL", "https://counterseal.example")
        has_user = settings.username is not None
        self._client = httpx.AsyncClient(
            base_url=url,
            verify=tls(),
            auth=httpx.BasicAuth(settings.username or "", settings.password or "") if has_user else None,
            headers={"Accept": "application/json"},
            limits=httpx.Limits(keepalive_expiry=5.0),
        )

    async def get(self, path: str, params: dict[str, str], *, timeout_seconds: float) -> Json | Refused | NotSent:
        """Read. Every failure but a refusal is ``NotSent``, because a read can be repeated."""
        request = self._client.build_request("GET", path, params=params)
        reply = await exchange(self._client, request, effect=False, timeout_seconds=timeout_seconds)
        return harmless(json_of(reply, _SYSTEM, _refusal))

    async def send(
        self,
        method: str,
        path: str,
        body: JsonObject | None,
        *,
        timeout_seconds: float,
        bytes_max: int = BODY_BYTES_MAX,
    ) -> Json | Failure:
        """Send a request that has an effect. Returns None if the answer has no content (204)."""
        request = self._client.build_request(method, path, json=body)
        reply = await exchange(
            self._client, request, effect=True, timeout_seconds=timeout_seconds, body_bytes_max=bytes_max
        )
        return json_of(reply, _SYSTEM, _refusal, bytes_max=bytes_max)

    async def aclose(self) -> None:
        """Release connections."""
        await self._client.aclose()


def _refusal(answer: Answer) -> Refused:
    """The engine's own words: ``{"type", "message"}``."""
    error = answer.explanation()
    words = str(error.get("message") or "without an explanation")[:MESSAGE_LENGTH]
    code = _CODES.get(answer.status, f"http_{answer.status}")
    if answer.status == httpx.codes.NOT_FOUND:
        own = error.get("type") in _ENGINE_ERRORS
        code = NOT_FOUND if own else "no_engine"
        words = words if own else f"there is no engine at this address ({words}); check COUNTERSEAL_BPMN_URL"
    if 300 <= answer.status < 400:
        words = "it redirects elsewhere, which is not followed; check COUNTERSEAL_BPMN_URL"
    return Refused(code, f"the BPMN engine answered {answer.status}: {words}")


def typed(values: JsonObject) -> JsonObject:
    """Each value with its type in the engine; lists and objects have the type ``Json``.

    ``InputError`` names a text that is longer than the engine's column.
    """
    for name, value in values.items():
        if isinstance(value, str) and len(value) > TEXT_LENGTH_MAX:
            raise InputError(
                f"holds {len(value)} characters; the engine keeps {TEXT_LENGTH_MAX} of a text",
                where=f"variables.{name}",
                remedy="Put the text into an object or a list.",
            )
    return {name: _typed(value) for name, value in values.items()}


def plain(variables: Json) -> JsonObject:
    """The process's own variables as plain JSON, without Counterseal's. ``InputError`` if they cannot be recorded.

    ``Json`` values, and ``Object`` values serialized as JSON, are parsed; a file is null.
    """
    output = {name: _plain(name, item) for name, item in items(variables).items() if not name.startswith(OWN_PREFIX)}
    size = len(canonical_bytes(output))
    if size > bounded_json.BODY_BYTES_MAX:
        message = f"are {size} bytes long; at most {bounded_json.BODY_BYTES_MAX} are accepted"
        raise InputError(message, where="variables")
    return output


def value_of(variables: Json, name: str) -> Json:
    """The raw value of one variable of the engine; None if it is absent."""
    return items(items(variables).get(name)).get("value")


def items(value: Json) -> JsonObject:
    """The value as an object; an empty one if it is something else."""
    return value if isinstance(value, dict) else {}


def _typed(value: Json) -> JsonObject:
    if isinstance(value, dict | list):
        return {"value": json.dumps(value, ensure_ascii=False, separators=(",", ":")), "type": "Json"}
    if type(value) is int:
        return {"value": value, "type": "Integer" if abs(value) <= INTEGER_MAX else "Long"}
    return {"value": value, "type": _SCALARS[type(value)]}


def _plain(name: str, item: Json) -> Json:
    if not isinstance(item, dict):
        raise InputError("is not a variable with a value", where=f"variables.{name}")
    value, info = item.get("value"), items(item.get("valueInfo"))
    serialized = item.get("type") == "Object" and info.get("serializationDataFormat") == _JSON_FORMAT
    if (item.get("type") == "Json" or serialized) and isinstance(value, str):
        return bounded_json.parse(value.encode(), where=f"variables.{name}")
    return value
