"""The database: one ``Database`` per role, with prepared asyncpg connections.

Connections are kept in a plain free list, without a reset between uses: the reset of a general pool costs a round trip.
A connection in an unknown state is closed, not reused. Every transaction and every function of the faces' role names
its tenant. Row-level security hides everything else, even if a query lacks its tenant filter (promise 8).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import copy
from datetime import datetime, timedelta
from functools import cached_property
from types import TracebackType
from typing import Any, TypeAlias
from urllib.parse import quote, unquote
from weakref import WeakKeyDictionary

import asyncpg
import orjson

from core.errors import CountersealError, InputError, TransportError
from core.grouping import Call, Grouping, call_alone, called, can_share
from core.limits import Limits, close, kept_alive, milliseconds
from core.turns import NOBODY, Turns

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

ENGINE_ROLE = "counterseal_engine"
FACES_ROLE = "counterseal_faces"
TENANT_SETTING = "counterseal.tenant"
TENANT_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")

# The hot path's statements are few and wide: planning one costs more than running it. So each is planned once per
# connection, for any parameters, and asyncpg never evicts one for its age or length. A plan made for empty tables must
# still be fast when they are full: so the planner must use indexes, whatever the statistics say.
_HOT_SETTINGS = {
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
_STATEMENTS_KEPT = 512
_STATEMENT_BYTES_MAX = 64 * 1024

# The functions to call once the open transaction of a connection has been committed.
_PENDING: WeakKeyDictionary[Connection, list[Callable[[], None]]] = WeakKeyDictionary()

# asyncpg's errors if the server goes away during a request or between two.
_WENT_AWAY = (asyncpg.InternalClientError, asyncpg.InterfaceError)

_ADDRESS = re.compile(r"(postgres(?:ql)?)(?:\+\w+)?://(?:([^:/@]*)(?::([^@]*))?@)?([^/?]*/[^?]+(?:\?.*)?)\Z", re.DOTALL)


def address(url: str) -> str:
    """The database address in the form that asyncpg accepts: a driver's name is removed, the password is quoted.

    ``InputError`` if it is no address of a PostgreSQL database.
    """
    match = _ADDRESS.match(url)
    if match is None:
        raise InputError("is no address of a PostgreSQL database")
    scheme, user, password, rest = match.groups()
    secret = "" if password is None else f":{quote(unquote(password), safe='')}"
    return f"{scheme}://{'' if user is None else user + secret + '@'}{rest}"


def check_tenant(tenant: str) -> str:
    """Return ``tenant`` if it is a well-formed tenant id, and so safe to write into SET LOCAL; else ``InputError``."""
    if not TENANT_PATTERN.match(tenant):
        raise InputError(
            f"{tenant!r} is not a tenant id",
            remedy="Use lower-case letters, digits, - and _, at most 63, starting with a letter or digit.",
        )
    return tenant


# We read the database's time again if the last reading may be off by more than this.
CLOCK_ERROR_MAX = timedelta(seconds=0.25)


class DatabaseClock:
    """The database's time, computed from one reading and the local monotonic clock.

    A wall clock is never read. The database itself decides by ``now()`` what depends on time (leases, due waits,
    expiry). This clock stamps audit events of commits that need no reading of their own. It is never ahead, and behind
    by at most ``error``, the round trip of the reading. ``asked`` is the monotonic time before the query, and
    ``answered`` the time at which its answer arrived, if that was before now: the time for which the answer has waited
    in this process is no error of the reading.
    """

    def __init__(self, reading: datetime, asked: float, answered: float | None = None) -> None:
        self._reading, self._asked = reading, asked
        self._read_at = time.monotonic() if answered is None else answered

    @cached_property
    def error(self) -> timedelta:
        """The time by which ``now`` may be behind: the reading's round trip."""
        return timedelta(seconds=max(self._read_at - self._asked, 0.0))

    def age(self) -> float:
        """The seconds since the reading. Old readings are replaced because clocks drift."""
        return time.monotonic() - self._read_at

    def now(self) -> datetime:
        """The database's time, estimated without a query."""
        return self._reading + timedelta(seconds=time.monotonic() - self._read_at)


