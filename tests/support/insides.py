"""The only places where tests reach into private parts of the product: to make a moment come about that no door makes.

Each function says why there is no other way. A test outside this folder that reads a private name fails `make check`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app import storage
from runtime.queue.postgres import PostgresQueue
from runtime.requests import voting
from runtime.store import queue_reads, read_models, sweeps
from runtime.work.pump import Pump

# The lock that every process holds, shared, as long as it runs: a test takes the place of an upgrade that waits for it.
RUNNING_KEY = storage._RUNNING_KEY


def look_often(queue: object) -> None:
    """Let an idle queue look again at once: a test in one process has nobody to wake it."""
    assert isinstance(queue, PostgresQueue)
    queue._idle = 0.01


def lose_the_database(database: Any) -> None:
    """Point the pool to an address where nobody listens: the server that all tests share cannot be stopped."""
    database._dsn = "postgresql://nobody:word@127.0.0.1:9/nothing"


def migrations_folder() -> Path:
    """The folder with the versions of the schema."""
    return storage._VERSIONS


def take_migrations_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process one of a release with other migrations."""
    monkeypatch.setattr(storage, "_VERSIONS", folder)


async def take_one(worker: Any) -> bool:
    """Deliver one message to a worker: the loop around it would take the next one, too."""
    (delivery,) = await worker._queue.receive(1)
    return bool(await worker._take(delivery))


def held_by(worker: Any) -> list[Any]:
    """The leases that a worker holds, as its heartbeat sees them."""
    return [(run, claim, job) for job in worker._jobs.values() for run, claim in job.drive.leased]


async def beat(worker: Any) -> None:
    """One heartbeat now: its timer is slower than any test."""
    await worker._extend(held_by(worker))


def waiting_calls(database: Any) -> int:
    """The calls that wait for a writer; nothing in the database tells their number."""
    return len(database._calls._waiting)


def look_at_all_again(sweeper: Any) -> None:
    """Let the next sweep look at all kept signals, as it does once a minute."""
    sweeper._whole_at = 0.0


def statement_of_a_sweep() -> str:
    """The statement that finds what is due: its plan is counted in pages."""
    return sweeps._DUE


def statements_of_the_metrics() -> tuple[str, str]:
    """The two statements of a look of the metrics whose plans are counted in pages: the snapshot, and the counts."""
    return queue_reads._SNAPSHOT, read_models._COUNTS


def count_retried_appends(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The moves that were refused once and are decided again on the book, as they come."""
    refused: list[Any] = []
    on_the_book = Pump._on_the_book

    async def lost(self: Pump, *moves: Any, **how: Any) -> None:
        refused.append(moves)
        await on_the_book(self, *moves, **how)

    monkeypatch.setattr(Pump, "_on_the_book", lost)
    return refused


def between_reading_and_append_of_votes(
    monkeypatch: pytest.MonkeyPatch, hold: Callable[[voting.VoteRequest, Awaitable[Any]], Awaitable[Any]]
) -> None:
    """Hold votes up between their reading and their append: a race of two people within a millisecond."""
    judge = voting._judge

    async def held_up(definitions: Any, connection: Any, request: voting.VoteRequest, *more: Any, **how: Any) -> Any:
        return await hold(request, judge(definitions, connection, request, *more, **how))

    monkeypatch.setattr(voting, "_judge", held_up)


def wrap_connections_of(connector: Any, wrap: Callable[[Any], Any]) -> None:
    """Hand each connection that a connector's link opens to ``wrap``, once."""
    link, seen = connector._link, set[int]()
    connect = link._connection

    async def connected() -> Any:
        connection = await connect()
        if id(connection) in seen:
            return connection
        wrapped = wrap(connection)
        seen.add(id(wrapped))
        return wrapped

    vars(link)["_connection"] = connected


@contextmanager
def holding(monkeypatch: pytest.MonkeyPatch, seconds: float) -> Iterator[dict[str, float]]:
    """Find the callbacks that take more of this thread's processor time: asyncio tells only of elapsed time."""
    found: dict[str, float] = {}
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        spent = time.thread_time() - began
        if spent > seconds:
            found[repr(handle)] = spent

    with monkeypatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", timed)
        yield found
