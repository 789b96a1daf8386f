"""The members that lines and files have since the third format: no other, so nobody can add a claim beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from core.errors import InputError
from evidence.events import EventType as E

STATEMENT = frozenset({"_type", "subject", "predicateType", "predicate"})
PREDICATE = frozenset({
    "tenant", "run", "status", "workflow", "policies", "first_seq", "last_seq", "count", "head", "final", "redaction",
    "producer",
})  # fmt: skip
NAMED = frozenset({"name", "version", "digest"})

# What the data of each line of a run may hold besides `_EVERYWHERE`: all public fields of its event.
_OF_LINES: Mapping[E, str] = {
    E.ACTION_DOUBT_RESOLVED: "receipt resolution altered by approval",
    E.ACTION_FAILED: "receipt class code",
    E.ACTION_HELD: "receipt",
    E.ACTION_IN_DOUBT: "receipt",
    E.ACTION_INTENDED: (
        "receipt action operation attempt decision approval replaces shared directory grant covers reverses stop"
    ),
    E.ACTION_LATE: "receipt attempt epoch known sent answered code",
    E.ACTION_RECALLED: "receipt run",
    E.ACTION_SUCCEEDED: "receipt altered",
    E.ACTION_UNNEEDED: "receipt action operation decision",
    E.AGENT_ANSWERED: "came calls",
    E.AGENT_BEGAN: "model tools",
    E.APPROVAL_CONSUMED: "approval directory",
    E.APPROVAL_DECIDED: "approval outcome",
    E.APPROVAL_DELIVERED: "approval channel message",
    E.APPROVAL_ESCALATED: "approval wait rung due",
    E.APPROVAL_EXPIRED: "approval undelivered",
    E.APPROVAL_REMINDED: "approval wait rung due",
    E.APPROVAL_REQUESTED: "approval action card kind tier committed directory secret",
    E.APPROVAL_SUPERSEDED: "approval why directory",
    E.APPROVAL_VOTE_REFUSED: "approval code channel",
    E.APPROVAL_VOTED: (
        "approval choice channel reason_given separation_waived committed grant groups directory identity"
    ),
    E.CHECKPOINT_COMMITTED: "number digest halted",
    E.DECISION_MADE: "decision action operation outcome policies rules errors",
    E.GRANT_ENDED: "grant why directory",
    E.GRANT_GIVEN: "grant approval covers uses until",
    E.GRANT_REVOKED: "grant committed",
    E.HOLD_ANSWERED: "wait kind choice channel reason_given",
    E.LEASE_EXPIRED: "epoch owner",
    E.PREFLIGHT_FAILED: "check operation directory",
    E.RUN_CANCELED: "reason_given committed",
    E.RUN_CLOSED: "status error",
    E.RUN_CONTINUED: "run workflow",
    E.RUN_EXTENDED: "number steps committed early",
    E.RUN_OPENED: "workflow definition trigger workspace committed inherited open tenant parent",
    E.RUN_PAUSED: "reason_given committed stop",
    E.RUN_REFERENCE_SET: "committed",
    E.RUN_REOPENED: "bundle steps reason_given committed",
    E.RUN_RESUMED: "reason_given committed",
    E.RUN_SEALED: "reason_given committed",
    E.RUN_STARTED: "",
    E.STEP_CANCELED: "",
    E.STEP_FAILED: "class code usage released",
    E.STEP_HELD: "wait group class code usage",
    E.STEP_PARKED: "wait kind known",
    E.STEP_RESUMED: "invocation",
    E.STEP_RETRY_SCHEDULED: "wait attempt seconds usage",
    E.STEP_SET_BACK: "setbacks",
    E.STEP_STARTED: "operation attempt epoch",
    E.STEP_SUCCEEDED: "writes usage",
    E.WAIT_CANCELED: "wait kind why",
    E.WAIT_COMPLETED: "wait kind committed",
    E.WAIT_OPENED: "wait kind",
    E.WAIT_POSTPONED: "wait kind due setbacks",
    E.WAIT_TIMED_OUT: "wait kind",
}
_EVERYWHERE = frozenset({"values", "receipt_digest", "stored", "state", "clock_behind", "count"})
OF_LINES: Mapping[str, frozenset[str]] = {
    str(kind): _EVERYWHERE | frozenset(names.split()) for kind, names in _OF_LINES.items()
}
# What members of a line's data hold in their turn.
_WITHIN: Mapping[str, frozenset[str]] = {
    "workflow": NAMED,
    "policies": NAMED,
    "usage": frozenset({"provider", "model", "input_tokens", "output_tokens", "cost_usd"}),
    "identity": frozenset({"named", "by", "token", "session", "slack"}),
    "slack": frozenset({"team", "user", "channel", "message"}),
    "grant": frozenset({"uses", "seconds", "agent"}),
    "error": frozenset({"class", "code", "step"}),
}
# The lines of the tenant that a bundle holds.
OF_TENANT = frozenset({
    "name", "version", "digest", "author", "approver", "by", "consequences", "stop", "paused", "reason",
})  # fmt: skip


def check_members(where: str, found: object, known: frozenset[str]) -> None:
    """Refuse unknown members: ``InputError`` names one that no bundle has there."""
    if isinstance(found, Mapping) and not found.keys() <= known:
        strange = min(map(str, found.keys() - known))
        raise InputError(f"has the member {strange[:100]!r}, which no bundle has", where=where)


def check_line(event: Mapping[str, Any]) -> None:
    """Refuse a line of a run that holds more than the lines of its type: ``InputError`` names what."""
    where, data = f"event {event['seq']}", event["data"]
    check_members(where, data, OF_LINES[event["type"]])
    _check_within(where, data)


def _check_within(where: str, holder: Mapping[str, Any]) -> None:
    """Refuse objects where no line has any, and unknown members of the others."""
    for name, held in holder.items():
        if isinstance(held, Mapping | list):
            for each in _objects(held):
                if name not in _WITHIN:
                    raise InputError(f"has an object as {name!r}, where no line has one", where=where)
                check_members(where, each, _WITHIN[name])
                _check_within(where, each)


def _objects(held: Mapping[str, Any] | list[Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the objects in lists within lists."""
    if isinstance(held, Mapping):
        yield held
        return
    for each in held:
        if isinstance(each, Mapping | list):
            yield from _objects(each)
