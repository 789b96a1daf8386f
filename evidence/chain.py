"""The audit chain: every fact of a run or a tenant is one canonical line that names the hash of the line before it.

A line is the RFC 8785 bytes of::

    {"v":1, "stream":"run:<id>" | "tenant:<id>", "seq":0…, "prev":<hex SHA-256 of the previous line's bytes>,
     "ts":"2026-11-21T10:30:00.123456Z", "type":…, "actor":{"kind":…,"id":…}, "step":<step key>|null, "data":{…}}

``prev`` of the first line is 64 zeros. The stored bytes are what is hashed; nobody has to serialise anything again to
check a chain. This module is pure: it holds no key, reads no clock and knows no database.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import orjson

from core.canonical import DEPTH_MAX, Json, audit_bytes
from core.errors import InputError
from evidence.events import REQUIRED_DATA, RUN_EVENTS, TENANT_EVENTS, Actor, Event, EventType, timestamp

__all__ = [
    "GENESIS",
    "Actor",
    "ChainHead",
    "ChainReport",
    "Event",
    "EventType",
    "Line",
    "append",
    "split_lines",
    "timestamp",
    "verify_lines",
]

VERSION = 1
GENESIS = "0" * 64
LINE_BYTES_MAX = 256 * 1024

_KEYS = frozenset({"v", "stream", "seq", "prev", "ts", "type", "actor", "step", "data"})
_TIMESTAMP = re.compile(r"\d{4}-(?:0\d|1[0-2])-[0-3]\dT[0-2]\d:[0-5]\d:[0-6]\d\.\d{6}Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class ChainHead:
    """Where a stream stands: how many lines it has and the hash of the last one. It belongs in the stream's row."""

    stream: str
    count: int
    hash: str

    @classmethod
    def of_run(cls, run_id: object) -> ChainHead:
        """The head of a run's stream before its first line."""
        return cls(f"run:{run_id}", 0, GENESIS)

    @classmethod
    def of_tenant(cls, tenant_id: object) -> ChainHead:
        """The head of a tenant's stream before its first line."""
        return cls(f"tenant:{tenant_id}", 0, GENESIS)


@dataclass(frozen=True, slots=True)
class Line:
    """One recorded line: its canonical bytes without a newline, and their SHA-256 in hexadecimal."""

    seq: int
    type: EventType
    bytes: bytes
    hash: str


def append(head: ChainHead, events: Sequence[Event]) -> tuple[list[Line], ChainHead]:
    """Chain ``events`` after ``head``: the lines to store, and the head to store with them in the same transaction.

    ``run.closed`` gets the stream's length as ``count``. ``InputError`` for what would not verify later: a type of
    the other kind of stream, missing data, anything outside the audit domain, a run that does not start with
    ``run.opened`` or goes on after ``run.closed``.
    """
    lines: list[Line] = []
    for event in events:
        if lines and lines[-1].type is EventType.RUN_CLOSED:
            raise InputError(f"{event.type} cannot follow run.closed", where=head.stream)
        line = _line(head, event)
        lines.append(line)
        head = ChainHead(head.stream, head.count + 1, line.hash)
    return lines, head


def _line(head: ChainHead, event: Event) -> Line:
    data = {**event.data, "count": head.count + 1} if event.type is EventType.RUN_CLOSED else event.data
    problem = _misplaced(head.stream, head.count, event.type, data)
    if problem:
        raise InputError(problem, where=head.stream)
    content = audit_bytes(
        {
            "v": VERSION,
            "stream": head.stream,
            "seq": head.count,
            "prev": head.hash,
            "ts": timestamp(event.at),
            "type": str(event.type),
            "actor": {"kind": event.actor.kind, "id": event.actor.id},
            "step": event.step,
            "data": data,
        }
    )
    if len(content) > LINE_BYTES_MAX:
        raise InputError(f"the line of {event.type} is longer than {LINE_BYTES_MAX} bytes", where=head.stream)
    return Line(head.count, event.type, content, sha256(content).hexdigest())


def _misplaced(stream: str, seq: int, kind: EventType, data: dict[str, Json]) -> str | None:
    """Why an event cannot stand here, in words; None if it can."""
    of_run = stream.startswith("run:")
    if kind not in (RUN_EVENTS if of_run else TENANT_EVENTS):
        return f"{kind} does not belong in this stream"
    if of_run and (seq == 0) is not (kind is EventType.RUN_OPENED):
        return "a run's chain starts with run.opened, once"
    required = REQUIRED_DATA.get(kind)
    if required is not None and not required <= data.keys():
        return f"the data of {kind} lacks {', '.join(sorted(required - data.keys()))}"
    return None


