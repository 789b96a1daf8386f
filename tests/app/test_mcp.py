"""The MCP server, by raw messages: each call is one action, its client's words bind it more, and nothing is kept."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import httpx
import orjson
import pytest

from app.access import Role
from core.canonical import digest
from tests.support.app_stage import PEOPLE

AGENTS = PEOPLE.replace("groups:", "service_accounts: [{id: bot, owner: eve}, {id: other, owner: bob}]\ngroups:")
MODERN, HANDSHAKE = "2026-07-28", ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
TASKS = "io.modelcontextprotocol/tasks"
SAFE, DANGER, PERSON = "probe_effect_apply", "probe_danger_apply", "probe_danger_person"


class Client:
    """Sends messages of one revision. ``said`` goes into ``_meta`` of each."""

    def __init__(self, http: httpx.AsyncClient, version: str = MODERN, *, tasks: bool = False, **said: Any) -> None:
        self.http, self.version, self.said = http, version, said
        self.capabilities = {"extensions": {TASKS: {}}} if tasks else {}

    def message(self, method: str, **params: Any) -> tuple[dict[str, Any], dict[str, str]]:
        headers = {"MCP-Protocol-Version": self.version, "Accept": "application/json, text/event-stream"}
        meta = {f"counterseal/{name}": value for name, value in self.said.items()} | params.pop("_meta", {})
        if self.version == MODERN:
            meta["io.modelcontextprotocol/protocolVersion"] = self.version
            meta["io.modelcontextprotocol/clientCapabilities"] = self.capabilities
            headers["Mcp-Method"] = method
            if "name" in params:
                headers["Mcp-Name"] = params["name"]
        return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}, headers

    async def send(self, method: str, **params: Any) -> httpx.Response:
        body, headers = self.message(method, **params)
        return await self.http.post("/mcp", json=body, headers=headers, timeout=60)

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        answer = await self.send(method, **params)
        return dict(events(answer)[-1]["result"])

    async def call(self, tool: str, _meta: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
        return await self.ask("tools/call", name=tool, arguments=arguments, _meta=_meta or {})


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    if answer.headers["content-type"].startswith("application/json"):
        return [answer.json()]
    return [orjson.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]


@pytest.fixture
async def http(installation: Any) -> httpx.AsyncClient:
    await installation.people(AGENTS)
    made: httpx.AsyncClient = await installation.client(Role.AGENT, subject="bot")
    return made


async def test_smoke(installation: Any, http: httpx.AsyncClient) -> None:
    client = Client(http, wait=0)
    print(await client.ask("server/discover"))
    for t in (await client.ask("tools/list"))["tools"]: print(t)
    print(await client.call(SAFE, name="n1"))
    await installation.work()
    print(await client.call("counterseal_status"))
    waiting = asyncio.create_task(Client(http).call(SAFE, name="n2"))
    await asyncio.sleep(0.5)
    await installation.work()
    print(await waiting)
