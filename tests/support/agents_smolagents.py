"""An agent of smolagents with a scripted model. It cannot pause: what waits is called again later."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from smolagents import ActionStep, CodeAgent, Tool, ToolCallingAgent
from smolagents.models import ChatMessage, ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole, Model

from counterseal_agents import Gate
from counterseal_agents.smolagents import governed
from tests.support.agents_stage import PAY, How


class Scripted(Model):
    """A model that answers with these turns: calls, or code."""

    def __init__(self, turns: list[Any]) -> None:
        super().__init__()
        self.turns = turns

    def generate(self, messages: Any, **_: Any) -> ChatMessage:
        """The next turn."""
        turn = self.turns.pop(0) if self.turns else [("final_answer", {"answer": "done"})]
        if isinstance(turn, str):
            return ChatMessage(role=MessageRole.ASSISTANT, content=turn)
        calls = [
            ChatMessageToolCall(ChatMessageToolCallFunction(arguments=given, name=name), id=f"c{n}", type="function")
            for n, (name, given) in enumerate(turn)
        ]
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=calls)


class Pay(Tool):
    """The tool."""

    name = "pay"
    description = "Pay somebody."
    inputs: ClassVar[dict[str, Any]] = {
        "amount": {"type": "integer", "description": "How much."},
        "to": {"type": "string", "description": "Whom.", "nullable": True},
    }
    output_type = "string"

    def __init__(self, how: How) -> None:
        super().__init__()
        self.how = how

    def forward(self, amount: int, to: str | None = "ana") -> str:
        """Paid."""
        return self.how.pay(amount, to or "ana")


class Changing(ToolCallingAgent):
    """An agent that changes the arguments of each call, as there is no hook."""

    how: How

    def execute_tool_call(self, tool_name: str, arguments: Any) -> Any:
        """Changed."""
        changed = self.how.change and tool_name == "pay"
        return super().execute_tool_call(tool_name, self.how.change[1] if changed and self.how.change else arguments)


def agent(how: How, *turns: list[dict[str, Any]]) -> Any:
    """The agent."""
    made = Changing([Pay(how)], Scripted([[("pay", one) for one in calls] for calls in turns]), verbosity_level=-1)
    made.how = how
    return made if how.ungoverned else governed(made, how.gate())


def turn(how: How, calls: list[dict[str, Any]]) -> list[str]:
    """The words that the model was told. Where the framework repeats nothing, the model does."""
    made = agent(how, *([calls, calls] if how.retry else [calls]))
    made.run("pay")
    steps = [step for step in made.memory.steps if isinstance(step, ActionStep) and not step.is_final_answer]
    return [str(step.error or step.observations) for step in steps]


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
    """An executor that runs tools elsewhere."""
    _elsewhere(how.gate(), [])


def _elsewhere(gate: Gate, ungoverned: list[str]) -> None:
    made = CodeAgent([], Scripted([]), verbosity_level=-1)
    made.executor_type = "elsewhere"
    governed(made, gate, ungoverned=ungoverned)


def _own_way(gate: Gate, ungoverned: list[str]) -> None:
    class Own(Pay):
        name = "web_search"

        def __call__(self, *args: Any, **given: Any) -> Any:
            return self.how.pay(5)

    governed(ToolCallingAgent([Own(How(gate.url, None))], Scripted([])), gate, ungoverned=ungoverned)


UNSEEN = (_elsewhere, _own_way)


def two_lines(program: str, how: How) -> None:
    """Run the program of two lines."""
    how.ungoverned = True
    room: dict[str, Any] = {"made": agent(how, [{"amount": 5}])}
    exec(program, room)
    room["agent"].run("pay")
    assert how.ran[-1] == PAY


def added(how: How) -> str:
    """The words about a call that the code of an agent makes, which another agent manages."""
    code = "Thoughts.\n<code>\nadded(amount=5)\n</code>"
    tool = Pay(how)
    tool.name = "added"
    inner = CodeAgent([tool], Scripted([code]), max_steps=1, verbosity_level=-1, name="inner", description="Pays.")
    governed(ToolCallingAgent([], Scripted([]), managed_agents=[inner], verbosity_level=-1), how.gate())
    inner.run("pay")
    return str(inner.memory.steps[1].error)
