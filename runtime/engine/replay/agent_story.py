"""The story of an agent by turns, as faces show it: what its model asked for, and the result of each call. Pure.

The story is made from the events of turns and calls. Its words come from the model and from outside, so faces quote
them. A call is shown by the text that the model wrote, so neither fixed nor secret inputs are in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from msgspec import Struct, field

from core.canonical import Json, JsonObject
from runtime.engine.book.agent_plan import ASKED_BEFORE
from runtime.engine.book.agent_result import result_of_error
from runtime.engine.book.recorded import RecordedEvent
from runtime.engine.model import events as e
from runtime.engine.model.agent_state import Agent, CallResult, Stage
from runtime.engine.model.keys import StepKey
from runtime.engine.model.rows import StepRow
from runtime.engine.replay.past import Past, Row


class _Turn(Struct):
    """One turn, from its events so far. ``results`` holds the results of its calls, by their numbers.

    Each has the kind of the result, its reason, and who gave it. Number 0 is the turn itself, if it failed.
    """

    output: JsonObject = field(default_factory=dict)
    usage: list[Mapping[str, Any]] = field(default_factory=list)
    answered: e.AgentAnswered | None = None
    results: dict[int, tuple[CallResult, str, str]] = field(default_factory=dict)


class _Story(Struct):
    model: str
    tools: list[Json]
    turns: dict[int, _Turn] = field(default_factory=dict)


def stories(past: Past, recorded: Iterable[RecordedEvent]) -> list[Row]:
    """The agents of a run in the order of their keys, each with its turns."""
    found: dict[str, _Story] = {}
    for each in recorded:
        key = each.step or ""
        if isinstance(each.event, e.AgentBegan):
            turns = found[key].turns if key in found else {}
            found[key] = _Story(each.event.model, each.event.tools, turns)
        elif found and StepKey.of(key).is_inner:
            _take(found[StepKey.of(key).agent].turns, key, each.event)
    if not found:
        return []
    steps = {step.key: step for step in past.steps()}
    return [_shown(key, story, past, steps) for key, story in sorted(found.items())]


def _take(turns: dict[int, _Turn], key: str, event: e.Event) -> None:
    at = StepKey.of(key)
    number, call = at.turn, at.call
    turn = turns.setdefault(number, _Turn())
    match event:
        case e.AgentAnswered():
            turn.answered = event
        case e.StepSucceeded(output=output) if not call:
            turn.output = output if isinstance(output, dict) else {}
        case e.StepSucceeded():
            turn.results[call] = (CallResult.DONE, "", "")
        case e.StepFailed(detail=detail):
            facts = detail or {}
            turn.results[call] = (result_of_error(facts), str(facts.get("message") or ""), str(facts.get("by") or ""))
        case e.StepCanceled():
            turn.results[call] = (CallResult.CANCELED, "", "")
        case _:
            pass
    if not call and isinstance(event, e.StepSucceeded | e.StepFailed | e.StepRetryScheduled) and event.usage:
        turn.usage.append(event.usage)


def _shown(key: str, story: _Story, past: Past, steps: Mapping[str, StepRow]) -> Row:
    agent, own = past.run.state.agents.get(key), steps.get(key)
    turns = [_turn(f"{key}/{number}", turn, agent, steps) for number, turn in sorted(story.turns.items())]
    calls = [call for turn in turns for call in turn["calls"]]
    costs = [used.get("cost_usd") for turn in story.turns.values() for used in turn.usage]
    return {
        "step_key": key,
        "model": story.model,
        "tools": story.tools,
        "status": "" if own is None else str(own.status),
        "limit": past.limits.get(key, ""),
        "calls": len(calls),
        "refusals": sum(call["came"] == CallResult.REFUSED for call in calls),
        "tokens": sum(turn["tokens"] for turn in turns),
        "cost_usd": None if None in costs else f"{sum(map(Decimal, filter(None, costs)), Decimal()):f}",
        "turns": turns,
    }


def _turn(key: str, turn: _Turn, agent: Agent | None, steps: Mapping[str, StepRow]) -> Row:
    answered, own = turn.answered, steps.get(key)
    tokens = sum(used.get("input_tokens", 0) + used.get("output_tokens", 0) for used in turn.usage)
    outcome, reason, _ = turn.results.get(0, ("", "", ""))
    return {
        "turn": StepKey.of(key).turn,
        "step_key": key,
        "status": "" if own is None else str(own.status),
        "came": str(outcome) if answered is None else str(answered.came),
        "reason": reason if answered is None else answered.problem or "",
        "tokens": tokens,
        "says": str(turn.output.get("text") or ""),
        "result": None if answered is None or answered.came != Stage.ANSWER else answered.result,
        "calls": [*_calls(key, turn, agent, steps)],
    }


def _calls(key: str, turn: _Turn, agent: Agent | None, steps: Mapping[str, StepRow]) -> Iterator[Row]:
    open_ = agent.calls if agent is not None and StepKey.of(key).turn == agent.turn else {}
    calls = (turn.answered and turn.answered.said) or []
    wrote = turn.output.get("tool_calls")
    for number, call in enumerate(calls, start=1):
        step = steps.get(f"{key}/{number}")
        given = wrote[number - 1] if isinstance(wrote, list) and number <= len(wrote) else {}
        function = given.get("function") if isinstance(given, dict) else None
        refused = call.get("refused")
        if refused is not None:
            outcome, reason, by = CallResult.REFUSED, str(refused), ""
        elif step is not None or (number in open_ and not open_[number].over):
            outcome, reason, by = turn.results.get(number, (CallResult.OPEN, "", ""))
        else:
            outcome, reason, by = CallResult.REFUSED, ASKED_BEFORE, ""
        yield {
            "step_key": f"{key}/{number}",
            "tool": call.get("tool"),
            "source": call.get("source"),
            "asked": str(function.get("arguments") or "") if isinstance(function, dict) else "",
            "came": str(outcome),
            "reason": reason,
            "by": by,
            "status": "" if step is None else str(step.status),
        }