class Database:
    """Access to PostgreSQL under one role. Use as an async context manager."""

    def __init__(self, url: str, role: str, *, connections: int = 8, limits: Limits | None = None) -> None:
        self.url = url  # it contains a password, and is only for helpers of this process
        self._dsn = address(url)
        self._role = role
        self.limits = limits or Limits()
        # A pooler refuses connection parameters that it does not know, so they are set after the connection is made.
        settings = {**_HOT_SETTINGS, **self.limits.settings(), "role": role}
        self._settings = "; ".join(f"SET {name} = '{value}'" for name, value in settings.items())
        self._kept_alive = kept_alive(self.limits.alive)
        # The most connections for one tenant: a quarter is always left for other tenants.
        self._slots = Turns(connections, connections - connections // 4)
        self._free: list[Connection] = []
        self.patience: float | None = None
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
            await close(self._free.pop())

    async def connect(self) -> Connection:
        """A new connection of this role that the caller owns: for LISTEN, and for the free list.

        Each exchange on it has a deadline. A connection whose role cannot be set is not given out.
        """
        try:
            connection: Connection = await asyncpg.connect(
                self._dsn,
                timeout=10,
                command_timeout=self.limits.answer,
                connection_class=self._kept_alive,
                server_settings={"application_name": "counterseal"},
                statement_cache_size=_STATEMENTS_KEPT,
                max_cached_statement_lifetime=0,
                max_cacheable_statement_size=_STATEMENT_BYTES_MAX,
            )
            try:
                await connection.execute(self._settings)
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
    async def connection(self, tenant: str = NOBODY) -> AsyncIterator[Connection]:
        """A hot-path connection in autocommit: each statement is its own transaction.

        Under the faces' role no tenant is set, so it sees no rows: call functions, which name the tenant, or use
        ``within``.
        """
        async with self._slots.place(tenant):
            while self._free and self._free[-1].is_closed():  # a restart of PostgreSQL closes them all
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
                # asyncpg raises this if the server went away during a request.
                raise TransportError(f"PostgreSQL went away: {error}", remedy="Try again.") from error
            except TimeoutError as error:
                # This connection is dropped below, and all free ones here: a new one may lead to a server that answers.
                # A crash here changes nothing: PostgreSQL rolls back uncommitted work.
                self._drop_free()
                words = f"PostgreSQL did not answer within {self.limits.answer:g} s, so the connection was dropped"
                raise TransportError(words, remedy="Try again.") from error
            finally:
                # A cancelled or broken request leaves the protocol in an unknown state: never reuse the connection.
                if usable and not (self._closed or connection.is_closed() or connection.is_in_transaction()):
                    self._free.append(connection)
                else:
                    connection.terminate()

    def _drop_free(self) -> None:
        while self._free:
            self._free.pop().terminate()

    def patient(self, seconds: float) -> Database:
        """The same database with another limit for the wait for each lock."""
        found = copy(self)
        found.patience = seconds
        return found

    async def answers(self, seconds: float) -> None:
        """Ask on a connection that serves requests; without an answer in time, drop all idle connections.

        ``TransportError`` if there is no answer.
        """
        try:
            async with asyncio.timeout(seconds), self.connection() as connection:
                await connection.execute("SELECT 1")
        except TimeoutError as error:
            self._drop_free()
            raise TransportError(f"PostgreSQL did not answer within {seconds:g} s", remedy="Try again.") from error

    async def call(self, call: Call) -> Any:
        """Call a function of the database, alone or in one transaction with other calls; return its result.

        The caller must not hold a connection: the shared statement waits for one, so holding one could deadlock.
        """
        return await self._calls.apply(call)

    @asynccontextmanager
    async def transaction(
        self, tenant: str | None = None, *, patience: float | None = None
    ) -> AsyncIterator[Connection]:
        """One transaction on a hot-path connection, bound to ``tenant`` if one is given; rolled back on any error.

        ``patience``: the limit in seconds for the wait for each lock, if not the usual one.
        """
        patience = self.patience if patience is None else patience
        async with self.connection(tenant or NOBODY) as connection, within(connection, tenant, patience=patience):
            yield connection

    @asynccontextmanager
    async def listening(
        self, channels: tuple[str, ...], notify: Callable[[str, str], None]
    ) -> AsyncIterator[asyncio.Future[None]]:
        """LISTEN on ``channels`` and call ``notify(channel, payload)``; yields a future done if the connection ends.

        Nobody would notice if a connection that only listens went dead, so it is asked now and then.
        """
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
            asking = asyncio.create_task(self._ask(connection))
            try:
                yield lost
            finally:
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
        finally:
            await close(connection)

    async def _ask(self, connection: Connection) -> None:
        """Ask a connection every few seconds if it still answers, and drop it if it does not."""
        while not connection.is_closed():
            await asyncio.sleep(self.limits.alive)
            try:
                await connection.execute("SELECT 1")
            except (OSError, TimeoutError, asyncpg.PostgresError, *_WENT_AWAY):
                connection.terminate()


@asynccontextmanager
async def savepoint(connection: Connection) -> AsyncIterator[None]:
    """Undo only what is done within if one of our own errors is raised there; the transaction goes on."""
    await connection.execute("SAVEPOINT part")
    try:
        yield
    except CountersealError:
        await connection.execute("ROLLBACK TO SAVEPOINT part; RELEASE SAVEPOINT part")
        raise
    await connection.execute("RELEASE SAVEPOINT part")


def after_commit(connection: Connection, act: Callable[[], None]) -> None:
    """Call ``act`` once the open transaction has been committed, and never if it is rolled back; at once without one.

    A crash in between loses the call, so it is for logs and notices, not for state.
    """
    if connection.is_in_transaction():
        _PENDING.setdefault(connection, []).append(act)
    else:
        act()


@asynccontextmanager
async def within(
    at: Connection | Database, tenant: str | None, *, patience: float | None = None
) -> AsyncIterator[Connection]:
    """A transaction on ``at``, bound to ``tenant`` if one is given; a connection's open transaction is reused.

    ``patience`` as in ``Database.transaction``; an open transaction keeps its own.
    """
    if isinstance(at, Database):
        async with at.transaction(tenant, patience=patience) as connection:
            yield connection
        return
    connection = at
    if connection.is_in_transaction():
        yield connection
        return
    begin = "BEGIN" if tenant is None else f"BEGIN; SET LOCAL {TENANT_SETTING} = '{check_tenant(tenant)}'"
    if patience is not None:
        begin += f"; SET LOCAL lock_timeout = '{milliseconds(patience)}'"
    await connection.execute(begin)
    try:
        yield connection
    except BaseException as error:
        _PENDING.pop(connection, None)
        # It is closed if PostgreSQL has ended the session because it was idle for too long.
        if isinstance(error, (CountersealError, asyncpg.PostgresError)) and not connection.is_closed():
            await connection.execute("ROLLBACK")
        raise
    pending = _PENDING.pop(connection, [])
    await connection.execute("COMMIT")
    for act in pending:
        act()
