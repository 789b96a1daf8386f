"""The Model Context Protocol over streamable HTTP: one message a request, nothing kept between two."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from app.http.dependencies import Agent, FacesDep
from app.http.middleware import parse_aside
from app.mcp import wire
from app.mcp.server import Held, Server
from core.canonical import JsonObject
from core.errors import AuthenticationError, AuthorizationError, InputError

PATH = "/mcp"
router = APIRouter(tags=["actions"])

# A client whose call is waited for hears of it so often: it, or a proxy, would take silence for a loss.
NEWS_SECONDS = 10.0
_EVENTS = "text/event-stream"
_STREAM_HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
# The body is described by the protocol, of which there are several revisions, and not by a schema of ours.
_MESSAGE: dict[str, Any] = {"schema": {"type": "object"}}
_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": {"application/json": _MESSAGE}}}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The answer, or news and then the answer",
        "content": {"application/json": _MESSAGE, _EVENTS: {}},
    },
    202: {"description": "A notification, which changes nothing"},
    **{
        status: {
            "description": "An error of the protocol, or a refusal before it",
            "content": {"application/json": _MESSAGE},
        }
        for status in (400, 404)
    },
}


@router.post(
    PATH, response_class=Response, summary="Ask by the Model Context Protocol", openapi_extra=_BODY, responses=_ANSWERS
)
async def mcp(request: Request, who: Agent, faces: FacesDep) -> Response:
    """Takes one JSON-RPC message of the Model Context Protocol: the operations are tools, and each call is an action.

    Errors of the protocol are JSON-RPC errors. What is refused before it is a problem, like anywhere else.
    """
    _check_origin(request)
    try:
        body = await parse_aside(await request.body())
    except InputError as error:  # an empty body, which nobody has checked before
        return _json(*_unreadable(error))
    headers: dict[str, list[str]] = defaultdict(list)
    for name, value in request.headers.items():
        headers[name].append(value)
    try:
        message = wire.read(body, headers)
    except wire.Refused as refused:
        return _json(wire.error(wire.id_of(body), refused), wire.status(refused, modern=True))
    if message.id is None:
        return Response(status_code=202)  # news of a client changes nothing
    server = Server(faces, who, request.state.prove)
    try:
        found = await server.answer(message)
        if isinstance(found, Held):
            if _EVENTS in request.headers.get("accept", ""):
                return StreamingResponse(_held(server, message, found), media_type=_EVENTS, headers=_STREAM_HEADERS)
            await server.wait(found)
            found = await server.settled(found)
    except wire.Refused as refused:
        return _json(wire.error(message.id, refused), wire.status(refused, modern=message.modern))
    return _json(wire.answer(message, found))


def _check_origin(request: Request) -> None:
    """Refuse a page of another site, as the protocol asks for. No page has an agent's token: this is a second wall."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise AuthorizationError("A page of another site may not send this.", remedy="Send no Origin.")


def _unreadable(error: InputError) -> tuple[JsonObject, int]:
    return wire.error(None, wire.Refused(wire.Code.PARSE, str(error))), 400


def _json(document: JsonObject, status: int = 200) -> Response:
    return Response(orjson.dumps(document), status, media_type="application/json")


async def _held(server: Server, message: wire.Message, held: Held) -> AsyncIterator[bytes]:
    """The answer as a stream: news that it is waited for, then the result. Closing it ends the waiting alone."""
    yield b": accepted\n\n"
    waiting = asyncio.create_task(server.wait(held))
    try:
        waited, done = 0.0, set[asyncio.Task[None]]()
        while not done:
            done, _ = await asyncio.wait({waiting}, timeout=NEWS_SECONDS)
            waited += NEWS_SECONDS
            if not done and message.progress is not None:
                words = "It is accepted, and waited for."
                yield _event(wire.progress(message.progress, waited, held.seconds, words))
            elif not done:
                yield b": waiting\n\n"
    finally:
        waiting.cancel()
    try:
        waiting.result()
        answer = wire.answer(message, await server.settled(held))
    except AuthenticationError as error:
        answer = wire.error(message.id, wire.Refused(wire.Code.INVALID_REQUEST, str(error)))
    yield _event(answer)


def _event(document: JsonObject) -> bytes:
    return b"event: message\ndata: " + orjson.dumps(document) + b"\n\n"


class Unreadable:
    """Middleware around the check of bodies: what is no JSON is answered in the words of the protocol."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Catches what is raised before there is a message."""
        try:
            await self._app(scope, receive, send)
        except InputError as error:
            if scope["path"] != PATH:
                raise
            await _json(*_unreadable(error))(scope, receive, send)
