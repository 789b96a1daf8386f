"""Microsoft Agent Framework: an agent whose tools ask before they run.

    agent = governed(agent)

The function of each tool spends the permit on the arguments that it gets, after every middleware; so do those of a run,
of MCP servers and of context providers. With ``pausing`` a run ends with an approval request while people are to
decide; its approval is no yes: the tool asks again.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import wraps
from typing import Any

from agent_framework import (
    ChatMiddleware,
    Content,
    FunctionMiddleware,
    FunctionTool,
    MiddlewareTermination,
    RawAgent,
)

from counterseal_agents.errors import NotRun, Pending, Ungoverned, Unreported
from counterseal_agents.gate import Gate, Raised
from counterseal_agents.govern import GOVERNED, govern

# A run that can pause waits so long for a yes before it does.
WAIT = 3.0


def governed(
    agent: RawAgent,
    gate: Gate | None = None,
    *,
    pausing: bool = False,
    ungoverned: Collection[str] = (),
    harmless: Raised = (),
) -> RawAgent:
    """The agent, whose client gets no tool that does not ask.

    ``pausing``: its runs have a session, and whoever runs it answers approval requests. ``Ungoverned`` for tools that
    run at the model's provider, or at the caller's, unless they are named ``ungoverned``.
    """
    if not isinstance(agent, RawAgent):
        raise Ungoverned(f"A {type(agent).__name__} has no client of its own: govern the agents inside of it.")
    if getattr(agent.client, GOVERNED, False):
        return agent
    asking = gate or Gate()
    if pausing:
        asking = asking.waiting(min(WAIT, asking.terms.wait))
    governing = _Governing(asking, pausing, frozenset(ungoverned), harmless)
    if agent.default_options.get("tools"):
        agent.default_options["tools"] = governing.tools(agent.default_options["tools"])
    agent.client = governing.client(agent.client)
    return agent


def governed_tool(tool: FunctionTool, gate: Gate, harmless: Raised = ()) -> FunctionTool:
    """A copy of the tool whose function asks before it runs."""
    if getattr(tool, GOVERNED, False):
        return tool
    made = copy.copy(tool)
    function = tool.func.func if isinstance(tool.func, FunctionTool) else tool.func
    if function is None:
        raise _refused(f"The tool {tool.name} runs at whoever runs the agent", tool.name)
    unseen = {str(getattr(tool, "_context_parameter_name", ""))} & set(inspect.signature(function).parameters)
    made.func = govern(
        _body(function, bool(getattr(tool, "_invoke_sync_on_event_loop", False))),
        gate=gate, tool=tool.name, harmless=harmless, unseen=unseen,
    )  # fmt: skip
    setattr(made, GOVERNED, True)
    return made


def _body(function: Callable[..., Any], in_loop: bool) -> Callable[..., Any]:
    """The function as a coroutine, with the parameters that it has; one that waits runs in a thread."""

    @wraps(function)
    async def body(*args: Any, **kwargs: Any) -> Any:
        if in_loop or inspect.iscoroutinefunction(function):
            result = function(*args, **kwargs)
        else:
            result = await asyncio.to_thread(function, *args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    return body


class _Governing:
    """Governs the tools that a client gets. A tool is governed once: it counts its calls."""

    def __init__(self, gate: Gate, pausing: bool, ungoverned: frozenset[str], harmless: Raised) -> None:
        self.gate, self.pausing, self.ungoverned, self.harmless = gate, pausing, ungoverned, harmless
        self.made: dict[int, tuple[Any, FunctionTool]] = {}

    def client(self, client: Any) -> Any:
        """A copy of the client, which is given tools that ask, and nothing else."""
        made = copy.copy(client)
        get_response = made.get_response
        for tool in (getattr(client, "function_invocation_configuration", None) or {}).get("additional_tools") or ():
            self.tool(tool)

        def get_governed_response(messages: Any, **given: Any) -> Any:
            options = dict(given.pop("options", None) or {})
            if options.get("tools"):
                options["tools"] = self.tools(options["tools"])
            ours = [_Function(self), _Chat(self)]
            return get_response(messages, **given | {"options": options, "middleware": [*_list(given), *ours]})

        made.get_response = get_governed_response
        setattr(made, GOVERNED, True)
        return made

    def tools(self, tools: Any) -> list[Any]:
        """The tools, as ones that ask."""
        return [self.tool(tool) for tool in (tools if isinstance(tools, Sequence) else [tools])]

    def tool(self, tool: Any) -> Any:
        name = _name_of(tool)
        if name in self.ungoverned or getattr(tool, GOVERNED, False):
            return tool
        if callable(tool) and not isinstance(tool, FunctionTool):
            tool = FunctionTool(name=name, description=inspect.getdoc(tool) or "", func=tool)
        if not isinstance(tool, FunctionTool):
            raise _refused(f"The tool {name} runs at the model's provider or outside this agent", name)
        found = self.made.get(id(tool))
        if found is None:
            found = self.made[id(tool)] = (tool, governed_tool(tool, self.gate, self.harmless))
        return found[1]


def _list(given: dict[str, Any]) -> list[Any]:
    """The middleware of a call."""
    middleware = given.get("middleware") or []
    return list(middleware) if isinstance(middleware, Sequence) else [middleware]


class _Chat(ChatMiddleware):
    """Governs what a tool has added to the run's tools, before the model is told of it."""

    def __init__(self, governing: _Governing) -> None:
        self.governing = governing

    async def process(self, context: Any, call_next: Callable[[], Awaitable[None]]) -> None:
        """The same list, as the run has it."""
        tools = (context.options or {}).get("tools")
        if isinstance(tools, list):
            tools[:] = self.governing.tools(tools)
        await call_next()


class _Function(FunctionMiddleware):
    """Tells the model why a tool did not run, or pauses."""

    def __init__(self, governing: _Governing) -> None:
        self.governing = governing

    async def process(self, context: Any, call_next: Callable[[], Awaitable[None]]) -> None:
        """Run the call, if its tool asks."""
        tool = context.function
        if not getattr(tool, GOVERNED, False) and tool.name not in self.governing.ungoverned:
            context.result = f"{tool.name} was not run: it came to this agent by a way where nothing asks."
            return
        try:
            await call_next()
        except Pending as error:
            context.result = str(error)
            # Approved too early it goes on, and the model is told to call again later.
            if self.governing.pausing and context.session is not None and "approval_response" not in context.metadata:
                context.result = _request(context, error)
                raise MiddlewareTermination(str(error)) from None
        except (NotRun, Unreported) as error:
            context.result = str(error)


def _request(context: Any, pending: Pending) -> Any:
    """An approval request by which the run pauses."""
    call_id = context.metadata["call_id"]
    asked = context.metadata.get("function_call_occurrence_id") or call_id
    call = Content.from_function_call(
        call_id=call_id, name=context.function.name, arguments=dict(context.arguments), id=asked
    )
    properties = {"counterseal_action": pending.action, "reason": str(pending)}
    return Content.from_function_approval_request(id=asked, function_call=call, additional_properties=properties)


def _name_of(tool: Any) -> str:
    if isinstance(tool, dict):
        return str(tool.get("name") or tool.get("type") or tool)
    return str(getattr(tool, "name", None) or getattr(tool, "__name__", None) or getattr(tool, "type", tool))


def _refused(why: str, name: str) -> Ungoverned:
    return Ungoverned(f"{why}, where nothing asks. Leave it out, or name it: governed(..., ungoverned=[{name!r}]).")
