"""The members that lines and files may have since the third format. All others are refused, so nobody adds a claim."""

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

# What the data of each line of a run may hold besides `_EVERYWHERE`: all public fields of its event. It is text, or:
# `:i` an integer, `:b` true or false, `:l` a list, `:o` an object. `?`: it may be null.
_OF_LINES: Mapping[E, str] = {
    E.ACTION_DOUBT_RESOLVED: "receipt resolution altered:l by approval",
    E.ACTION_FAILED: "receipt class code secrets:l",
    E.ACTION_HELD: "receipt",
    E.ACTION_IN_DOUBT: "receipt secrets:l",
    E.ACTION_INTENDED: (
        "receipt action operation attempt:i decision approval? replaces shared:b directory grant "
        "covers reverses stop:i gate"
    ),
    E.ACTION_LATE: "receipt attempt:i epoch:i known sent answered code secrets:l",
    E.ACTION_RECALLED: "receipt run",
    E.ACTION_SUCCEEDED: "receipt altered:l secrets:l ran",
    E.ACTION_UNNEEDED: "receipt action operation decision",
    E.AGENT_ANSWERED: "came calls:l",
    E.AGENT_BEGAN: "model tools:l",
    E.APPROVAL_CONSUMED: "approval directory",
    E.APPROVAL_DECIDED: "approval outcome",
    E.APPROVAL_DELIVERED: "approval channel message",
    E.APPROVAL_EDITED: "approval fields:l channel directory identity:o",
    E.APPROVAL_ESCALATED: "approval wait rung:i due:i",
    E.APPROVAL_EXPIRED: "approval undelivered:b",
    E.APPROVAL_REASSIGNED: "approval to channel directory identity:o",
    E.APPROVAL_REMINDED: "approval wait rung:i due:i",
    E.APPROVAL_REQUESTED: "approval action? card kind tier committed:l directory secret:b",
    E.APPROVAL_SAID: "approval said channel directory identity:o",
    E.APPROVAL_SUPERSEDED: "approval why directory",
    E.APPROVAL_VOTE_REFUSED: "approval code channel",
    E.APPROVAL_VOTED: (
        "approval choice channel reason_given:b separation_waived:b committed:l grant:o groups:l directory identity:o "
        "on_behalf glass:b"
    ),
    E.CHECKPOINT_COMMITTED: "number:i digest halted:b",
    E.DECISION_MADE: "decision action operation outcome policies:l rules:l errors:l",
    E.GRANT_ENDED: "grant why directory",
    E.GRANT_GIVEN: "grant approval covers uses:i until",
    E.GRANT_REVOKED: "grant committed:l",
    E.HOLD_ANSWERED: "wait kind choice channel reason_given:b",
    E.LEASE_EXPIRED: "epoch:i owner",
    E.PREFLIGHT_FAILED: "check operation directory",
    E.RUN_CANCELED: "reason_given:b committed:l",
    E.RUN_CLOSED: "status error:o?",
    E.RUN_CONTINUED: "run workflow",
    E.RUN_EXTENDED: "number:i steps:l committed:l early:l",
    E.RUN_FORKED: "origin line:i digest checkpoint:i steps:l receipts:l reason_given:b again:l committed:l",
    E.RUN_MIGRATED: "number:i workflow:o definition before reason_given:b committed:l",
    E.RUN_OPENED: "workflow:o definition trigger workspace committed:l inherited:l open:i tenant parent",
    E.RUN_PAUSED: "reason_given:b committed:l stop:i",
    E.RUN_REFERENCE_SET: "committed:l",
    E.RUN_REOPENED: "bundle? steps:l reason_given:b committed:l",
    E.RUN_RESUMED: "reason_given:b committed:l",
    E.RUN_SEALED: "reason_given:b committed:l",
    E.RUN_STARTED: "",
    E.STEP_CANCELED: "",
    E.STEP_FAILED: "class code usage:o released:b",
    E.STEP_HELD: "wait group class code usage:o",
    E.STEP_PARKED: "wait kind known:b",
    E.STEP_RESUMED: "invocation",
    E.STEP_RETRY_SCHEDULED: "wait attempt:i seconds:i usage:o waits",
    E.STEP_SET_BACK: "setbacks:i",
    E.STEP_STARTED: "operation attempt:i epoch:i",
    E.STEP_SUCCEEDED: "writes:l usage:o",
    E.WAIT_CANCELED: "wait kind why",
    E.WAIT_COMPLETED: "wait kind committed:l",
    E.WAIT_OPENED: "wait kind",
    E.WAIT_POSTPONED: "wait kind due:i setbacks:i",
    E.WAIT_TIMED_OUT: "wait kind",
}
_EVERYWHERE = "values receipt_digest stored state clock_behind:i count:i"
_TYPES = {"s": str, "i": int, "b": bool, "l": list, "o": dict}


def _read(members: str) -> Mapping[str, tuple[type, ...]]:
    types: dict[str, tuple[type, ...]] = {}
    for each in members.split():
        name, _, kind = each.rstrip("?").partition(":")
        types[name] = (_TYPES[kind or "s"], *((type(None),) if each.endswith("?") else ()))
    return types


OF_LINES: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    str(kind): _read(f"{members} {_EVERYWHERE}") for kind, members in _OF_LINES.items()
}


def members_of(kind: E) -> list[str]:
    """The members of this type of line besides those of every line, in the notation of ``_OF_LINES``."""
    return [*_OF_LINES[kind].split(), *(["count:i"] if kind is E.RUN_CLOSED else [])]


# The members of objects inside a line's data, by the name under which the object is held.
_WITHIN: Mapping[str, frozenset[str]] = {
    "workflow": NAMED,
    "policies": NAMED,
    "usage": frozenset({"provider", "model", "input_tokens", "output_tokens", "cost_usd"}),
    "identity": frozenset({"named", "by", "token", "session", "slack", "step_up"}),
    "step_up": frozenset({"at", "by"}),
    "slack": frozenset({"team", "user", "channel", "message"}),
    "grant": frozenset({"uses", "seconds", "agent"}),
    "error": frozenset({"class", "code", "step"}),
}
_TEXTS = ("identity", "slack", "step_up")
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
    """Refuse a line of a run with unknown members or values of other types: ``InputError`` names the member."""
    where, data, known = f"event {event['seq']}", event["data"], OF_LINES[event["type"]]
    for name, held in data.items():
        if name not in known:
            raise InputError(f"has the member {name[:100]!r}, which no bundle has", where=where)
        if type(held) not in known[name]:
            raise InputError(f"has {name!r} as what it never is", where=where)
    _check_within(where, data)


def _check_within(where: str, holder: Mapping[str, Any]) -> None:
    """Refuse objects where no line has any, and unknown members of the objects that lines have."""
    for name, held in holder.items():
        if isinstance(held, Mapping | list):
            for each in _objects(held):
                if name not in _WITHIN:
                    raise InputError(f"has an object as {name!r}, where no line has one", where=where)
                check_members(where, each, _WITHIN[name])
                _check_within(where, each)
                if name in _TEXTS and not all(isinstance(one, str | Mapping) for one in each.values()):
                    raise InputError(f"has {name!r} with what is no text", where=where)


def _objects(held: Mapping[str, Any] | list[Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the objects in lists within lists."""
    if isinstance(held, Mapping):
        yield held
        return
    for each in held:
        if isinstance(each, Mapping | list):
            yield from _objects(each)
