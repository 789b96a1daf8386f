"""An agent of OpenAI Agents with a scripted model, whose paused runs are stored in a file."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

from agents import Agent, RunConfig, RunHooks, Runner, RunState, WebSearchTool, function_tool, handoff
from agents.testing import ScriptedModel, assistant_message, function_call

from counterseal_agents import Gate
from counterseal_agents.openai_agents import governed, ready
from tests.support.agents_stage import PAY, How

CAN_PAUSE = True
QUIET = RunConfig(tracing_disabled=True)


class Changing(RunHooks[Any]):
    """Another hook, which changes the arguments of each call just before the tool."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        """Changed."""
        context.tool_call.arguments = json.dumps(self.arguments)


def agent(how: How, *turns: list[dict[str, Any]]) -> Agent[Any]:
    """The agent: it calls with these arguments in each turn, and then is done."""
    steps: list[Any] = [
        [function_call("pay", json.dumps(args), call_id=f"c{n}-{m}") for m, args in enumerate(calls)]
        for n, calls in enumerate(turns)
    ]
    body = how.apay if how.abody is not None or how.limit is not None else how.pay
    tool = function_tool(body, name_override="pay", timeout=how.limit)
    made = Agent(name="payer", model=ScriptedModel([*steps, [assistant_message("done")]]), tools=[tool])
    return made if how.ungoverned else governed(made, how.gate())


def turn(how: How, calls: list[dict[str, Any]]) -> list[str]:
    """The words that the model was told about its calls."""
    return asyncio.run(aturn(how, calls))


async def aturn(how: How, calls: list[dict[str, Any]]) -> list[str]:
    """The same, in a loop. Where the SDK repeats nothing, the model does."""
    turns = [calls, calls] if how.retry else [calls]
    hooks = None if how.change is None else Changing(how.change[1])
    result = await Runner.run(agent(how, *turns), "pay", hooks=hooks, run_config=QUIET)
    return [str(item.output) for item in result.new_items if item.type == "tool_call_output_item"]


def pause(how: How, call: dict[str, Any]) -> None:
    """Run until it pauses, and leave it to its store."""
    result = asyncio.run(Runner.run(agent(how, [call]), "pay", run_config=QUIET))
    assert [one.tool_name for one in result.interruptions] == ["pay"]
    how.state.write_text(result.to_state().to_string(), encoding="utf-8")


def edit(how: How, arguments: dict[str, Any]) -> None:
    """Change the call in the store, wherever it stands."""
    stored = json.loads(how.state.read_text(encoding="utf-8"))

    def changed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: json.dumps(arguments) if key == "arguments" else changed(one) for key, one in value.items()}
        return [changed(one) for one in value] if isinstance(value, list) else value

    how.state.write_text(json.dumps(changed(stored)), encoding="utf-8")


def resume(how: How, call: dict[str, Any]) -> list[str]:
    """Go on with what is stored: with the SDK's own approval, which is no yes."""
    return asyncio.run(_resume(how))


async def _resume(how: How) -> list[str]:
    made = agent(how)
    state = await RunState.from_string(made, how.state.read_text(encoding="utf-8"))
    if not how.ungoverned:
        await ready(state, how.gate())
    for item in state.get_interruptions():
        state.approve(item)
    result = await Runner.run(made, state, run_config=QUIET)
    return [str(item.output) for item in result.new_items if item.type == "tool_call_output_item"]


def hosted(how: How) -> None:
    """A tool that the model's provider runs."""
    governed(Agent(name="payer", tools=[WebSearchTool()]), how.gate())


def two_lines(program: str, how: How) -> None:
    """Run the program of two lines."""
    how.ungoverned = True
    room: dict[str, Any] = {"made": agent(how, [{"amount": 5}])}
    exec(program, room)
    result = asyncio.run(Runner.run(room["agent"], "pay", run_config=QUIET))
    assert "paid 5" in [item.output for item in result.new_items if item.type == "tool_call_output_item"]


async def waiting(how: How) -> int:
    """The number of calls of the stored run that wait for people."""
    state = await RunState.from_string(agent(how), how.state.read_text(encoding="utf-8"))
    return await ready(state, how.gate())


def handed_over(how: How) -> list[str]:
    """The words for an agent that the first one has handed over to, plainly or by a handoff object."""
    said: list[str] = []
    for wrap in (lambda one: one, handoff):
        how.ungoverned = True
        second = agent(how, [PAY])
        second.name = "second"
        steps: list[Any] = [[function_call("transfer_to_second", "{}", call_id="h1")]]
        first = Agent(name="first", model=ScriptedModel(steps), handoffs=[wrap(second)])
        result = asyncio.run(Runner.run(governed(first, how.gate()), "pay", run_config=QUIET))
        said += [str(item.output) for item in result.new_items if item.type == "tool_call_output_item"]
    return said


def _helper(gate: Gate, ungoverned: list[str]) -> None:
    tool = Agent(name="helper").as_tool("web_search", "Helps.")
    governed(Agent(name="payer", tools=[tool]), gate, ungoverned=ungoverned)


def _hosted(gate: Gate, ungoverned: list[str]) -> None:
    governed(Agent(name="payer", tools=[WebSearchTool()]), gate, ungoverned=ungoverned)


def _server(gate: Gate, ungoverned: list[str]) -> None:
    made = Agent(name="payer")
    made.mcp_servers = [SimpleNamespace(name="elsewhere")]
    governed(made, gate, ungoverned=ungoverned)


UNSEEN = (_helper, _hosted, _server)
