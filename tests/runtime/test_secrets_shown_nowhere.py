"""A value that a connector knows to be secret is shown nowhere: every declaring place, and every place of showing."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
import structlog
from msgspec.structs import replace

from app.definitions import describe
from app.shown import approval_summary, attempted
from approvals.content import CardContent
from connectors.catalog import Source, load_catalog
from connectors.hosts import AllowedHost
from connectors.http.connector import HttpConnector, HttpSettings
from connectors.model.connector import ModelConnector, ModelSettings
from connectors.port import Connectors
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from evidence.verify import verify_bundle
from runtime.definition.catalog import Definitions
from runtime.keep.bundling import Bundling
from runtime.keep.dispatcher import Dispatcher
from runtime.requests.views import RunReader
from runtime.store import approvals, bundles, documents
from sandbox.model import Model
from sandbox.server import LoopbackServer
from tests.support.agents import call, calls, says

SECRET = "s3cr3t/Tok+en~of==ours"
HEADERS = {"Authorization": f"Bearer {SECRET}", "X-Trace": "fine-by-us-0001"}
FORMS = (
    SECRET,
    quote(SECRET, safe=""),
    base64.b64encode(SECRET.encode()).decode().rstrip("=")[:-1],
    SECRET.encode().hex(),
)

ASKS = """
policy: asks
version: 1
rules:
  - {id: model, match: {connector: model}, outcome: allow, because: It is a test.}
  - {id: probe, match: {connector: probe}, outcome: allow, because: It is a test.}
  - id: people
    match: {connector: http}
    outcome: needs_approval
    approvers: [{group: leads}]
    because: People look.
"""
DECLARED = """
operations:
  - name: shop.order.look
    connector: http
    handler: http:send
    params: {method: POST, headers: HEADERS}
    side_effects: external_call
    in_doubt: ask
    risk: low
    summary: "Look at {url} with {headers}"
    target: "{url}"
    input_schema: {type: object, required: [url], properties: {url: {type: string}}, additionalProperties: false}
    output_schema: {type: object}
