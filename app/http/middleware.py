"""Middleware in front of every route: metrics and the last exception handler, bearer tokens, body limits. Pure ASGI.

A new route needs a token and has a body limit by default. Only ``OPEN`` needs none, and only ``SIGNED`` paths
authenticate by signature instead of a token.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access import principal_of
from app.http import problems
from app.metrics import NOBODY, Metrics
from core import bounded_json, tracing
from core.canonical import Json
from core.db import Database
from core.errors import AuthenticationError, CountersealError

# Close the connection after these answers, which uvicorn would not do: the client may still be sending.
CLOSING = frozenset({408, 413, 431})
OPEN = frozenset({"/healthz"})
SIGNED = ("/slack/events", "/webhooks/")
_LARGEST = "request_bytes"
# The most bytes that are parsed without a thread.
LIGHT_BYTES = 16 * 1024


class Observe:
    """The outermost middleware: counts and times requests, and answers any exception that nobody else handled."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Never lets an exception out."""
        if scope["type"] != "http":
            return
        started = time.perf_counter()
        status = 0
        if tracing.watchers:
            named = [value for name, value in scope["headers"] if name == b"traceparent"]
            tracing.INBOUND.set(tracing.Inbound(time.time_ns(), named[0].decode("latin-1") if len(named) == 1 else ""))

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                route = getattr(scope.get("route"), "path", "none")
                principal = scope.get("state", {}).get("principal")
                counters = self._metrics.of(NOBODY if principal is None else principal.tenant)
                counters.request(scope["method"], route, status, time.perf_counter() - started)
                if status in CLOSING:
                    message["headers"] = [*message.get("headers", []), (b"connection", b"close")]
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except ClientDisconnect:
            return
        except CountersealError as error:
            if not status:
                await problems.of_error(error)(scope, receive, sending)
        except Exception as error:
            answer = problems.of_unexpected(error)
            if not status:
                await answer(scope, receive, sending)


class Bearer:
    """Requires a valid token, except on open and signed paths, before anything of the body is read."""

    def __init__(self, app: ASGIApp, database: Database) -> None:
        self._app = app
        self._database = database

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Puts the ``Principal`` into the request's state."""
        if scope["path"] not in OPEN and not scope["path"].startswith(SIGNED):
            values = [value for name, value in scope["headers"] if name == b"authorization"]
            kind, _, token = values[0].decode("latin-1").partition(" ") if len(values) == 1 else ("", "", "")
            if kind.lower() != "bearer" or not token:
                remedy = "Send `Authorization: Bearer …`; `counterseal token create` makes one."
                raise AuthenticationError("A bearer token is needed.", remedy=remedy)
            state = scope.setdefault("state", {})
            state["prove"] = partial(principal_of, self._database, token.strip())
            state["principal"] = await state["prove"]()
            state["proved"] = True
            structlog.contextvars.bind_contextvars(tenant=state["principal"].tenant)
        await self._app(scope, receive, send)


class Bounded:
    """Limits bodies, except on signed paths, to 256 KiB of JSON, and checks their depth before they are parsed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reads the body, checks it, and hands it on."""
        request = Request(scope, receive)
        names = {name for name, _ in scope["headers"]}
        if scope["path"].startswith(SIGNED) or not names & {b"content-length", b"transfer-encoding"}:
            await self._app(scope, receive, send)
            return
        try:
            body = await read_body(request)
            if body and request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                raise HTTPException(415, "Only application/json is accepted.")
        except HTTPException as error:
            too_large = error.status_code == 413
            more: dict[str, Any] = {"limit": _LARGEST} if too_large else {}
            scope.setdefault("state", {}).update(more)  # for the line of the audit
            code = "too_large" if too_large else "media_type"
            await problems.problem(error.status_code, code, error.detail, **more)(scope, receive, send)
            return
        if body:
            await parse_aside(body)
        messages = iter(({"type": "http.request", "body": body, "more_body": False},))

        async def replayed() -> Message:
            return next(messages, None) or await receive()

        await self._app(scope, replayed, send)


async def parse_aside(data: bytes) -> Json:
    """Parse a body as ``bounded_json.parse`` does; a long body in a thread, so that it does not block the loop."""
    if len(data) <= LIGHT_BYTES:
        return bounded_json.parse(data)
    return await asyncio.to_thread(bounded_json.parse, data)


async def read_body(request: Request) -> bytes:
    """The whole body; ``HTTPException`` 413 if it is larger than 256 KiB. The connection watches the time."""
    too_large = HTTPException(413, f"At most {bounded_json.BODY_BYTES_MAX} bytes are accepted.")
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced[:12]) > bounded_json.BODY_BYTES_MAX:
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > bounded_json.BODY_BYTES_MAX:
            raise too_large
    return bytes(body)
