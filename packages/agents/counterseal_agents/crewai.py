"""CrewAI: crews and agents whose tools ask before they run.

    crew = governed(crew)

The body of each tool spends the permit on the arguments that it gets, after every hook. CrewAI cannot pause at a tool:
the model is told that the call waits, and to call it again, which finds the same question.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from functools import wraps
from typing import Any, TypeVar, cast

from crewai.tools.base_tool import BaseTool, Tool
from crewai.tools.tool_failure import ToolFailure

from counterseal_agents.bodies import as_kind, with_bodies
from counterseal_agents.errors import NotRun, Ungoverned, Unreported
from counterseal_agents.gate import Gate, Raised
from counterseal_agents.govern import GOVERNED, govern

C = TypeVar("C")
# Settings of an agent by which it has tools that are made while it runs.
_ELSEWHERE = ("mcps", "apps", "allow_code_execution")


def governed(crew: C, gate: Gate | None = None, *, ungoverned: Collection[str] = (), harmless: Raised = ()) -> C:
    """The crew or agent, with its tools replaced by ones that ask.

    ``Ungoverned`` for tools that are made while it runs (MCP, apps, code execution) or that run at the model's
    provider, unless named ``ungoverned``.
    """
    asking = gate or Gate()
    inside = [*getattr(crew, "agents", ()), getattr(crew, "manager_agent", None), *getattr(crew, "tasks", ())]
    inside += [getattr(task, "agent", None) for task in getattr(crew, "tasks", ())]
    for one in (crew, *inside):
        if one is None:
            continue
        _check(one, frozenset(ungoverned))
        tools = getattr(one, "tools", None)
        if tools:
            one.tools = [tool if tool.name in ungoverned else governed_tool(tool, asking, harmless) for tool in tools]
    return crew


def governed_tool(tool: Any, gate: Gate, harmless: Raised = ()) -> BaseTool:
    """A copy of the tool whose body asks before it runs. Its answers are not kept: each call asks."""
    if getattr(type(tool), GOVERNED, False):
        return cast(BaseTool, tool)
    if not isinstance(tool, BaseTool):
        raise Ungoverned(f"{getattr(tool, 'name', tool)} is no tool of CrewAI: make it one.")
    kind = type(tool)
    if kind.run not in (BaseTool.run, Tool.run) or kind.arun not in (BaseTool.arun, Tool.arun):
        raise Ungoverned(f"{tool.name} runs in a way of its own, not by _run: it cannot be governed.")

    def asking(body: Callable[..., Any]) -> Callable[..., Any]:
        return _telling(govern(body, gate=gate, tool=tool.name, harmless=harmless))

    made = tool.model_copy(update={"cache_function": _never})
    if isinstance(made, Tool):
        made = made.model_copy(update={"func": asking(made.func)})
        return cast(BaseTool, as_kind(made, {GOVERNED: True, "__module__": kind.__module__}))
    return cast(BaseTool, with_bodies(made, BaseTool, asking, **{GOVERNED: True}))


def _never(_arguments: Any = None, _result: Any = None) -> bool:
    """False: no answer is kept. A call that was answered from memory would have asked nobody."""
    return False


def _telling(body: Callable[..., Any]) -> Callable[..., Any]:
    """The body, whose ends without a result are told to the model, as CrewAI tells of failures."""
    if inspect.iscoroutinefunction(body):

        @wraps(body)
        async def telling_async(*args: Any, **kwargs: Any) -> Any:
            try:
                return await body(*args, **kwargs)
            except (NotRun, Unreported) as error:
                return ToolFailure(message=str(error))

        return telling_async

    @wraps(body)
    def telling(*args: Any, **kwargs: Any) -> Any:
        try:
            return body(*args, **kwargs)
        except (NotRun, Unreported) as error:
            return ToolFailure(message=str(error))

    return telling


def _check(one: Any, ungoverned: frozenset[str]) -> None:
    for name in _ELSEWHERE:
        if getattr(one, name, None) and name not in ungoverned:
            raise _refused(f"{name} gives an agent tools while it runs", name)
    for model in (getattr(one, "llm", None), getattr(one, "function_calling_llm", None)):
        if getattr(model, "builtin_tools", None) and "builtin_tools" not in ungoverned:
            raise _refused("builtin_tools run at the model's provider", "builtin_tools")


def _refused(why: str, name: str) -> Ungoverned:
    return Ungoverned(f"{why}, where nothing asks. Leave it out, or name it: governed(..., ungoverned=[{name!r}]).")
