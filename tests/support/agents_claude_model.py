"""A scripted model of Claude on this machine, with an MCP server whose tool the SDK's program calls itself."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.agents_stage import Broken, How

SCHEMA = {"type": "object", "properties": {"amount": {"type": "integer"}, "to": {"type": "string"}}}
SHOP = "/shop"


class Model(BaseHTTPRequestHandler):
    """A model that makes the calls of its turns, and then is done. The MCP server has a path of its own."""

    turns: list[list[tuple[str, dict[str, Any]]]]
    how: How
    together: bool
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""

    def do_GET(self) -> None:
        """Nothing comes by itself."""
        self._send(405, b"", "text/plain")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != SHOP:
            self._send(200, self._turn(body), "text/event-stream")
        elif "id" not in body:
            self._send(202, b"", "application/json")
        else:
            answer = {"jsonrpc": "2.0", "id": body["id"], "result": self._shop(body)}
            self._send(200, json.dumps(answer).encode(), "application/json")

    def _shop(self, body: dict[str, Any]) -> dict[str, Any]:
        """The answer of the MCP server."""
        if body["method"] == "tools/list":
            pay = {"name": "pay", "description": "Pay somebody.", "inputSchema": SCHEMA}
            return {"tools": [{**pay, "annotations": {"readOnlyHint": self.together}}]}
        if body["method"] == "tools/call":
            try:
                text, failed = asyncio.run(self.how.apay(**body["params"]["arguments"])), False
            except Broken as error:
                text, failed = str(error), True
            return {"content": [{"type": "text", "text": text}], "isError": failed}
        own = {"capabilities": {"tools": {}}, "serverInfo": {"name": "shop", "version": "1"}}
        return {"protocolVersion": body["params"]["protocolVersion"], **own} if body["method"] == "initialize" else {}

    def _turn(self, body: dict[str, Any]) -> bytes:
        """The model's next turn, bit by bit."""
        blocks: list[Any] = [block for one in body.get("messages", []) for block in _blocks(one)]
        done = sum(block.get("type") == "tool_result" for block in blocks)
        turns = [calls for n, calls in enumerate(self.turns) if sum(map(len, self.turns[:n])) == done]
        calls = turns[0] if turns and body.get("tools") else []
        events: list[dict[str, Any]] = [{"type": "message_start", "message": {**_MESSAGE, "model": body.get("model")}}]
        for n, (name, given) in enumerate(calls):
            block = {"type": "tool_use", "id": f"toolu_{done}_{n}", "name": name, "input": {}}
            events += _block(n, block, {"type": "input_json_delta", "partial_json": json.dumps(given)})
        if not calls:
            events += _block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "done"})
        stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
        events += [{"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}}, {"type": "message_stop"}]
        return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events).encode()

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


_MESSAGE: dict[str, Any] = {
    "id": "msg_1", "type": "message", "role": "assistant", "content": [], "stop_reason": None, "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}  # fmt: skip


def _block(n: int, block: dict[str, Any], delta: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": n, "content_block": block},
        {"type": "content_block_delta", "index": n, "delta": delta}, {"type": "content_block_stop", "index": n},
    ]  # fmt: skip


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """Its client is killed here, and goes away in the middle of an answer."""


@contextmanager
def serving(how: How, turns: list[list[tuple[str, dict[str, Any]]]], *, together: bool = False) -> Iterator[str]:
    """The model with these turns. ``together``: the tool says that it only reads, so that equal calls run together."""

    class Scripted(Model):
        pass

    Scripted.how, Scripted.turns, Scripted.together = how, turns, together
    with _Server(("127.0.0.1", 0), Scripted) as server:
        server.daemon_threads, server.block_on_close = True, False
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
