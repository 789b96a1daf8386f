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
    return httpx.create_ssl_context()  # takes tens of milliseconds, so all clients share one


def http_client(seconds: float) -> httpx.AsyncClient:
    """The client for a stand-in's calls. It ignores the machine's proxy settings, which are not for loopback."""
    return httpx.AsyncClient(timeout=seconds, trust_env=False, verify=_tls())


class BadRequest(Exception):
    """An unusable request to a control endpoint; the text says why."""


def is_json(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == JSON_TYPE


async def json_object(request: Request) -> dict[str, object]:
    """The body of a control request as a JSON object. The required content type keeps foreign web pages out."""
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
    """Wrap a control endpoint's handler: answer BadRequest with 400 and its reason."""

    async def guarded(request: Request) -> Response:
        try:
            return await handler(request)
        except BadRequest as error:
            return JSONResponse({"error": str(error)}, 400)

    return guarded
