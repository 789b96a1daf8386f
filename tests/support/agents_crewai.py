"""A crew of CrewAI with a scripted model. It cannot pause: what waits is called again later."""

from __future__ import annotations

import json
import os
from typing import Any

os.environ.update(
    CREWAI_DISABLE_TELEMETRY="true", CREWAI_TRACING_ENABLED="false", OTEL_SDK_DISABLED="true", CREWAI_TESTING="true"
)

from crewai import Agent, BaseLLM, Crew, Task
from crewai.hooks import (
    register_after_tool_call_hook,
    register_before_tool_call_hook,
    unregister_after_tool_call_hook,
    unregister_before_tool_call_hook,
)
from crewai.tools import BaseTool, tool

from counterseal_agents import Gate
from counterseal_agents.crewai import governed
from tests.support.agents_stage import PAY, How

CAN_PAUSE = False
HOW: list[How] = []


class Model(BaseLLM):
    """A model that calls the tool with each of these arguments in each turn, and then is done."""

    turns: list[list[dict[str, Any]]]
    taken: list[int]

    def supports_function_calling(self) -> bool:
        """Yes."""
        return True

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        """The next turn of the script."""
        self.taken.append(1)
        if len(self.taken) > len(self.turns):
            return "done"
        calls = self.turns[len(self.taken) - 1]
        return [
            {
                "id": f"c{len(self.taken)}-{n}",
                "type": "function",
                "function": {"name": "pay", "arguments": json.dumps(one)},
            }
            for n, one in enumerate(calls)
        ]


class Pay(BaseTool):
    """The tool as a class."""

    name: str = "pay"
    description: str = "Pay somebody."

    def _run(self, amount: int, to: str = "ana") -> str:
        return HOW[-1].pay(amount, to)


def crew_of(how: How, turns: list[list[dict[str, Any]]], pay: BaseTool) -> Crew:
    """A crew of one agent with the tool."""
    HOW.append(how)
    agent = Agent(
        role="payer", goal="pay", backstory="pays", tools=[pay], llm=Model(model="scripted", turns=turns, taken=[]),
        max_execution_time=None if how.limit is None else 1, max_retry_limit=0, verbose=False,
    )  # fmt: skip
    return Crew(agents=[agent], tasks=[Task(description="pay", expected_output="paid", agent=agent)], memory=False)


def turn(how: How, calls: list[dict[str, Any]]) -> list[str]:
    """The words that the model was told. Where the framework repeats nothing, the model does."""
    said: list[str] = []
    crew = crew_of(how, [calls, calls] if how.retry else [calls], Pay())
    if not how.ungoverned:
        governed(crew, how.gate())

    def change(context: Any) -> None:
        if how.change is not None:
            context.tool_input.update(how.change[1])

    def note(context: Any) -> None:
        said.append(str(context.tool_result))

    register_before_tool_call_hook(change)
    register_after_tool_call_hook(note)
    try:
        crew.kickoff()
    finally:
        unregister_before_tool_call_hook(change)
        unregister_after_tool_call_hook(note)
    return said


def pause(how: How, call: dict[str, Any]) -> None:
    """Call, and be told that it waits."""
    assert "Call it again later" in turn(how, [call])[0]
    how.state.write_text(json.dumps(call), encoding="utf-8")


def edit(how: How, arguments: dict[str, Any]) -> None:
    """Change the call that is to be made again."""
    how.state.write_text(json.dumps(arguments), encoding="utf-8")


def resume(how: How, call: dict[str, Any]) -> list[str]:
    """Call again."""
    return turn(how, [json.loads(how.state.read_text(encoding="utf-8"))])


def hosted(how: How) -> None:
    """A tool that the model's provider runs."""
    _hosted(how.gate(), [])


def _hosted(gate: Gate, ungoverned: list[str]) -> None:
    model = Model(model="scripted", turns=[], taken=[])
    object.__setattr__(model, "builtin_tools", ["web_search"])
    governed(Agent(role="r", goal="g", backstory="b", tools=[Pay()], llm=model), gate, ungoverned=ungoverned)


def _servers(gate: Gate, ungoverned: list[str]) -> None:
    model = Model(model="scripted", turns=[], taken=[])
    made = Agent(role="r", goal="g", backstory="b", llm=model, mcps=["https://mcp.example.com/api"])
    governed(made, gate, ungoverned=ungoverned)


UNSEEN = (_hosted, _servers)


def two_lines(program: str, how: How) -> None:
    """Run the program of two lines."""
    room: dict[str, Any] = {"made": crew_of(how, [[{"amount": 5}]], Pay())}
    exec(program, room)
    room["crew"].kickoff()
    assert how.ran[-1] == PAY


def by_decorator(how: How) -> str:
    """The answer of a tool that was made of a function."""

    @tool("pay")
    def pay(amount: int) -> str:
        """Pay somebody."""
        return how.pay(amount)

    crew = governed(crew_of(how, [], pay), how.gate())
    return str(crew.agents[0].tools[0].run(amount=7))
