"""An agent of Microsoft Agent Framework with a scripted client, whose paused runs are stored as their session."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    ContextProvider,
    FunctionInvocationLayer,
    FunctionMiddleware,
    FunctionTool,
    InMemoryHistoryProvider,
    Message,
)

from counterseal_agents import Gate
from counterseal_agents.agent_framework import governed
from tests.support.agents_stage import PAY, How


class Scripted(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """A client that makes these calls in each turn, and then is done. Its own middleware is the last of all."""

    def __init__(self, turns: list[list[dict[str, Any]]], name: str = "pay", last: Any = ()) -> None:
        super().__init__()
        self.turns, self.name, self.last = turns, name, last

    def get_response(self, messages: Any, *, middleware: Any = None, **given: Any) -> Any:
        """The response, with its own middleware inside of all others."""
        return super().get_response(messages, middleware=[*(middleware or ()), *self.last], **given)

    async def _inner_get_response(self, **_: Any) -> ChatResponse:
        calls = self.turns.pop(0) if self.turns else []
        made = [Content.from_function_call(f"c{n}", self.name, arguments=one) for n, one in enumerate(calls)]
        return ChatResponse(messages=[Message("assistant", made or [Content.from_text("done")])])


class Other(FunctionMiddleware):
    """Another middleware, which changes the arguments of each call, or calls again when a call failed."""

    def __init__(self, how: How) -> None:
        self.how = how

    async def process(self, context: Any, call_next: Any) -> None:
        """Changed, and once more."""
        if self.how.change:
            context.arguments = self.how.change[1]
        if self.how.retry:
            with contextlib.suppress(Exception):
                await call_next()
                return
        await call_next()


def agent(how: How, *turns: list[dict[str, Any]], name: str = "pay", pausing: bool = True) -> Any:
    """The agent, with another middleware around ours or inside of it."""
    body = how.apay if how.abody is not None or how.limit is not None else how.pay
    pay = FunctionTool(name="pay", description="Pay somebody.", func=body)
    inside = (how.change or ("",))[0] == "after" or how.retry == "inside"
    others = [Other(how)] if how.change or how.retry else []
    client = Scripted(list(turns), name, others if inside else ())
    outside = None if inside else others
    made = Agent(client, tools=[pay], context_providers=[InMemoryHistoryProvider()], middleware=outside)
    return made if how.ungoverned else governed(made, how.gate(), pausing=pausing)


def _said(messages: list[Any]) -> list[str]:
    return [str(one.result) for message in messages for one in message.contents if one.type == "function_result"]


def turn(how: How, calls: list[dict[str, Any]]) -> list[str]:
    """The words that the model was told about its calls."""
    return asyncio.run(aturn(how, calls))


async def aturn(how: How, calls: list[dict[str, Any]]) -> list[str]:
    """The same, in a loop. It has no limit of time for tools, so its caller's ends the run."""
    async with asyncio.timeout(how.limit):
        return _said((await agent(how, calls).run("pay", session=AgentSession())).messages)


def pause(how: How, call: dict[str, Any]) -> None:
    """Run until it pauses, and store its session."""
    session = AgentSession()
    (asked,) = asyncio.run(agent(how, [call]).run("pay", session=session)).user_input_requests
    stored = {"session": session.to_dict(), "asked": asked.to_dict()}
    how.state.write_text(json.dumps(stored), encoding="utf-8")


def edit(how: How, arguments: dict[str, Any]) -> None:
    """Change the call in the store, wherever it stands."""
    text = how.state.read_text(encoding="utf-8")
    changed = text.replace(f'"amount": {PAY["amount"]}', f'"amount": {arguments["amount"]}')
    assert changed != text
    how.state.write_text(changed, encoding="utf-8")


def resume(how: How, call: dict[str, Any]) -> list[str]:
    """Go on with what is stored: with an approval, which is no yes."""
    stored = json.loads(how.state.read_text(encoding="utf-8"))
    answer = Content.from_dict(stored["asked"]).to_function_approval_response(approved=True)
    session = AgentSession.from_dict(stored["session"])
    return _said(asyncio.run(agent(how).run(Message("user", [answer]), session=session)).messages)


def hosted(how: How) -> None:
    """A tool that the model's provider runs."""
    _hosted(how.gate(), [])


def _hosted(gate: Gate, ungoverned: list[str]) -> None:
    governed(Agent(Scripted([]), tools=[{"type": "web_search"}]), gate, ungoverned=ungoverned)


def _declared(gate: Gate, ungoverned: list[str]) -> None:
    """A tool that whoever runs the agent performs."""
    governed(Agent(Scripted([]), tools=[FunctionTool(name="web_search")]), gate, ungoverned=ungoverned)


class Bringing(ContextProvider):
    """A provider that brings a tool to each run."""

    def __init__(self, tool: Any) -> None:
        super().__init__("bringing")
        self.tool = tool

    async def before_run(self, *, context: Any, **_: Any) -> None:
        """Brought."""
        context.extend_tools("bringing", [self.tool])


def _brought(gate: Gate, ungoverned: list[str]) -> None:
    made = Agent(Scripted([]), context_providers=[Bringing({"type": "web_search"})])
    asyncio.run(governed(made, gate, ungoverned=ungoverned).run("search"))


UNSEEN = (_hosted, _declared, _brought)


def two_lines(program: str, how: How) -> None:
    """Run the program of two lines."""
    how.ungoverned = True
    room: dict[str, Any] = {"made": agent(how, [{"amount": 5}])}
    exec(program, room)
    asyncio.run(room["agent"].run("pay"))
    assert how.ran[-1] == PAY


def added(how: How) -> str:
    """The words about a call of a tool that a provider brings."""
    brought = FunctionTool(name="added", func=how.pay)
    made = Agent(Scripted([[PAY]], "added"), context_providers=[Bringing(brought)])
    return _said(asyncio.run(governed(made, how.gate()).run("pay")).messages)[0]
