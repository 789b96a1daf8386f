"""A stand-in for an MCP server over streamable HTTP, of either era: strict about what it is sent, and nasty on demand.

``tools`` is what it lists, and ``calls`` is what it has really done. A fault of ``faults`` hits the next request of a
method: ``tools/list`` or ``tools/call``. ``after_list`` runs between the list and the call. With ``landed`` the tool
has done its work before the fault.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from sandbox.server import RESET_EXTENSION

MODERN: Final = "2026-07-28"
_META: Final = "io.modelcontextprotocol/"
TOOL: Final[Mapping[str, Any]] = {
    "name": "create-ticket",
    "description": "Create a ticket.",
    "inputSchema": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]},
    "outputSchema": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
    "annotations": {"readOnlyHint": True},
}


@dataclass
class Fault:
    """One fault: hang, reset, half (a cut stream), html, empty, other_id, asks, error, result or status."""

    kind: str
    status: int = 200
    landed: bool = True
    result: Any = None
    error: Any = None


@dataclass
class Mcp:
    """The server. ``modern`` chooses its revision, ``events`` how it answers, ``page`` how many tools a page has."""

    authorization: str = "mcp-sandbox"
    port: int = 0
    modern: bool = True
    events: bool = False
    stays_open: bool = False
    page: int = 50
    url: str = ""
    tools: list[Any] = field(default_factory=lambda: [dict(TOOL)])
    calls: list[dict[str, Any]] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    faults: dict[str, Fault] = field(default_factory=dict)
    after_list: Callable[[], None] = lambda: None
    cursor: Callable[[int], str] = str
    sessions: set[str] = field(default_factory=set)
    odd: str = ""  # stands behind the name of each session
    called: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def app(self) -> Starlette:
        """Its one endpoint; and one by which its first tool is described otherwise."""
        routes = [Route("/mcp", self._answer, methods=["POST", "DELETE"])]
        return Starlette(routes=[*routes, Route("/_sandbox/tools", self._changed, methods=["GET", "POST"])])

    @property
    def endpoint(self) -> str:
        """The address that its clients are told."""
        return f"{self.url}/mcp"

    async def close(self) -> None:
        """Release the requests that hang."""
        self.released.set()

    async def _changed(self, request: Request) -> Response:
        if request.method == "POST":
            self.tools[0].update(json.loads(await request.body()))
        return JSONResponse({"tools": self.tools, "calls": self.calls})

    async def _answer(self, request: Request) -> Response:
        if request.headers.get("authorization") != self.authorization:
            return JSONResponse({"error": f"not {request.headers.get('authorization')}"}, 401)
        if request.method == "DELETE":
            self.sessions.discard(request.headers.get("mcp-session-id", ""))
            return Response(status_code=204)
        message = json.loads(await request.body())
        method, params = message["method"], message.get("params", {})
        self.seen.append(method)
        if wrong := self._wrong(request, method, params):
            return _error(message, -32600, wrong, 400)
        if method == "initialize":
            session = f"session-{len(self.seen)}{self.odd}"
            self.sessions.add(session)
            made = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s"}}
            return JSONResponse(_of(message, made), headers={"Mcp-Session-Id": session})
        if method == "notifications/initialized":
            return Response(status_code=202)
        if method == "server/discover":
            return JSONResponse(_of(message, {"supportedVersions": [MODERN], "resultType": "complete"}))
        fault = self.faults.pop(method, None)
        if method == "tools/list":
            result = self._listed(params)
        elif method == "tools/call":
            result = self._done(params) if fault is None or fault.landed else {}
        else:
            return _error(message, -32601, f"no {method}", 404 if self.modern else 200)
        if fault is not None:
            return await self._broken(request, message, fault, result)
        return self._said(_of(message, {**result, "resultType": "complete"} if self.modern else result))

    def _wrong(self, request: Request, method: str, params: dict[str, Any]) -> str:
        """Say what the revision forbids in a request."""
        accepted = request.headers.get("accept", "")
        if "application/json" not in accepted or "text/event-stream" not in accepted:
            return "both kinds of answer have to be accepted"
        version, session = request.headers.get("mcp-protocol-version"), request.headers.get("mcp-session-id")
        if self.modern:
            meta = params.get("_meta", {})
            if (meta.get(f"{_META}protocolVersion"), version) != (MODERN, MODERN):
                return "the envelope and the header name 2026-07-28"
            if request.headers.get("mcp-method") != method or f"{_META}clientCapabilities" not in meta:
                return "the method stands in a header, and the abilities in the envelope"
            named = request.headers.get("mcp-name") == params.get("name")
            return "" if method != "tools/call" or named else "the name of the tool stands in a header"
        if method == "initialize":
            return "" if version is None else "a handshake has no revision yet"
        return "" if session in self.sessions and version == "2025-11-25" else "no session"

    def _listed(self, params: dict[str, Any]) -> dict[str, Any]:
        at = int(str(params.get("cursor", "0")).rpartition("-")[2])
        found = {"tools": self.tools[at : at + self.page]}
        more = at + self.page < len(self.tools)
        if not more:
            self.after_list()
        return {**found, "nextCursor": self.cursor(at + self.page)} if more else found

    def _done(self, params: dict[str, Any]) -> dict[str, Any]:
        self.calls.append({"name": params["name"], "arguments": params["arguments"]})
        number = f"T{len(self.calls)}"
        content = [{"type": "text", "text": f"Ticket {number}"}]
        return {"content": content, "structuredContent": {"id": number}, "isError": False}

    def _said(self, message: dict[str, Any]) -> Response:
        if not self.events:
            return JSONResponse(message)

        async def events() -> Any:
            yield ": ping\n\n"
            notification = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}
            yield f"event: message\r\ndata: {json.dumps(notification)}\r\n\r"
            yield f"\nid: 7\ndata: {json.dumps(message)}\n\n"
            if self.stays_open:
                await self.released.wait()

        return StreamingResponse(events(), media_type="text/event-stream")

    async def _broken(
        self, request: Request, message: dict[str, Any], fault: Fault, result: dict[str, Any]
    ) -> Response:
        self.called.set()
        headers = " ".join(request.headers.values())
        match fault.kind:
            case "hang":
                await self.released.wait()
            case "reset":
                request.scope["extensions"][RESET_EXTENSION]["reset"]()
            case "half":
                return Response(b'data: {"jsonrpc": "2.0", "id', media_type="text/event-stream")
            case "html":
                return Response(f"<h1>Log in</h1>{headers}", fault.status, media_type="text/html")
            case "empty":
                return Response(status_code=202)
            case "other_id":
                return JSONResponse(_of({"id": 99_999}, result))
            case "asks":
                asked = {"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {}}
                return Response(f"data: {json.dumps(asked)}\n\n", media_type="text/event-stream")
            case "error":
                return _error(message, fault.error, f"you sent {headers}", fault.status)
            case "result":
                return self._said(_of(message, json.loads(json.dumps(fault.result).replace("TOLD", headers))))
        return JSONResponse({"error": f"you sent {headers}"}, fault.status, headers={"Location": "/else"})


def _of(message: Mapping[str, Any], result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def _error(message: Mapping[str, Any], code: int, words: str, status: int) -> Response:
    document = {"jsonrpc": "2.0", "id": message.get("id"), "error": {"code": code, "message": words}}
    return JSONResponse(document, status)
