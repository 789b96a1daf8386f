"""The Camunda 7 REST API over HTTP: answers read into JSON, or honest failures.

Errors: https://docs.camunda.org/manual/7.21/reference/rest/overview/#error-handling. Authentication:
https://docs.camunda.org/manual/7.21/reference/rest/overview/authentication/ (basic, or none at all). Operaton serves
the same under the same paths.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import httpx

from connectors.exchange import BODY_BYTES_MAX, Answer, Reply, exchange, http_url, tls
from connectors.port import Failure, InDoubt, NotSent, Refused
from core.bounded_json import parse
from core.canonical import Json, JsonObject
from core.errors import ConfigurationError, InputError

MESSAGE_LENGTH = 500
NOT_FOUND = "not_found"
_CODES = {400: "invalid", 401: "unauthorized", 403: "forbidden", 405: "not_allowed"}
# What the engine itself throws for what it does not have; a 404 without it comes from a wrong address or a proxy.
_ENGINE_ERRORS = frozenset({"RestException", "InvalidRequestException"})


@dataclass(frozen=True, slots=True)
class BpmnSettings:
    """How to reach one engine, and how its processes reach us.

    ``url`` is the REST API's root, such as ``https://bpm.example/engine-rest``. ``callback_url`` is Counterseal's own
    public root: with it, a process is told where it can report that it is through. ``topic`` is that of the external
    tasks by which a process reports instead, and ``worker_id`` is whom the engine locks them for: the same for every
    worker of an installation, so that any of them can acknowledge what another has fetched.
    ``transaction_limit_seconds``: before it has passed, a process that is not there may still be about to start.

    The engine's history level must be ``activity`` or more (its default is ``full``), or an ended process cannot be
    found again, and would be started twice after a crash.
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
        example = "https://bpm.example/engine-rest"
        url = http_url(settings.url, "the BPMN engine's address", "COUNTERSEAL_BPMN_URL", example)
        if (settings.username is None) != (settings.password is None):
            raise ConfigurationError(
                "the BPMN engine's user name and password belong together, and only one of them is set.",
                remedy="Set both COUNTERSEAL_BPMN_USERNAME and COUNTERSEAL_BPMN_PASSWORD, or neither.",
            )
        if settings.callback_url is not None:
            what = "the address for callbacks"
            http_url(settings.callback_url, what, "COUNTERSEAL_BPMN_CALLBACK_URL", "https://counterseal.example")
        has_user = settings.username is not None and settings.password is not None
        self._client = httpx.AsyncClient(
            base_url=url,
            verify=tls(),
            auth=httpx.BasicAuth(settings.username or "", settings.password or "") if has_user else None,
            headers={"Accept": "application/json"},
            limits=httpx.Limits(keepalive_expiry=5.0),
        )

    async def get(self, path: str, params: dict[str, str], *, timeout_seconds: float) -> Json | Refused | NotSent:
        """Read. What cannot be read now may be tried again."""
        request = self._client.build_request("GET", path, params=params)
        reply = await exchange(self._client, request, effect=False, timeout_seconds=timeout_seconds)
        body = _body(reply, BODY_BYTES_MAX)
        return NotSent(body.message) if isinstance(body, InDoubt) else body

    async def send(
        self,
        method: str,
        path: str,
        body: JsonObject | None,
        *,
        timeout_seconds: float,
        bytes_max: int = BODY_BYTES_MAX,
    ) -> Json | Failure:
        """Do something. None where the engine has nothing to say (204)."""
        request = self._client.build_request(method, path, json=body)
        reply = await exchange(
            self._client, request, effect=True, timeout_seconds=timeout_seconds, body_bytes_max=bytes_max
        )
        return _body(reply, bytes_max)

    async def aclose(self) -> None:
        """Release connections."""
        await self._client.aclose()


def _body(reply: Reply, bytes_max: int) -> Json | Failure:
    """The JSON of a 2xx answer; a 2xx that is not JSON (a log-in page) is in doubt."""
    if not isinstance(reply, Answer):
        return reply
    if not reply.ok:
        return _refusal(reply)
    if reply.truncated:
        return InDoubt(f"the BPMN engine's answer is longer than {bytes_max} bytes")
    if reply.status == httpx.codes.NO_CONTENT:
        return None
    try:
        return parse(reply.body, bytes_max=bytes_max, where="the BPMN engine's answer")
    except InputError as error:
        return InDoubt(str(error))


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
