"""The clients of others that drive our MCP server, each as a program that takes orders.

A program is told the address and the token, and reads one order a line: ``{"do": "list"}`` or
``{"do": "call", "tool": …, "arguments": …, "seconds": …}``. It prints what its user would get, one line each.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

# The folder in which `make mcpclients` installs them.
FOLDER = Path(os.environ.get("COUNTERSEAL_MCP_CLIENTS", "build/mcp-clients"))

_PYTHON = """
import asyncio, json, sys
URL, TOKEN = sys.argv[1:3]
HEADERS = {"Authorization": f"Bearer {TOKEN}"}

def found(result):
    structured = getattr(result, "structured_content", None) or {}
    if not structured:
        structured = getattr(result, "structuredContent", None) or {}
    return {"failed": bool(result.is_error), "status": structured.get("status"), "id": structured.get("id")}

async def serve(listing, calling):
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        try:
            told = await (listing() if order["do"] == "list" else calling(order))
        except Exception as error:
            told = {"lost": f"{type(error).__name__}: {error}"}
        print(json.dumps(told), flush=True)
"""
_OFFICIAL = (
    _PYTHON
    + """
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

async def main():
    http = create_mcp_http_client(headers=HEADERS)
    async with Client(streamable_http_client(URL, http_client=http), mode=MODE) as client:
        async def listing():
            names, cursor = [], None
            while True:
                page = await client.list_tools(cursor=cursor)
                names += [one.name for one in page.tools]
                if (cursor := page.next_cursor) is None:
                    return {"tools": names, "version": client.session.protocol_version}
        async def calling(order):
            told = []
            async def progress(*news):
                told.append(news)
            seconds = order.get("seconds")
            result = await client.call_tool(order["tool"], order["arguments"], seconds, progress)
            return found(result) | {"progress": len(told)}
        await serve(listing, calling)

asyncio.run(main())
"""
)
_FAST = (
    _PYTHON
    + """
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp_tasks.client import call_tool_task

async def main():
    async with Client(StreamableHttpTransport(URL, headers=HEADERS)) as client:
        async def listing():
            names = [one.name for one in await client.list_tools()]
            return {"tools": names, "version": client.session.protocol_version}
        async def calling(order):
            if order.get("task"):
                task = await call_tool_task(client, order["tool"], order["arguments"])
                if order.get("cancel"):
                    await task.cancel()
                return {"id": task.task_id, "status": (await task.status()).status}
            result = await client.call_tool(
                order["tool"], order["arguments"], timeout=order.get("seconds"), raise_on_error=False)
            return found(result)
        await serve(listing, calling)

asyncio.run(main())
"""
)
_STRANDS = (
    _PYTHON
    + """
from datetime import timedelta
from strands.tools.mcp import MCPClient

async def main():
    config = {"poll_timeout": timedelta(seconds=60), "poll_interval": timedelta(seconds=1)}
    with MCPClient(url=URL, headers=HEADERS, tasks_config=config) as client:
        async def listing():
            return {"tools": [one.tool_name for one in client.list_tools_sync()], "version": ""}
        async def calling(order):
            seconds = order.get("seconds")
            result = await client.call_tool_async(
                "use-1", order["tool"], order["arguments"], timedelta(seconds=seconds) if seconds else None)
            structured = result.get("structuredContent") or {}
            if not structured:
                return {"lost": json.dumps(result["content"])}
            return {"failed": result["status"] != "success", "status": structured["status"], "id": structured["id"]}
        await serve(listing, calling)

asyncio.run(main())
"""
)
_TYPESCRIPT = """
import { createInterface } from 'node:readline';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const [url, token] = process.argv.slice(2);
const requestInit = { headers: { Authorization: `Bearer ${token}` } };
const client = new Client({ name: 'tests', version: '1.0.0' });
const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit });
await client.connect(transport);
for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  let told;
  try {
    if (order.do === 'list') {
      const tools = [];
      let cursor;
      do {
        const page = await client.listTools({ cursor });
        tools.push(...page.tools.map((one) => one.name));
        cursor = page.nextCursor;
      } while (cursor);
      told = { tools, version: transport.protocolVersion };
    } else {
      const timeout = order.seconds ? order.seconds * 1000 : undefined;
      const call = { name: order.tool, arguments: order.arguments };
      let progress = 0;
      const options = { timeout, onprogress: () => { progress += 1; } };
      const result = await client.callTool(call, undefined, options);
      const { status, id } = result.structuredContent ?? {};
      told = { failed: result.isError === true, status, id, progress };
    }
  } catch (error) {
    told = { lost: String(error) };
  }
  console.log(JSON.stringify(told));
}
await client.close();
"""

PROGRAMS: dict[str, tuple[str, str]] = {
    "official": ("official/bin/python", "MODE = 'auto'" + _OFFICIAL),
    "official, with a handshake": ("official/bin/python", "MODE = 'legacy'" + _OFFICIAL),
    "typescript": ("node", _TYPESCRIPT),
    "fastmcp": ("fast/bin/python", _FAST),
    "strands": ("strands/bin/python", _STRANDS),
}


class Driven:
    """A client that takes orders."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    def order(self, **order: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")

    async def told(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        assert line, "the client has ended"
        return dict(json.loads(line))

    async def does(self, **order: Any) -> dict[str, Any]:
        self.order(**order)
        return await self.told()


def is_installed(name: str) -> bool:
    return (FOLDER / PROGRAMS[name][0]).exists()


@asynccontextmanager
async def driven(name: str, url: str, token: str) -> AsyncIterator[Driven]:
    """A client of this name, connected with this token."""
    place, text = PROGRAMS[name]
    given = [str(FOLDER / place), "-c", text] if place != "node" else ["node", "--input-type=module", "-e", text, "-"]
    folder = FOLDER / place if place == "node" else None
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *given, f"{url}/mcp", token, stdin=pipe, stdout=pipe, cwd=folder, limit=2**24
    )
    try:
        yield Driven(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
