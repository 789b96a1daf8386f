"""The database of this installation: the embedded server or the configured one, its schema, and its tenants.

Naming a tenant never creates it: a mistyped name is an error that lists the existing names. Only ``up`` and the demo
create a tenant by themselves: the default one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import asyncpg
import structlog

import migrations
from app import logins
from app.embedded_postgres import EmbeddedPostgres
from app.logins import Logins
from app.settings import Settings
from core.clock import rest
from core.db import ENGINE_ROLE, Connection, Database, address
from core.errors import ConfigurationError, CountersealError, NotFoundError, TransportError, nearest
from core.limits import Limits, close
from runtime.store import tenants

log = structlog.get_logger(__name__)

WATCH_SECONDS = 0.5
DEFAULT_TENANT: str = Settings.model_fields["tenant"].default
_VERSIONS = Path(migrations.__file__).parent / "versions"
# Serializes upgrades: roles are shared by all databases of a server.
_LOCK_KEY = 7_236_118_011
# Every process holds this lock, shared, as long as it runs. An upgrade takes it exclusively, so it never runs under
# processes of an older release. PostgreSQL releases the lock of a process that has crashed.
_RUNNING_KEY = 7_236_118_012
_ENCRYPTED = """
SELECT s.version, s.cipher, coalesce(inet_client_addr() <<= '127.0.0.0/8' OR inet_client_addr() = '::1', true) AS near
FROM (SELECT) one LEFT JOIN pg_stat_ssl s ON s.pid = pg_backend_pid() AND s.ssl
"""
_HAS_REVISION = "SELECT to_regclass('public.alembic_version') IS NOT NULL"
_REVISION = "SELECT version_num FROM alembic_version"
_STOP = (
    "Stop all of them (`up`, `serve`, `work`, `keep`), then start one of this release, or run `counterseal db upgrade`."
)
_REMEDY = "Check COUNTERSEAL_DATABASE_URL, or the two logins' URLs; `counterseal doctor` says what is reachable."
_ANOTHER = (
    "Keep it with the release that made it, for its evidence, and give this release an empty database "
    "(COUNTERSEAL_DATABASE_URL, or another COUNTERSEAL_HOME)."
)


@asynccontextmanager
async def server(settings: Settings) -> AsyncIterator[Logins]:
    """Yield the addresses of the configured database, or start or join the embedded server until the block ends."""
    named = (settings.faces_database_url, settings.engine_database_url, settings.database_url)
    faces, engine, owner = (None if url is None else url.get_secret_value() for url in named)
    if faces is not None:
        yield Logins(faces, engine, owner)
        return
    if owner is not None:
        yield logins.of_owner(owner)
        return
    embedded = EmbeddedPostgres(settings.home / "postgres")
    url = await asyncio.to_thread(embedded.start)
    try:
        yield logins.of_owner(url)
    finally:
        await asyncio.to_thread(embedded.stop)


async def watch(settings: Settings, stop: asyncio.Event) -> None:
    """Start the embedded server again whenever it has died, even by kill -9, until ``stop``.

    All other parts wait meanwhile, as in any database outage. A failed start is retried, because its cause, such as a
    full disk, may go away. ``TransportError`` if the server comes back on another port.
    """
    embedded = EmbeddedPostgres(settings.home / "postgres")
    try:
        url = await asyncio.to_thread(embedded.start)
        while not stop.is_set():
            try:
                again = await asyncio.to_thread(embedded.ensure_running)
            except ConfigurationError as error:
                log.error("the embedded PostgreSQL has died and cannot be started", reason=str(error))
                again = None
            if again is not None:
                log.warning("the embedded PostgreSQL had died and is started again")
            if again not in (None, url):
                words = "the embedded PostgreSQL had died, and somebody else has taken its port."
                raise TransportError(words, remedy="It has another port now: start this process again.")
            await rest(stop, WATCH_SECONDS)
    finally:
        await asyncio.to_thread(embedded.stop)


@asynccontextmanager
async def ready_database(settings: Settings) -> AsyncIterator[Logins]:
    """Yield the addresses of ``server`` with the schema at head; upgrade it, unless COUNTERSEAL_AUTO_MIGRATE is off.

    Only a process with the owner's address can upgrade; it also creates the two logins if they are missing. Inside the
    block nobody else can upgrade the schema, unless the connection is lost: see ``keep_schema``.
    ``ConfigurationError`` if the faces' login has more rights than its role.
    """
    async with server(settings) as found:
        if found.owner is not None and not await _at_head(found.faces):
            await _prepare(found.owner, found, migrates=settings.auto_migrate)
        async with _connected(found.faces) as connection:
            await logins.check(connection, "faces")
            await _hold_schema(connection)
            yield found


async def _at_head(url: str) -> bool:
    """True if this login exists and sees the schema at head. On an error False: the next connection raises it."""
    with suppress(CountersealError, asyncpg.InsufficientPrivilegeError):
        return await schema_revision(url) == head_revision()
    return False


async def _prepare(owner: str, found: Logins, *, migrates: bool) -> None:
    before = await schema_revision(owner)
    if migrates and before != head_revision():
        await upgrade(owner)
    if migrates or before == head_revision():
        await make_logins(owner, found)


async def make_logins(owner: str, made: Logins, *, renew: bool = True, keep: Callable[[], None] = lambda: None) -> None:
    """Create both logins, or give them new passwords, in one transaction. The schema must be at head.

    ``keep`` stores the passwords before the commit. A crash after ``keep`` leaves the old passwords valid: repeat the
    call. ``ConfigurationError`` if the owner may not create roles, and as ``logins.make``.
    """
    async with _connected(owner) as connection:
        try:
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK_KEY)
                await logins.make(connection, made, renew=renew)
                keep()
        except asyncpg.InsufficientPrivilegeError as error:
            remedy = "Give `counterseal db setup` the address of the database's owner, who may create roles."
            raise ConfigurationError(f"this database user may not make logins: {error}.", remedy=remedy) from None


async def engine_of(found: Logins) -> str:
    """The engine's address, after its login was checked; the faces' address if this process has no engine's login."""
    if found.engine is None:
        return found.faces
    await check_login("engine", found.engine)
    return found.engine


