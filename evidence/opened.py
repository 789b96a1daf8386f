"""Reads what a bundle opens: values of events, each under the commitment that its event's line binds.

A line of ``disclosures.jsonl`` is about one event, and the lines are in the order of the events::

    {"opened":[[salt, path, value],…], "seq":12, "values":[[path, commitment],…] | null}

``values`` lists the commitments whose digest is ``values`` of the event's line. Each full path begins with the digest
of the event, which the list leaves out: so nobody can list a path of another event.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import orjson
from msgspec import Struct

from core.canonical import Json, JsonObject, canonical_bytes, digest, plain_bytes
from core.errors import InputError
from evidence import layout
from evidence.commitments import Opening, path_of, reason_path
from evidence.container import FILE_BYTES_MAX, Files
from evidence.events import EventType as E

# The facts that are added to a line after its values are committed to, when the append is made. Lines of earlier
# releases named the digest of their receipt.
ADDED = frozenset({"values", "receipt_digest", "stored", "state", "clock_behind", "count"})
_MEMBERS = frozenset({"opened", "seq", "values"})


class Opened(Struct, frozen=True):
    """Everything that is opened of one event. ``values`` is None if its commitments are not listed."""

    seq: int
    opened: Sequence[Opening] = ()
    values: Sequence[tuple[str, str]] | None = None

    def to_json(self) -> JsonObject:
        """The line of the file."""
        listed: Json = None if self.values is None else [[*pair] for pair in self.values]
        return {"seq": self.seq, "opened": [[*one] for one in self.opened], "values": listed}


def digest_of(event: Mapping[str, Any]) -> str:
    """The digest of the public part of an event's line. The paths of the event's values begin with it."""
    envelope = {name: event[name] for name in ("v", "ts", "type", "actor", "step")}
    data = {name: fact for name, fact in event["data"].items() if name not in ADDED}
    return sha256(plain_bytes({**envelope, "data": data})).hexdigest()


def places(event: Mapping[str, Any]) -> tuple[str, ...]:
    """The prefixes of the paths under which an event's line itself may commit to values."""
    kind, data = event["type"], event["data"]
    match kind:
        case E.RUN_OPENED:
            return ("/trigger/", "/reference")
        case E.RUN_REFERENCE_SET:
            return (f"{event['step']}/reference",)
        case E.APPROVAL_REQUESTED:
            return (f"{path_of('approval', str(data['approval']))}/",)
        case E.APPROVAL_VOTED:
            return (reason_path(str(data["approval"]), event["actor"]["id"], event["ts"]),)
        case E.RUN_CANCELED:
            return ("/cancel/reason",)
        case E.WAIT_COMPLETED:
            return (f"{path_of('wait', str(data['wait']))}/",)
        case E.GRANT_REVOKED:
            return (f"{path_of('grant', str(data['grant']))}/",)
        case E.RUN_EXTENDED:
            return (f"{path_of('mutation', str(data['number']))}/",)
        case E.RUN_MIGRATED:
            return (f"{path_of('migrated', str(data['number']))}/",)
        case E.RUN_PAUSED | E.RUN_RESUMED | E.RUN_SEALED | E.RUN_REOPENED | E.RUN_FORKED:
            return (f"/{str(kind).partition('.')[2]}",)
    return ()


def pairs_of(event: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The paths and commitments in an event's line. ``InputError`` for anything else, or a pair of another event."""
    data = event["data"]
    committed, own = data.get("committed"), places(event)
    for pair in committed if isinstance(committed, list) else ():
        match pair:
            case [str(path), str(commitment)] if path.startswith(own) and own:
                yield path, commitment
            case _:
                raise InputError(f"event {event['seq']}: it commits to what is not its own: {str(pair)[:80]}")
    if event["type"] == E.APPROVAL_REQUESTED and isinstance(data["card"], str):
        yield path_of("approval", str(data["approval"]), "card"), data["card"]


class OpenedFile:
    """Reads ``disclosures.jsonl`` beside the chain. ``problem`` is its first fault."""

    def __init__(self, files: Files) -> None:
        self._lines = self._read(files)
        self._next: Opened | None = None
        self._last = -1
        self.problem: str | None = None
        self.count = 0
        self._advance()

    def of(self, event: Mapping[str, Any]) -> tuple[dict[str, Json], Sequence[tuple[str, str]] | None]:
        """The opened values of an event by their paths, and the list of its commitments, if that is shown."""
        found = self._next
        if found is None or found.seq != event["seq"]:
            return {}, None
        self._advance()
        try:
            return self._checked(event, found)
        except InputError as error:
            self.problem = self.problem or f"event {event['seq']}: {error.message}"
            return {}, None

    def close(self) -> None:
        """Release the file, which may be half read."""
        self._lines.close()

    def end(self) -> None:
        """Check that no line is about an event that does not exist. ``InputError`` is the first fault."""
        if self.problem is None and self._next is not None:
            self.problem = f"it opens values of event {self._next.seq}, which there is not, or which came before"
        if self.problem is not None:
            raise InputError(self.problem, where=layout.OPENED)

    def _advance(self) -> None:
        try:
            self._next = next(self._lines, None)
        except InputError as error:
            self._next, self.problem = None, self.problem or error.message

    def _read(self, files: Files) -> Generator[Opened]:
        for line in files.lines(layout.OPENED, FILE_BYTES_MAX):
            try:
                document = orjson.loads(line)
            except ValueError:
                raise InputError("a line is no JSON") from None
            # Ambiguous JSON, such as a name that occurs twice, does not survive the round trip.
            if not isinstance(document, dict) or document.keys() != _MEMBERS or canonical_bytes(document) != line:
                raise InputError("a line has other members than such lines have, or another spelling")
            yield _parse(document)

    def _checked(
        self, event: Mapping[str, Any], found: Opened
    ) -> tuple[dict[str, Json], Sequence[tuple[str, str]] | None]:
        bound, listed = dict(pairs_of(event)), None
        if found.values is not None:
            own = f"/{digest_of(event)}"
            listed = [(own + path, commitment) for path, commitment in found.values]
            if digest([[*pair] for pair in listed]) != event["data"].get("values"):
                raise InputError("it lists other values than its line binds")
            bound.update(listed)
        values: dict[str, Json] = {}
        for salt, path, value in found.opened:
            if path in values:
                raise InputError(f"it opens {path[:80]} twice")
            if bound.get(path) != sha256(canonical_bytes([salt, path, value])).hexdigest():
                raise InputError(f"nothing in its line commits to what is opened at {path[:80]}")
            values[path] = value
        self.count += len(values)
        return values, listed


def _parse(document: JsonObject) -> Opened:
    opened, seq, values = document["opened"], document["seq"], document["values"]
    pairs: list[tuple[str, str]] | None = None if values is None else []
    shown: list[Opening] = []
    for each in opened if isinstance(opened, list) else [None]:
        match each:
            case [str(salt), str(path), value] if len(salt) == 32:
                shown.append((salt, path, value))
            case _:
                raise InputError("it opens what is no salt, path and value")
    for each in values if isinstance(values, list) else ():
        match each:
            case [str(path), str(commitment)] if pairs is not None:
                pairs.append((path, commitment))
            case _:
                raise InputError("it lists what is no path and commitment")
    if type(seq) is not int or not (shown or pairs) or not (values is None or isinstance(values, list)):
        raise InputError("a line opens nothing")
    return Opened(seq, shown, pairs)
