"""An agent of LangChain with a scripted model, on LangGraph, which stores its threads in a file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ToolRetryMiddleware
from langchain_core.callbacks import CallbackManagerForToolRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.prebuilt import InjectedState, ToolRuntime
from langgraph.types import Command

from counterseal_agents.langchain import Governed
from tests.support.agents_stage import How

CAN_PAUSE = True
THREAD = {"configurable": {"thread_id": "t1"}}


class Model(BaseChatModel):
    """A model that calls the tool with each of these arguments in one turn, and then is done."""

    calls: list[dict[str, Any]]
    tool: str = "pay"
    first: int = 0

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> Model:
        """The script needs no tools."""
        return self

    def _generate(self, messages: list[Any], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        answers = [one for one in messages if isinstance(one, ToolMessage)]
        turn = len(answers) // max(1, len(self.calls))
        calls = self.calls if turn < 1 else []
        asked = [{"name": self.tool, "args": args, "id": f"c{turn}-{n}"} for n, args in enumerate(calls, self.first)]
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content="", tool_calls=asked))])


class Changing(AgentMiddleware):
    """Another hook, which changes the arguments of each call."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.arguments = arguments

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Changed."""
        return handler(request.override(tool_call={**request.tool_call, "args": self.arguments}))

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Changed."""
        return await handler(request.override(tool_call={**request.tool_call, "args": self.arguments}))


def agent(how: How, calls: list[dict[str, Any]], saver: Any = None) -> Any:
    """The agent, with what others do around it."""
    middleware: list[Any] = [] if how.ungoverned else [Governed(how.gate())]
    if how.change is not None:
        middleware.insert(0 if how.change[0] == "before" else 1, Changing(how.change[1]))
    if how.retry:
        retry = ToolRetryMiddleware(max_retries=2, initial_delay=0.0, jitter=False)
        middleware.insert(0 if how.retry == "around" else 1, retry)
    coroutine = how.apay if how.abody is not None else None
    tool = StructuredTool.from_function(how.pay, coroutine=coroutine, name="pay")
    made = create_agent(Model(calls=calls), [tool], middleware=middleware, checkpointer=saver)
    made.step_timeout = how.limit
    return made


def turn(how: How, calls: list[dict[str, Any]]) -> list[str]:
    """The words that the model was told about its calls."""
    return asyncio.run(aturn(how, calls)) if how.abody else told(agent(how, calls).invoke(begin()))


async def aturn(how: How, calls: list[dict[str, Any]]) -> list[str]:
    """The same, in a loop."""
    return told(await agent(how, calls).ainvoke(begin()))


def begin() -> dict[str, Any]:
    """The first message of a thread."""
    return {"messages": [HumanMessage("pay")]}


def told(result: dict[str, Any]) -> list[str]:
    """The texts of the tool's answers."""
    return [str(one.content) for one in result["messages"] if isinstance(one, ToolMessage)]


@contextmanager
def saved(how: How) -> Iterator[Any]:
    """The store of threads."""
    with SqliteSaver.from_conn_string(str(how.state)) as saver:
        yield saver


def pause(how: How, call: dict[str, Any]) -> None:
    """Run until it pauses, and leave it to its store."""
    with saved(how) as saver:
        result = agent(how, [call], saver).invoke(begin(), THREAD)
        (interrupt,) = result["__interrupt__"]
        assert interrupt.value["tool"] == "pay"


def edit(how: How, arguments: dict[str, Any]) -> None:
    """Change the call in the store."""
    with saved(how) as saver:
        made = agent(how, [], saver)
        last = made.get_state(THREAD).values["messages"][-1]
        asked = [{**last.tool_calls[0], "args": arguments}]
        made.update_state(THREAD, {"messages": [AIMessage(content="", id=last.id, tool_calls=asked)]}, as_node="model")


def resume(how: How, call: dict[str, Any]) -> list[str]:
    """Go on with what is stored: with a yes of its own, which nobody reads."""
    with saved(how) as saver:
        made = agent(how, [call], saver)
        waits = bool(made.get_state(THREAD).interrupts)
        answer = json.loads('{"approved": true, "decision": "permit"}')
        return told(made.invoke(Command(resume=answer) if waits else None, THREAD))


def hosted(how: How, ungoverned: Sequence[str] = ()) -> None:
    """A tool that the model's provider runs."""
    middleware = [Governed(how.gate(), ungoverned=ungoverned)]
    create_agent(Model(calls=[]), [{"type": "web_search"}], middleware=middleware).invoke(begin())


def two_lines(program: str, how: How) -> None:
    """Run the program of two lines."""
    pay = StructuredTool.from_function(how.pay, name="pay")
    room: dict[str, Any] = {"create_agent": create_agent, "model": Model(calls=[{"amount": 5}]), "pay": pay}
    exec(program, room)
    assert told(room["made"].invoke(begin())) == ["paid 5"]


class AsClass(BaseTool):
    """A tool as a class."""

    name: str = "as_class"
    description: str = "Pay."

    def _run(self, amount: int, run_manager: CallbackManagerForToolRun | None = None) -> str:
        return f"class {amount}"


def kinds_of_tools(how: How) -> list[str]:
    """The answers of tools of other kinds."""

    def injected(
        amount: int, runtime: ToolRuntime, config: RunnableConfig, state: Annotated[dict[str, Any], InjectedState]
    ) -> str:
        """Pay."""
        return f"injected {amount} {runtime.tool_call_id == 'c0-1'} {'messages' in state and bool(config)}"

    async def as_coroutine(amount: int) -> str:
        """Pay."""
        return f"async {amount}"

    tools = [AsClass(), StructuredTool.from_function(injected), StructuredTool.from_function(coroutine=as_coroutine)]
    made: list[str] = []
    for number, one in enumerate(tools):
        model = Model(calls=[{"amount": 5}], tool=one.name, first=number)
        agent = create_agent(model, [one], middleware=[Governed(how.gate())])
        made += told(asyncio.run(agent.ainvoke(begin())))
    return made
