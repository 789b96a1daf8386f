"""Strands Agents: an agent whose tools ask before they run.

    agent = governed(agent)

Each tool spends the permit on the arguments that it gets, after hooks, interventions and middleware; so does a tool
that the agent loads later. While people are to decide, the agent is interrupted by the SDK's own means; what it is
resumed with is not read: the tool asks again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from itertools import count
from typing import Any

from strands import Agent
from strands.tools.structured_output.structured_output_tool import StructuredOutputTool
from strands.types.tools import AgentTool, ToolContext, ToolSpec, ToolUse

from counterseal_agents.errors import NotRun, Pending, Ungoverned, Unreported
from counterseal_agents.gate import Gate, Raised
from counterseal_agents.govern import GOVERNED, call_of

# A call waits so long for a yes before the agent is interrupted.
WAIT = 3.0


class _Ended(Exception):
    """The tool ended without success, which the SDK tells by an event."""


def governed(
    agent: Agent, gate: Gate | None = None, *, ungoverned: Collection[str] = (), harmless: Raised = ()
) -> Agent:
    """The agent, with its tools replaced by ones that ask, now and whenever one is loaded.

    ``Ungoverned`` for tools that run at the model's provider, and for agents as tools that are not governed
    themselves, unless they are named ``ungoverned``.
    """
    _check_model(agent, ungoverned)
    registry, asking = agent.tool_registry, gate or Gate()
    for name in ("registry", "dynamic_tools"):
        tools = _Tools(asking, frozenset(ungoverned), harmless)
        for key, tool in getattr(registry, name).items():
            tools[key] = tool
        setattr(registry, name, tools)
    setattr(agent, GOVERNED, True)
    return agent


class _Tools(dict[str, AgentTool]):
    """The tools of an agent by name. Whatever is put in asks."""

    def __init__(self, gate: Gate, ungoverned: frozenset[str], harmless: Raised) -> None:
        super().__init__()
        self.gate, self.ungoverned, self.harmless = gate, ungoverned, harmless

    def __setitem__(self, name: str, tool: AgentTool) -> None:
        inner = getattr(tool, "agent", None)
        if name in self.ungoverned or isinstance(tool, StructuredOutputTool | _Asking):
            super().__setitem__(name, tool)
        elif inner is None:
            super().__setitem__(name, _Asking(tool, self.gate, self.harmless))
        elif getattr(inner, GOVERNED, False):
            super().__setitem__(name, tool)
        else:
            raise _refused(
                f"The tool {name} is an agent whose tools do not ask: govern it first, or else it acts", name
            )


class _Asking(AgentTool):
    """A tool that asks."""

    def __init__(self, tool: AgentTool, gate: Gate, harmless: Raised) -> None:
        super().__init__()
        self.tool, self.gate, self.harmless = tool, gate.waiting(min(WAIT, gate.terms.wait)), harmless
        self._is_dynamic = tool.is_dynamic

    @property
    def tool_name(self) -> str:
        """The tool's own."""
        return str(self.tool.tool_name)

    @property
    def tool_spec(self) -> ToolSpec:
        """The tool's own."""
        return self.tool.tool_spec

    @property
    def tool_type(self) -> str:
        """The tool's own."""
        return str(self.tool.tool_type)

    @property
    def supports_hot_reload(self) -> bool:
        """The tool's own."""
        return bool(self.tool.supports_hot_reload)

    async def stream(self, tool_use: ToolUse, invocation_state: dict[str, Any], **given: Any) -> AsyncIterator[Any]:
        """Run the tool, if there is a yes to these arguments; its events come when it has ended."""
        events: list[Any] = []
        name = self.tool_name
        try:
            arguments = tool_use["input"]
            if not isinstance(arguments, Mapping):
                raise NotRun(f"{name} was not run: its arguments are no JSON object.")
            call, own = call_of(name, arguments)
            use: ToolUse = {**tool_use, "input": own}

            async def body() -> Any:
                async for event in self.tool.stream(use, invocation_state, **given):
                    events.append(event)
                return _result(events)

            await self.gate.arun(call, body, self.harmless)
        except Pending as error:
            _pause(tool_use, invocation_state, error)
            raise
        except (NotRun, Unreported) as error:
            events = [_said(tool_use, str(error))]
        except Exception:
            if not events:
                raise
            # The tool's events say how it has ended; it is reported as unknown, or as harmless.
        for event in events:
            yield event


def _result(events: list[Any]) -> Any:
    """The result of the tool. The tool's own exception, or ``_Ended``, if it did not succeed."""
    last = events[-1] if events else None
    if isinstance(error := getattr(last, "exception", None), Exception):
        raise error
    found = getattr(last, "tool_result", last)
    if not isinstance(found, Mapping) or found.get("status") != "success":
        raise _Ended("It ended without success.")
    return found.get("content")


def _pause(tool_use: ToolUse, invocation_state: dict[str, Any], pending: Pending) -> None:
    """Interrupt the agent, once more if it was resumed too early."""
    context = ToolContext(tool_use=tool_use, agent=invocation_state["agent"], invocation_state=invocation_state)
    for n in count():
        context.interrupt(f"counterseal-{n}", {"counterseal_action": pending.action, "message": str(pending)})


def _said(tool_use: ToolUse, words: str) -> dict[str, Any]:
    return {"toolUseId": tool_use["toolUseId"], "status": "error", "content": [{"text": words}]}


def _check_model(agent: Agent, ungoverned: Collection[str]) -> None:
    config = agent.model.get_config()
    found = config if isinstance(config, Mapping) else vars(config)
    for name, tools in (
        ("gemini_tools", found.get("gemini_tools")),
        ("tools", (found.get("params") or {}).get("tools")),
    ):
        if tools and name not in ungoverned:
            raise _refused(f"The {name} of the model run at its provider", name)


def _refused(why: str, name: str) -> Ungoverned:
    return Ungoverned(f"{why}, where nothing asks. Leave it out, or name it: governed(..., ungoverned=[{name!r}]).")
