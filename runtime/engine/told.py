"""One event as it stands in the book: where, when, by whom, with the values that its line commits to.

A line never holds a value. It holds ``values``: the SHA-256 of the RFC 8785 bytes of the sorted ``[path, commitment]``
pairs of the event's private values (``evidence.commitments``), so that each path can be disclosed by itself. A path is
``/<seq>/<field>``, or ``/<seq>/<field>/<member>`` for each member of an object. An event without private values has
none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from core.canonical import Json, JsonObject, canonical_bytes, sha256_hex
from core.errors import ConsistencyError, InputError
from evidence.commitments import commit, path_of
from evidence.events import Actor, EventType
from evidence.events import Event as Line
from runtime.engine.events import Event, from_parts, parts

# The public name of the digest over an event's private values.
VALUES = "values"


class Diverged(ConsistencyError):
    """The book contradicts itself: a value is not the one that its line commits to, or a move cannot follow.

    ``check`` is the part of the evidence that cannot be right: ``book``, ``chain``, or what shows the book's facts.
    """

    def __init__(self, message: str, check: str = "book") -> None:
        super().__init__(f"{message}.", remedy="Somebody has changed what is stored: compare it with a backup.")
        self.check = check


@dataclass(frozen=True, slots=True)
class Told:
    """One event of a run. ``seq`` is its place in the run's book, counted from 0."""

    seq: int
    event: Event
    actor: Actor
    at: datetime
    step: str | None = None


def values_digest(run_key: bytes, seq: int, values: Mapping[str, Json]) -> str:
    """The commitment to all private values of the event at this place."""
    pairs = sorted([path, commit(run_key, path, value)] for path, value in paths(seq, values))
    return sha256_hex(canonical_bytes(pairs))


def paths(seq: int, values: Mapping[str, Json]) -> Iterator[tuple[str, Json]]:
    """Each path of an event's values with what it holds."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from ((path_of(str(seq), name, member), inner) for member, inner in value.items())
        else:
            yield path_of(str(seq), name), value


def line_of(told: Told, run_key: bytes) -> tuple[Line, JsonObject]:
    """The audit line of an event, still unchained, and the private values to be kept beside it.

    Of a run whose key is lost no value can be told any more: nothing could commit to it.
    """
    facts, values = parts(told.event)
    values = values if run_key else {}
    if values:
        facts[VALUES] = values_digest(run_key, told.seq, values)
    return Line(told.event.TYPE, told.actor, told.at, facts, told.step), values


def read_line(line: bytes, values: Mapping[str, Any], run_key: bytes, *, verify: bool = True) -> Told:
    """Read the event that a stored line and its values tell. ``Diverged`` if the line commits to other values.

    Without ``verify`` the values may be missing.
    """
    try:
        read: dict[str, Any] = orjson.loads(line)
        seq, facts = read["seq"], read["data"]
        committed = facts.pop(VALUES, None)
        actor = Actor(read["actor"]["kind"], read["actor"]["id"])
        kind, at = EventType(read["type"]), datetime.fromisoformat(read["ts"])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise Diverged(f"a line of the book cannot be read: {error}", "chain") from None
    if verify and committed != (_digest_or_none(run_key, seq, values) if values else None):
        raise Diverged(f"line {seq} ({kind}) commits to other values than those that are stored")
    return Told(seq, from_parts(kind, facts, values), actor, at, read["step"])


def _digest_or_none(run_key: bytes, seq: int, values: Mapping[str, Any]) -> str | None:
    """As ``values_digest``; None for what nobody can have committed to."""
    try:
        return values_digest(run_key, seq, values)
    except InputError:
        return None


def pack_values(values: Sequence[tuple[int, JsonObject]]) -> bytes | None:
    """The values of one append as they are stored: a JSON object from the event's place to its values."""
    return orjson.dumps({str(seq): each for seq, each in values if each}) if any(each for _, each in values) else None


def unpack_values(stored: bytes | None) -> Mapping[int, JsonObject]:
    """Read what ``pack_values`` wrote. ``Diverged`` for anything else."""
    try:
        return {} if stored is None else {int(seq): dict(each) for seq, each in orjson.loads(stored).items()}
    except (ValueError, TypeError, AttributeError):
        raise Diverged("the values of an append cannot be read") from None
