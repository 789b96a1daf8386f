"""Recounts the authority of each action from the audit lines alone: an allow, or enough votes of entitled people.

It uses none of the product's own judgement: neither its decision of a question nor its quorum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import orjson

# The number of owners who must agree, by the rule that asks for them (without its policy's name).
PEOPLE = {"priority": 1, "urgency": 2, "nobody": 1, "tone": 1}


def unauthorised(lines: Iterable[bytes], owned: Callable[[str, float], bool]) -> list[str]:
    """List each intent without authority; ``owned`` says if a person was an owner at a time."""
    found = []
    decided: dict[str, dict[str, Any]] = {}
    asked: dict[str, str] = {}
    votes: dict[str, dict[str, tuple[str, float]]] = {}
    for event in map(orjson.loads, lines):
        data, kind = event["data"], event["type"]
        if kind == "decision.made":
            decided[data["decision"]] = {**data, "step": event["step"]}
        elif kind == "approval.requested":
            asked[data["approval"]] = data["action"]
        elif kind == "approval.voted":
            at = datetime.fromisoformat(event["ts"]).timestamp()
            votes.setdefault(data["approval"], {})[event["actor"]["id"]] = (data["choice"], at)
        elif kind == "action.intended":
            given = votes.get(data["approval"] or "", {})
            why = _why_not(event, decided.get(data["decision"]), asked, given, owned)
            if why:
                found.append(f"{event['step']} of {data['receipt']} went out {why}")
    return found


def _why_not(
    event: dict[str, Any],
    decision: dict[str, Any] | None,
    asked: dict[str, str],
    votes: dict[str, tuple[str, float]],
    owned: Callable[[str, float], bool],
) -> str | None:
    data = event["data"]
    if decision is None:
        return "without a decision"
    if any(decision[name] != data[name] for name in ("action", "operation")) or decision["step"] != event["step"]:
        return "by a decision about something else"
    if decision["outcome"] == "allow":
        return None
    if decision["outcome"] != "needs_approval" or asked.get(data["approval"] or "") != data["action"]:
        return f"although it was {decision['outcome']} and nobody was asked about it"
    if any(choice != "approve" for choice, _ in votes.values()):
        return "although somebody rejected it"
    agreed = [person for person, (_, at) in votes.items() if owned(person, at)]
    needed = max((PEOPLE.get(rule.rpartition("/")[2], 0) for rule in decision["rules"]), default=0) or 1
    return None if len(agreed) >= needed else f"with the votes of {sorted(votes)}, of whom {agreed} were owners"
