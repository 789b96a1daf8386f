"""The members that the JSON files of a bundle have since the third format: no other, because nothing binds another."""

from __future__ import annotations

from collections.abc import Mapping

from core.errors import InputError

RUN = frozenset({
    "tenant", "workspace", "run", "trigger", "status", "opened_at", "closed_at", "inputs", "outputs", "state",
    "attempts", "canceled", "workflow", "origins",
})  # fmt: skip
CANCELED = frozenset({"by", "reason", "reason_disclosure"})
HEAD = frozenset({"v", "tenant", "run", "count", "head", "final", "appends"})
APPROVAL = frozenset({
    "approval", "action", "status", "card_commitment", "card_disclosure", "card", "asked", "asked_disclosure", "votes",
})  # fmt: skip
VOTE = frozenset({"voter", "choice", "channel", "at", "reason", "reason_disclosure"})
STATEMENT = frozenset({"_type", "subject", "predicateType", "predicate"})
PREDICATE = frozenset({
    "tenant", "run", "status", "workflow", "policies", "first_seq", "last_seq", "count", "head", "final", "redaction",
    "producer",
})  # fmt: skip
NAMED = frozenset({"name", "version", "digest"})


def check_members(where: str, found: object, known: frozenset[str]) -> None:
    """Refuse unknown members: ``InputError`` names one that no bundle has there."""
    strange = sorted(found.keys() - known) if isinstance(found, Mapping) else []
    if strange:
        raise InputError(f"has the member {strange[0][:100]!r}, which no bundle has", where=where)
