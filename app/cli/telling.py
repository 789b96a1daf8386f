"""Consequences of a change of the policies in force, in lines for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_OUTCOMES = {"deny": "is denied", "allow": "is allowed", "needs_approval": "is asked anew"}


def consequence_lines(told: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each consequence; nothing where nothing changes."""
    if not told:
        return
    if told["rollback_from"] is not None:
        yield f"This goes back from version {told['rollback_from']}: it is a rollback."
    for rule in told["rules"]:
        yield f"rule {rule['rule']} {rule['what']}"
    for step in told["steps"]:
        place = f"step {step['step']} of {step['workflow']} ({step['operation']})"
        yield f"{place}: {step['before']} → {step['after']}"
    for question in told["questions"]:
        place = f"open question {question['approval']} (run {question['run']}, step {question['step']})"
        yield f"{place} {_OUTCOMES[question['outcome']]}"
    for kind, count in told["more"].items():
        if count:
            yield f"and {count} more {kind}"
    if told["unread"]:
        yield f"{told['unread']} open questions were not looked at beforehand; they are judged when it is in force"
