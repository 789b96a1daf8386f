"""The journal: a run's book, one row for each append (promise 6). ``commits`` writes it; this module reads it."""

from __future__ import annotations

import json
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, TypeAlias, overload
from uuid import UUID

from msgspec import Struct

from core.canonical import Json, JsonObject
from core.db import Connection
from evidence.events import EventType
from runtime.engine.book.recorded import RecordedEvent, check_stored, read_line, unpack_values
from runtime.store.statements import statements

# The events that record what a model call has used.
_USING = (EventType.STEP_SUCCEEDED, EventType.STEP_FAILED, EventType.STEP_HELD, EventType.STEP_RETRY_SCHEDULED)

# The bytes of values that take as long to read as one line without values.
BYTES_OF_LINE = 64
WEIGHED_MAX = 64 * 1024

_SQL = statements("journal")
_LINES = _SQL["lines"]
_OPENED = _SQL["opened"]
_WITH = _SQL["with"]
_ABOVE = _SQL["above"]
_USED = _SQL["used"]


class Append(Struct, frozen=True, dict=True):
    """One append: its lines, the place of the first, and their values as they are stored."""

    first_seq: int
    lines: Sequence[bytes]
    stored: bytes | None

    @cached_property
    def values(self) -> Mapping[int, JsonObject]:
        """The values of the lines, by their number in the append."""
        return unpack_values(self.stored)

    def events(self, run_key: bytes, *, each: bool = False) -> Iterator[RecordedEvent]:
        """The events of the append. ``Diverged`` if its values are not those that were recorded.

        With ``each``, every value is also compared with the commitment in its line.
        """
        if not each:
            check_stored(self.lines[-1], self.stored, run_key)
        for number, line in enumerate(self.lines):
            yield read_line(line, self.values.get(number, {}), run_key, self.first_seq + number, verify=each)
        if each:  # last, because the check of a line says more precisely what was altered
            check_stored(self.lines[-1], self.stored, run_key)


# An append as its row holds it: the place of the first line, the lines, and their values.
Row: TypeAlias = tuple[int, bytes, bytes | None]


class Stored(Sequence[Append]):
    """Appends as they are stored. Each is decoded when it is accessed.

    So an iteration holds one append at a time, however long the book is.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, at: int) -> Append: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Append]: ...
    def __getitem__(self, at: int | slice) -> Append | Sequence[Append]:
        if isinstance(at, slice):
            return Stored(self._rows[at])
        first, text, values = self._rows[at]
        return Append(first, text.split(b"\n"), values)


class CheckedEvents(Sequence[RecordedEvent]):
    """The events of appends whose values were already compared with their lines. Each access decodes the event anew."""

    def __init__(self, every: Sequence[Append], run_key: bytes, count: int) -> None:
        self._every, self._run_key, self._count = every, run_key, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[RecordedEvent]:
        return (recorded for append in self._every for recorded in append.events(self._run_key))

    @overload
    def __getitem__(self, at: int) -> RecordedEvent: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[RecordedEvent]: ...
    def __getitem__(self, at: int | slice) -> RecordedEvent | Sequence[RecordedEvent]:
        if isinstance(at, slice):
            return [*self][at]
        place = range(self._count)[at]
        number = bisect_right(self._every, place, key=lambda append: append.first_seq) - 1
        return next(islice(self._every[number].events(self._run_key), place - self._every[number].first_seq, None))


def appends(firsts: Sequence[int], lines: Sequence[bytes], vals: Sequence[bytes | None]) -> list[Append]:
    """The appends of a run, from the columns of its rows."""
    columns = zip(firsts, lines, vals, strict=True)
    return [Append(first, text.split(b"\n"), values) for first, text, values in columns]


def weight(vals: Sequence[bytes | None]) -> int:
    """The work of reading these values, as a number of lines. Counting ends once it is certain to be much."""
    size = 0
    for stored in vals:
        if stored is not None and size < WEIGHED_MAX:
            size += len(stored) if stored.startswith(b"{") else len(_inflated(stored))
    return size // BYTES_OF_LINE


def _inflated(stored: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(stored, WEIGHED_MAX)
    except zlib.error:  # the read itself reports the damage
        return b""


async def of_type(connection: Connection, run_id: UUID, run_key: bytes, kind: EventType) -> list[RecordedEvent]:
    """All events of one type. Only the appends that hold such an event are read."""
    rows = await connection.fetch(_WITH, run_id, f'"type":"{kind}"'.encode(), 0)
    found = appends(*(([row[name] for row in rows]) for name in ("first_seq", "lines", "vals")))
    return [recorded for append in found for recorded in append.events(run_key) if recorded.event.TYPE is kind]


async def of_step(
    connection: Connection, run_id: UUID, run_key: bytes, key: str, *, after: int = 0
) -> tuple[int, list[RecordedEvent]]:
    """All events of a step in appends after ``after``; for an agent, the events of its turns and calls as well.

    The first result is the number of the last of these appends.
    """
    rows = await connection.fetch(_WITH, run_id, f'"step":"{key}'.encode(), after)
    found = appends(*(([row[name] for row in rows]) for name in ("first_seq", "lines", "vals")))
    recorded = [each for append in found for each in append.events(run_key)]
    own = [each for each in recorded if each.step == key or (each.step or "").startswith(f"{key}/")]
    return rows[-1]["n"] if rows else after, own


async def of_others(
    connection: Connection, run_id: UUID, wanted: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], list[RecordedEvent]]:
    """All kept events of these agents (run and key); the agents are of this run or of runs above it."""
    if not wanted:
        return {}
    above = {str(row["run_id"]): row["run_key"] for row in await connection.fetch(_ABOVE, run_id)}
    found = [at for at in wanted if above.get(at[0])]
    return {at: (await of_step(connection, UUID(at[0]), above[at[0]], at[1]))[1] for at in found}


async def used(connection: Connection, run_id: UUID) -> tuple[list[Json], int]:
    """Read the usage of each model turn in a run and the runs below it, and count the calls that were made there."""
    rows = await connection.fetch(_USED, run_id)
    lines: list[dict[str, Any]] = [json.loads(line) for row in rows for line in row["lines"].split(b"\n")]
    turns = [line["data"] for line in lines if line["type"] in _USING]
    calls = [call for line in lines if line["type"] == EventType.AGENT_ANSWERED for call in line["data"]["calls"]]
    return [data["usage"] for data in turns if data.get("usage")], sum(not code for _, code in calls)


async def opened(connection: Connection, run_id: UUID, waits: Sequence[UUID]) -> dict[UUID, int]:
    """The number of the append that opened each wait, which is the run's version by then: the first that names it."""
    return {UUID(str(row["id"])): row["n"] for row in await connection.fetch(_OPENED, run_id, waits)}


async def lines(connection: Connection, run_id: UUID) -> list[bytes]:
    """The audit lines of a run."""
    return [line for row in await connection.fetch(_LINES, run_id) for line in row["lines"].split(b"\n")]
