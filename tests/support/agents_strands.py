"""An agent of Strands with a scripted model, whose interrupted runs are stored by its session manager."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from strands import Agent, tool
from strands.hooks import AfterToolCallEvent, BeforeToolCallEvent
from strands.models import Model
from strands.session import FileSessionManager

from counterseal_agents import Gate
from counterseal_agents.strands import governed
from tests.support.agents_stage import PAY, How


class Scripted(Model):
    """A model that calls with these arguments, and then is done."""

    def __init__(self, calls: list[dict[str, Any]], config: dict[str, Any] | None = None) -> None:
        self.calls, self.config, self.name = calls, config or {}, "pay"

    def update_config(self, **_: Any) -> None:
        """Nothing."""

    def get_config(self) -> Any:
        """The configuration."""
        return self.config

    def structured_output(self, *_: Any, **__: Any) -> Any:
        """Nothing: no test asks for an object."""
        raise AssertionError("no object is asked for")

    async def stream(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """The next turn."""
        calls, self.calls = self.calls, []
        yield {"messageStart": {"role": "assistant"}}
        for n, call in enumerate(calls):
            yield {"contentBlockStart": {"start": {"toolUse": {"name": self.name, "toolUseId": f"c{n}"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(call)}}}}
            yield {"contentBlockStop": {}}
        if not calls:
            yield {"contentBlockDelta": {"delta": {"text": "done"}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if calls else "end_turn"}}


def agent(how: How, calls: list[dict[str, Any]], **given: Any) -> Agent:
    """The agent, with another hook that changes arguments or calls again."""
    body = how.apay if how.abody is not None or how.limit is not None else how.pay
    pay = tool(body, name="pay", description="Pay somebody.")
    made = Agent(model=Scripted(calls), tools=[pay], callback_handler=None, agent_id="payer", **given)
    tries: list[int] = []

    def change(event: Any) -> None:
        if how.change is not None:
            event.tool_use = {**event.tool_use, "input": how.change[1]}

    def again(event: Any) -> None:
        tries.append(1)
        event.retry = bool(how.retry) and len(tries) < 2

    made.hooks.add_callback(BeforeToolCallEvent, change)
    made.hooks.add_callback(AfterToolCallEvent, again)
    return made if how.ungoverned else governed(made, how.gate())


def _said(made: Agent) -> list[str]:
    blocks = [block for message in made.messages for block in message["content"]]
    return [str(one["toolResult"]["content"][0]["text"]) for one in blocks if "toolResult" in one]


def turn(how: How, calls: list[dict[str, Any]]) -> list[str]:
    """The words that the model was told about its calls."""
    return asyncio.run(aturn(how, calls))


async def aturn(how: How, calls: list[dict[str, Any]]) -> list[str]:
    """The same, in a loop. It has no limit of time for tools, so its caller's ends the run."""
    made = agent(how, calls)
    async with asyncio.timeout(how.limit):
        await made.invoke_async("pay")
    return _said(made)


def _stored(how: How) -> FileSessionManager:
    return FileSessionManager("one", storage_dir=str(how.state))


def pause(how: How, call: dict[str, Any]) -> None:
    """Run until it is interrupted, and leave it to its store."""
    result = agent(how, [call], session_manager=_stored(how))("pay")
    assert result.stop_reason == "interrupt"
    (how.state / "interrupt").write_text(result.interrupts[0].id, encoding="utf-8")


def edit(how: How, arguments: dict[str, Any]) -> None:
    """Change the call in the store, wherever it stands."""
    for file in how.state.rglob("*.json"):
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace(f'"amount": {PAY["amount"]}', f'"amount": {arguments["amount"]}'), "utf-8")


def resume(how: How, call: dict[str, Any]) -> list[str]:
    """Go on with what is stored: with a response, which is no yes."""
    made = agent(how, [], session_manager=_stored(how))
    asked = (how.state / "interrupt").read_text(encoding="utf-8")
    made([{"interruptResponse": {"interruptId": asked, "response": "yes"}}])
    return _said(made)


def hosted(how: How) -> None:
    """A tool that the model's provider runs."""
    _hosted(how.gate(), [])


def _hosted(gate: Gate, ungoverned: list[str]) -> None:
    made = Agent(model=Scripted([], {"params": {"tools": [{"type": "web_search"}]}}))
    governed(made, gate, ungoverned=["tools"] if ungoverned else [])


def _helper(gate: Gate, ungoverned: list[str]) -> None:
    helper = agent(How("", Path(), ungoverned=True), []).as_tool(name="web_search", description="Helps.")
    governed(Agent(model=Scripted([]), tools=[helper]), gate, ungoverned=ungoverned)


UNSEEN = (_hosted, _helper)


def two_lines(program: str, how: How) -> None:
    """Run the program of two lines."""
    how.ungoverned = True
    room: dict[str, Any] = {"made": agent(how, [{"amount": 5}])}
    exec(program, room)
    room["agent"]("pay")
    assert how.ran[-1] == PAY


def added(how: How) -> str:
    """The words about a call of a tool that was registered later."""
    made = agent(how, [PAY])
    made.model.name = "added"
    made.tool_registry.register_tool(tool(how.pay, name="added", description="Pay somebody."))
    made("pay")
    return _said(made)[0]
