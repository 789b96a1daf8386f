"""The database: one ``Database`` per role, with prepared asyncpg connections.

They are kept in a plain free list without a reset between uses: the reset of a general pool is
a round trip of its own. A connection whose state is unknown is closed instead of reused. Every transaction
and every function of the faces' role names its tenant; row-level security hides everything else, also from a query that
forgets to ask (promise 8).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import cached_property
from types import TracebackType
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

import asyncpg
import orjson

from core.errors import CountersealError, InputError, TransportError
from core.grouping import Call, Grouping, call_alone, called, can_share

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

ENGINE_ROLE = "counterseal_engine"
FACES_ROLE = "counterseal_faces"
TENANT_SETTING = "counterseal.tenant"
TENANT_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")

# The hot path's statements are few and wide: planning one costs more than running it. So each is planned once per
# connection, for any parameters, and none is prepared again because it is long or because time has passed. A plan made
# for empty tables must still be right when they are full: every row is found by its key, whatever the statistics say.
_HOT_SETTINGS = {
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
_STATEMENTS_KEPT = 512
_STATEMENT_BYTES_MAX = 64 * 1024

# asyncpg's own errors for a server that goes away in the middle of an exchange, or between two.
_WENT_AWAY = (asyncpg.InternalClientError, asyncpg.InterfaceError)

_ADDRESS = re.compile(r"(postgres(?:ql)?)(?:\+\w+)?://(?:([^:/@]*)(?::([^@]*))?@)?([^/?]*/[^?]+(?:\?.*)?)\Z", re.DOTALL)


def address(url: str) -> str:
    """The address of a database as asyncpg reads it, also if a driver is named, or the password has a ``/`` in it.

    ``InputError`` if it is no address of a PostgreSQL database.
    """
    match = _ADDRESS.match(url)
    if match is None:
        raise InputError("is no address of a PostgreSQL database")
    scheme, user, password, rest = match.groups()
    secret = "" if password is None else f":{quote(unquote(password), safe='')}"
    return f"{scheme}://{'' if user is None else user + secret + '@'}{rest}"


def check_tenant(tenant: str) -> str:
    """Return ``tenant`` if it is a well-formed tenant id, which is also what makes it safe to put into SET LOCAL."""
    if not TENANT_PATTERN.match(tenant):
        raise InputError(
            f"{tenant!r} is not a tenant id",
            remedy="Use lower-case letters, digits, - and _, at most 63, starting with a letter or digit.",
        )
    return tenant


# The database's time is read anew if it is known less exactly than this.
CLOCK_ERROR_MAX = timedelta(seconds=0.25)


class DatabaseClock:
    """The database's time, from a reading made just now: the monotonic clock says how much has passed since then.

    A wall clock is never read: what is decided by time (leases, due waits, expiry) the database decides by ``now()``.
    This clock stamps audit events of commits that need no reading of their own. It is never ahead, and behind by no
    more than ``error``: the answer took so long to come. ``asked`` is the monotonic time before the question.
    """

    def __init__(self, reading: datetime, asked: float) -> None:
        self._reading, self._asked = reading, asked
        self._read_at = time.monotonic()

    @cached_property
    def error(self) -> timedelta:
        """The time by which ``now`` may be behind."""
        return timedelta(seconds=max(self._read_at - self._asked, 0.0))

    def age(self) -> float:
        """The seconds since the reading; a clock drifts."""
        return time.monotonic() - self._read_at

    def now(self) -> datetime:
        """The database's time, as far as this process can tell without asking again."""
        return self._reading + timedelta(seconds=time.monotonic() - self._read_at)


