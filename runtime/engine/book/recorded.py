"""One event as the book has it: its place, its time, its actor, and the values that its line commits to.

A line never holds a value. It holds ``values``: the SHA-256 of the RFC 8785 bytes of the sorted ``[path, commitment]``
pairs of the event's private values (``evidence.commitments``), so that each path can be disclosed by itself. A path is
``/<event>/<field>``, or ``/<event>/<field>/<member>`` for each member of an object. ``<event>`` is the SHA-256 of the
line's public part, so the writer need not know the line's number. An event without private values has no digest.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from hashlib import blake2b, sha256
from typing import Any, NamedTuple, get_type_hints
from uuid import UUID

import orjson
from msgspec import NODEFAULT, Struct, ValidationError, convert, to_builtins
from msgspec.structs import astuple

from core.canonical import Json, JsonObject, plain_bytes
from core.errors import ConsistencyError, InputError
from evidence.chain import line_of as content_of
from evidence.commitments import commit_paths, path_of
from evidence.events import Actor, EventType
from evidence.opened import ADDED
from runtime.engine.model.events import EVENTS, Event
from runtime.engine.model.events.private import PRIVATE

# The public name of the digest over an event's private values.
VALUES = "values"

# The most bytes of values in one append: it has at most 64 moves, each with a state, an output and a card.
VALUES_BYTES_MAX = 256 * 1024 * 1024
# Shorter values are stored as they are: deflating them would cost more than it saves.
WORTH_DEFLATING = 256
# The public name of the digest of the folded run that an append stores.
KEPT = "state"
# The public name, in the last line of an append, of the keyed digest of all its values as they are stored.
STORED = "stored"
# The public name of the seconds by which the database's clock was behind a line. The clock had gone back, so the line
# keeps the latest time of its book.
CLOCK_BEHIND = "clock_behind"


class Diverged(ConsistencyError):
    """The book contradicts itself: a value is not the one that its line commits to, or a move cannot follow.

    ``check`` names what is wrong: the ``book``, the ``chain``, or the rows that show the book's facts (``run``, ...).
    """

    def __init__(self, message: str, check: str = "book") -> None:
        super().__init__(f"{message}.", remedy="Somebody has changed what is stored: compare it with a backup.")
        self.check = check


_KINDS = {str(kind): kind for kind in EventType}


class RecordedEvent(Struct, frozen=True):
    """One event of a run. ``seq`` is its place in the run's book, counted from 0; None before it is in the book."""

    event: Event
    actor: Actor
    at: datetime
    step: str | None = None
    seq: int | None = None


def values_committed(run_key: bytes, line: Mapping[str, Any], values: Mapping[str, Json]) -> list[Json]:
    """The ``[path, commitment]`` of all private values of an event. ``line`` is its line without commitments."""
    event = sha256(plain_bytes(line)).hexdigest()
    paths: JsonObject = {}
    for name, value in values.items():
        if isinstance(value, dict) and value:
            paths |= {f"/{event}/{name}{path_of(member)}": each for member, each in value.items()}
        else:
            paths[f"/{event}/{name}"] = value
    return commit_paths(run_key, sorted(paths.items()))


def listed_values(recorded: RecordedEvent, line: bytes, run_key: bytes) -> list[tuple[str, str]] | None:
    """The commitments to an event's values, by path without the event; None unless they match its line."""
    read, values = orjson.loads(line), parts(recorded.event)[1]
    if VALUES not in read["data"] or not values or not _commits_to(read, values, run_key):
        return None
    plain = {**read, "data": {key: fact for key, fact in read["data"].items() if key not in ADDED}}
    pairs: list[Any] = values_committed(run_key, plain, values)
    return [("/" + path.split("/", 2)[2], commitment) for path, commitment in pairs]


def line_of(recorded: RecordedEvent, run_key: bytes) -> tuple[dict[str, Any], JsonObject]:
    """The content of an event's line, still unchained, and the private values to be kept beside it.

    If the run's key is lost, the values are left out: no line can commit to them.
    """
    facts, values = parts(recorded.event)
    line = content_of(recorded.event.TYPE, recorded.at, recorded.actor, recorded.step, facts)
    values = values if run_key else {}
    if values:
        facts[VALUES] = sha256(plain_bytes(values_committed(run_key, line, values))).hexdigest()
    return line, values


def read_line(
    line: bytes, values: Mapping[str, Any], run_key: bytes, seq: int | None = None, *, verify: bool = True
) -> RecordedEvent:
    """Read the event that a stored line and its values tell. ``Diverged`` if the line commits to other values.

    Without ``verify`` nothing is compared, so the values may be missing.
    """
    try:
        read: dict[str, Any] = orjson.loads(line)
        facts = {**read["data"]}
        actor = Actor(read["actor"]["kind"], read["actor"]["id"])
        kind, at, step = _KINDS[read["type"]], datetime.fromisoformat(read["ts"]), read["step"]
    except (LookupError, TypeError, ValueError) as error:
        raise Diverged(f"a line of the book cannot be read: {error}", "chain") from None
    if verify and not _commits_to(read, values, run_key):
        raise Diverged(f"line {seq} ({kind}) commits to other values than those that are stored")
    return RecordedEvent(from_parts(kind, facts, values), actor, at, step, seq)


