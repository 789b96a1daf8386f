"""The story of an agent for those who read it: its turns, its calls, what each came to, its tokens and cost. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, TypeAlias

from msgspec import Struct, field

from core.canonical import JsonObject
from runtime.engine import events as e
from runtime.engine.agent_came import came_of
from runtime.engine.agent_plan import ASKED_BEFORE
from runtime.engine.agent_state import Came, agent_of, number_of
from runtime.engine.told import Told

Row: TypeAlias = Mapping[str, Any]


class _Call(Struct):
    source: str
    came: Came
    reason: str = ""


class _Turn(Struct):
    came: str = ""
    said: str = ""
    reason: str = ""
    tokens: int = 0
    cost: Decimal = Decimal(0)
    calls: dict[int, _Call] = field(default_factory=dict)


def stories(told: Iterable[Told]) -> list[Row]:
    """Every agent of a run, from the events in their order, with its turns and their calls."""
    models: dict[str, str] = {}
    agents: dict[str, dict[int, _Turn]] = {}
    for each in told:
        key, event = each.step or "", each.event
        if isinstance(event, e.AgentBegan):
            models[key] = event.model
            agents.setdefault(key, {})
        elif agent_of(key) in agents and "/" in key:
            number, call = number_of(key)
            turn = agents[agent_of(key)].setdefault(number, _Turn())
            if call:
                _of_call(turn, call, event)
            else:
                _of_turn(turn, event)
    return [_agent(key, models[key], turns) for key, turns in agents.items()]


def _of_turn(turn: _Turn, event: e.Event) -> None:
    match event:
        case e.StepSucceeded(usage=usage, output=output):
            _count(turn, usage)
            turn.said = str(output.get("text") or "") if isinstance(output, dict) else ""
        case e.StepFailed(usage=usage, detail=detail):
            _count(turn, usage)
            turn.came, turn.reason = str(came_of(detail or {})), str((detail or {}).get("message", ""))
        case e.StepRetryScheduled(usage=usage):
            _count(turn, usage)
        case e.AgentAnswered():
            turn.came, turn.reason = event.came, event.problem or ""
            for number, ((source, code), said) in enumerate(_pairs(event), start=1):
                came = Came.REFUSED if code else Came.OPEN
                turn.calls[number] = _Call(source, came, str(said.get("refused", "")))


def _pairs(event: e.AgentAnswered) -> Iterator[tuple[tuple[str, str], JsonObject]]:
    said = event.said or [{} for _ in event.calls]
    for told, values in zip(event.calls, said, strict=True):
        source, code = told if isinstance(told, list) else ("?", "")
        yield (str(source), str(code)), values


def _of_call(turn: _Turn, number: int, event: e.Event) -> None:
    call = turn.calls.get(number)
    match event:
        case e.StepSucceeded() if call is not None:
            call.came = Came.DONE
        case e.StepFailed(detail=detail) if call is not None:
            call.came, call.reason = came_of(detail or {}), str((detail or {}).get("message", ""))
        case e.StepCanceled() if call is not None:
            call.came = Came.CANCELED


def _count(turn: _Turn, usage: Mapping[str, Any] | None) -> None:
    if usage is not None:
        turn.tokens += usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
        turn.cost += Decimal(usage.get("cost_usd") or 0)


def _agent(key: str, model: str, turns: Mapping[int, _Turn]) -> Row:
    last = max(turns, default=0)
    for number, turn in turns.items():
        for call in turn.calls.values():
            if call.came is Came.OPEN and number < last:  # it never began
                call.came, call.reason = Came.REFUSED, ASKED_BEFORE
    rows = [_turn_row(key, number, turn) for number, turn in sorted(turns.items())]
    tokens, cost = sum(row["tokens"] for row in rows), sum((turn.cost for turn in turns.values()), Decimal(0))
    calls = sum(len(row["calls"]) for row in rows)
    told = {"step_key": key, "model": model, "turns": rows, "calls": calls}
    return {**told, "tokens": tokens, "cost_usd": str(cost)}


def _turn_row(key: str, number: int, turn: _Turn) -> Row:
    calls = [
        {"step_key": f"{key}/{number}/{place}", "calls": call.source, "came": str(call.came), "reason": call.reason}
        for place, call in turn.calls.items()
    ]
    told = {"step_key": f"{key}/{number}", "came": turn.came, "says": turn.said, "reason": turn.reason}
    return {**told, "tokens": turn.tokens, "cost_usd": str(turn.cost), "calls": calls}
