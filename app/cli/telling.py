"""Lines for people: the consequences of a change of policy, the sources of values, an agent's story."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from core.canonical import canonical_bytes

# Longer texts of a model or from outside are cut; --json and the evidence hold them in full.
_WORDS_MAX = 160
_OUTCOMES = {"deny": "is denied", "allow": "is allowed", "needs_approval": "is asked anew"}


def consequence_lines(foreseen: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each consequence; nothing if nothing changes."""
    if not foreseen:
        return
    if foreseen["rollback_from"] is not None:
        yield f"This goes back from version {foreseen['rollback_from']}: it is a rollback."
    for rule in foreseen["rules"]:
        yield f"rule {rule['rule']} {rule['what']}"
    for step in foreseen["steps"]:
        place = f"step {step['step']} of {step['workflow']} ({step['operation']})"
        yield f"{place}: {step['before']} → {step['after']}"
    for question in foreseen["questions"]:
        place = f"open question {question['approval']} (run {question['run']}, step {question['step']})"
        yield f"{place} {_OUTCOMES[question['outcome']]}"
    for kind, count in foreseen["more"].items():
        if count:
            yield f"and {count} more {kind}"
    if foreseen["unread"]:
        yield f"{foreseen['unread']} open questions were not looked at beforehand; they are judged when it is in force"


def proposed_by(agent: dict[str, Any] | None) -> dict[str, str]:
    """Fields that name the agent that proposes an action; none for a workflow's own step. Model's words are quoted."""
    if not agent:
        return {}
    words = f"the agent of step {agent['step']} ({agent['model']}), turn {agent['turn']}, for {agent['requester']}"
    return {"proposed_by": words, "has_read": ", ".join(agent["read"]), "the_model_says": agent["says"]}


def source_rows(sources: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    """Yield a row for each source of a value. A value from outside is marked NOT OURS and quoted."""
    for one in sources:
        words = f"{one['words']} {one['of']}".strip()
        yield {
            "field": one["field"],
            "source": words if one["ours"] else f"NOT OURS: {words}",
            "quoted": one["value"],
        }


def story_lines(agent: dict[str, Any]) -> Iterator[str]:
    """Yield an agent's story: for each turn its tokens, what the model asked for, and the result of each call."""
    cost = "at an unknown price" if agent["cost_usd"] is None else f"{agent['cost_usd']} USD"
    facts = [_many(len(agent["turns"]), "turn"), _many(agent["calls"], "call"), f"{agent['refusals']} refused"]
    facts += [_many(agent["tokens"], "token"), cost]
    yield f"{agent['model']}  {agent['status']}: {', '.join(facts)}"
    if agent["limit"]:
        yield f"  it came to its limit of {agent['limit']}"
    for turn in agent["turns"]:
        why = f": {_cut(turn['reason'])}" if turn["reason"] else ""
        yield f"  turn {turn['turn']}  {turn['came'] or turn['status']}, {_many(turn['tokens'], 'token')}{why}"
        if turn["says"] and turn["result"] is None:
            yield f"    the model says: {_cut(turn['says'])}"
        for call in turn["calls"]:
            open_ = f" ({call['status'].replace('_', ' ')})" if call["came"] == "open" and call["status"] else ""
            why = f": {_cut(call['reason'])}" if call["reason"] else ""
            by = f" by {call['by']}" if call["by"] else ""
            name = call["tool"] if call["source"] == "?" else call["source"]
            yield f"    {call['step_key']}  {_cut(name)} {_cut(call['asked'])} → {call['came']}{open_}{by}{why}"
        if turn["result"] is not None:
            yield f"    result: {_cut(canonical_bytes(turn['result']).decode())}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'s'[: count != 1]}"


def _cut(words: str) -> str:
    return words if len(words) <= _WORDS_MAX else f"{words[:_WORDS_MAX]}… ({len(words)} characters)"
