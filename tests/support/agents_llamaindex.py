"""An agent of LlamaIndex with a scripted model, whose waiting runs are stored as their context."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, LLMMetadata
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.tools import FunctionTool, ToolOutput, ToolSelection
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent

from counterseal_agents import Gate
from counterseal_agents.llama_index import governed
from tests.support.agents_stage import PAY, How


class Scripted(FunctionCallingLLM):
    """A model that makes these calls in each turn, and then is done."""

    turns: Any = ()
    built_in_tools: Any = ()

    @property
    def metadata(self) -> LLMMetadata:
        """The metadata of a model that calls functions."""
        return LLMMetadata(is_function_calling_model=True)

    def _next(self) -> ChatResponse:
        calls = self.turns.pop(0) if self.turns else ()
        return ChatResponse(message=ChatMessage("done" if not calls else "", role="assistant"), raw={"calls": calls})

    async def achat_with_tools(self, *_: Any, **__: Any) -> ChatResponse:
        """The next turn."""
        return self._next()

    def get_tool_calls_from_response(self, response: ChatResponse, *_: Any, **__: Any) -> list[ToolSelection]:
        """Its calls."""
        calls = response.raw["calls"]
        return [ToolSelection(tool_id=f"c{n}", tool_name=name, tool_kwargs=one) for n, (name, one) in enumerate(calls)]

    def _never(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("it is asked with tools only")

    chat = complete = stream_chat = stream_complete = _prepare_chat_with_tools = _never

    async def _anever(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("it is asked with tools only")

    achat = acomplete = astream_chat = astream_complete = _anever


class Changing(FunctionAgent):
    """An agent that changes the arguments of each call, as there is no hook."""

    how: Any = None

    async def _call_tool(self, ctx: Any, tool: Any, tool_input: dict[str, Any]) -> ToolOutput:
        """Changed."""
        return await super()._call_tool(ctx, tool, self.how.change[1] if self.how.change else tool_input)


def agent(how: How, *turns: list[dict[str, Any]], name: str = "pay", pausing: bool = True) -> Any:
    """The agent."""
    body = how.apay if how.abody is not None or how.limit is not None else how.pay
    model = Scripted(turns=[[(name, one) for one in calls] for calls in turns])
    pay = FunctionTool.from_defaults(body, name="pay")
    made = Changing(tools=[pay], llm=model, streaming=False, timeout=how.limit, how=how)
    return made if how.ungoverned else governed(made, how.gate(), pausing=pausing)


async def _told(handler: Any) -> list[str]:
    """The words that the model was told about its calls; the run is canceled with its caller, or where it waits."""
    said: list[str] = []
    try:
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                return said
            if hasattr(event, "tool_output"):
                said.append(str(event.tool_output))
        await handler
    finally:
        await handler.cancel_run()
    return said


def _run(made: Any) -> list[str]:
    async def run() -> list[str]:
        return await _told(made.run("pay"))

    return asyncio.run(run())


def turn(how: How, calls: list[dict[str, Any]]) -> list[str]:
    """The words that the model was told about its calls. Where the framework repeats nothing, the model does."""
    return asyncio.run(aturn(how, calls))


async def aturn(how: How, calls: list[dict[str, Any]]) -> list[str]:
    """The same, in a loop."""
    return await _told(agent(how, *([calls, calls] if how.retry else [calls])).run("pay"))


def pause(how: How, call: dict[str, Any]) -> None:
    """Run until it waits, and store its context."""

    async def run() -> None:
        made = agent(how, [call])
        handler = made.run("pay")
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                how.state.write_text(json.dumps(handler.ctx.to_dict()), encoding="utf-8")
                await handler.cancel_run()
                return
        raise AssertionError("It did not wait.")

    asyncio.run(run())


def edit(how: How, arguments: dict[str, Any]) -> None:
    """Change the call in the store, wherever it stands."""
    text = how.state.read_text(encoding="utf-8")
    for quote in ('\\\\\\"', '\\"', '"'):
        text = text.replace(f"{quote}amount{quote}: {PAY['amount']}", f"{quote}amount{quote}: {arguments['amount']}")
    how.state.write_text(text, encoding="utf-8")


def resume(how: How, call: dict[str, Any]) -> list[str]:
    """Go on with what is stored: with a response, which is no yes."""

    async def run() -> list[str]:
        made = agent(how)
        handler = made.run(ctx=Context.from_dict(made, json.loads(how.state.read_text(encoding="utf-8"))))
        # LlamaIndex does not store its memory with the context.
        await handler.ctx.store.set("memory", ChatMemoryBuffer.from_defaults(llm=made.llm))
        handler.ctx.send_event(HumanResponseEvent(response="yes"))
        return await _told(handler)

    return asyncio.run(asyncio.wait_for(run(), 60))


def hosted(how: How) -> None:
    """A tool that the model's provider runs."""
    _hosted(how.gate(), [])


def _hosted(gate: Gate, ungoverned: list[str]) -> None:
    model = Scripted(built_in_tools=[{"type": "web_search"}])
    governed(FunctionAgent(tools=[], llm=model), gate, ungoverned=["built_in_tools"] if ungoverned else [])


UNSEEN = (_hosted,)


def two_lines(program: str, how: How) -> None:
    """Run the program of two lines."""
    how.ungoverned = True
    room: dict[str, Any] = {"made": agent(how, [{"amount": 5}])}
    exec(program, room)
    _run(room["agent"])
    assert how.ran[-1] == PAY


def added(how: How) -> str:
    """The words about a call of a tool that was added to the agent of a workflow later."""
    how.ungoverned = True
    made = agent(how, [PAY], name="added")
    workflow = governed(AgentWorkflow([made]), how.gate())
    made.tools = [*made.tools, FunctionTool.from_defaults(how.pay, name="added")]
    return _run(workflow)[0]
