"""LangChain and LangGraph: a middleware under which every tool asks before it runs.

    agent = create_agent(model, tools, middleware=[Governed()])

Each call's tool is replaced by a governed copy: its body spends the permit on the arguments that it gets, after every
other middleware. When people are to decide, the run pauses with an interrupt; whatever it is resumed with, the tool
asks again.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection
from contextvars import ContextVar
from typing import Any, cast, get_args, get_type_hints

from langchain.agents.middleware import AgentMiddleware
from langchain_core.callbacks import BaseCallbackManager
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool, Tool
from langgraph.prebuilt import ToolRuntime
from langgraph.types import interrupt

from counterseal_agents.bodies import with_bodies
from counterseal_agents.errors import NotRun, Pending, Ungoverned, Unreported
from counterseal_agents.gate import Gate, Raised
from counterseal_agents.govern import govern

# A run that can pause waits so long for a yes before it does.
WAIT = 3.0
_BY_FRAMEWORK = frozenset({"run_manager", "callbacks", "config"})
# What became of the bodies of one call, told to the middleware around it, in whatever thread they ran.
_ends: ContextVar[list[NotRun | None]] = ContextVar("counterseal_ends")


class Governed(AgentMiddleware[Any, Any]):
    """Every tool of the agent asks. Tools that run at the model's provider are refused, unless named ``ungoverned``.

    Without a gate it is made from the environment. ``harmless``: exceptions by which tools say that they had no effect.
    """

    def __init__(self, gate: Gate | None = None, *, ungoverned: Collection[str] = (), harmless: Raised = ()) -> None:
        super().__init__()
        self.gate = gate or Gate()
        self.ungoverned = frozenset(ungoverned)
        self.harmless = harmless

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Refuse to begin with a tool that nobody here sees run."""
        self._check(request.tools)
        return handler(request)

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Refuse to begin with a tool that nobody here sees run."""
        self._check(request.tools)
        return await handler(request)

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Run the call with a governed tool; pause while people are to decide."""
        if request.tool_call["name"] in self.ungoverned:
            return handler(request)
        pausing = _can_pause(request)
        while True:
            ends: list[NotRun | None] = []
            token = _ends.set(ends)
            try:
                result = handler(request.override(tool=self._governed(request, pausing)))
            except (NotRun, Unreported) as error:
                result = _said(request, error)
            finally:
                _ends.reset(token)
            if not (pausing and ends and isinstance(ends[-1], Pending)):
                return result
            _pause(request, ends[-1])

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Run the call with a governed tool; pause while people are to decide."""
        if request.tool_call["name"] in self.ungoverned:
            return await handler(request)
        pausing = _can_pause(request)
        while True:
            ends: list[NotRun | None] = []
            token = _ends.set(ends)
            try:
                result = await handler(request.override(tool=self._governed(request, pausing)))
            except (NotRun, Unreported) as error:
                result = _said(request, error)
            finally:
                _ends.reset(token)
            if not (pausing and ends and isinstance(ends[-1], Pending)):
                return result
            _pause(request, ends[-1])

    def _check(self, tools: Collection[Any]) -> None:
        for tool in tools:
            if isinstance(tool, BaseTool):
                continue
            name = _name_of(tool)
            if name not in self.ungoverned:
                raise Ungoverned(
                    f"The tool {name} runs at the model's provider or outside this agent, where nothing asks. Leave it "
                    f"out, or name it: Governed(ungoverned=[{name!r}])."
                )

    def _governed(self, request: Any, pausing: bool) -> BaseTool:
        if request.tool is None:
            name = request.tool_call["name"]
            raise NotRun(f"{name} was not run: it is no tool of this agent, so it cannot be governed.")
        gate = self.gate.waiting(min(WAIT, self.gate.terms.wait)) if pausing else self.gate
        return governed_tool(request.tool, gate, self.harmless)


def governed_tool(tool: BaseTool, gate: Gate, harmless: Raised = ()) -> BaseTool:
    """A copy of the tool whose body asks before it runs."""

    def asking(body: Callable[..., Any]) -> Callable[..., Any]:
        unseen = _unseen(body)
        return _noting(govern(body, gate=gate, tool=tool.name, harmless=harmless, unseen=unseen))

    if type(tool) in (StructuredTool, Tool):
        bodies = {name: body for name in ("func", "coroutine") if (body := getattr(tool, name, None)) is not None}
        return tool.model_copy(update={name: asking(body) for name, body in bodies.items()})
    return cast(BaseTool, with_bodies(tool, BaseTool, asking))


def _noting(body: Callable[..., Any]) -> Callable[..., Any]:
    """The body, which leaves word of its end: other middlewares may make something else of its exception."""

    def note(end: NotRun | None) -> None:
        ends = _ends.get(None)
        if ends is not None:
            ends.append(end)

    if inspect.iscoroutinefunction(body):

        async def noting_async(*args: Any, **kwargs: Any) -> Any:
            try:
                result = await body(*args, **kwargs)
            except NotRun as error:
                note(error)
                raise
            note(None)
            return result

        return cast(Callable[..., Any], _like(noting_async, body))

    def noting(*args: Any, **kwargs: Any) -> Any:
        try:
            result = body(*args, **kwargs)
        except NotRun as error:
            note(error)
            raise
        note(None)
        return result

    return cast(Callable[..., Any], _like(noting, body))


def _like(function: Any, body: Any) -> object:
    """The function with the signature and the annotations of the body, from which LangChain reads what to give it."""
    function.__wrapped__ = body
    function.__annotations__ = dict(getattr(body, "__annotations__", {}))
    return function


def _unseen(body: Callable[..., Any]) -> set[str]:
    """The parameters that LangChain fills in itself: no model gives them, and nobody decides on them."""
    names = inspect.signature(body).parameters
    try:
        hints = get_type_hints(body, include_extras=True)
    except (NameError, TypeError):
        hints = dict(getattr(body, "__annotations__", {}))
    return {name for name in names if name in _BY_FRAMEWORK or _is_injected(hints.get(name))}


def _is_injected(hint: Any) -> bool:
    kinds = (InjectedToolArg, ToolRuntime, BaseCallbackManager)
    origin = getattr(hint, "__origin__", hint)
    if isinstance(hint, InjectedToolArg) or (isinstance(origin, type) and issubclass(origin, kinds)):
        return True
    return any(_is_injected(part) for part in (*get_args(hint), *getattr(hint, "__metadata__", ())))


def _can_pause(request: Any) -> bool:
    """True if the run has a thread to be resumed by."""
    config = getattr(request.runtime, "config", None) or {}
    return bool(config.get("configurable", {}).get("thread_id"))


def _pause(request: Any, pending: NotRun) -> None:
    """Pause the run. What it is resumed with is not read: the tool asks again."""
    interrupt({"counterseal_action": pending.action, "tool": request.tool_call["name"], "message": str(pending)})


def _said(request: Any, error: Exception) -> ToolMessage:
    call = request.tool_call
    return ToolMessage(content=str(error), name=call["name"], tool_call_id=call["id"], status="error")


def _name_of(tool: Any) -> str:
    if isinstance(tool, dict):
        function = tool.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        return str(name or tool.get("name") or tool.get("type") or tool)
    return str(getattr(tool, "__name__", tool))
