"""The HTTP endpoint for Slack, with a guard in front of Bolt that stops unsigned, oversized and malformed requests.

Bolt parses a body before it verifies it, so unauthenticated requests could make it fail with 500. The guard checks the
raw bytes first. A request can still be replayed within the 300 seconds that Slack's scheme allows. This is harmless:
a vote that is already counted is not counted again, and a decided approval takes no votes.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import parse_qsl

from msgspec import Struct
from slack_bolt.adapter.starlette.async_handler import to_starlette_response
from slack_bolt.async_app import AsyncApp, AsyncBoltRequest
from slack_bolt.response import BoltResponse
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from core.bounded_json import parse_object
from core.canonical import JsonObject
from core.errors import InputError

# Slack sends the card or the modal back with each click: at most ECHO_BYTES_MAX (48 KiB) for ours. The entered values
# come on top: at most 64 KiB of an accepted form (VALUE_BYTES_MAX). Each byte of them becomes up to four bytes, because
# the JSON is form-encoded and escapes non-ASCII letters twice.
BODY_BYTES_MAX = 384 * 1024
CLOCK_SKEW_SECONDS_MAX = 300
# The types that we or Bolt itself answer. Bolt reads others by rules of its own before it finds that nobody handles
# them.
_ANSWERED = frozenset({"block_actions", "event_callback", "url_verification", "view_closed", "view_submission"})
_FORM = "application/x-www-form-urlencoded"
_JSON = "application/json"


class Refusal(Struct, frozen=True):
    """The HTTP answer to a refused request. ``detail`` never quotes the request."""

    status: int
    code: str
    detail: str


def check(headers: Mapping[str, str], body: bytes, *, secret: str, now: float) -> Refusal | None:
    """None if Slack signed exactly this body within 300 seconds of ``now`` (Unix) and it is well-formed.

    Names in ``headers`` may be in any case. See Slack's "Verifying requests from Slack", version v0.
    """
    if len(body) > BODY_BYTES_MAX:
        return Refusal(413, "too_large", f"at most {BODY_BYTES_MAX} bytes are accepted")
    lowered = {name.lower(): value for name, value in headers.items()}
    refusal = _unauthentic(lowered, body, secret, now)
    if refusal is not None:
        return refusal
    kind = lowered.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if kind == _FORM:
            payload = _form_payload(body)
        elif kind == _JSON:
            payload = parse_object(body, bytes_max=BODY_BYTES_MAX)
        else:
            return Refusal(415, "media_type", f"only {_FORM} and {_JSON} are accepted")
        _check_shape(payload)
    except InputError as error:
        return Refusal(400, "malformed", str(error))
    if payload["type"] not in _ANSWERED:
        return Refusal(404, "unhandled", "nothing here answers requests of this type")
    return None


def _unauthentic(headers: Mapping[str, str], body: bytes, secret: str, now: float) -> Refusal | None:
    timestamp = headers.get("x-slack-request-timestamp", "")
    signature = headers.get("x-slack-signature", "")
    if not secret:
        return Refusal(401, "signature", "no signing secret is configured, so nothing can be verified")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        return Refusal(401, "timestamp", "X-Slack-Request-Timestamp is missing or not a number")
    if abs(now - int(timestamp)) > CLOCK_SKEW_SECONDS_MAX:
        return Refusal(401, "timestamp", "the request is too old or from the future; check the clock of this machine")
    if not signature.isascii():
        return Refusal(401, "signature", "X-Slack-Signature is not valid")
    expected = hmac.new(secret.encode(), b"v0:" + timestamp.encode() + b":" + body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(f"v0={expected}", signature):
        return Refusal(401, "signature", "X-Slack-Signature does not match; check the signing secret of the Slack app")
    return None


def _form_payload(body: bytes) -> JsonObject:
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=16, errors="strict")
    except UnicodeDecodeError:
        raise InputError("is not UTF-8", where="body") from None
    except ValueError:
        raise InputError("has too many fields", where="body") from None
    payloads = [value for name, value in fields if name == "payload"]
    if len(payloads) != 1:
        raise InputError("has no single field named payload", where="body")
    return parse_object(payloads[0].encode(), bytes_max=BODY_BYTES_MAX, where="payload")


def _check_shape(payload: JsonObject) -> None:
    """Check the members that Bolt reads before it calls our handlers."""
    if not isinstance(payload.get("type"), str):
        raise InputError("is not a text", where="payload.type")
    for name in ("user", "team", "enterprise", "channel", "container", "message", "view", "event"):
        if not isinstance(payload.get(name), dict | None):
            raise InputError("is not an object", where=f"payload.{name}")
    for name in ("actions", "authorizations"):
        items = payload.get(name, [])
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise InputError("is not a list of objects", where=f"payload.{name}")
    if payload["type"] == "event_callback":
        event = payload.get("event")
        if not isinstance(event, dict) or not isinstance(event.get("type"), str):
            raise InputError("is not a text", where="payload.event.type")
    if payload["type"] == "block_actions" and not payload.get("actions"):
        raise InputError("is empty", where="payload.actions")


class SlackEndpoint:
    """Answers Slack's requests, each by ``await endpoint(request)``. ``now`` gives Unix seconds."""

    def __init__(self, bolt: AsyncApp, *, signing_secret: str, now: Callable[[], float]) -> None:
        self._bolt = bolt
        self._secret = signing_secret
        self._now = now

    async def answer(self, payload: JsonObject) -> BoltResponse:
        """Answer a request that Slack sent over a connection that we opened, which proves that it is Slack's."""
        try:
            _check_shape(payload)
        except InputError as error:
            return BoltResponse(status=400, body={"error": "malformed", "detail": str(error)})
        return await self._bolt.async_dispatch(AsyncBoltRequest(body=payload, mode="socket_mode"))

    async def __call__(self, request: Request) -> Response:
        """Answer one request. Never raises because of its content."""
        body = b""
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > BODY_BYTES_MAX:
                    break
        except ClientDisconnect:
            return Response(status_code=400)
        refusal = check(request.headers, body, secret=self._secret, now=self._now())
        if refusal is not None:
            content = {"type": "about:blank", "status": refusal.status, "code": refusal.code, "detail": refusal.detail}
            return JSONResponse(content, status_code=refusal.status, media_type="application/problem+json")
        headers: dict[str, str | Sequence[str]] = dict(request.headers.items())
        answer = await self._bolt.async_dispatch(AsyncBoltRequest(body=body.decode(), headers=headers))
        return to_starlette_response(answer)
