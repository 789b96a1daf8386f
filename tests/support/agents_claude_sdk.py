"""An agent of the Claude Agent SDK: the real program that it starts, and a scripted model on this machine.

Its tool is in this process. `agents_claude_sdk_program` has the same for a tool that the program calls itself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, create_sdk_mcp_server, query, tool
from mcp.types import ToolAnnotations

from counterseal_agents.claude_agent import governed
from tests.support.agents_claude_model import SCHEMA, serving
from tests.support.agents_stage import PAY, How

PAYING = "mcp__bank__pay"
# It makes the options of a turn: how, at which address the model is, and whether equal calls are to run together.
Made = Callable[[How, str, bool], ClaudeAgentOptions]


def plain(how: How, url: str, **more: Any) -> ClaudeAgentOptions:
    """The options before they are governed."""
    home = how.effects.parent
    environment = {
        "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", "HOME": str(home), "CLAUDE_CONFIG_DIR": str(home / "c"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "IS_SANDBOX": "1",
    }  # fmt: skip
    if how.limit is not None:
        environment["MCP_TOOL_TIMEOUT"] = str(int(how.limit * 1000))
    return ClaudeAgentOptions(
        cwd=home, env=environment, permission_mode="bypassPermissions", setting_sources=[], **more
    )


def bank(how: How, *, together: bool = False) -> dict[str, Any]:
    """The server in this process."""

    @tool("pay", "Pay somebody.", SCHEMA, annotations=ToolAnnotations(readOnlyHint=together))
    async def pay(given: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": await how.apay(given["amount"], given.get("to", "ana"))}]}

    return {"bank": create_sdk_mcp_server("bank", tools=[pay])}


def options(how: How, url: str, together: bool = False) -> ClaudeAgentOptions:
    """The options, with another hook that changes arguments, before ours or after it."""

    async def change(given: Any, _use: Any, _context: Any) -> Any:
        return changed(how)

    made = plain(how, url, mcp_servers=bank(how, together=together))
    other = HookMatcher(hooks=[change])
    if how.change is not None and how.change[0] == "before":
        made = replace(made, hooks={"PreToolUse": [other]})
    made = made if how.ungoverned else governed(made, how.gate())
    if how.change is not None and how.change[0] == "after" and made.hooks is not None:
        made.hooks["PreToolUse"].append(other)
    return made


def changed(how: How) -> Any:
    """The answer of a hook that changes the arguments."""
    assert how.change is not None
    answer = {"hookEventName": "PreToolUse", "permissionDecision": "allow", "updatedInput": how.change[1]}
    return {"hookSpecificOutput": answer}


def turn(how: How, calls: list[dict[str, Any]], name: str = PAYING, made: Made = options) -> list[str]:
    """The words that the model was told about its calls."""
    return asyncio.run(aturn(how, calls, name, made))


async def aturn(how: How, calls: list[dict[str, Any]], name: str = PAYING, made: Made = options) -> list[str]:
    """The same, in a loop. The SDK repeats nothing; the model does."""
    return await turns(how, [calls] * (2 if how.retry else 1), name, made)


async def turns(how: How, wanted: list[list[dict[str, Any]]], name: str = PAYING, made: Made = options) -> list[str]:
    """The words that the model was told about its calls in several turns."""
    together, said = len(wanted[0]) > 1 and how.together, []
    with serving(how, [[(name, one) for one in calls] for calls in wanted], together=together) as url:
        async for message in query(prompt="pay", options=made(how, url, together)):
            content = getattr(message, "content", None)
            for block in content if isinstance(content, list) else []:
                if hasattr(block, "tool_use_id"):
                    inner = block.content
                    said.append(inner if isinstance(inner, str) else inner[0]["text"])
    return said


def pause(how: How, call: dict[str, Any], name: str = PAYING, made: Made = options) -> None:
    """Call, and be told that it waits. It cannot pause: what waits is called again later."""
    assert "Call it again later" in turn(how, [call], name, made)[0]
    how.state.write_text(json.dumps(call), encoding="utf-8")


def edit(how: How, arguments: dict[str, Any]) -> None:
    """Change the call that is to be made again."""
    how.state.write_text(json.dumps(arguments), encoding="utf-8")


def resume(how: How, call: dict[str, Any], name: str = PAYING, made: Made = options) -> list[str]:
    """Call again."""
    return turn(how, [json.loads(how.state.read_text(encoding="utf-8"))], name, made)


def hosted(how: How) -> None:
    """The program's search of the web is a tool that asks."""
    (said,) = turn(how, [{"query": "counterseal"}], "WebSearch")
    assert "denied" in said


def two_lines(program: str, how: How) -> None:
    """Run the program of two lines."""
    how.ungoverned = True
    with serving(how, [[(PAYING, PAY)]]) as url:
        room: dict[str, Any] = {"made": options(how, url)}
        exec(program, room)

        async def run() -> None:
            async for _ in query(prompt="pay", options=room["options"]):
                pass

        asyncio.run(run())
    assert how.ran[-1] == PAY


def added(how: How) -> str:
    """The words about a call of a tool of the program, which no server here has."""
    (said,) = turn(how, [{"command": f"touch {Path(how.effects)}"}], "Bash")
    return said
