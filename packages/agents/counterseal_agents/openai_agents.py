"""OpenAI Agents: an agent whose function tools ask before they run.

    agent = governed(agent)

The body of each tool spends the permit on the arguments that it gets, after guardrails and hooks. When people are to
decide, the run is interrupted by the SDK's own means; ``ready()`` tells a stored ``RunState`` to go on. The SDK's
approval is no yes: the body asks again.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

from agents import Agent, FunctionTool, Handoff, RunState
from agents.tool import resolve_function_tool_failure_error_function, set_function_tool_failure_error_function
from agents.tool_context import ToolContext

from counterseal_agents.contract import Call
from counterseal_agents.errors import NotRun, Ungoverned, Unreported
from counterseal_agents.gate import Gate, Raised
from counterseal_agents.govern import GOVERNED

# A run that can pause waits so long for a yes before it does.
WAIT = 3.0


def governed(
    agent: Agent[Any], gate: Gate | None = None, *, ungoverned: Collection[str] = (), harmless: Raised = ()
) -> Agent[Any]:
    """A copy of the agent, and of those that it hands over to, whose tools ask.

    ``Ungoverned`` for a tool that runs at the provider or at an MCP server, unless it is named ``ungoverned``.
    """
    return _Governing(gate or Gate(), frozenset(ungoverned), harmless).agent(agent)


async def ready(state: RunState[Any, Any], gate: Gate | None = None) -> int:
    """Let the calls go on that are decided; return how many of ours are not. Then run the state."""
    waiting, asking = 0, gate or Gate()
    for item in state.get_interruptions():
        tool = next((one for one in item.agent.tools if one.name == item.tool_name), None)
        pauses = getattr(tool, "needs_approval", None)
        if not getattr(pauses, GOVERNED, False):
            continue
        if await _waits(asking, str(item.tool_name), item.arguments):
            waiting += 1
        else:
            state.approve(item)
    return waiting


class _Governing:
    def __init__(self, gate: Gate, ungoverned: frozenset[str], harmless: Raised) -> None:
        self.gate, self.ungoverned, self.harmless = gate, ungoverned, harmless
        self.done: dict[int, Agent[Any]] = {}

    def agent(self, agent: Agent[Any]) -> Agent[Any]:
        if getattr(agent, GOVERNED, False):
            return agent
        if id(agent) in self.done:
            return self.done[id(agent)]
        for server in agent.mcp_servers:
            if server.name not in self.ungoverned:
                raise _refused(f"The MCP server {server.name} runs its tools where nothing asks", server.name)
        made = self.done[id(agent)] = agent.clone(tools=[self.tool(tool) for tool in agent.tools])
        made.handoffs = [self.handoff(one) for one in agent.handoffs]
        object.__setattr__(made, GOVERNED, True)
        return made

    def handoff(self, handoff: Agent[Any] | Handoff[Any, Any]) -> Agent[Any] | Handoff[Any, Any]:
        if isinstance(handoff, Agent):
            return self.agent(handoff)
        hand_over = handoff.on_invoke_handoff

        async def governed_handoff(context: Any, text: str) -> Any:
            return self.agent(await hand_over(context, text))

        return replace(handoff, on_invoke_handoff=governed_handoff)

    def tool(self, tool: Any) -> Any:
        if tool.name in self.ungoverned:
            return tool
        if not isinstance(tool, FunctionTool):
            raise _refused(f"The tool {tool.name} runs at the model's provider, where nothing asks", tool.name)
        inner = getattr(tool, "_agent_instance", None)
        if inner is not None:
            if getattr(inner, GOVERNED, False):
                return tool
            raise _refused(f"The tool {tool.name} is an agent whose tools do not ask: govern it first", tool.name)
        made = copy.copy(tool)
        made.on_invoke_tool = self._body(tool)
        if tool.needs_approval is False:
            made.needs_approval = self._pausing(tool.name)
        return made

    def _pausing(self, name: str) -> Callable[..., Any]:
        gate = self.gate.waiting(min(WAIT, self.gate.terms.wait))

        async def pauses(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
            return await _waits(gate, name, json.dumps(arguments))

        setattr(pauses, GOVERNED, True)
        return pauses

    def _body(self, tool: FunctionTool) -> Callable[[ToolContext[Any], str], Any]:
        """The tool's body, which asks. The SDK turns exceptions into texts; so they are seen before it does."""
        bare = set_function_tool_failure_error_function(copy.copy(tool), None)
        turns_errors_into_texts = hasattr(tool.on_invoke_tool, "__agents_bind_function_tool__")

        async def body(context: ToolContext[Any], text: str) -> Any:
            try:
                call = Call(tool.name, _object(tool.name, text))
                _check(bare, text)
                return await self.gate.arun(call, lambda: bare.on_invoke_tool(context, text), self.harmless)
            except (NotRun, Unreported) as error:
                return str(error)
            except Exception as error:
                handler = resolve_function_tool_failure_error_function(tool, context)
                if handler is None or not turns_errors_into_texts:
                    raise
                text_of_error = handler(context, error)
                return await text_of_error if inspect.isawaitable(text_of_error) else text_of_error

        return body


async def _waits(gate: Gate, name: str, text: str | None) -> bool:
    """True if people are still to decide. A fault is no reason to pause: the body asks again, and says what it is."""
    try:
        return await gate.awaits(Call(name, _object(name, text or "")))
    except NotRun:
        return False


def _object(name: str, text: str) -> dict[str, Any]:
    """The arguments as one JSON object that every parser reads alike."""

    def distinct(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise ValueError(f"{key} stands twice")
            found[key] = value
        return found

    try:
        found = json.loads(text or "{}", object_pairs_hook=distinct)
    except (ValueError, RecursionError) as error:
        raise NotRun(f"{name} was not run: its arguments are no JSON ({error}).") from None
    if not isinstance(found, dict):
        raise NotRun(f"{name} was not run: its arguments are no JSON object.")
    return found


def _check(tool: FunctionTool, text: str) -> None:
    """Let the SDK refuse arguments that the function does not take before anybody is asked about them."""
    prepare = getattr(tool.on_invoke_tool, "prepare_arguments", None)
    if callable(prepare):
        prepare(text, tool.name)


def _refused(why: str, name: str) -> Ungoverned:
    return Ungoverned(f"{why}. Leave it out, or name it: governed(..., ungoverned=[{name!r}]).")
