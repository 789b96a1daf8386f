"""The facts of a run's book in words, for the pages of a question and of a run. They hold no values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from core.identity import Directory


class Fact(Struct, frozen=True):
    """One fact: its time, its symbol with the colour, and what happened."""

    at: datetime
    icon: str
    colour: str
    words: str
    step: str | None = None


_PEOPLE = ("waiting", "slate")
# By the type of a fact: its symbol, colour and words. Other facts are not shown.
_WORDS: dict[str, tuple[str, str, str]] = {
    "run.opened": ("flow", "slate", "The run began"),
    "run.extended": ("flow", "slate", "Steps were added"),
    "run.forked": ("flow", "slate", "It goes on from a point of another run"),
    "run.migrated": ("flow", "slate", "The run moved to another version of its workflow"),
    "run.canceled": ("canceled", "slate", "The run was canceled"),
    "run.paused": ("paused", "slate", "The run was paused"),
    "run.resumed": ("executing", "blue", "The run was resumed"),
    "run.reopened": ("executing", "blue", "The run goes on after it had failed"),
    "run.closed": ("flow", "slate", "The run ended"),
    "step.succeeded": ("applied", "green", "Done"),
    "step.failed": ("failed", "red", "Failed"),
    "step.retry_scheduled": ("paused", "slate", "Will be tried again"),
    "approval.requested": (*_PEOPLE, "People were asked"),
    "approval.said": (*_PEOPLE, "Somebody said something about it"),
    "approval.reassigned": (*_PEOPLE, "It was handed on"),
    "approval.edited": (*_PEOPLE, "It was edited, and is judged anew"),
    "approval.reminded": (*_PEOPLE, "They were reminded"),
    "approval.escalated": (*_PEOPLE, "Others may decide as well"),
    "approval.expired": ("expired", "brown", "The question ran out; nothing was done"),
    "approval.superseded": ("superseded", "slate", "The question became void"),
    "approval.canceled": ("canceled", "slate", "The question was canceled"),
    "approval.vote_refused": ("canceled", "slate", "An answer did not count"),
    "grant.given": ("approved", "green", "The same was allowed in advance"),
    "grant.revoked": ("canceled", "slate", "What was allowed in advance was taken back"),
    "grant.ended": ("expired", "brown", "What was allowed in advance is over"),
    "action.intended": ("executing", "blue", "It was about to be sent"),
    "action.succeeded": ("applied", "green", "It was done"),
    "action.failed": ("failed", "red", "It failed"),
    "action.in_doubt": ("in-doubt", "violet", "No answer came: nobody knows if it was done"),
    "action.doubt_resolved": ("applied", "green", "The doubt was resolved"),
    "action.late": ("in-doubt", "violet", "A late answer came"),
    "preflight.failed": ("denied", "red", "A check before the question failed"),
}
# The code of what a step merely waits for, and its words.
_WAITS = {
    "rate": "It waits for its turn: its target takes so many calls a minute",
    "busy": "It waits, because its target asks for no calls for a while",
    "slack_away": "It waits, because Slack cannot say who is in a group",
    "too_many_questions": "It waits until more people may be asked",
}
_DECIDED = {"allow": ("allowed", "petrol", "Allowed by policy"), "deny": ("denied", "red", "Denied by policy")}
_VOTED = {
    "approve": ("approved", "green", "approved"),
    "reject": ("rejected", "red", "rejected"),
    "happened": ("applied", "green", "said that it happened"),
    "again": ("executing", "blue", "said to do it again"),
    "fail": ("failed", "red", "said that it failed"),
}


def of_step(lines: Iterable[Mapping[str, Any]], step: str, people: Directory) -> list[Fact]:
    """The facts of a step so far."""
    return facts_of((line for line in lines if line.get("step") == step), people)


def facts_of(lines: Iterable[Mapping[str, Any]], people: Directory) -> list[Fact]:
    """The facts, in order."""
    return [fact for line in lines if (fact := _fact(line, people)) is not None]


def _fact(line: Mapping[str, Any], people: Directory) -> Fact | None:
    kind, data, actor = str(line["type"]), line["data"], line["actor"]
    at = datetime.fromisoformat(line["ts"])
    step = line.get("step")
    if kind == "decision.made":
        found = _DECIDED.get(data.get("outcome"))
        return None if found is None else Fact(at, *found, step)
    if kind == "approval.voted":
        symbol, colour, verb = _VOTED.get(data.get("choice"), ("waiting", "slate", "answered"))
        way = data.get("channel", "an unknown way")
        return Fact(at, symbol, colour, f"{named(actor, people)} {verb}, by {way}", step)
    if kind == "action.intended" and data.get("grant") is not None:
        return Fact(at, *_WORDS[kind][:2], "It was about to be sent, as it was allowed in advance", step)
    if kind == "step.retry_scheduled" and data.get("waits") is not None:
        return Fact(at, "waiting", "slate", _WAITS.get(data["waits"], "It waits"), step)
    found = _WORDS.get(kind)
    if found is None:
        return None
    who = f", by {named(actor, people)}" if actor["kind"] == "person" else ""
    return Fact(at, found[0], found[1], f"{found[2]}{who}", step)


def named(actor: Mapping[str, str], people: Directory) -> str:
    """The name of somebody, as the directory has it now; their id if it does not know them."""
    entry = people.entries.get(actor["id"])
    return actor["id"] if entry is None else entry.name
