"""Agents in the chaos test: the script of their model, and the checks of its requests and of the calls' results."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from chaos.eyes import Eyes
from runtime.engine.model.keys import StepKey

# Two calls in the first turn: people are asked about the first; the second has no probe if it is in doubt.
_TURNS = (("set_priority", "tell"), ("note",))
_ENDED = ("step.succeeded", "step.failed", "step.canceled")


def turns() -> list[dict[str, Any]]:
    """The messages of every agent's model, one per turn. The workflow fixes everything that differs between runs."""
    made = [{"content": None, "tool_calls": [_call(name) for name in names]} for names in _TURNS]
    return [*made, {"content": "Done."}]


def _call(name: str) -> dict[str, Any]:
    return {"id": f"call-{name}", "type": "function", "function": {"name": name, "arguments": "{}"}}


async def misled(eyes: Eyes, asked: Iterable[Mapping[str, Any]]) -> list[str]:
    """List each agent whose model was asked too often, and each call that does not have exactly one result.

    ``asked`` are the requests that the model has answered.
    """
    rows = await eyes.all(
        "SELECT r.run_id, r.reference, convert_from(l.line, 'UTF8') AS line FROM run_lines l JOIN runs r USING (run_id)"
        " WHERE r.workflow = 'agent' AND l.type IN ('step.started', 'agent.answered', 'step.succeeded', 'step.failed', "
        "'step.canceled') ORDER BY r.run_id, l.seq"
    )
    books: dict[str, list[Any]] = {}
    for row in rows:
        books.setdefault(str(row["reference"]), []).append(orjson.loads(row["line"]))
    requests = Counter(map(_turn_of, asked))
    found = [f"{ref}: its model was asked, and there is no such run" for ref, _ in requests if ref not in books]
    for ref, lines in books.items():
        found += [f"{ref}: {what}" for what in broken(ref, lines, requests)]
    return sorted(found)


def _turn_of(request: Mapping[str, Any]) -> tuple[str, int]:
    """The reference of the run that made the request, and the number of the turn."""
    said: list[Any] = list(request["messages"])
    own = next(str(one["content"]) for one in said if one["role"] == "user")
    return own.rpartition(" ")[2], 1 + sum(one["role"] == "assistant" for one in said)


def broken(ref: str, lines: list[Any], requests: Counter[tuple[str, int]]) -> Iterable[str]:
    """Yield the contradictions in this run's lines and in the requests by run and turn."""
    begun, ended, recorded = Counter[str](), Counter[str](), set[str]()
    calls: dict[str, int] = {}
    for line in lines:
        step, kind = str(line["step"]), line["type"]
        if "/" not in step:
            continue
        if kind == "step.started":
            begun[step] += 1
            if step in recorded:
                yield f"{step} was begun again, although its answer was recorded"
        elif kind == "agent.answered":
            calls[step] = sum(not code for _, code in line["data"]["calls"])
        elif kind in _ENDED:
            ended[step] += 1
            recorded.add(step)
    for turn, count in calls.items():
        for number in range(1, count + 1):
            if (times := ended[f"{turn}/{number}"]) != 1:
                yield f"{turn}/{number} has {times} results"
    for turn in (key for key in begun if StepKey.of(key).is_turn):
        number = StepKey.of(turn).turn
        if requests[ref, number] > begun[turn]:
            yield f"its model was asked {requests[ref, number]} times in turn {number}, which was begun {begun[turn]}"
        if ended[turn] != 1:
            yield f"{turn} was over {ended[turn]} times"


def workflow() -> str:
    """The workflow of these agents. The workflow fixes every argument of their tools."""
    sys_id, ref = "${{ trigger.sys_id }}", "${{ trigger.ref }}"
    tools = [
        ("servicenow.problem.set", "set_priority", {"sys_id": sys_id, "fields": {"priority": "1"}}),
        ("slack.chat.tell", "tell", {"channel": "C0INC", "text": f"{ref}:told"}),
        ("servicenow.problem.note", "note", {"sys_id": sys_id, "work_notes": f"{ref}:n"}),
    ]
    listed = [{"do": operation, "name": name, "with": given} for operation, name, given in tools]
    agent = {"model": "script-given", "instructions": "Do it.", "input": f"Look after {ref}", "tools": listed}
    note = {"sys_id": sys_id, "work_notes": f"{ref}:z"}
    steps = [{"id": "look", "agent": agent}, {"id": "z", "do": "servicenow.problem.note", "with": note}]
    return json.dumps({"workflow": "agent", "version": 1, "reference": ref, "steps": steps})
