"""Strict stand-ins of the outside systems on loopback, with faults that strike before (lost) or after (landed)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from connectors.catalog import Catalog, load_catalog
from connectors.exchange import tls
from connectors.port import Before
from tests.support.calls import Call
from tests.support.connectors_sql import database, declared, outside, sql
from tests.support.connectors_stage import KEY

__all__ = ["database", "declared", "outside", "sql"]

SYS_ID = "a" * 32


@dataclass
class Fault:
    """Strikes once. ``kind`` is a status, ``hang`` or ``reset``; ``landed`` lets the effect happen first."""

    path: str
    kind: int | str
    landed: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 1


class FaultyApp:
    """An application whose faults are declared by the test; counts the requests by path."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        self.connections: dict[Any, asyncio.Transport] = {}
        self.released = asyncio.Event()

    def fail(self, path: str, kind: int | str, *, landed: bool = False, times: int = 1, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.faults.append(Fault(path, kind, landed, named, times))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.requests.append((scope["method"], scope["path"]))
        fault = next((one for one in self.faults if one.times and re.search(one.path, scope["path"])), None)
        if fault is None:
            await self.app(scope, receive, send)
            return
        fault.times -= 1
        if fault.landed:
            await self.app(scope, receive, _discard)
        if fault.kind == "hang":
            await self.released.wait()
        elif fault.kind == "reset":
            self.connections[tuple(scope["client"])].abort()
            await self.released.wait()
        else:
            await Response("broken", int(fault.kind), fault.headers)(scope, receive, send)


async def _form(request: Request) -> dict[str, str]:
    return dict(parse_qsl((await request.body()).decode()))


async def _discard(message: Message) -> None:
    assert message["type"].startswith("http.response")


class QuietServer(uvicorn.Server):
    """Stops when it is told to, instead of looking every tenth of a second whether it should."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.stopped = asyncio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.stopped.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await asyncio.gather(*self.server_state.tasks)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def served(app: FaultyApp, *, dated: bool = True, **tls: str) -> AsyncIterator[str]:
    """Serve ``app`` on a free port; the URL. ``dated``: answers bear the time of now."""

    class Protocol(HttpToolsProtocol):
        def connection_made(self, transport: Any) -> None:
            app.connections[tuple(transport.get_extra_info("peername"))] = transport
            super().connection_made(transport)

    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # TCP: asyncio sets no delay
    listener.bind(("127.0.0.1", 0))
    plain: dict[str, Any] = {"ws": "none", "lifespan": "off", "log_config": None, "date_header": dated}
    config = uvicorn.Config(app, http=Protocol, **plain, **tls)
    server = QuietServer(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.wait({task}, timeout=0.001)
        assert not task.done()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        app.released.set()
        server.stopped.set()
        await task
        listener.close()


class FakeServiceNow:
    """The Table API for one user, with journals, ``sys_mod_count``, business rules and OAuth."""

    USER = "svc.counterseal"

    def __init__(self) -> None:
        record = {
            "sys_id": SYS_ID,
            "number": "INC0010001",
            "priority": "3",
            "urgency": "3",
            "state": "1",
            "work_notes": "",
        }
        record |= {"short_description": "VPN down", "sys_mod_count": "4", "sys_updated_by": "ana.lee"}
        self.record = record | {"sys_updated_on": "2026-01-02 03:04:05"}
        self.journal: list[dict[str, str]] = []
        self.business_rule: dict[str, str] = {}
        self.hide_journal = False
        self.tokens: set[str] = set()
        self.tokens_issued = 0
        self.url = ""
        routes = [
            Route("/oauth_token.do", self.token, methods=["POST"]),
            Route("/api/now/table/{table}", self.rows, methods=["GET"]),
            Route("/api/now/table/{table}/{sys_id}", self.one, methods=["GET", "PATCH"]),
        ]
        self.app = FaultyApp(Starlette(routes=routes))

    def touched_by(self, user: str, **fields: str) -> None:
        changed = fields | {"sys_updated_by": user, "sys_mod_count": str(int(self.record["sys_mod_count"]) + 1)}
        self.record |= changed

    async def token(self, request: Request) -> Response:
        form = await _form(request)
        if form.get("client_id") != "cid" or form.get("client_secret") != "secret":
            return JSONResponse({"error": "access_denied"}, 401)
        assert form.get("grant_type") == "client_credentials"
        self.tokens_issued += 1
        token = f"token-{self.tokens_issued}"
        self.tokens.add(token)
        return JSONResponse({"access_token": token, "expires_in": 1799, "token_type": "Bearer"})

    def refuse(self, request: Request) -> Response | None:
        assert request.headers["accept"] == "application/json"
        kind, _, value = request.headers.get("authorization", "").partition(" ")
        allowed = {("Basic", "c3ZjLmNvdW50ZXJzZWFsOnB3"), *(("Bearer", token) for token in self.tokens)}
        return (
            None if (kind, value) in allowed else _sn_error(401, "User Not Authenticated", "Required to provide Auth")
        )

    async def rows(self, request: Request) -> Response:
        refusal = self.refuse(request)
        if refusal:
            return refusal
        query = request.query_params.get("sysparm_query", "")
        if request.path_params["table"] == "sys_journal_field":
            wanted = query.partition("valueLIKE")[2]
            assert wanted
            found = [entry for entry in self.journal if wanted in entry["value"] and not self.hide_journal]
            return JSONResponse({"result": found})
        limit = int(request.query_params.get("sysparm_limit", "10000"))
        terms = [term.split("=", 1) for term in query.split("^") if term and not term.startswith("ORDERBY")]
        match = all(self.record.get(name) == value for name, value in terms)
        offset = int(request.query_params.get("sysparm_offset", "0"))
        return JSONResponse({"result": [self.record][offset : offset + limit] if match else []})

    async def one(self, request: Request) -> Response:
        refusal = self.refuse(request)
        if refusal:
            return refusal
        if request.path_params["table"] == "sys_user":
            return _sn_error(403, "Insufficient rights", "ACL Exception")
        if request.path_params["sys_id"] != self.record["sys_id"]:
            return _sn_error(404, "No Record found", "Record doesn't exist or ACL restricts the record retrieval")
        if request.method == "PATCH":
            assert request.headers["content-type"].startswith("application/json")
            body = await request.json()
            if "invalid" in body.values():
                return _sn_error(400, "Invalid value", "priority")
            self.write(body)
        names = [name for name in request.query_params.get("sysparm_fields", "").split(",") if name]
        result = {name: value for name, value in self.record.items() if not names or name in names}
        return JSONResponse({"result": result})

    def write(self, body: dict[str, str]) -> None:
        fields = {name: value for name, value in body.items() if name not in {"work_notes", "comments"}}
        for element in ("work_notes", "comments"):
            if element in body:
                self.journal.append({"element_id": SYS_ID, "element": element, "value": body[element]})
        effective = fields | self.business_rule
        if any(self.record.get(name) != value for name, value in effective.items()) or len(fields) < len(body):
            self.touched_by(self.USER, **effective)


def _sn_error(status: int, message: str, detail: str) -> Response:
    return JSONResponse({"error": {"message": message, "detail": detail}, "status": "failure"}, status)


class FakeSlack:
    """Slack's chat.postMessage, conversations.history and replies, auth.test; no idempotency, as in reality."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.page_size = 200
        self.error: str | None = None
        self.url = ""
        self.app = FaultyApp(Starlette(routes=[Route("/api/{method}", self.call, methods=["GET", "POST"])]))

    async def call(self, request: Request) -> Response:
        if request.headers.get("authorization") != "Bearer xoxb-test":
            return JSONResponse({"ok": False, "error": "invalid_auth"})
        values: dict[str, Any] = dict(request.query_params)
        if request.headers.get("content-type", "").startswith("application/json"):
            values |= await request.json()
        else:
            values |= await _form(request)
        method = request.path_params["method"]
        if self.error:
            return JSONResponse({"ok": False, "error": self.error, "response_metadata": {"messages": ["[ERROR] x"]}})
        if method == "auth.test":
            return JSONResponse({"ok": True, "user": "counterseal", "team": "Acme"})
        if values.get("channel") != "C0OPS":
            return JSONResponse({"ok": False, "error": "channel_not_found"})
        if method == "chat.postMessage":
            return JSONResponse(self.post(values))
        assert str(values.get("include_all_metadata")) in {"1", "True", "true"}
        thread = values.get("ts")
        found = [one for one in self.messages if one.get("thread_ts") == thread]
        return JSONResponse(self.page(found if thread else found[::-1], int(values.get("cursor") or 0)))

    def post(self, values: dict[str, Any], ts: str | None = None) -> dict[str, Any]:
        ts = ts or f"99999999{len(self.messages):02}.000100"
        kept: dict[str, Any] = {
            name: values[name] for name in ("text", "metadata", "thread_ts", "blocks") if name in values
        }
        self.messages.append({"ts": ts, **kept})
        return {"ok": True, "channel": "C0OPS", "ts": ts}

    def page(self, found: list[dict[str, Any]], start: int) -> dict[str, Any]:
        end = start + self.page_size
        cursor = str(end) if end < len(found) else ""
        return {"ok": True, "messages": found[start:end], "response_metadata": {"next_cursor": cursor}}


class FakeWeb:
    """Any HTTP service: keeps what it received."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.url = ""
        routes = [
            Route("/things", self.thing, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
            Route("/away", self.away, methods=["GET", "POST"]),
            Route("/large", self.large),
            Route("/missing", self.missing, methods=["GET", "POST"]),
        ]
        self.app = FaultyApp(Starlette(routes=routes))

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    async def thing(self, request: Request) -> Response:
        body = (await request.body()).decode()
        self.received.append({"method": request.method, "headers": dict(request.headers), "body": body})
        return JSONResponse({"n": len(self.received)}, 201 if request.method == "POST" else 200, {"Set-Cookie": "a=b"})

    async def away(self, request: Request) -> Response:
        return RedirectResponse("/things", 307)

    async def large(self, request: Request) -> Response:
        return Response("x" * 5000, media_type="application/json")

    async def missing(self, request: Request) -> Response:
        return Response("no such thing", 404)


class FakeModel:
    """An OpenAI-compatible API that answers what the test says."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.text: str | None = "hello"
        self.answers_as: str | None = None
        self.message: dict[str, Any] = {}
        self.finish: Any = "stop"
        self.usage: dict[str, Any] = {"prompt_tokens": 1000, "completion_tokens": 100}
        self.url = ""
        routes = [Route("/v1/chat/completions", self.complete, methods=["POST"]), Route("/v1/models", self.models)]
        self.app = FaultyApp(Starlette(routes=routes))

    async def models(self, request: Request) -> Response:
        return JSONResponse({"data": []})

    async def complete(self, request: Request) -> Response:
        if request.headers.get("authorization") != "Bearer sk-test":
            return JSONResponse({"error": {"message": "Incorrect API key provided"}}, 401)
        body = await request.json()
        self.received.append(body)
        message = {"role": "assistant", "content": self.text} | self.message
        choice = {"index": 0, "finish_reason": self.finish, "message": message}
        return JSONResponse(
            {"id": "chatcmpl-1", "model": self.answers_as or body["model"], "choices": [choice], "usage": self.usage}
        )


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture
async def servicenow() -> AsyncIterator[FakeServiceNow]:
    fake = FakeServiceNow()
    async with served(fake.app) as fake.url:
        yield fake


@pytest.fixture
async def slack() -> AsyncIterator[FakeSlack]:
    fake = FakeSlack()
    async with served(fake.app) as fake.url:
        yield fake


@pytest.fixture
async def web() -> AsyncIterator[FakeWeb]:
    fake = FakeWeb()
    async with served(fake.app) as fake.url:
        yield fake


@pytest.fixture
async def secure_web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeWeb]:
    """The same over TLS, with a certificate for ``pinned.example`` alone, from an authority that clients trust."""
    fake = FakeWeb()
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pinned.example")])
    start = datetime(2020, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(start).not_valid_after(start + timedelta(days=36500))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("pinned.example")]), critical=False)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    certificate = tmp_path / "certificate.pem"
    certificate.write_bytes(pem + secret)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    tls.cache_clear()
    async with served(fake.app, ssl_certfile=str(certificate)) as fake.url:
        yield fake
    tls.cache_clear()


