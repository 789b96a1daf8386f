"""The audit chain: every fact of a run or a tenant is one canonical line, and each append of lines changes the head.

A line is the RFC 8785 bytes of::

    {"v":2, "ts":"2026-11-21T10:30:00.123456Z", "type":…, "actor":{"kind":…,"id":…}, "step":<step key>|null, "data":{…}}

A line does not contain its position, so its writer need not know it. The position is implied: the append, and the
number of lines before it (``seq``, counted over the stream from 0). The head before the first append is the SHA-256 of
the stream's name (``run:<id>`` or ``tenant:<id>``). Each append computes::

    head = SHA-256(head before || SHA-256(lines of the append, joined by newlines))

over the 32 raw bytes of each. The hash is over the stored bytes, so checking a chain needs no serialisation.
This module is pure: it holds no key, reads no clock and knows no database.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any, TypeAlias

import orjson
from msgspec import Struct, field

from core.canonical import DEPTH_MAX, JsonObject, in_audit_domain, plain_bytes
from core.errors import InputError
from evidence.events import REQUIRED_DATA, RUN_EVENTS, TENANT_EVENTS, Actor, Event, EventType

__all__ = ["Actor", "ChainHead", "ChainReport", "Event", "EventType", "append", "timestamp", "verify_lines"]

VERSION = 2
LINE_BYTES_MAX = 256 * 1024
_OUTSIDE = "an audit line holds only strings, booleans, null and integers below 2^53 under ASCII keys"

# Receives each line that has passed the checks, parsed.
Observe: TypeAlias = Callable[[dict[str, Any]], None]

_KEYS = frozenset({"v", "ts", "type", "actor", "step", "data"})
_TIMESTAMP = re.compile(r"\d{4}-(?:0\d|1[0-2])-[0-3]\dT[0-2]\d:[0-5]\d:[0-6]\d\.\d{6}Z", re.ASCII)


class ChainHead(Struct, frozen=True):
    """The state of a stream: its number of lines and its head hash. It is stored in the stream's row."""

    stream: str
    count: int
    hash: str

    @classmethod
    def of(cls, stream: str) -> ChainHead:
        """The head of a stream before its first line."""
        return cls(stream, 0, sha256(stream.encode()).hexdigest())

    def after(self, lines: Sequence[bytes]) -> ChainHead:
        """The head after one append; the same if there are no lines."""
        if not lines:
            return self
        hashed = sha256(b"\n".join(lines)).digest()
        return ChainHead(self.stream, self.count + len(lines), sha256(bytes.fromhex(self.hash) + hashed).hexdigest())


@lru_cache(maxsize=64)  # all lines of one commit share one time, and several commits run at once
def timestamp(at: datetime) -> str:
    """UTC with exactly six digits of the second, so that the texts sort like the times."""
    if at.tzinfo is None:
        raise InputError("a time needs a time zone")
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def line_of(kind: EventType, at: datetime, actor: Actor, step: str | None, data: JsonObject) -> dict[str, Any]:
    """The content of an event's line."""
    return {
        "v": VERSION,
        "ts": timestamp(at),
        "type": str(kind),
        "actor": {"kind": actor.kind, "id": actor.id},
        "step": step,
        "data": data,
    }


def append(head: ChainHead, events: Sequence[Event]) -> tuple[list[bytes], ChainHead]:
    """The lines of one append of these events, and the head after it; see ``seal``."""
    return seal(head, [line_of(event.type, event.at, event.actor, event.step, event.data) for event in events])