class Database:
    """Access to PostgreSQL under one role. Use as an async context manager."""

    def __init__(self, url: str, role: str, *, connections: int = 8) -> None:
        self._dsn = address(url)
        self._role = role
        self._slots = asyncio.Semaphore(connections)
        self._free: list[Connection] = []
        self._closed = False
        self._calls: Grouping[Call, Any] = Grouping(self.connection, call_alone, called, can_share)

    async def __aenter__(self) -> Database:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection. Connections in use are closed when they are given back."""
        self._closed = True
        while self._free:
            await self._free.pop().close()

    async def connect(self) -> Connection:
        """A new connection of this role that the caller owns: for LISTEN, and for the free list."""
        try:
            connection: Connection = await asyncpg.connect(
                self._dsn,
                timeout=10,
                server_settings={"role": self._role, "application_name": "counterseal", **_HOT_SETTINGS},
                statement_cache_size=_STATEMENTS_KEPT,
                max_cached_statement_lifetime=0,
                max_cacheable_statement_size=_STATEMENT_BYTES_MAX,
            )
            try:
                codec = {"encoder": lambda value: orjson.dumps(value).decode(), "decoder": orjson.loads}
                for name in ("json", "jsonb"):
                    await connection.set_type_codec(name, schema="pg_catalog", **codec, format="text")
            except BaseException:
                connection.terminate()
                raise
        except (OSError, TimeoutError, asyncpg.PostgresError, *_WENT_AWAY) as error:
            raise TransportError(
                f"PostgreSQL cannot be reached: {error}",
                remedy="Check COUNTERSEAL_DATABASE_URL and `counterseal doctor`.",
            ) from error
        return connection

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A hot-path connection in autocommit: each statement is its own transaction.

        Under the faces' role no tenant is set, so it sees nothing: use functions, which name theirs, or ``within``.
        """
        async with self._slots:
            while self._free and self._free[-1].is_closed():  # a restart of PostgreSQL has closed them all
                self._free.pop()
            connection = self._free.pop() if self._free else await self.connect()
            usable = False
            try:
                yield connection
                usable = True
            except (CountersealError, asyncpg.PostgresError):
                usable = True
                raise
            except asyncpg.InternalClientError as error:
                # asyncpg's error for a server that went away in the middle of an exchange.
                raise TransportError(f"PostgreSQL went away: {error}", remedy="Try again.") from error
            finally:
                # A cancelled or broken exchange leaves the protocol in an unknown state: never reuse it.
                if usable and not (self._closed or connection.is_closed() or connection.is_in_transaction()):
                    self._free.append(connection)
                else:
                    connection.terminate()

    async def call(self, call: Call) -> Any:
        """Call a function of the database, in a transaction of its own or one of several calls; return its result.

        The caller may hold no connection while it waits: the calls that share the statement wait for one.
        """
        return await self._calls.apply(call)

    @asynccontextmanager
    async def transaction(self, tenant: str | None = None) -> AsyncIterator[Connection]:
        """One transaction on a hot-path connection, bound to ``tenant`` if one is given; undone on any error."""
        async with self.connection() as connection, within(connection, tenant):
            yield connection

    @asynccontextmanager
    async def listening(
        self, channels: tuple[str, ...], notify: Callable[[str, str], None]
    ) -> AsyncIterator[asyncio.Future[None]]:
        """LISTEN on ``channels`` and call ``notify(channel, payload)``; yields a future done when the line is lost."""
        connection = await self.connect()
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def heard(_: object, __: int, channel: str, payload: object) -> None:
            notify(channel, str(payload))

        def ended(_: object) -> None:
            if not lost.done():
                lost.set_result(None)

        connection.add_termination_listener(ended)
        try:
            for channel in channels:
                await connection.add_listener(channel, heard)
            yield lost
        finally:
            if connection.is_closed():
                connection.terminate()
            else:
                await connection.close()


@asynccontextmanager
async def within(at: Connection | Database, tenant: str | None) -> AsyncIterator[Connection]:
    """A transaction on ``at``, bound to ``tenant`` if one is given; a connection's open transaction is reused."""
    if isinstance(at, Database):
        async with at.transaction(tenant) as connection:
            yield connection
        return
    connection = at
    if connection.is_in_transaction():
        yield connection
        return
    await connection.execute(
        "BEGIN" if tenant is None else f"BEGIN; SET LOCAL {TENANT_SETTING} = '{check_tenant(tenant)}'"
    )
    try:
        yield connection
    except (CountersealError, asyncpg.PostgresError):
        await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")
