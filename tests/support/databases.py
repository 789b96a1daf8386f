"""The databases of the server of a session, which tests make and drop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg


class Databases:
    """Makes and drops databases, over one connection that stays open for tests of any event loop.

    A fork has a connection of its own: it has not the thread of the first one, and must not speak in its place.
    """

    def __init__(self, url: str) -> None:
        """Take the address of a database whose role may create others."""
        self._url = url
        self._lines: dict[int, _Line] = {}

    def named(self, name: str) -> str:
        """The DSN of the database of this name."""
        return urlunsplit(urlsplit(self._url)._replace(path=f"/{name}"))

    def create(self, kind: str, template: str = "template1") -> str:
        """Create a database with a name of its own, as a copy; its DSN."""
        name = f"{kind}_{uuid4().hex}"
        # The copy is made of files, which is faster than of WAL where nothing has to reach the disk.
        self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY')
        return self.named(name)

    def drop(self, url: str) -> None:
        """Drop a database, if it is there, whoever is connected to it."""
        self._execute(f'DROP DATABASE IF EXISTS "{urlsplit(url).path[1:]}" WITH (FORCE)')

    @contextmanager
    def made(self, kind: str, template: str = "template1") -> Iterator[str]:
        """The DSN of a database that is dropped at the end."""
        url = self.create(kind, template)
        try:
            yield url
        finally:
            self.drop(url)

    def close(self) -> None:
        """Close the connection of this process."""
        if line := self._lines.pop(os.getpid(), None):
            line.close()

    def _execute(self, statement: str) -> None:
        process = os.getpid()
        if process not in self._lines:
            self._lines[process] = _Line(self._url)
        self._lines[process].execute(statement)


class _Line:
    """One connection, with the thread and the event loop to which it belongs. Whoever asks waits for the answer."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: asyncpg.Connection[Any] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="databases", daemon=True)
        self._thread.start()

    def execute(self, statement: str) -> None:
        asyncio.run_coroutine_threadsafe(self._executed(statement), self._loop).result()

    def close(self) -> None:
        if self._connection is not None:
            asyncio.run_coroutine_threadsafe(self._connection.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _executed(self, statement: str) -> None:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(self._url)
        await self._connection.execute(statement)