def seal(head: ChainHead, contents: Sequence[dict[str, Any]]) -> tuple[list[bytes], ChainHead]:
    """The lines of one append, without newlines, and the head after it, if nothing else was appended since ``head``.

    ``contents`` are made by ``line_of``; ``run.closed`` gets the stream's length as ``count``; no other line depends on
    ``head``. ``InputError`` for lines that would not verify later: a type of the other kind of stream, missing data,
    anything outside the audit domain, a run that does not start with ``run.opened``, or any line but ``action.late``
    after ``run.closed`` (``run.reopened`` needs an append of its own).
    """
    lines: list[bytes] = []
    closed = False
    for seq, content in enumerate(contents, head.count):
        kind: Any = content["type"]
        if closed and kind != EventType.ACTION_LATE:
            raise InputError(f"{kind} cannot follow run.closed", where=head.stream)
        if kind == EventType.RUN_CLOSED:
            closed, content["data"] = True, {**content["data"], "count": seq + 1}
        problem = _misplaced(head.stream, seq, kind, content["data"])
        if problem:
            raise InputError(problem, where=head.stream)
        if not in_audit_domain(content["data"], 1):
            raise InputError(_OUTSIDE)
        line = plain_bytes(content)
        if len(line) > LINE_BYTES_MAX:
            raise InputError(f"the line of {kind} is longer than {LINE_BYTES_MAX} bytes", where=head.stream)
        lines.append(line)
    return lines, head.after(lines)


def _misplaced(stream: str, seq: int, kind: EventType, data: Any) -> str | None:
    """The reason why an event is not allowed at this place of the stream; None if it is."""
    of_run = stream.startswith("run:")
    if kind not in (RUN_EVENTS if of_run else TENANT_EVENTS):
        return f"{kind} does not belong in this stream"
    if of_run and (seq == 0) is not (kind == EventType.RUN_OPENED):
        return "a run's chain starts with run.opened, once"
    required = REQUIRED_DATA.get(kind)
    if required is not None and not required <= data.keys():
        return f"the data of {kind} lacks {', '.join(sorted(required - data.keys()))}"
    return None


class _Fault(Exception):
    pass


class ChainReport(Struct):
    """The result of reading a whole chain.

    ``problem`` is the first fault, with its line or append, or None; a chain proves nothing after its first fault.
    ``count`` is the number of lines before the fault, ``head`` the head after the appends before it. ``final`` is True
    if the run closed. ``clock_steps_back`` counts lines whose time is before that of the last line of their step. The
    chain gives the order, so this proves no tampering, but an auditor should know.
    """

    stream: str
    head: str
    count: int = 0
    final: bool = False
    last_ts: dict[str | None, str] = field(default_factory=dict)
    clock_steps_back: int = 0
    problem: str | None = None

    @property
    def ok(self) -> bool:
        """True if every line is canonical and the appends hash to the head."""
        return self.problem is None

    def follow(self, lines: Iterator[bytes], sizes: Iterable[object], observe: Observe) -> bool:
        """Check further appends; False if one has a fault, which ``problem`` tells."""
        try:
            for size in sizes:
                self.append(size, lines, observe)
        except _Fault as fault:
            self.problem = f"line {self.count + 1}: {fault}"
        return self.ok

    def append(self, size: object, lines: Iterator[bytes], observe: Observe) -> None:
        """Read the next append: the next ``size`` lines. A ``_Fault`` ends the reading."""
        if type(size) is not int or size < 1:
            raise _Fault(f"an append cannot have {size!r} lines")
        hashed, between = sha256(), b""
        for _ in range(size):
            line = next(lines, None)
            if line is None:
                raise _Fault(f"not all {size} lines of its append are here")
            observe(self._read(line))
            self.count += 1
            hashed.update(between + line)
            between = b"\n"
        self.head = sha256(bytes.fromhex(self.head) + hashed.digest()).hexdigest()

    def _read(self, line: bytes) -> dict[str, Any]:
        event = _parse(line)
        reopened = event["type"] == EventType.RUN_REOPENED
        if self.final and not reopened and event["type"] != EventType.ACTION_LATE:
            raise _Fault("it follows run.closed")
        if reopened and not self.final:
            raise _Fault("it does not follow run.closed")
        kind, data, ts = _TYPES[event["type"]], event["data"], event["ts"]
        problem = _misplaced(self.stream, self.count, kind, data)
        if problem:
            raise _Fault(problem)
        if kind is EventType.RUN_CLOSED and data["count"] != self.count + 1:
            raise _Fault(f"run.closed says {data['count']!r} lines and is number {self.count + 1}")
        self.final = kind is EventType.RUN_CLOSED or (self.final and not reopened)
        self.clock_steps_back += ts < self.last_ts.get(event["step"], "")
        self.last_ts[event["step"]], event["seq"] = ts, self.count
        return event


