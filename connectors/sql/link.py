"""Connections to the database: bounded, never to our own database, with an exact outcome for each transaction."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

import asyncpg

from connectors.port import InDoubt, NotSent, Refused
from connectors.sql import statements
from core.canonical import INTEGER_MAX, JsonObject, clean
from core.db import Connection, address
from core.errors import CountersealError

CONNECTIONS_MAX = 4
CONNECT_SECONDS = 10.0
# SQLSTATE classes of errors that a retry cannot fix: data, constraints, names and rights.
_REFUSALS = ("0A", "21", "22", "23", "2F", "38", "39", "3F", "42", "44", "P0")
_UNAUTHORIZED = ("28",)

Result = TypeVar("Result")


class Stopped(Exception):
    """Rolls back the transaction; ``outcome`` is its result."""

    def __init__(self, outcome: Refused | NotSent) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome


class Link:
    """Connections of one login to one database."""

    def __init__(self, url: str, own: Callable[[], Awaitable[str]]) -> None:
        self._dsn = address(url)
        self._own = own
        self._own_identity: str | None = None
        self._slots = asyncio.Semaphore(CONNECTIONS_MAX)
        self._free: list[Connection] = []

    @property
    def target(self) -> str:
        """The address without its secret, and the login."""
        parts = urlsplit(self._dsn)
        port = f":{parts.port}" if parts.port else ""
        return f"postgresql://{parts.hostname or ''}{port}{parts.path} as {parts.username or 'nobody'}"

    async def use(
        self, work: Callable[[Connection], Awaitable[Result]], *, seconds: float, writes: bool
    ) -> Result | Refused | NotSent | InDoubt:
        """Run ``work`` in one transaction within ``seconds``. Only a commit without an answer is in doubt."""
        committing = False
        try:
            async with asyncio.timeout(seconds), self._slots:
                connection = await self._connection()
                usable = False
                try:
                    await connection.execute("BEGIN" if writes else "BEGIN READ ONLY")
                    await connection.execute(statements.BOUNDS, str(max(int(seconds * 1000), 1)))
                    result = await work(connection)
                    committing = writes
                    await connection.execute("COMMIT")
                    usable = True
                    return result
                finally:
                    await self._give_back(connection, usable=usable)
        except Stopped as stopped:
            return stopped.outcome
        except CountersealError as error:
            return NotSent(str(error))
        except asyncpg.PostgresError as error:
            return _failure_of(error, committing=committing)
        except (TimeoutError, OSError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            words = f"the database gave no answer: {clean(error) or type(error).__name__}"
            return InDoubt(f"{words}, after COMMIT was sent") if committing else NotSent(words)

    async def close(self) -> None:
        """Close every connection."""
        while self._free:
            with suppress(Exception):
                await self._free.pop().close(timeout=5)

    async def _connection(self) -> Connection:
        while self._free:
            free = self._free.pop()
            if not free.is_closed():
                return free
        if self._own_identity is None:
            self._own_identity = await self._own()
        connection: Connection = await asyncpg.connect(
            self._dsn,
            timeout=CONNECT_SECONDS,
            server_settings={"application_name": "counterseal", "search_path": "pg_catalog"},
            statement_cache_size=0,
        )
        try:
            await self._refuse_own(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _refuse_own(self, connection: Connection) -> None:
        """Refuse the runtime's own database under every address and login."""
        if await connection.fetchval(statements.IDENTITY) == self._own_identity:
            words = "COUNTERSEAL_SQL_URL leads to Counterseal's own database; name another one"
            raise Stopped(Refused("own_database", words))

    async def _give_back(self, connection: Connection, *, usable: bool) -> None:
        """Keep a usable connection. Terminating another one rolls back its open transaction."""
        if usable:
            self._free.append(connection)
        else:
            connection.terminate()


def _failure_of(error: asyncpg.PostgresError, *, committing: bool) -> Refused | NotSent | InDoubt:
    state, words = str(error.sqlstate or ""), clean(f"PostgreSQL says: {error}")
    if state.startswith(_UNAUTHORIZED) or state == "42501":
        return Refused("unauthorized", words)
    if state.startswith(_REFUSALS):
        return Refused(f"sql_{state}", words)
    # At COMMIT, class 40 (serialization failure) means rolled back, but for 40003 (statement completion unknown); after
    # any other error the effect is unknown.
    if committing and (state == "40003" or not state.startswith("40")):
        return InDoubt(f"{words}, after COMMIT was sent")
    return NotSent(words)


def values_of(text: str | None) -> JsonObject:
    """A row that PostgreSQL wrote as JSON. A number without a canonical form becomes its text."""
    found: Any = {} if text is None else json.loads(text, parse_float=str, parse_int=_whole)
    return found if isinstance(found, dict) else {}


def _whole(text: str) -> int | str:
    number = int(text)
    return number if abs(number) <= INTEGER_MAX else text