@dataclass(frozen=True, slots=True)
class ChainReport:
    """What reading a whole chain showed.

    ``problem`` is the first fault, with its line, or None: a chain is worth nothing after its first fault.
    ``count`` and ``head`` cover the lines before it. ``final`` says that the run closed. ``clock_steps_back`` counts
    lines whose time is before that of the line above. The hashes give the order, so that proves no tampering, but an
    auditor should know.
    """

    stream: str
    count: int
    head: str
    final: bool
    first_ts: str | None
    last_ts: str | None
    clock_steps_back: int
    problem: str | None

    @property
    def ok(self) -> bool:
        """Whether every line is canonical, in its place and linked to the one before."""
        return self.problem is None


class _Fault(Exception):
    pass


@dataclass(slots=True)
class _Reader:
    stream: str = ""
    count: int = 0
    head: str = GENESIS
    final: bool = False
    first_ts: str | None = None
    last_ts: str | None = None
    steps_back: int = 0

    def read(self, line: bytes) -> dict[str, Any]:
        event = _parse(line)
        if event["seq"] != self.count or type(event["seq"]) is not int:
            raise _Fault(f"its seq is {event['seq']!r} and should be {self.count}: lines are missing, extra or moved")
        if event["prev"] != self.head:
            raise _Fault("its prev is not the hash of the line before: something before it was changed")
        if self.final:
            raise _Fault("it follows run.closed")
        stream = event["stream"]
        if self.count == 0:
            self.stream, self.first_ts = stream, event["ts"]
        elif stream != self.stream:
            raise _Fault(f"it belongs to {stream}")
        kind, data = _TYPES[event["type"]], event["data"]
        problem = _misplaced(stream, self.count, kind, data)
        if problem:
            raise _Fault(problem)
        if kind is EventType.RUN_CLOSED:
            if data["count"] != self.count + 1:
                raise _Fault(f"run.closed says {data['count']!r} lines and is number {self.count + 1}")
            self.final = True
        self._clock(event["ts"])
        self.count += 1
        self.head = sha256(line).hexdigest()
        return event

    def _clock(self, ts: str) -> None:
        if self.last_ts is not None and ts < self.last_ts:
            self.steps_back += 1
        self.last_ts = ts


def verify_lines(lines: Iterable[bytes], observe: Callable[[dict[str, Any]], None] | None = None) -> ChainReport:
    """Check a chain, line by line without newlines, in constant memory; never raises for what the lines hold.

    ``observe`` gets each parsed line after it has passed. It proves that the lines are one unbroken chain. That the
    chain's head is the true one, only a signature over it can say.
    """
    reader, problem = _Reader(), None
    try:
        for line in lines:
            event = reader.read(line)
            if observe is not None:
                observe(event)
        if reader.count == 0:
            raise _Fault("there are no lines")
    except _Fault as fault:
        problem = f"line {reader.count + 1}: {fault}"
    return ChainReport(
        reader.stream,
        reader.count,
        reader.head,
        reader.final,
        reader.first_ts,
        reader.last_ts,
        reader.steps_back,
        problem,
    )


def split_lines(data: bytes) -> Iterator[bytes]:
    """The lines of an ``events.jsonl`` held in memory; what follows the last newline is a line of its own."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        yield data[start:end]
        start = end + 1


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
    if not line.isascii() or not _plain(event["data"], 2):
        _check_domain(event)
    return event


def _plain(value: dict[str, Any] | list[Any], depth: int) -> bool:
    """Whether there is certainly no float and no great depth in ``value``."""
    items = value.values() if isinstance(value, dict) else value
    for item in items:
        kind = type(item)
        if kind is str:
            continue
        if kind is float or ((kind is list or kind is dict) and (depth >= DEPTH_MAX or not _plain(item, depth + 1))):
            return False
    return True


def _check_domain(event: dict[str, Any]) -> None:
    try:
        audit_bytes(event)
    except InputError as error:
        raise _Fault(str(error)) from None


def _check_types(event: dict[str, Any]) -> None:
    actor, ts, stream, step = event["actor"], event["ts"], event["stream"], event["step"]
    if type(event["v"]) is not int or event["v"] != VERSION:
        raise _Fault(f"its version {event['v']!r} is unknown")
    if type(ts) is not str or not _TIMESTAMP.fullmatch(ts):
        raise _Fault("its ts is not a UTC time with six digits of the second")
    if type(stream) is not str or not stream.startswith(("run:", "tenant:")):
        raise _Fault("its stream is neither a run's nor a tenant's")
    if type(actor) is not dict or actor.keys() != _ACTOR_KEYS:
        raise _Fault("its actor is not a kind and an id")
    if type(actor["kind"]) is not str or type(actor["id"]) is not str:
        raise _Fault("its actor is not a kind and an id")
    if type(event["data"]) is not dict or not (step is None or type(step) is str):
        raise _Fault("its data or step is malformed")
    if type(event["type"]) is not str or event["type"] not in _TYPES:
        raise _Fault(f"its type {event['type']!r} is unknown")


_ACTOR_KEYS = frozenset({"kind", "id"})
_TYPES = {str(kind): kind for kind in EventType}