def verify_lines(
    head: ChainHead, lines: Iterable[bytes], sizes: Iterable[object], observe: Observe = lambda _: None
) -> ChainReport:
    """Check a chain, line by line, against its expected head. The content of a line never raises.

    ``lines`` are without newlines; ``sizes`` holds the number of lines of each append. ``observe`` gets each line that
    has passed, parsed, with its place as ``seq``. Success proves that the lines are those of ``head``, in this order
    and in these appends. Only a signature over ``head`` can prove that ``head`` is the true one.
    """
    report, rest = ChainReport(head.stream, ChainHead.of(head.stream).hash), iter(lines)
    if not report.follow(rest, sizes, observe):
        return report
    if next(rest, None) is not None or report.count == 0:
        why = "it is in no append" if report.count else "there are no lines"
        report.problem = f"line {report.count + 1}: {why}"
    elif (report.count, report.head) != (head.count, head.hash):
        report.problem = "the appends do not come to the head: a line, an append or its place was changed"
    return report


def _parse(line: bytes) -> dict[str, Any]:
    if len(line) > LINE_BYTES_MAX:
        raise _Fault(f"it is longer than {LINE_BYTES_MAX} bytes")
    try:
        event = orjson.loads(line)
        # A duplicate key, white space, another order or escape, or a big integer does not survive the round trip.
        canonical = orjson.dumps(event, option=orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER) == line
    except (ValueError, TypeError):
        raise _Fault("it is not JSON of the audit's domain") from None
    if not canonical or type(event) is not dict:
        raise _Fault("it is not a JSON object in canonical form")
    if event.keys() != _KEYS:
        raise _Fault(f"it has the keys {', '.join(sorted(event))}")
    _check_types(event)
    if (not line.isascii() or not _plain(event["data"], 2)) and not in_audit_domain(event):
        raise _Fault(_OUTSIDE)
    return event


def _plain(value: dict[str, Any] | list[Any], depth: int) -> bool:
    """True if ``value`` certainly holds no float and is not too deep: a fast test for ASCII lines."""
    items = value.values() if isinstance(value, dict) else value
    for item in items:
        kind = type(item)
        if kind is str:
            continue
        if kind is float or ((kind is list or kind is dict) and (depth >= DEPTH_MAX or not _plain(item, depth + 1))):
            return False
    return True


def _check_types(event: dict[str, Any]) -> None:
    actor, ts, step = event["actor"], event["ts"], event["step"]
    if type(event["v"]) is not int or event["v"] != VERSION:
        raise _Fault(f"its version {event['v']!r} is unknown")
    if type(ts) is not str or not _TIMESTAMP.fullmatch(ts):
        raise _Fault("its ts is not a UTC time with six digits of the second")
    if type(actor) is not dict or actor.keys() != _ACTOR_KEYS or not type(actor["kind"]) is type(actor["id"]) is str:
        raise _Fault("its actor is not a kind and an id")
    if type(event["data"]) is not dict or not (step is None or type(step) is str):
        raise _Fault("its data or step is malformed")
    if type(event["type"]) is not str or event["type"] not in _TYPES:
        raise _Fault(f"its type {event['type']!r} is unknown: it is newer than this verifier, or none of ours")


_ACTOR_KEYS = frozenset({"kind", "id"})
_TYPES = {str(kind): kind for kind in EventType}
