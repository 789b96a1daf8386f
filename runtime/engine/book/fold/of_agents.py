"""The fold of agents: the results of their turns and calls. An agent that is over does not change any more."""

from __future__ import annotations

from bisect import insort
from decimal import Decimal
from typing import Any

from core.canonical import Json, JsonObject, digest
from runtime.engine.book.agent_chat import beginning_digest, result_digest
from runtime.engine.book.agent_result import result_of_error
from runtime.engine.book.recorded import RecordedEvent
from runtime.engine.model import events as e
from runtime.engine.model.agent_state import Agent, AgentValues, Called, CallResult, Stage
from runtime.engine.model.keys import StepKey
from runtime.engine.model.run import Run

_BARS = (CallResult.DENIED, CallResult.REJECTED, CallResult.EXPIRED)


def began(run: Run, recorded: RecordedEvent, event: e.AgentBegan) -> None:
    """Begin an agent. In a retried run it begins anew, and the numbers of its turns go on from the last one."""
    key = recorded.step or ""
    before = run.state.agents.get(key)
    turn = 0 if before is None else before.turn
    run.state.agents[key] = Agent(turn=turn, first=turn + 1, digest=beginning_digest(event))
    run.spoken[key] = AgentValues(key, input=event.fixed or {})


def answered(run: Run, recorded: RecordedEvent, event: e.AgentAnswered) -> None:
    """Apply a parsed answer of the model: its calls, or its result."""
    turn, key = recorded.step or "", StepKey.of(recorded.step or "").agent
    agent = run.state.agents.get(key)
    if agent is None or agent.stage is not Stage.ASKED:
        return
    agent.stage = Stage(event.came)
    agent.repairs += agent.stage is Stage.MISFIT
    if agent.stage is Stage.ANSWER:
        run.spoken[key] = AgentValues(key, input=run.spoken[key].input, result=event.result)
    for number, value in enumerate(event.said or (), start=1):
        call: dict[str, Any] = value
        if "refused" in call:
            agent.calls[number] = Called(
                "", came=CallResult.REFUSED, said=result_digest(CallResult.REFUSED, call["refused"])
            )
            agent.refusals += 1
            continue
        agent.made += 1
        agent.asks += bool(call.get("ask"))
        agent.calls[number] = Called(call["digest"], call.get("after", 0))
        run.spoken[f"{turn}/{number}"] = AgentValues(f"{turn}/{number}", call["tool"], call["input"])


def used(run: Run, key: str, usage: JsonObject | None) -> None:
    """Count the tokens and cost of a turn, even if it failed or is tried again."""
    agent = run.state.agents.get(StepKey.of(key).agent)
    if agent is None or usage is None:
        return
    found: dict[str, Any] = usage
    agent.tokens += found.get("input_tokens", 0) + found.get("output_tokens", 0)
    cost = found.get("cost_usd")
    agent.unpriced |= cost is None
    if cost is not None:
        agent.cost = str(Decimal(agent.cost) + Decimal(cost))


def called(run: Run, key: str, uses: JsonObject | None) -> None:
    """Count the usage of the child run that a call has started, and the calls that its agents have made."""
    agent = run.state.agents.get(StepKey.of(key).agent) if StepKey.of(key).is_inner else None
    if agent is None or uses is None:
        return
    counted: Any = uses
    agent.made += counted["calls"]
    for usage in counted["usage"]:
        used(run, key, usage)


def ended(run: Run, key: str, outcome: CallResult, value: Json) -> None:
    """End a turn or a call, with its output or its error."""
    agent = run.state.agents.get(StepKey.of(key).agent)
    at = StepKey.of(key)
    turn, number = at.turn, at.call
    if agent is None or turn != agent.turn or agent.stage is Stage.OVER:
        return
    if not number and outcome is CallResult.DONE:
        agent.digest = digest([agent.digest, value])
    elif not number:
        canceled: JsonObject = {"class": "canceled", "message": "Its turn was canceled."}
        error = value if isinstance(value, dict) else canceled
        agent.stage = Stage.FAILED
        run.spoken[StepKey.of(key).agent] = AgentValues(StepKey.of(key).agent, error=error)
    elif number in agent.calls:
        call = agent.calls[number]
        call.came, call.said = str(outcome), result_digest(outcome, value)
        if outcome in _BARS and call.digest not in agent.barred:
            insort(agent.barred, call.digest)  # sorted, so that the order of the results does not matter


def failed(run: Run, key: str, error: JsonObject) -> None:
    """End a turn or a call that has failed."""
    ended(run, key, result_of_error(error), error)


def waited(run: Run, key: str) -> None:
    """End an agent whose wait is over: it begins no more turns."""
    agent = run.state.agents.get(key)
    if agent is not None:
        agent.stage = Stage.OVER


def forget(run: Run) -> None:
    """Drop the values of agents that are over, and of calls whose turn is over. A call in doubt keeps its values."""
    for key in [key for key in run.spoken if not StepKey.of(key).is_inner or key not in run.steps]:
        agent = run.state.agents.get(StepKey.of(key).agent)
        stale = agent is None or agent.stage is Stage.OVER or StepKey.of(key).turn not in (0, agent.turn)
        if stale:
            del run.spoken[key]
