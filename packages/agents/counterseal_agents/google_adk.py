"""Google ADK: an agent whose tools ask before they run, with those of its sub-agents.

    agent = governed(agent)

The body of each tool spends the permit on the arguments that it gets, after plugins and callbacks. While people are to
decide, the run pauses by a request for confirmation; that confirmation is no yes: the tool asks again.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Collection
from functools import wraps
from typing import Any

from google.adk.agents import BaseAgent, LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.tools import AgentTool, BaseTool, ExampleTool, FunctionTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.preload_memory_tool import PreloadMemoryTool
from google.genai import types

from counterseal_agents.errors import NotRun, Pending, Ungoverned, Unreported
from counterseal_agents.gate import Gate, Raised
from counterseal_agents.govern import GOVERNED, call_of, govern

# A run that can pause waits so long for a yes before it does.
WAIT = 3.0
# Agents that only say which of theirs runs next.
_ORDERS = (SequentialAgent, LoopAgent, ParallelAgent)
# Tools that only write into the request.
_PREPARING = (ExampleTool, PreloadMemoryTool)
# What a request may name: functions that run here, also those by which a screen is used.
_SEEN = ("function_declarations", "computer_use")


class _Failed(Exception):
    """A tool says by its result that it failed."""

    def __init__(self, result: Any) -> None:
        super().__init__("It ended without success.")
        self.result = result


def governed(
    agent: BaseAgent, gate: Gate | None = None, *, ungoverned: Collection[str] = (), harmless: Raised = ()
) -> BaseAgent:
    """The agent, its sub-agents, and agents that are tools, with their tools replaced by ones that ask.

    ``Ungoverned`` for tools that run at the model's provider, for code executors, and for agents that act in a way of
    their own, unless they are named ``ungoverned``. A tool that is added later is refused before the model is asked.
    """
    named, asking = frozenset(ungoverned), gate or Gate()
    waiting = asking.waiting(min(WAIT, asking.terms.wait))
    _Governing(waiting, named, harmless, helpers=_Governing(asking, named, harmless)).agent(agent)
    return agent


def governed_tool(
    tool: Any, gate: Gate, harmless: Raised = (), *, pausing: bool = False, prefix: str | None = None
) -> BaseTool:
    """A tool as this one, whose body asks before it runs. A set of tools puts its prefix before the tool's name."""
    own = tool if isinstance(tool, BaseTool) else FunctionTool(tool)
    kind = type(own)
    if issubclass(kind, _Asking):
        return own
    if kind.run_async is BaseTool.run_async:
        raise _refused(f"The tool {own.name} runs at the model's provider", own.name)
    function = getattr(own, "func", None)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise _refused(f"The tool {own.name} runs bit by bit while it is read", own.name)
    made = copy.copy(own)
    made.__class__ = type(kind.__name__, (_Asking, kind), {"__module__": kind.__module__})
    made.own, made.gate, made.harmless, made.pausing = own, gate, harmless, pausing
    made.asked_as = f"{prefix}_{own.name}" if prefix else own.name
    return made