async def check_login(kind: str, url: str) -> None:
    """Raise ``ConfigurationError`` if this login has more rights than its role, ``TransportError`` if unreachable."""
    async with _connected(url) as connection:
        await logins.check(connection, kind)


# The errors of connections that are cut off in the middle of an exchange.
_AWAY = (
    *(asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError),
    *(OSError, TimeoutError),
)


async def keep_schema(settings: Settings, stop: asyncio.Event) -> None:
    """Hold the lock against upgrades until ``stop``; take it again if its connection is lost or falls silent.

    ``ConfigurationError`` if another release has upgraded the schema in between: this process must not go on.
    """
    async with server(settings) as found:
        while not stop.is_set():
            # While PostgreSQL is away, retry: all other parts wait for it too.
            with suppress(TransportError, *_AWAY):
                async with _connected(found.faces) as connection:
                    await _hold_schema(connection, stop)
                    await _watch_connection(connection, stop)
            await rest(stop, WATCH_SECONDS)


async def _watch_connection(connection: asyncpg.Connection[asyncpg.Record], stop: asyncio.Event) -> None:
    """Wait until ``stop``, or until the connection is lost. ``TimeoutError`` if nothing answers on it any more."""
    loop = asyncio.get_running_loop()
    asked = loop.time()
    while not (stop.is_set() or connection.is_closed()):
        await rest(stop, WATCH_SECONDS)
        if loop.time() > asked + Limits().alive:
            await connection.execute("SELECT 1")
            asked = loop.time()


async def _hold_schema(connection: asyncpg.Connection[asyncpg.Record], stop: asyncio.Event | None = None) -> None:
    """Take the shared lock, which keeps others from upgrading; ``ConfigurationError`` if the schema is not at head.

    An upgrade may take longer than a statement may, so the lock is asked for again and again.
    """
    stop = stop or asyncio.Event()
    while not await connection.fetchval("SELECT pg_try_advisory_lock_shared($1)", _RUNNING_KEY):
        await rest(stop, WATCH_SECONDS)
        if stop.is_set():
            return
    found = await _revision(connection)
    if found != head_revision():
        words = f"the database's schema is at {found or 'nothing'}, and this release needs {head_revision()}."
        raise ConfigurationError(words, remedy="Run `counterseal db upgrade`.")


