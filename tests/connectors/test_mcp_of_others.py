"""The package ``mcp`` as a server, in both eras: what our client says is what the others understand.

It stands in an interpreter of its own, which ``MCP_PYTHON`` names; without the package the test is skipped.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE

import pytest

from connectors.frozen import tool_of
from connectors.mcp.client import Server
from connectors.mcp.connector import McpConnector
from connectors.port import Call, Done, Refused
from tests.support.upstream_tools import frozen, performed

PYTHON = os.environ.get("MCP_PYTHON", sys.executable)
SERVER = """
import socket, sys
from typing import TypedDict
import uvicorn
from mcp.server.mcpserver import MCPServer

class Ticket(TypedDict):
    id: str

server, made = MCPServer("crm"), []

@server.tool(name="create-ticket", description="Create a ticket.")
def create(title: str) -> Ticket:
    made.append(title)
    if title == "bad":
        raise ValueError("no such queue")
    return {"id": f"T{len(made)}"}

@server.tool(description="Add another tool.")
def grow() -> str:
    server.add_tool(lambda: "x", name="more", description="More.")
    return "grown"

modern, as_json = sys.argv[1] == "modern", sys.argv[2] == "json"
app = server.streamable_http_app(json_response=as_json, stateless_http=False)

async def old(scope, receive, send):
    # A server of a revision before: it knows no header of 2026-07-28, and so no such request.
    named = [one for one in scope.get("headers", []) if one[0] == b"mcp-protocol-version"]
    if scope["type"] == "http" and not modern and named and named[0][1] == b"2026-07-28":
        await send({"type": "http.response.start", "status": 400, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        return
    await app(scope, receive, send)

bound = socket.socket()
bound.bind(("127.0.0.1", 0))
print(bound.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(old, log_level="error")).run(sockets=[bound])
"""


async def _has_package() -> bool:
    process = await asyncio.create_subprocess_exec(PYTHON, "-c", "import mcp.server.mcpserver", stderr=PIPE)
    await process.communicate()
    return process.returncode == 0


@pytest.mark.parametrize("how", ["json", "events"])
@pytest.mark.parametrize("era", ["modern", "handshake"])
async def test_the_server_of_the_package_is_spoken_to(era: str, how: str) -> None:
    if not await _has_package():
        pytest.skip("MCP_PYTHON names no interpreter with the package mcp")
    process = await asyncio.create_subprocess_exec(PYTHON, "-c", SERVER, era, how, stdout=PIPE)
    try:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{int(await process.stdout.readline())}/mcp"
        connector = McpConnector(Server("crm", url, allow_private=True))
        listed = await connector.listed()
        assert isinstance(listed, list), listed
        tools = {one.name: one for one in map(tool_of, listed)}
        create, grow = (frozen(tools[name].definition, url) for name in ("create-ticket", "grow"))
        outcome = await performed(connector, create)
        assert isinstance(outcome, Done), outcome
        assert (outcome.output["structured"], outcome.altered) == ({"id": "T1"}, {})
        failed = await performed(connector, create, title="bad")
        assert isinstance(failed, Refused)
        assert (failed.code, failed.sent) == ("tool_failed", True)
        grown = await connector.perform(Call(grow.name, {**grow.params}, "key", 20.0, declared=grow))
        assert isinstance(grown, Done), grown
        assert isinstance(await performed(connector, create), Done), "another tool is no change of this one"
        gone = frozen({**tools["create-ticket"].definition, "description": "Another."}, url)
        changed = await performed(connector, gone)
        assert isinstance(changed, Refused)
        assert changed.code == "tool_changed"
        await connector.aclose()
    finally:
        process.kill()
        await process.wait()
