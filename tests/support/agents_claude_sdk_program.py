"""An agent of the Claude Agent SDK whose tool the program calls itself, at an MCP server that is not the SDK's.

Hooks of one event run at the same time. So that a test shows the same each time, another hook is over before ours
begins, or begins after ours is over.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, HookMatcher

from counterseal_agents.claude_agent import governed
from tests.support import agents_claude_sdk as sdk
from tests.support.agents_claude_model import SHOP
from tests.support.agents_stage import How

PAYING = "mcp__shop__pay"


def options(how: How, url: str, together: bool = False) -> ClaudeAgentOptions:
    """The options, with another hook that changes arguments, and with a limit of time for hooks."""
    made = sdk.plain(how, url, mcp_servers={"shop": {"type": "http", "url": url + SHOP}})
    if how.ungoverned:
        return made
    made = governed(made, how.gate())
    assert made.hooks is not None
    (ours,) = made.hooks["PreToolUse"]
    if how.limit is not None:
        ours.timeout = how.limit
    if how.change is not None:
        made.hooks["PreToolUse"].append(_other(how, ours, first=how.change[0] == "before"))
    return made


def _other(how: How, ours: HookMatcher, *, first: bool) -> HookMatcher:
    """Another hook, whose answer is there before ours is asked, or comes after ours."""
    over, (asking,) = asyncio.Event(), ours.hooks

    async def change(given: Any, _use: Any, _context: Any) -> Any:
        if first:
            over.set()
        else:
            await over.wait()
        return sdk.changed(how)

    async def asked(given: Any, use: Any, context: Any) -> Any:
        if first:
            await over.wait()
        answer = await asking(given, use, context)
        over.set()
        return answer

    ours.hooks[:] = [asked]
    return HookMatcher(hooks=[change])


_own: dict[str, Any] = {"name": PAYING, "made": options}
turn, aturn, pause, resume = (partial(one, **_own) for one in (sdk.turn, sdk.aturn, sdk.pause, sdk.resume))
turns = partial(sdk.turns, **_own)
edit, hosted = sdk.edit, sdk.hosted
