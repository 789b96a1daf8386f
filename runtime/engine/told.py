"""One event as it stands in the book: where, when, by whom, with the values that its line commits to.

A line never holds a value. It holds ``values``: the SHA-256 of the RFC 8785 bytes of the sorted ``[path, commitment]``
pairs of the event's private values (``evidence.commitments``), so that each path can be disclosed by itself. A path is
``/<event>/<field>``, or ``/<event>/<field>/<member>`` for each member of an object, where the event is named by what
its line says in public (``name_of``): who tells it need not know its place. An event without private values has none.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import orjson

from core.canonical import Json, JsonObject, canonical_bytes, digest, sha256_hex
from core.errors import ConsistencyError, InputError
from evidence.chain import line_of as content_of
from evidence.commitments import commit, path_of
from evidence.events import Actor, EventType
from evidence.events import Event as Line
from runtime.engine.events import Event, from_parts, parts

# The public name of the digest over an event's private values.
VALUES = "values"

# More than any append has: 64 moves, each with a state, an output and a card.
VALUES_BYTES_MAX = 256 * 1024 * 1024
# The public name of the digest of an action's receipt, and of that of the run as it is kept from this append on.
RECEIPT, KEPT = "receipt_digest", "state"
# What is added to a line when its append is made: over values, over rows, by its place.
_ADDED = frozenset({VALUES, RECEIPT, KEPT, "count"})


class Diverged(ConsistencyError):
    """The book contradicts itself: a value is not the one that its line commits to, or a move cannot follow.

    ``check`` is the part of the evidence that cannot be right: ``book``, ``chain``, or what shows the book's facts.
    """

    def __init__(self, message: str, check: str = "book") -> None:
        super().__init__(f"{message}.", remedy="Somebody has changed what is stored: compare it with a backup.")
        self.check = check


@dataclass(frozen=True, slots=True)
class Told:
    """One event of a run. ``seq`` is its place in the run's book, counted from 0; None before it is in the book."""

    event: Event
    actor: Actor
    at: datetime
    step: str | None = None
    seq: int | None = None


def name_of(line: Mapping[str, Any]) -> str:
    """The name of an event: the SHA-256 of its line, without what was added to it when its append was made."""
    return digest({**line, "data": {key: fact for key, fact in line["data"].items() if key not in _ADDED}})


def values_digest(run_key: bytes, line: Mapping[str, Any], values: Mapping[str, Json]) -> str:
    """The commitment to all private values of the event of this line."""
    pairs = sorted([path, commit(run_key, path, value)] for path, value in _paths(name_of(line), values))
    return sha256_hex(canonical_bytes(pairs))


def _paths(event: str, values: Mapping[str, Json]) -> Iterator[tuple[str, Json]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from ((path_of(event, name, member), inner) for member, inner in value.items())
        else:
            yield path_of(event, name), value


def line_of(told: Told, run_key: bytes) -> tuple[Line, JsonObject]:
    """The audit line of an event, still unchained, and the private values to be kept beside it.

    Of a run whose key is lost no value can be told any more: nothing could commit to it.
    """
    facts, values = parts(told.event)
    line = Line(told.event.TYPE, told.actor, told.at, facts, told.step)
    values = values if run_key else {}
    if values:
        line = replace(line, data={**facts, VALUES: values_digest(run_key, content_of(line), values)})
    return line, values


def read_line(
    line: bytes, values: Mapping[str, Any], run_key: bytes, seq: int | None = None, *, verify: bool = True
) -> Told:
    """Read the event that a stored line and its values tell. ``Diverged`` if the line commits to other values.

    Without ``verify`` the values may be missing.
    """
    try:
        read: dict[str, Any] = orjson.loads(line)
        facts = read["data"]
        actor = Actor(read["actor"]["kind"], read["actor"]["id"])
        kind, at, step = EventType(read["type"]), datetime.fromisoformat(read["ts"]), read["step"]
        committed = facts.get(VALUES)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise Diverged(f"a line of the book cannot be read: {error}", "chain") from None
    true = not verify
    with suppress(InputError):  # raised for values to which nobody can have committed
        true = true or committed == (values_digest(run_key, read, values) if values else None)
    if not true:
        raise Diverged(f"line {seq} ({kind}) commits to other values than those that are stored")
    return Told(from_parts(kind, facts, values), actor, at, step, seq)


def pack_values(values: Sequence[JsonObject]) -> bytes | None:
    """The values of one append as they are stored: a JSON object from the line's number in the append to its values.

    It is deflated: a third of what a run writes would be values.
    """
    told = {str(number): each for number, each in enumerate(values) if each}
    return zlib.compress(orjson.dumps(told), 1) if told else None


def unpack_values(stored: bytes | None) -> Mapping[int, JsonObject]:
    """Read what ``pack_values`` wrote. ``Diverged`` for anything else."""
    if stored is None:
        return {}
    try:
        told = zlib.decompressobj().decompress(stored, VALUES_BYTES_MAX)
        return {int(number): dict(each) for number, each in orjson.loads(told).items()}
    except (zlib.error, ValueError, TypeError, AttributeError):
        raise Diverged("the values of an append cannot be read") from None
