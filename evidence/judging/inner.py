"""Judges agents and child runs: a call needs the answer that made it; a step that starts a run must name it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from evidence.events import EventType as E
from evidence.judging.case import Case, Judge, split_key
from evidence.judging.steps import RUNNING, SUCCEEDED, Steps

_STARTS = ("run", "continue_with")


class _Agent(Struct):
    model: str
    tools: frozenset[str]
    began: int
    answers: dict[int, tuple[str, list[Any]]] = field(default_factory=dict)
    turns: set[int] = field(default_factory=set)


class Inner(Judge):
    """Follows agents' turns and calls, and runs that were started."""

    name = "agents and runs within"

    def __init__(self, case: Case, steps: Steps) -> None:
        super().__init__(case)
        self.steps = steps
        self.calls = 0
        self._agents: dict[str, _Agent] = {}
        self._started: set[str] = set()

    def observe(self, event: dict[str, Any]) -> None:
        """Follow one event of the chain."""
        kind, key = event["type"], event["step"]
        if kind == E.AGENT_BEGAN:
            data = event["data"]
            tools = frozenset(map(str, data["tools"] or ()))
            self._agents[str(key)] = _Agent(str(data["model"]), tools, event["seq"])
            steps = self.steps.steps
            step = None if steps is None else steps.get(split_key(str(key))[1])
            if step is not None and (data["model"] != step.model or tools != {*(step.tools or ())}):
                self.fault(event, f"{key} has another model, or other tools, in the workflow")
        elif kind == E.AGENT_ANSWERED:
            self._answered(event, str(key))
        elif kind == E.STEP_STARTED and isinstance(key, str) and "/" in key:
            self._began(event, key)
        elif kind == E.STEP_SUCCEEDED and isinstance(key, str):
            self._succeeded(event, key)
        elif kind == E.RUN_CONTINUED:
            self._continued(event, str(key))
        elif kind == E.RUN_REOPENED:
            again = {str(pair[0]) for pair in event["data"]["steps"] if isinstance(pair, list) and pair}
            self._started -= again

    def _at(self, key: str) -> tuple[_Agent | None, int, int]:
        """The agent of a turn or a call, and their numbers."""
        prefix, node, inner = split_key(key)
        turn, _, call = inner.partition("/")
        numbers = (int(turn) if turn.isdecimal() else 0, int(call) if call.isdecimal() else 0)
        return (self._agents.get(prefix + node), *numbers)

    def _began(self, event: dict[str, Any], key: str) -> None:
        agent, turn, call = self._at(key)
        if agent is None:
            self.fault(event, f"{key} begins, and its agent has not")
            return
        if not call:
            before = agent.answers.get(turn - 1)
            if agent.turns and turn not in agent.turns and before is None:  # an agent that begins anew goes on counting
                self.fault(event, f"turn {turn} begins without the answer of the turn before")
            elif before is not None and before[0] == "answer":
                self.fault(event, f"turn {turn} begins after the agent had given its result")
            agent.turns.add(turn)
            return
        self.calls += 1
        _, made = agent.answers.get(turn, ("", []))
        pair = made[call - 1] if 0 < call <= len(made) else None
        if not isinstance(pair, list) or len(pair) != 2 or pair[1] != "":
            self.fault(event, f"no model has made the call {key}")
        elif not self._is_of(str(pair[0]), key, str(event["data"].get("operation"))):
            self.fault(event, f"the model called {pair[0]}, and {event['data'].get('operation')} begins")

    def _is_of(self, source: str, key: str, operation: str) -> bool:
        """True if a call of this tool becomes a step with this operation."""
        steps = self.steps.steps
        if steps is None:
            return operation in (source, "task", "run")
        step = steps.get(split_key(key)[1])
        return step is not None and (step.tools or {}).get(source) == operation

    def _answered(self, event: dict[str, Any], key: str) -> None:
        agent, turn, _ = self._at(key)
        calls = event["data"]["calls"] if isinstance(event["data"]["calls"], list) else []
        life = self.steps.begun.get(key)
        if agent is None or turn not in agent.turns or life is None or life.state != SUCCEEDED:
            self.fault(event, f"the answer of {key} is told, and the model has given none")
        if agent is None:
            return
        if turn in agent.answers:
            self.fault(event, f"{key} was answered before")
        for call in calls:
            if isinstance(call, list) and call and call[-1] == "" and call[0] not in agent.tools:
                self.fault(event, f"the model may not call {call[0]}")
        agent.answers[turn] = (str(event["data"]["came"]), calls)

    def _succeeded(self, event: dict[str, Any], key: str) -> None:
        life = self.steps.begun.get(key)
        if life is not None and life.operation in _STARTS and key not in self._started:
            self.fault(event, f"{key} succeeded, and no line names the run that it started")
        agent, turn, call = self._at(key)
        usage = event["data"].get("usage")
        if agent is not None and turn and not call and isinstance(usage, dict) and usage.get("model") != agent.model:
            self.fault(event, f"the model {usage.get('model')} answered, and the agent is that of {agent.model}")

    def _continued(self, event: dict[str, Any], key: str) -> None:
        life = self.steps.begun.get(key)
        if life is None or life.operation not in _STARTS or life.state != RUNNING:
            self.fault(event, "a run is started by no step that runs another")
        self._started.add(key)
        steps = self.steps.steps
        step = None if steps is None else steps.get(split_key(key)[1])
        if step is not None and "/" not in key and step.workflow != event["data"]["workflow"]:
            self.fault(event, f"{key} runs {step.workflow}, and {event['data']['workflow']} was started")
