"""LlamaIndex: agents and workflows of agents whose tools ask before they run.

    agent = governed(agent)

It has no hook, so each tool is replaced by one whose body spends the permit on the arguments that it gets, and so is
what a retriever finds and what is added later. With ``pausing`` a run waits for an event while people are to decide;
whatever it is woken with, the tool asks again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from functools import wraps
from typing import Any, TypeVar

from llama_index.core.agent.workflow import AgentWorkflow, BaseWorkflowAgent, CodeActAgent
from llama_index.core.agent.workflow.multi_agent_workflow import handoff
from llama_index.core.objects import ObjectRetriever
from llama_index.core.tools import BaseTool, FunctionTool, ToolOutput, adapt_to_async_tool
from llama_index.core.tools.types import AsyncBaseTool
from llama_index.core.workflow import HumanResponseEvent, InputRequiredEvent

from counterseal_agents.errors import Pending, Ungoverned
from counterseal_agents.gate import Gate, Raised
from counterseal_agents.govern import govern

A = TypeVar("A")
# A run that can pause waits so long for a yes before it does.
WAIT = 3.0
# The parameter by which a tool that pauses gets the context of its run.
_CONTEXT = "counterseal_context"
# Settings of models by which tools run at their provider.
_ELSEWHERE = ("built_in_tools", "built_in_tool", "mcp_servers", "tools")


class _Failed(Exception):
    """A tool says by its output that it failed."""

    def __init__(self, output: ToolOutput) -> None:
        super().__init__(output.content)
        self.output = output


def governed(
    agent: A,
    gate: Gate | None = None,
    *,
    pausing: bool = False,
    ungoverned: Collection[str] = (),
    harmless: Raised = (),
) -> A:
    """The agent, or the workflow with all of its agents, with their tools replaced by ones that ask.

    ``pausing``: whoever runs it answers an ``InputRequiredEvent``, so it pauses while people are to decide.
    ``Ungoverned`` for tools that run at the model's provider, unless they are named ``ungoverned``.
    """
    governing = _Governing(gate or Gate(), pausing, frozenset(ungoverned), harmless)
    if isinstance(agent, AgentWorkflow):
        for one in agent.agents.values():
            governing.agent(one)
        governing.later(agent)
    else:
        governing.agent(agent)
    return agent


def governed_tool(tool: Any, gate: Gate, harmless: Raised = (), *, pausing: bool = False) -> FunctionTool:
    """A tool as this one, whose body asks before it runs."""
    if isinstance(tool, _Asking):
        return tool
    if not isinstance(tool, BaseTool):
        raise Ungoverned(f"{getattr(tool, '__name__', tool)} is no tool of LlamaIndex: make it one.")
    return _Asking(
        adapt_to_async_tool(tool), gate.waiting(min(WAIT, gate.terms.wait)) if pausing else gate, harmless, pausing
    )


class _Governing:
    def __init__(self, gate: Gate, pausing: bool, ungoverned: frozenset[str], harmless: Raised) -> None:
        self.gate, self.pausing, self.ungoverned, self.harmless = gate, pausing, ungoverned, harmless

    def agent(self, agent: Any) -> None:
        if not isinstance(agent, BaseWorkflowAgent):
            raise Ungoverned(f"A {type(agent).__name__} is no agent of LlamaIndex: use governed_tool().")
        self.check(agent.llm)
        if isinstance(agent, CodeActAgent):
            # It takes no tool that needs a context, by which tools pause.
            _Governing(self.gate, False, self.ungoverned, self.harmless).tools_of(agent)
        else:
            self.tools_of(agent)

    def tools_of(self, agent: Any) -> None:
        agent.tools = None if agent.tools is None else [self.tool(tool) for tool in agent.tools]
        if agent.tool_retriever is not None and not isinstance(agent.tool_retriever, _Retriever):
            agent.tool_retriever = _Retriever(agent.tool_retriever, self.tool)
        self.later(agent)

    def later(self, agent: Any) -> None:
        """Have it ask for tools that come later, too."""
        get_tools = agent.get_tools

        async def get_governed_tools(*args: Any, **given: Any) -> list[Any]:
            return [self.tool(tool) for tool in await get_tools(*args, **given)]

        object.__setattr__(agent, "get_tools", get_governed_tools)

    def tool(self, tool: Any) -> Any:
        name = str(tool.metadata.name) if isinstance(tool, BaseTool) else ""
        hands_over = type(tool) is FunctionTool and tool.real_fn is handoff
        if hands_over or name in self.ungoverned:
            return tool
        return governed_tool(tool, self.gate, self.harmless, pausing=self.pausing)

    def check(self, model: Any) -> None:
        extra = getattr(model, "additional_kwargs", None)
        for name in _ELSEWHERE:
            given = getattr(model, name, None) or (isinstance(extra, dict) and extra.get(name))
            if given and name not in self.ungoverned:
                raise _refused(f"The {name} of the model run at its provider, where nothing asks", name)


class _Retriever(ObjectRetriever[Any]):
    """A retriever whose tools ask."""

    def __init__(self, inner: ObjectRetriever[Any], asking: Callable[[Any], Any]) -> None:
        self.inner, self.asking = inner, asking

    def retrieve(self, str_or_query_bundle: Any) -> list[Any]:
        """The tools that it finds."""
        return [self.asking(tool) for tool in self.inner.retrieve(str_or_query_bundle)]

    async def aretrieve(self, str_or_query_bundle: Any) -> list[Any]:
        """The tools that it finds."""
        return [self.asking(tool) for tool in await self.inner.aretrieve(str_or_query_bundle)]


class _Asking(FunctionTool):
    """A tool that asks. Where it may pause it gets the context of its run, which is no argument."""

    requires_context: bool
    ctx_param_name: str | None

    def __init__(self, tool: AsyncBaseTool, gate: Gate, harmless: Raised, pausing: bool) -> None:
        name = str(tool.metadata.name)
        plain = tool if type(tool) is FunctionTool else None
        unseen = {plain.ctx_param_name} - {None} if plain else set()

        def asking(body: Callable[..., Any]) -> Callable[..., Any]:
            return govern(body, gate=gate, tool=name, harmless=harmless, unseen=unseen)

        body, async_body = _bodies(plain) if plain else _methods(tool)
        given = _settings(plain) if plain else {"callback": _as_it_is}
        self.inner = FunctionTool(asking(body), tool.metadata, asking(async_body), **given)
        self.__dict__.update(self.inner.__dict__)
        self.pausing = pausing
        if pausing and not self.requires_context:
            self.requires_context, self.ctx_param_name = True, _CONTEXT

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Run the tool, if there is a yes to these arguments."""
        kwargs.pop(_CONTEXT, None)
        try:
            return self.inner.call(*args, **kwargs)
        except _Failed as error:
            return error.output

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Run the tool, if there is a yes to these arguments."""
        context = kwargs.get(self.ctx_param_name) if self.pausing and self.ctx_param_name else None
        kwargs.pop(_CONTEXT, None)
        try:
            return await self.inner.acall(*args, **kwargs)
        except _Failed as error:
            return error.output
        except Pending as error:
            if context is None:
                raise
            # Woken too early it goes on, and the model is told to call again later.
            asked = InputRequiredEvent(prefix=str(error), counterseal_action=error.action)
            await context.wait_for_event(HumanResponseEvent, waiter_event=asked, timeout=None)
            raise


def _bodies(tool: FunctionTool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The function of a tool, for callers that wait and for those that do not, with the parameters that it has."""
    real = tool.real_fn
    return _body(tool.fn, _with_parameters(tool.fn, real)), _async_body(
        tool.async_fn, _with_parameters(tool.async_fn, real)
    )


