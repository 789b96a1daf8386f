"""The common parts of the stand-ins' HTTP faces."""

from __future__ import annotations

import functools
import json
import ssl
from collections.abc import Awaitable, Callable

import httpx
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

JSON_TYPE = "application/json"
MAX_BODY = 1_000_000


@functools.cache
def _tls() -> ssl.SSLContext:
    return httpx.create_ssl_context()  # costs tens of milliseconds, so all clients share one


def http_client(seconds: float) -> httpx.AsyncClient:
    """The client for calls of a stand-in; the machine's proxy settings are not for loopback."""
    return httpx.AsyncClient(timeout=seconds, trust_env=False, verify=_tls())


class BadRequest(Exception):
    """A request to a control endpoint that cannot be used; the text says why."""


def is_json(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == JSON_TYPE


async def json_object(request: Request) -> dict[str, object]:
    """The body of a control request as a JSON object. Insisting on its content type keeps foreign web pages out."""
    if not is_json(request):
        raise BadRequest(f"Content-Type: {JSON_TYPE} is needed")
    body = await request.body()
    if len(body) > MAX_BODY:
        raise BadRequest(f"the body has {len(body)} bytes; {MAX_BODY} are the most")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadRequest("the body must be a JSON object")
    return value


def text_field(body: dict[str, object], name: str, default: str | None = None) -> str:
    value = body.get(name, default)
    if not isinstance(value, str):
        raise BadRequest(f"{name}: a string is needed")
    return value


def control(handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Answer a control endpoint's BadRequest with 400 and its reason."""

    async def guarded(request: Request) -> Response:
        try:
            return await handler(request)
        except BadRequest as error:
            return JSONResponse({"error": str(error)}, 400)

    return guarded
