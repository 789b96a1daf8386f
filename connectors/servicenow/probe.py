"""What a record shows about an earlier write of ours. Pure: everything that was read is handed in."""

from __future__ import annotations

from dataclasses import dataclass

from connectors.port import Before, Done, Probe, ProbeVerdict
from core.canonical import JsonObject

VERSION = "sys_mod_count"
MARGIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a probe found. ``marker`` is the journal entry with our mark: None where the call wrote no journal."""

    record: JsonObject
    marker: bool | None


@dataclass(frozen=True, slots=True)
class Expectation:
    """What was intended (journal fields apart), what was read before, whose name our writes bear, and the limit."""

    fields: JsonObject
    before: Before | None
    username: str | None
    transaction_limit_seconds: float


def judge(expected: Expectation, seen: Sighting, done: Done, *, seconds_since_intent: float) -> Probe:
    """Applied, not applied, or cannot tell, with the evidence in words. ``done`` is the result if it was applied.

    The Table API has no idempotency key, so the verdict rests on our mark in the journal, on the fields, on the count
    of modifications and on who made the last one. Absence proves nothing before the transaction limit has passed.
    """
    if seen.marker:
        return Probe(ProbeVerdict.APPLIED, "the record's journal holds the entry with this action's mark", done)
    if expected.before is None:
        return _cannot_tell("the record was not read before the write, so there is nothing to compare it with")
    version, now = expected.before.version, str(seen.record.get(VERSION, ""))
    if not _is_count(version) or not _is_count(now):
        return _cannot_tell(f"{VERSION} was {version!r} and is {now!r}, which cannot be compared")
    count, count_now = int(version or ""), int(now)
    as_intended = all(seen.record.get(name) == value for name, value in expected.fields.items())
    if count_now == count:
        return _unmodified(expected, done, as_intended, count, seen.marker, seconds_since_intent)
    editor = str(seen.record.get("sys_updated_by", ""))
    modified = f"{VERSION} went from {count} to {count_now}, last changed by {editor or 'nobody named'}"
    if seen.marker is False:
        return _cannot_tell(f"{modified}, yet no journal entry that our user can see bears this action's mark")
    if not as_intended:
        return _cannot_tell(f"{modified}, and the fields are not as intended: {_differing(expected, seen)}")
    if not expected.username:
        return _cannot_tell(f"{modified}, the fields are as intended, but our own user name is not configured")
    if editor != expected.username:
        return _cannot_tell(f"{modified}, the fields are as intended, but we are {expected.username}")
    return Probe(ProbeVerdict.APPLIED, f"{modified}, which is us, and all fields are as intended", done)


def _unmodified(
    expected: Expectation, done: Done, as_intended: bool, count: int, marker: bool | None, seconds_since_intent: float
) -> Probe:
    if as_intended and marker is None and expected.fields:
        return Probe(ProbeVerdict.APPLIED, "the fields held the intended values before, and hold them now", done)
    missing = expected.transaction_limit_seconds - seconds_since_intent
    if missing > 0:
        words = f"{VERSION} is still {count}, but a transaction may run for {expected.transaction_limit_seconds:g} s"
        return Probe(ProbeVerdict.CANNOT_TELL, words, retry_after_seconds=missing + MARGIN_SECONDS)
    return Probe(
        ProbeVerdict.NOT_APPLIED,
        f"{VERSION} is still {count}, {seconds_since_intent:.0f} s after the intent: nothing was written since",
    )


def _cannot_tell(evidence: str) -> Probe:
    return Probe(ProbeVerdict.CANNOT_TELL, evidence)


def _differing(expected: Expectation, seen: Sighting) -> str:
    return ", ".join(sorted(name for name, value in expected.fields.items() if seen.record.get(name) != value))


def _is_count(text: str | None) -> bool:
    return bool(text) and str(text).isascii() and str(text).isdigit()