async def upgrade(url: str, revision: str = "head") -> None:
    """Bring the schema to head, in one transaction; safe to run concurrently. A crash leaves it as it was.

    ``TransportError`` or ``ConfigurationError`` if the server refuses, or if processes of another release are running.
    """
    # Import them only here: they take long to import and are seldom needed.
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import text
    from sqlalchemy.engine import make_url
    from sqlalchemy.ext.asyncio import create_async_engine

    config = Config()  # there is no alembic.ini
    config.set_main_option("script_location", str(_VERSIONS.parent))
    config.set_main_option("path_separator", "os")
    engine = create_async_engine(make_url(url).set(drivername="postgresql+asyncpg"))
    try:
        async with engine.begin() as connection:
            await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
            there = await connection.scalar(text(_HAS_REVISION)) and await connection.scalar(text(_REVISION))
            alone = text("SELECT pg_try_advisory_xact_lock(:key)")
            if there != head_revision() and not await connection.scalar(alone, {"key": _RUNNING_KEY}):
                words = f"processes of another release are at work in this database, whose schema is at {there}."
                raise ConfigurationError(words, remedy=_STOP)
            config.attributes["connection"] = connection.sync_connection
            await connection.run_sync(lambda _: command.upgrade(config, revision))
    except asyncpg.InsufficientPrivilegeError as error:
        remedy = "Run `counterseal db upgrade` once as the owner of the database, who may create roles."
        raise ConfigurationError(f"this database user may not change the schema: {error}.", remedy=remedy) from None
    except (OSError, asyncpg.PostgresError) as error:
        raise TransportError(f"the schema cannot be upgraded: {error}.", remedy=_REMEDY) from None
    finally:
        await engine.dispose()


async def encryption(url: str) -> tuple[str | None, bool]:
    """The TLS version and cipher of a connection to this database, None without TLS; and True if it is on this machine.

    ``TransportError`` if the database cannot be reached.
    """
    async with _connected(url) as connection:
        row = await connection.fetchrow(_ENCRYPTED)
    assert row is not None, "there is always one row"
    return f"{row['version']}, {row['cipher']}" if row["version"] else None, bool(row["near"])


async def schema_revision(url: str) -> str | None:
    """The revision that the database is at; None if it has no schema of ours. ``TransportError`` if unreachable.

    ``ConfigurationError`` if a release made the schema that this one cannot migrate from, such as 0.1.0.
    """
    async with _connected(url) as connection:
        return await _revision(connection)


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    try:
        connection = await asyncpg.connect(
            address(url),
            timeout=10,
            command_timeout=Limits().answer,
            server_settings={"application_name": "counterseal"},
        )
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise TransportError(f"PostgreSQL cannot be reached: {error}.", remedy=_REMEDY) from None
    try:
        yield connection
    except TimeoutError as error:
        raise TransportError(f"PostgreSQL does not answer: {error or 'no word'}.", remedy=_REMEDY) from error
    finally:
        await close(connection)


async def _revision(connection: asyncpg.Connection[asyncpg.Record]) -> str | None:
    found: str | None = None
    if await connection.fetchval(_HAS_REVISION):
        found = await connection.fetchval(_REVISION)
    if found is not None and found not in _revisions():
        known = f"the database's schema is at {found}, which this release cannot carry on: another release made it."
        raise ConfigurationError(known, remedy=_ANOTHER)
    return found


def head_revision() -> str:
    """The newest revision of this release."""
    return max(_revisions())


def _revisions() -> set[str]:
    """The revisions that this release knows, from their file names, because Alembic takes long to import."""
    return {path.name.split("_", 1)[0] for path in _VERSIONS.glob("[0-9]*_*.py")}


async def create_default_tenant(database: Database) -> None:
    """Create the default tenant in one transaction. After a crash, the next ``up`` creates it."""
    from runtime.requests.publishing import ensure_tenant

    async with database.transaction(DEFAULT_TENANT) as connection:
        await ensure_tenant(connection, DEFAULT_TENANT)


async def require_tenants(database: Database, found: Logins, names: Iterable[str]) -> None:
    """Raise ``NotFoundError`` for a missing tenant. ``database`` is under the faces' login."""
    for name in names:
        async with database.transaction(name) as connection:
            there = await tenants.exists(connection, name)
        if not there:
            if found.engine is None:
                raise _no_tenant(name)
            # Whoever has the engine's address operates the installation, and may see the names of all tenants.
            async with Database(found.engine, ENGINE_ROLE, connections=1) as engine, engine.transaction() as connection:
                raise await unknown_tenant(connection, name)


async def unknown_tenant(connection: Connection, name: str) -> NotFoundError:
    """The error for a tenant that does not exist. ``connection`` is under the engine's role."""
    return _no_tenant(name, nearest(name, await tenants.names(connection)))


def _no_tenant(name: str, others: str = "") -> NotFoundError:
    remedy = f"`counterseal tenant create {name}` creates it."
    return NotFoundError(f"There is no tenant {name!r}.", remedy=f"{others} {remedy}".lstrip())