""".replace("HEADERS", json.dumps(HEADERS))
HEAD = "workflow: w\nversion: 1\nreference: ${{ run.id }}\nretention: P30D\nchannels: {found: {}}\nsteps:\n"


class Echo:
    """Repeats in its answer everything that it was sent, in this form and with this status."""

    def __init__(self, port: int = 0) -> None:
        self.port, self.status, self.form, self.heard = port, 400, "plain", list[bytes]()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heard.append(head)
        text = head.decode()
        told = {"plain": text, "base64": base64.b64encode(f"xy{text}".encode()).decode(), "url": quote(text, safe="")}
        words = told.get(self.form) or f"{'x' * 280}{SECRET}"
        body = json.dumps({"sent": words, SECRET: [words]}).encode() if self.status == 200 else words.encode()
        about = f"HTTP/1.1 {self.status} X\r\nContent-Type: application/json\r\nETag: {SECRET}\r\nConnection: close\r\n"
        writer.write(f"{about}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        writer.close()


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    told = Echo()
    server = await asyncio.start_server(told, "127.0.0.1", 0)
    told.port = server.sockets[0].getsockname()[1]
    yield told
    server.close()


class World:
    """The runtime with the real connector ``http``, a model, and every place where anything is shown."""

    def __init__(self, runtime: Any, echo: Echo, model: Model, folder: Path) -> None:
        self.runtime, self.echo, self.model, self.folder = runtime, echo, model, folder
        self.url = f"http://127.0.0.1:{echo.port}/x"

    async def begin(self, where: str) -> UUID:
        """A run whose call has the secret from this place."""
        runtime, sends = self.runtime, {"method": "POST", "url": self.url, "headers": HEADERS}
        await runtime.tenant()
        await runtime.policy(ASKS)
        await runtime.person("lee", ("leads",))
        steps: list[Any]
        match where:
            case "params":
                steps = [
                    {"id": "a", "do": "shop.order.look", "with": {"url": self.url}, "set": {"found": "${{ output }}"}}
                ]
            case "workflow":
                steps = [{"id": "a", "do": "http.request.send", "with": sends, "set": {"found": "${{ output }}"}}]
            case "agent":
                self.model.turns = [calls(call("http_request_send", {"url": self.url})), says("Done.")]
                fixed = {"method": "POST", "headers": HEADERS}
                tools = [{"do": "http.request.send", "with": fixed}]
                said = {"model": "script-given", "instructions": "i", "input": "x", "tools": tools}
                steps = [{"id": "a", "agent": said, "set": {"found": "${{ output }}"}}]
            case _:
                steps = [{"id": "first", "wait": {"signal": "go", "correlate": "go"}}]
        comment = f"# it was {SECRET} once\n" if where in ("workflow", "agent") else ""
        await runtime.publish(comment + HEAD + "".join(f"  - {json.dumps(one)}\n" for one in steps))
        run: UUID = (await runtime.start("w")).run_id
        await runtime.worker().work_off()
        if where == "added":
            extra = {"id": "a", "needs": [], "do": "http.request.send", "with": sends}
            await runtime.extend(run, {"steps": [extra]})
            await runtime.worker().work_off()
        return run

    async def shown(self, run: UUID) -> dict[str, str]:
        """Everything that any face shows of the run, as text, by the place."""
        runtime, found = self.runtime, dict[str, str]()
        seen = await RunReader(runtime.faces, runtime.definitions).at("acme", run, range(100))
        names = ("steps", "extensions", "checkpoints", "channels", "agents")
        found |= {name: repr(getattr(seen, name)) for name in names}
        found["receipts"] = repr([{**row, "action": attempted(row)} for row in seen.receipts])
        found["audit"] = repr(await RunReader(runtime.faces, runtime.definitions).lines("acme", run))
        async with runtime.faces.transaction("acme") as connection:
            found["workflow"] = repr(await describe(connection, runtime.definitions, "acme", "w", None))
            for one in await runtime.books.approvals():
                row = await approvals.approval(connection, "acme", one.id)
                assert row is not None
                found["review"] = repr(approval_summary(row, whole=True))
                found["card"] = repr(CardContent.from_json(row["card"]).masked())
        return found

    async def bundle(self, run: UUID) -> bytes:
        signer = FileSigner.load_or_create(self.folder / "key.pem")
        bundling = Bundling(FileBlobStore(self.folder / "blobs"), signer, "test", self.runtime.definitions)
        await Dispatcher(self.runtime.database, bundling.handlers(), "d").work_off()
        async with self.runtime.database.transaction() as connection:
            assert await bundles.newest(connection, "acme", run), await bundles.failures(connection, "acme")
        [file] = (self.folder / "blobs").rglob("*.zip")
        key = self.folder / "public.pem"
        key.write_bytes(signer.public_key.pem)
        assert verify_bundle(file, public_key=key).ok
        return file.read_bytes()


@pytest.fixture
async def world(runtime: Any, echo: Echo, tmp_path: Path) -> AsyncIterator[World]:
    from tests.support.runtime_stage import OPERATIONS  # the operations of this room

    catalog = load_catalog([Source("probe.yaml", OPERATIONS), Source("shop.yaml", DECLARED)])
    http, model = HttpConnector(HttpSettings((AllowedHost("127.0.0.1", echo.port, allow_private=True),))), Model()
    async with LoopbackServer(model.app) as server:
        asked = ModelConnector(ModelSettings(f"{server.url}/v1", model.config.api_key))
        connectors = Connectors({"probe": runtime.outside, "http": http, "model": asked})
        runtime.catalog, runtime.definitions, runtime.connectors = catalog, Definitions(catalog), connectors
        yield World(runtime, echo, model, tmp_path)
        await asked.aclose()
    await http.aclose()


def leaks(text: str) -> list[str]:
    return [form for form in FORMS if form in text or form.lower() in text.lower()]


@pytest.mark.parametrize(
    ("status", "form"), [(400, "plain"), (400, "cut"), (200, "plain"), (200, "base64"), (500, "url")]
)
@pytest.mark.parametrize("where", ["params", "workflow", "agent", "added"])
async def test_a_secret_of_a_call_is_shown_nowhere(world: World, where: str, status: int, form: str) -> None:
    world.echo.status, world.echo.form = status, form
    with structlog.testing.capture_logs() as logged:
        run = await world.begin(where)
        asked = await world.shown(run)
        assert {"card", "review"} <= asked.keys()
        assert "[secret]" in asked["review"], "people see that there is one"
        assert (await world.runtime.vote("lee", "approve")).counted
        await world.runtime.worker().work_off()
    assert any(f"Bearer {SECRET}".encode() in one for one in world.echo.heard), "and yet it is sent"
    after = await world.shown(run)
    places = {**{f"before: {name}": text for name, text in asked.items()}, **after, "log": repr(logged)}
    assert {name: found for name, text in places.items() if (found := leaks(text))} == {}
    if status == 400 and where in ("params", "workflow"):
        packed = await world.bundle(run)
        assert leaks(packed.decode("latin-1")) == []


async def test_a_version_keeps_its_text_and_takes_no_other_secret(world: World) -> None:
    """The masked text commits to the secret: another one is another text, and needs another version."""
    runtime = world.runtime
    await world.begin("workflow")
    async with runtime.database.transaction() as connection:
        stored = await documents.workflow(connection, "acme", "w", 1)
    assert stored is not None
    assert SECRET in stored.source
    again = runtime.definitions.compiled(stored)
    other = runtime.definitions.compiled(replace(stored, digest="", source=stored.source.replace(SECRET, SECRET[::-1])))
    assert again.digest == stored.digest != other.digest
