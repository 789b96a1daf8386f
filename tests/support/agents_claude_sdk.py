"""An agent of the Claude Agent SDK: the real program that it starts, and a scripted model on this machine."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, create_sdk_mcp_server, query, tool

from counterseal_agents.claude_agent import governed
from tests.support.agents_stage import PAY, How

PAYING = "mcp__bank__pay"
SCHEMA = {"type": "object", "properties": {"amount": {"type": "integer"}, "to": {"type": "string"}}}


class Model(BaseHTTPRequestHandler):
    """A model that makes the calls of its turns, and then is done."""

    turns: list[list[tuple[str, dict[str, Any]]]]
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
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
        text = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


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


@contextmanager
def _model(turns: list[list[tuple[str, dict[str, Any]]]]) -> Iterator[str]:
    class Scripted(Model):
        pass

    Scripted.turns = turns
    server = ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()


def options(how: How, url: str) -> ClaudeAgentOptions:
    """The options, with another hook that changes arguments."""
    home = how.effects.parent

    @tool("pay", "Pay somebody.", SCHEMA)
    async def pay(given: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": await how.apay(given["amount"], given.get("to", "ana"))}]}

    async def change(given: Any, _use: Any, _context: Any) -> Any:
        changed = {"hookEventName": "PreToolUse", "permissionDecision": "allow", "updatedInput": how.change[1]}
        return {"hookSpecificOutput": changed}

    environment = {
        "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", "HOME": str(home), "CLAUDE_CONFIG_DIR": str(home / "c"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "IS_SANDBOX": "1",
    }  # fmt: skip
    if how.limit is not None:
        environment["MCP_TOOL_TIMEOUT"] = str(int(how.limit * 1000))
    made = ClaudeAgentOptions(
        mcp_servers={"bank": create_sdk_mcp_server("bank", tools=[pay])}, cwd=home, env=environment,
        permission_mode="bypassPermissions", setting_sources=[],
        hooks={"PreToolUse": [HookMatcher(hooks=[change])]} if how.change is not None else None,
    )  # fmt: skip
    return made if how.ungoverned else governed(made, how.gate())


def turn(how: How, calls: list[dict[str, Any]]) -> list[str]:
    """The words that the model was told about its calls."""
    return asyncio.run(aturn(how, calls))


async def aturn(how: How, calls: list[dict[str, Any]], name: str = PAYING) -> list[str]:
    """The same, in a loop. The SDK repeats nothing; the model does."""
    said = []
    with _model([[(name, one) for one in calls]] * (2 if how.retry else 1)) as url:
        async for message in query(prompt="pay", options=options(how, url)):
            content = getattr(message, "content", None)
            for block in content if isinstance(content, list) else []:
                if hasattr(block, "tool_use_id"):
                    inner = block.content
                    said.append(inner if isinstance(inner, str) else inner[0]["text"])
    return said


def pause(how: How, call: dict[str, Any]) -> None:
    """Call, and be told that it waits. It cannot pause: what waits is called again later."""
    assert "Call it again later" in turn(how, [call])[0]
    how.state.write_text(json.dumps(call), encoding="utf-8")


def edit(how: How, arguments: dict[str, Any]) -> None:
    """Change the call that is to be made again."""
    how.state.write_text(json.dumps(arguments), encoding="utf-8")


def resume(how: How, call: dict[str, Any]) -> list[str]:
    """Call again."""
    return turn(how, [json.loads(how.state.read_text(encoding="utf-8"))])


def hosted(how: How) -> None:
    """The program's search of the web is a tool that asks."""
    (said,) = asyncio.run(aturn(how, [{"query": "counterseal"}], "WebSearch"))
    assert "denied" in said


def two_lines(program: str, how: How) -> None:
    """Run the program of two lines."""
    how.ungoverned = True
    with _model([[(PAYING, PAY)]]) as url:
        room: dict[str, Any] = {"made": options(how, url)}
        exec(program, room)

        async def run() -> None:
            async for _ in query(prompt="pay", options=room["options"]):
                pass

        asyncio.run(run())
    assert how.ran[-1] == PAY


def added(how: How) -> str:
    """The words about a call of a tool of the program, which no server here has."""
    (said,) = asyncio.run(aturn(how, [{"command": f"touch {Path(how.effects)}"}], "Bash"))
    return said