def _commits_to(line: Mapping[str, Any], values: Mapping[str, Any], run_key: bytes) -> bool:
    """True if the line commits to exactly these values. No line commits to values without a canonical form."""
    content = {**line, "data": {key: fact for key, fact in line["data"].items() if key not in ADDED}}
    try:
        committed = values_committed(run_key, content, values) if values else None
    except InputError:
        return False
    wanted = None if committed is None else sha256(plain_bytes(committed)).hexdigest()
    return bool(line["data"].get(VALUES) == wanted)


def pack_values(values: Sequence[JsonObject]) -> bytes | None:
    """The values of one append as they are stored: a JSON object from the line's number in the append to its values.

    Larger ones are deflated, because values would be a third of what a run writes. A small window and table cost
    little to set up.
    """
    content = {str(number): each for number, each in enumerate(values) if each}
    if not content:
        return None
    packed = orjson.dumps(content)
    if len(packed) < WORTH_DEFLATING:
        return packed
    deflate = zlib.compressobj(1, zlib.DEFLATED, 13, 5)
    return deflate.compress(packed) + deflate.flush()


def check_stored(last_line: bytes, stored: bytes | None, run_key: bytes) -> None:
    """Compare the values of an append with the digest in its last line. ``Diverged`` if they are others.

    One digest covers them all, so that folding a run need not check each commitment, as replay and bundle do.
    """
    if stored is None and f'"{STORED}":"'.encode() not in last_line:
        return
    if stored is None or not names(last_line, STORED, stored, run_key):
        raise Diverged("an append has other values than those that its line names")


def digest_of(stored: bytes, run_key: bytes) -> str:
    """The digest by which a line names what is stored beside it. It is keyed, because the content can be guessed.

    Every append has one, so it is short: 128 bits of a keyed BLAKE2b are enough (RFC 7693).
    """
    return blake2b(stored, digest_size=16, key=run_key, person=b"stored").hexdigest()


def names(line: bytes, name: str, stored: bytes, run_key: bytes) -> bool:
    """True if the line holds the digest of these bytes under this name."""
    return f'"{name}":"{digest_of(stored, run_key)}"'.encode() in line


def unpack_values(stored: bytes | None) -> Mapping[int, JsonObject]:
    """Read what ``pack_values`` wrote. ``Diverged`` for anything else."""
    if stored is None:
        return {}
    try:
        deflated = not stored.startswith(b"{")
        content = zlib.decompressobj().decompress(stored, VALUES_BYTES_MAX) if deflated else stored
        return {int(number): dict(each) for number, each in orjson.loads(content).items()}
    except (zlib.error, ValueError, TypeError, AttributeError):
        raise Diverged("the values of an append cannot be read") from None


class _Field(NamedTuple):
    line_name: str
    private: bool
    default: object


def _fields(kind: type[Event]) -> tuple[_Field, ...]:
    hints = get_type_hints(kind, include_extras=True)
    marks = [getattr(hints[name], "__metadata__", ()) for name in kind.__struct_fields__]
    defaults = [NODEFAULT] * (len(marks) - len(kind.__struct_defaults__)) + [*kind.__struct_defaults__]
    fields = zip(kind.__struct_encode_fields__, marks, defaults, strict=True)
    return tuple(_Field(name, PRIVATE in mark, default) for name, mark, default in fields)


# Values of these types stand in a line as text.
_NAMED = (UUID, StrEnum)
_PLAIN = frozenset({str, int, bool, dict, list, type(None)})
_FIELDS: Mapping[EventType, tuple[_Field, ...]] = {kind: _fields(cls) for kind, cls in EVENTS.items()}


def parts(event: Event) -> tuple[JsonObject, JsonObject]:
    """An event's public facts, which stand in its line, and its private values, which lie beside it."""
    facts: JsonObject = {}
    values: JsonObject = {}
    for (name, private, default), value in zip(_FIELDS[event.TYPE], astuple(event), strict=True):
        if value is default or (default is not NODEFAULT and value == default):
            continue
        members = values if private else facts
        members[name] = value if type(value) in _PLAIN or not isinstance(value, _NAMED) else to_builtins(value)
    return facts, values


def from_parts(kind: EventType, facts: Mapping[str, Any], values: Mapping[str, Any]) -> Event:
    """Rebuild the event that ``parts`` took apart. ``ConsistencyError`` names a field that is missing or mistyped."""
    cls = EVENTS.get(kind)
    if cls is None:
        raise ConsistencyError(f"{kind} is no event of a run")
    read: dict[str, Any] = {}
    for item in _FIELDS[kind]:
        source = values if item.private else facts
        if item.line_name in source:
            read[item.line_name] = source[item.line_name]
        elif not item.private and item.line_name in values:  # it was private when this line was written
            read[item.line_name] = values[item.line_name]
    try:
        return convert(read, cls)
    except ValidationError as error:
        raise ConsistencyError(f"{kind} cannot be read: {error}") from None