class _Governing:
    """Govern agents, each once. A helper has a session of its own, which nobody resumes, so it does not pause."""

    def __init__(self, gate: Gate, ungoverned: frozenset[str], harmless: Raised, helpers: _Governing | None = None):
        self.gate, self.ungoverned, self.harmless = gate, ungoverned, harmless
        self.pausing, self.done = helpers is not None, set[int]()
        self.helpers = helpers or self

    def agent(self, agent: Any) -> None:
        if id(agent) in self.done:
            return
        self.done.add(id(agent))
        name = _name_of(agent)
        if name in self.ungoverned or type(agent) in _ORDERS:
            pass
        elif isinstance(agent, LlmAgent):
            self.with_model(agent)
        else:
            raise _refused(f"{name}, a {type(agent).__name__}, acts in a way of its own", name)
        for inner in getattr(agent, "sub_agents", ()):
            self.agent(inner)

    def with_model(self, agent: LlmAgent) -> None:
        if agent.code_executor is not None and "code_executor" not in self.ungoverned:
            raise _refused(f"The code_executor of {agent.name} runs what the model writes", "code_executor")
        agent.tools = [self.tool(tool) for tool in agent.tools]

        def check(callback_context: Any, llm_request: Any) -> None:
            """Refuse to go on with a tool that nobody here sees run."""
            late = [tool for tool in llm_request.tools_dict.values() if type(tool) is FunctionTool]
            for tool in (*agent.tools, *late):
                if self.tool(tool) is not tool:
                    name = _name_of(tool)
                    raise _refused(f"The tool {name} came to {agent.name} after that was governed", name)
            self.check(llm_request.config.tools or ())

        agent.before_model_callback = [*agent.canonical_before_model_callbacks, check]

    def check(self, tools: Collection[Any]) -> None:
        for tool in tools:
            if not isinstance(tool, types.Tool):
                raise Ungoverned(f"The request has {tool!r} as a tool, which is none of the agent's.")
            for name, value in tool:
                if value is not None and name not in _SEEN and name not in self.ungoverned:
                    raise _refused(f"The tool {name} runs at the model's provider", name)

    def tool(self, tool: Any, prefix: str | None = None) -> Any:
        """The tool, or the set of tools, as one that asks."""
        name = _name_of(tool)
        if name in self.ungoverned or isinstance(tool, _PREPARING):
            return tool
        if isinstance(tool, BaseToolset):
            return self.toolset(tool)
        if isinstance(tool, AgentTool):
            self.helpers.agent(tool.agent)
            return tool
        if not isinstance(tool, BaseTool) and not inspect.isroutine(tool):
            raise _refused(f"{name}, a {type(tool).__name__}, acts in a way of its own", name)
        return governed_tool(tool, self.gate, self.harmless, pausing=self.pausing, prefix=prefix)

    def toolset(self, toolset: BaseToolset) -> BaseToolset:
        if getattr(toolset.get_tools, GOVERNED, False):
            return toolset
        made, get_tools = copy.copy(toolset), toolset.get_tools

        async def get_governed_tools(*args: Any, **given: Any) -> list[Any]:
            return [self.tool(tool, made.tool_name_prefix) for tool in await get_tools(*args, **given)]

        setattr(get_governed_tools, GOVERNED, True)
        made.get_tools = get_governed_tools
        return made


class _Asking(BaseTool):
    """The part of a tool that asks, as the tool that it was when it was governed."""

    own: Any
    gate: Gate
    harmless: Raised
    pausing: bool
    asked_as: str

    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> Any:
        """Run the tool, if there is a yes to these arguments."""
        answer = tool_context.tool_confirmation
        if answer is not None and not answer.confirmed:
            return {"error": f"{self.name} was not run: whoever was asked to go on said no."}
        try:
            if isinstance(self.own, FunctionTool) and type(self.own).run_async is FunctionTool.run_async:
                return await self._function().run_async(args=args, tool_context=tool_context)
            call, given = call_of(self.asked_as, args)
            return await self.gate.arun(call, lambda: self._run(given, tool_context), self.harmless)
        except _Failed as error:
            return error.result
        except (NotRun, Unreported) as error:
            if self.pausing and isinstance(error, Pending):
                _pause(tool_context, error)
            return {"error": str(error)}

    def _function(self) -> FunctionTool:
        """The tool as it was, whose function asks about the arguments that it gets: as ADK has read them."""
        made = copy.copy(self.own)
        made.name, function = self.name, made.func
        parameters = inspect.signature(function).parameters
        unseen = set(parameters) & {"tool_context", *getattr(made, "_ignore_params", ())}

        @wraps(function)
        async def body(*given: Any, **named: Any) -> Any:
            if inspect.iscoroutinefunction(function):
                return await function(*given, **named)
            result = await asyncio.to_thread(function, *given, **named)
            return await result if inspect.isawaitable(result) else result

        made.func = govern(body, gate=self.gate, tool=self.asked_as, harmless=self.harmless, unseen=unseen)
        return made

    async def _run(self, args: dict[str, Any], tool_context: Any) -> Any:
        result = await self.own.run_async(args=args, tool_context=tool_context)
        if isinstance(result, dict) and (result.get("error") or result.get("isError")):
            raise _Failed(result)
        return result


def _pause(tool_context: Any, pending: Pending) -> None:
    """Pause the run. The model is not told before it goes on."""
    tool_context.request_confirmation(hint=str(pending), payload={"counterseal_action": pending.action})
    tool_context.actions.skip_summarization = True


def _name_of(tool: Any) -> str:
    return str(getattr(tool, "name", None) or getattr(tool, "__name__", None) or type(tool).__name__)


def _refused(why: str, name: str) -> Ungoverned:
    return Ungoverned(f"{why}, where nothing asks. Leave it out, or name it: governed(..., ungoverned=[{name!r}]).")
