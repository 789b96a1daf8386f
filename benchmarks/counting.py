"""Counts statements sent to PostgreSQL, at the driver, on every connection of the hot path."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from asyncpg.connection import LoggedQuery

from core.db import Connection, Database

_ENDS = ("COMMIT", "ROLLBACK")


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of transactions, statements, and the BEGINs and COMMITs that delimit some of the transactions.

    A statement outside of BEGIN and COMMIT is one transaction. ``flushes`` are the transactions whose commit waits for
    the disk.
    """

    transactions: int = 0
    statements: int = 0
    delimiters: int = 0
    flushes: int = 0

    @property
    def exchanges(self) -> int:
        """The number of round trips."""
        return self.statements + self.delimiters

    def __sub__(self, other: Counts) -> Counts:
        return Counts(
            self.transactions - other.transactions,
            self.statements - other.statements,
            self.delimiters - other.delimiters,
            self.flushes - other.flushes,
        )


_WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE)\b|\b(append|append_to_run|open_run|order_message)\(")


@lru_cache(maxsize=4096)  # a statement of several calls is long, and there are few of them
def writes(query: str) -> bool:
    """True if a statement's commit waits for the disk: it writes, and it is no claim (asynchronous commit)."""
    return _WRITES.search(query) is not None and "'synchronous_commit', 'off'" not in query


class Counter:
    """Counts over any number of connections."""

    def __init__(self) -> None:
        self._counts = [0, 0, 0, 0]
        self._paused = False

    def tally(self) -> Callable[[LoggedQuery], None]:
        """A query logger for one connection."""
        inside = wrote = False

        def logged(query: LoggedQuery) -> None:
            nonlocal inside, wrote
            words = query.query.lstrip()[:8].upper()
            begins, ends = words.startswith("BEGIN"), words.startswith(_ENDS)
            wrote = writes(query.query) or (wrote and inside)
            if not self._paused:
                self._counts[0] += ends or not (begins or inside)
                self._counts[1] += not (begins or ends)
                self._counts[2] += begins or ends
                self._counts[3] += wrote and (words.startswith("COMMIT") or not (begins or inside))
            inside = begins or (inside and not ends)

        return logged

    async def read(self) -> Counts:
        """The counts so far. The driver reports a query one turn of the loop after its end, so wait one turn."""
        await asyncio.sleep(0)
        return Counts(*self._counts)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count nothing meanwhile, for the benchmark's own queries."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False


class CountingDatabase(Database):
    """A database whose connections are counted."""

    def __init__(self, url: str, role: str, counter: Counter, *, connections: int = 8) -> None:
        super().__init__(url, role, connections=connections)
        self._counter = counter

    async def __aenter__(self) -> CountingDatabase:
        return self

    async def connect(self) -> Connection:
        connection = await super().connect()
        connection.add_query_logger(self._counter.tally())
        return connection
