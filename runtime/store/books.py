"""Reads the whole book of a run, and checks it against the run's row. Every reader of past events uses this module.

A book that was read is unbroken up to the head that the run's row names, and its values are those that were recorded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
from msgspec import Struct
from msgspec.structs import replace

from core.canonical import canonical_bytes
from core.db import Connection
from core.errors import NotFoundError
from evidence.chain import ChainHead, verify_lines
from evidence.events import EventType
from runtime.engine.book.recorded import Diverged, RecordedEvent
from runtime.engine.model.events import RunExtended, RunMigrated, RunOpened
from runtime.engine.model.rows import MutationRow
from runtime.engine.model.run import Run
from runtime.store import journal
from runtime.store.journal import Append
from runtime.store.offload import offload
from runtime.store.statements import statements

_SQL = statements("books")
_RUN = _SQL["run"]
_SEVERAL = _SQL["several"]
_HEAD = _SQL["head"]
_PAGE = _SQL["page"]
# The number of appends that are fetched at once, so that the driver's memory does not grow with the book.
PAGE = 100


# An event that changes the graph of a run: an extension, or a migration to another version of its workflow.
Change: TypeAlias = MutationRow | RunMigrated


class Book(Struct, frozen=True):
    """A run's row with its key, its appends and its events. There are no events if the run's values were erased.

    ``weight`` is the work of reading it, as a number of lines. ``changes`` are the changes of its graph.
    """

    row: asyncpg.Record
    appends: Sequence[Append]
    events: Sequence[RecordedEvent]
    weight: int = 0
    changes: Sequence[Change] = ()

    @property
    def run_id(self) -> UUID:
        """The run that the book is of."""
        return UUID(int=self.row["run_id"].int)

    @property
    def purged(self) -> bool:
        """True if retention has taken the values."""
        return self.row["purged_at"] is not None

    @property
    def head(self) -> ChainHead:
        """The end of the chain."""
        return _head(self.row)

    @property
    def opened(self) -> RunOpened:
        """The first event."""
        event = self.events[0].event
        assert isinstance(event, RunOpened), "no chain begins otherwise"
        return event


async def fetch(connection: Connection, tenant: str, run_id: UUID) -> asyncpg.Record:
    """Read a run's row, key and appends in one snapshot. ``NotFoundError`` if the tenant has no such run."""
    row = await connection.fetchrow(_RUN, tenant, run_id)
    if row is None:
        raise _missing(run_id)
    return row


def _missing(run_id: UUID) -> NotFoundError:
    return NotFoundError(f"There is no run {run_id}.", remedy="See `counterseal run list`.")


async def checked(row: asyncpg.Record, connection: Connection | None = None) -> Book:
    """Check a fetched row, and return its book.

    ``Diverged`` if it is not what was written: its chain is broken or does not end where the run's row says, a value
    was changed, or the key to the values is lost.
    """
    long = row["audit_count"] + journal.weight(row["every_vals"] or ())
    return replace(await offload(long, lambda: _checked(row), connection), weight=long)


async def read(connection: Connection, tenant: str, run_id: UUID) -> Book:
    """Read and check the book of a run: ``checked`` of ``fetch``."""
    return await checked(await fetch(connection, tenant, run_id), connection)


async def several(connection: Connection, tenant: str, run_ids: Sequence[UUID]) -> dict[UUID, Book]:
    """Read and check the books of a few short runs of the tenant in one statement; the books by run."""
    rows = await connection.fetch(_SEVERAL, tenant, run_ids)
    return {UUID(int=row["run_id"].int): await checked(row, connection) for row in rows}


async def paged(connection: Connection, tenant: str, run_id: UUID) -> Book:
    """Read and check the book of a run like ``read``, for a caller that iterates over its events.

    It is fetched page by page and held as it is stored. Each iteration decodes the events anew, one append at a time.
    If retention or a late line changes the book between two pages, it is fetched again.
    """
    row, stored = await _head_of(connection, tenant, run_id), list[journal.Row]()
    while True:
        stored = [each async for each in _pages(connection, run_id)]
        now = await _head_of(connection, tenant, run_id)
        if now == row:
            break
        row = now  # somebody has written, or retention has removed the values: pages of two moments are no book
    long = row["audit_count"] + journal.weight([values for _, _, values in stored])
    return replace(await offload(long, lambda: _through(row, journal.Stored(stored)), connection), weight=long)


async def _head_of(connection: Connection, tenant: str, run_id: UUID) -> asyncpg.Record:
    row = await connection.fetchrow(_HEAD, tenant, run_id)
    if row is None:
        raise _missing(run_id)
    return row


