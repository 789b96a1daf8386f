"""An agent of Pydantic AI with a scripted model, whose paused runs are stored in a file."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, Tool
from pydantic_ai.capabilities import AbstractCapability, NativeTool
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.toolsets import WrapperToolset

from counterseal_agents import Gate
from counterseal_agents.pydantic_ai import Governed
from tests.support.agents_stage import PAY, How


@dataclass
class Other(AbstractCapability[Any]):
    """Another capability, which changes the arguments of each call, or calls again when a call failed."""

    how: How

    async def before_tool_execute(self, ctx: Any, *, args: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Changed."""
        return args if self.how.change is None else self.how.change[1]

    async def wrap_tool_execute(self, ctx: Any, *, args: dict[str, Any], handler: Any, **_: Any) -> Any:
        """Once more."""
        if self.how.retry:
            with contextlib.suppress(Exception):
                return await handler(args)
        return await handler(args)


def agent(how: How, *turns: list[dict[str, Any]], own: Governed | None = None, **given: Any) -> Agent[None, Any]:
    """The agent: it calls with these arguments in each turn, and then is done."""
    left = [[ToolCallPart("pay", one, tool_call_id=f"c{t}-{n}") for n, one in enumerate(calls)]
            for t, calls in enumerate(turns)]  # fmt: skip

    def model(messages: Any, info: Any) -> ModelResponse:
        return ModelResponse(parts=left.pop(0) if left else [TextPart("done")])

    body = how.apay if how.abody is not None or how.limit is not None else how.pay
    ours = [] if how.ungoverned else [own or Governed(how.gate(), pausing=True)]
    outside = (how.change or ("",))[0] == "before" or how.retry == "around"
    others = [Other(how)] if how.change or how.retry else []
    return Agent(
        FunctionModel(model), tools=[Tool(body, name="pay", timeout=how.limit)],
        output_type=[str, DeferredToolRequests],
        capabilities=[*others, *ours] if outside else [*ours, *others], **given,
    )  # fmt: skip


def _said(result: Any) -> list[str]:
    parts = [part for message in result.all_messages() for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]


def turn(how: How, calls: list[dict[str, Any]]) -> list[str]:
    """The words that the model was told about its calls."""
    return asyncio.run(aturn(how, calls))


async def aturn(how: How, calls: list[dict[str, Any]]) -> list[str]:
    """The same, in a loop."""
    return _said(await agent(how, calls).run("pay"))


def pause(how: How, call: dict[str, Any]) -> None:
    """Run until it pauses, and leave it to its store."""
    result = asyncio.run(agent(how, [call]).run("pay"))
    assert isinstance(result.output, DeferredToolRequests)
    assert [one.tool_name for one in result.output.approvals] == ["pay"]
    how.state.write_bytes(result.all_messages_json())


def edit(how: How, arguments: dict[str, Any]) -> None:
    """Change the call in the store."""
    stored = json.loads(how.state.read_bytes())
    stored[-1]["parts"][0]["args"] = arguments
    how.state.write_text(json.dumps(stored), encoding="utf-8")


def resume(how: How, call: dict[str, Any]) -> list[str]:
    """Go on with what is stored: with the framework's own approval, which is no yes."""
    history = ModelMessagesTypeAdapter.validate_json(how.state.read_bytes())
    given = DeferredToolResults(approvals={"c0-0": True})
    return _said(asyncio.run(agent(how).run(message_history=history, deferred_tool_results=given)))


def hosted(how: How) -> None:
    """A tool that the model's provider runs."""
    _hosted(how.gate(), [])


def _hosted(gate: Gate, ungoverned: list[str]) -> None:
    how = How(gate.url, Path())
    own = Governed(gate, ungoverned=ungoverned)
    made = agent(how, own=own)
    made.run_sync("search", capabilities=[NativeTool(WebSearchTool())])


UNSEEN = (_hosted,)


def two_lines(program: str, how: How) -> None:
    """Run the program of two lines."""
    how.ungoverned = True
    room: dict[str, Any] = {"Agent": Agent, "pay": how.pay, "model": agent(how, [{"amount": 5}]).model}
    exec(program, room)
    room["agent"].run_sync("pay")
    assert how.ran[-1] == PAY


@dataclass
class Adding(WrapperToolset[Any]):
    """A wrapper with a tool of its own."""

    how: How

    async def get_tools(self, ctx: Any) -> dict[str, Any]:
        """One more."""
        tools = await super().get_tools(ctx)
        own = replace(tools["pay"], toolset=self, tool_def=replace(tools["pay"].tool_def, name="added"))
        return {**tools, "added": own}

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
        """The tool."""
        return self.how.pay(**tool_args) if name == "added" else await super().call_tool(name, tool_args, ctx, tool)


@dataclass
class Wrapping(AbstractCapability[Any]):
    """A capability that brings the wrapper."""

    how: How

    def get_wrapper_toolset(self, toolset: Any) -> Any:
        """Wrapped."""
        return Adding(toolset, self.how)


def added(how: How) -> str:
    """The words about a call of a tool that a wrapper has added."""
    left = [[ToolCallPart("added", PAY)]]
    made = agent(how)
    with made.override(model=FunctionModel(lambda *_: ModelResponse(left.pop() if left else [TextPart("done")]))):
        return _said(made.run_sync("pay", capabilities=[Wrapping(how)]))[0]