def _methods(tool: AsyncBaseTool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return _body(tool.call, tool.call), _async_body(tool.acall, tool.acall)


def _body(function: Callable[..., Any], like: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(like)
    def body(*args: Any, **kwargs: Any) -> Any:
        return _succeeded(function(*args, **kwargs))

    return body


def _async_body(function: Callable[..., Any], like: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(like)
    async def body(*args: Any, **kwargs: Any) -> Any:
        return _succeeded(await function(*args, **kwargs))

    return body


def _with_parameters(function: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    """The function, or the real one if LlamaIndex has put one around it that takes whatever it is given."""
    kinds = [one.kind for one in inspect.signature(function).parameters.values()]
    anything = [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]
    return real if kinds == anything else function


def _succeeded(result: Any) -> Any:
    if isinstance(result, ToolOutput) and result.is_error:
        raise _Failed(result)
    return result


def _settings(tool: FunctionTool) -> dict[str, Any]:
    """The settings of a tool that are applied around its function."""
    return {
        "callback": getattr(tool, "_callback", None),
        "async_callback": getattr(tool, "_async_callback", None),
        "partial_params": tool.partial_params,
    }


def _as_it_is(result: Any) -> Any:
    """The output of a tool that makes its own."""
    return result if isinstance(result, ToolOutput) else None


def _refused(why: str, name: str) -> Ungoverned:
    return Ungoverned(f"{why}. Leave it out, or name it: governed(..., ungoverned=[{name!r}]).")