@pytest.fixture
async def model_api() -> AsyncIterator[FakeModel]:
    fake = FakeModel()
    async with served(fake.app) as fake.url:
        yield fake


class Wire:
    """Answers in turn what it is told to, and keeps each request whole: its method, path, query, headers and body."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.answers: list[Response] = []
        self.url = ""
        self.app = FaultyApp(self._answer)

    def say(self, *bodies: Any, status: int = 200, **headers: str) -> None:
        """Answer the next requests by these, one each."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers += [JSONResponse(body, status, named) for body in bodies]

    def lines(self) -> list[Any]:
        """Each request as its method, path, query and body; the headers are in ``heard``."""
        return [(one["method"], one["path"], one["query"], one["body"]) for one in self.heard]

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        sent = (await request.body()).decode()
        body = json.loads(sent) if sent.startswith(("{", "[")) else sent
        about = {"method": request.method, "path": request.url.path, "query": dict(request.query_params)}
        self.heard.append({**about, "headers": dict(request.headers), "body": body})
        await self.answers.pop(0)(scope, receive, send)


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    told = Wire()
    async with served(told.app, dated=False) as told.url:
        yield told
    assert told.answers == []


@pytest.fixture
def closed_url() -> Iterator[str]:
    """An address where nothing listens: the port is bound, so that nobody else takes it, and refuses connections."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{holder.getsockname()[1]}"


@pytest.fixture
def make_call() -> Callable[..., Call]:
    def make(operation: str, values: dict[str, Any], before: Before | None = None, timeout: float = 5.0) -> Call:
        return Call(operation, values, KEY, timeout, before)

    return make


@pytest.fixture
async def closing() -> AsyncIterator[Callable[[Any], Any]]:
    """Close what a test builds, at its end."""
    built: list[Any] = []

    def keep(connector: Any) -> Any:
        built.append(connector)
        return connector

    yield keep
    for connector in built:
        closed: Awaitable[None] = connector.aclose()
        await closed
