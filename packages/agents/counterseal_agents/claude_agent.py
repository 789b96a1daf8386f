"""Claude Agent SDK: options under which every tool asks before it runs.

    options = governed(options)

Tools of servers in this process spend the permit in their body, on the arguments that they get, after every hook. All
others run in the program that the SDK starts: a hook asks before them, and one reports afterwards what ran. It cannot
pause: the model is told that the call waits, and to call it again, which finds the same question.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, HookMatcher
from mcp.types import CallToolResult

from counterseal_agents.canonical import JsonObject
from counterseal_agents.errors import NotRun, Ungoverned, Unreported
from counterseal_agents.gate import Gate, Raised
from counterseal_agents.govern import GOVERNED, call_of
from counterseal_agents.hook import events
from counterseal_agents.hook.deciding import Setup, decided
from counterseal_agents.hook.events import HookAnswer

_CALL, _LIST = "tools/call", "tools/list"


class _Ended(Exception):
    """The tool ended with an error, which it gives back as a result."""


def governed(
    options: ClaudeAgentOptions, gate: Gate | None = None, *, ungoverned: Collection[str] = (), harmless: Raised = ()
) -> ClaudeAgentOptions:
    """The options, with tools that ask. Names are those that the model uses: ``Bash``, ``mcp__SERVER__TOOL``.

    ``ungoverned``: tools that run without asking. ``Ungoverned`` for a server in this process whose calls cannot be
    replaced.
    """
    asking = gate or Gate()
    own: set[str] = set()
    servers = options.mcp_servers if isinstance(options.mcp_servers, dict) else {}
    for key, server in servers.items():
        if server.get("type") == "sdk":
            _Bodies(key, asking, frozenset(ungoverned), harmless, own).put_around(server["instance"])
    folder = tempfile.TemporaryDirectory(prefix="counterseal-")
    around = _Around(asking, Path(folder.name), frozenset(ungoverned), own)
    limit = asking.terms.wait + 3 * asking.terms.timeout + 60
    matcher = HookMatcher(hooks=[around.called], timeout=limit, on_failure="block")
    hooks: dict[Any, Any] = {name: list(found) for name, found in (options.hooks or {}).items()}
    for name in (events.BEFORE, events.AFTER, events.FAILED):
        hooks[name] = [*hooks.get(name, []), matcher]
    # The folder lives as long as the options whose hooks use it.
    around.folder = folder
    return replace(options, hooks=hooks)


class _Bodies:
    """The tools of one server in this process, whose calls ask."""

    def __init__(self, key: str, gate: Gate, ungoverned: frozenset[str], harmless: Raised, own: set[str]) -> None:
        if "__" in key:
            raise Ungoverned(f"The server {key} has a name that its tools could share with others: leave out the __.")
        self.key, self.gate, self.ungoverned, self.harmless, self.own = key, gate, ungoverned, harmless, own

    def put_around(self, server: Any) -> None:
        """Replace what answers calls, and note which tools the server lists."""
        if getattr(server, GOVERNED, False):
            raise Ungoverned(f"The server {self.key} is governed already: make another one for other options.")
        if not hasattr(server, "get_request_handler") or server.get_request_handler(_CALL) is None:
            raise Ungoverned(f"The calls of the server {self.key} cannot be replaced: it needs mcp 2 or later.")
        for method, around in ((_CALL, self._asking), (_LIST, self._noting)):
            entry = server.get_request_handler(method)
            if entry is not None:
                server.add_request_handler(method, entry.params_type, around(entry.handler))
        setattr(server, GOVERNED, True)

    def _name(self, tool: str) -> str:
        return f"mcp__{self.key}__{tool}"

    def _noting(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        async def noting(context: Any, params: Any) -> Any:
            listed = await inner(context, params)
            self.own.update(self._name(tool.name) for tool in listed.tools if "__" not in tool.name)
            return listed

        return noting

    def _asking(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        async def asking(context: Any, params: Any) -> Any:
            name, ended = self._name(params.name), []
            if name in self.ungoverned:
                return await inner(context, params)
            try:
                call, own = call_of(name, params.arguments or {})

                async def body() -> Any:
                    result = await inner(context, params.model_copy(update={"arguments": own}))
                    ended.append(result)
                    if getattr(result, "is_error", False):
                        raise _Ended("It ended with an error.")
                    return [getattr(block, "text", block.type) for block in result.content]

                await self.gate.arun(call, body, self.harmless)
            except (NotRun, Unreported) as error:
                return _said(str(error))
            except _Ended:
                pass
            return ended[0]

        return asking


class _Around:
    """The hooks around the tools of the program that the SDK starts."""

    folder: object

    def __init__(self, gate: Gate, folder: Path, ungoverned: frozenset[str], own: set[str]) -> None:
        self.own, self.gate = own, gate
        self.setup = Setup(events.CLAUDE, folder, {}, gate.terms, ungoverned, frozenset(), outputs=False)

    async def called(self, given: Any, _use: str | None, _context: Any) -> Any:
        """The answer to an event. An exception blocks, by ``on_failure``."""
        event = events.read(json.dumps(given).encode())
        if event.tool in self.own:
            return json.loads(events.asked_inside().text) if event.name == events.BEFORE else {}
        said = await self.gate.adrive(decided(self.setup, event))
        return _answer(said, event.arguments)


def _answer(said: HookAnswer, arguments: JsonObject) -> Any:
    """The answer in the SDK's form. A yes repeats the input: another hook that was faster and changed it is undone."""
    if said.code != 0:
        return {"decision": "block", "reason": said.text}
    answer = json.loads(said.text)
    decision = answer.get("hookSpecificOutput", {})
    if decision.get("permissionDecision") == "allow":
        decision["updatedInput"] = arguments
    return answer


def _said(words: str) -> CallToolResult:
    return CallToolResult.model_validate({"content": [{"type": "text", "text": words}], "isError": True})