async def _pages(connection: Connection, run_id: UUID) -> AsyncIterator[journal.Row]:
    """Yield the appends in their order."""
    after = 0
    while page := await connection.fetch(_PAGE, run_id, after, PAGE):
        for each in page:
            yield each["first_seq"], each["lines"], each["vals"]
        after = page[-1]["n"]


async def lines(connection: Connection, tenant: str, run_id: UUID) -> Sequence[bytes]:
    """The lines of a run, without values. ``Diverged`` if they are not those that were written."""
    row = await fetch(connection, tenant, run_id)
    return await offload(
        row["audit_count"] + journal.weight(row["every_vals"] or ()),
        lambda: [line for append in _unbroken(row) for line in append.lines],
        connection,
    )


async def changes(connection: Connection, run_id: UUID, run_key: bytes, count: int) -> list[Change]:
    """The first ``count`` changes of a run's graph, in their order. ``Diverged`` if one is not as recorded."""
    kinds = (EventType.RUN_EXTENDED, EventType.RUN_MIGRATED)
    found = [each for kind in kinds for each in await journal.of_type(connection, run_id, run_key, kind)]
    return sorted(changes_in(found), key=lambda one: one.number)[:count]


def changes_in(recorded: Iterable[RecordedEvent]) -> Iterator[Change]:
    """The changes of the graph among these events."""
    for each in recorded:
        match each.event:
            case RunExtended() as event:
                gates = tuple(event.gates or ())
                yield MutationRow(event.number, each.actor.id, event.source, event.operations, gates)
            case RunMigrated() as event:
                yield event


def since_migration(changes: Sequence[Change]) -> tuple[RunMigrated | None, list[MutationRow]]:
    """The last migration among these changes, if there is one, and the extensions that came after it."""
    moved: RunMigrated | None = None
    added = list[MutationRow]()
    for change in changes:
        if isinstance(change, RunMigrated):
            moved, added = change, []
        else:
            added.append(change)
    return moved, added


def _head(row: asyncpg.Record) -> ChainHead:
    return ChainHead(f"run:{row['run_id']}", row["audit_count"], row["audit_head"])


def _unbroken(row: asyncpg.Record) -> list[Append]:
    every = journal.appends(row["firsts"] or (), row["every_lines"] or (), row["every_vals"] or ())
    _verify(row, every)
    return every


def _verify(row: asyncpg.Record, every: Sequence[Append]) -> None:
    """Follow the chain to the head that the row names. ``Diverged`` if it is broken or ends elsewhere."""
    lines = (line for append in every for line in append.lines)
    report = verify_lines(_head(row), lines, (len(append.lines) for append in every))
    if not report.ok:
        raise Diverged(f"The audit chain is broken: {report.problem}", "chain")


def _checked(row: asyncpg.Record) -> Book:
    every = _unbroken(row)
    if row["purged_at"] is not None:
        return Book(row, every, ())
    events = [*_events(row, every)]
    return Book(row, every, events, changes=[*changes_in(events)])


def _through(row: asyncpg.Record, every: Sequence[Append]) -> Book:
    """Check a book like ``_checked``, but hold no events: each is dropped once it was compared with its line."""
    _verify(row, every)
    if row["purged_at"] is not None:
        return Book(row, every, ())
    changes = [*changes_in(_events(row, every))]
    return Book(row, every, journal.CheckedEvents(every, row["run_key"], row["audit_count"]), changes=changes)


def _events(row: asyncpg.Record, every: Sequence[Append]) -> Iterator[RecordedEvent]:
    """Yield the events, each compared with what its line commits to."""
    if not row["run_key"]:
        raise Diverged("The run's key was deleted, so its values cannot be compared with the audit")
    return (recorded for append in every for recorded in append.events(row["run_key"], each=True))


# The columns of a run's row that are always compared. The status is compared only when the run is over.
_FOLDED = ("superstep", "writes", "reference", "extensions", "error", "canceling", "result")


def check_row(book: Book, run: Run) -> None:
    """Compare the run's row with the run that its book folds to. ``Diverged`` names the column that differs."""
    names = (*_FOLDED, "status") if run.finished else _FOLDED
    for name in names:
        if not same(book.row[name], getattr(run, name)):
            raise Diverged(f"The {name} of the run {run.run_id} is not what its lines tell", "run")


def same(stored: Any, expected: Any) -> bool:
    """True if a stored value equals the one that follows from the book."""
    return bool(stored == expected) or canonical_bytes(stored) == canonical_bytes(expected)
