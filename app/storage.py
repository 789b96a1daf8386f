"""The database of this installation: the embedded server or the configured one, its schema, and its tenants.

Naming a tenant never creates it: a mistyped name is an error that tells the existing names. Only the tenant of an
installation without settings comes by itself, with ``up`` and the demo.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import asyncpg
import structlog

import migrations
from app.embedded_postgres import EmbeddedPostgres
from app.settings import Settings
from core.clock import rest
from core.db import ENGINE_ROLE, Connection, Database, address
from core.errors import ConfigurationError, NotFoundError, TransportError, nearest
from runtime.store import tenants

log = structlog.get_logger(__name__)

WATCH_SECONDS = 0.5
DEFAULT_TENANT: str = Settings.model_fields["tenant"].default
_VERSIONS = Path(migrations.__file__).parent / "versions"
# One upgrade at a time, in this database and on this server: roles are shared by all databases of a server.
_LOCK_KEY = 7_236_118_011
# Every process holds this one, shared, as long as it runs: only an upgrade takes it for itself, so that none is made
# under processes of an older release. PostgreSQL takes it back from a process that has crashed.
_RUNNING_KEY = 7_236_118_012
_HAS_REVISION = "SELECT to_regclass('public.alembic_version') IS NOT NULL"
_REVISION = "SELECT version_num FROM alembic_version"
_STOP = (
    "Stop all of them (`up`, `serve`, `work`, `keep`), then start one of this release, or run `counterseal db upgrade`."
)
_REMEDY = "Check COUNTERSEAL_DATABASE_URL; `counterseal doctor` says what is reachable."
_ANOTHER = (
    "Keep it with the release that made it, for its evidence, and give this release an empty database "
    "(COUNTERSEAL_DATABASE_URL, or another COUNTERSEAL_HOME)."
)


@asynccontextmanager
async def server(settings: Settings) -> AsyncIterator[str]:
    """The DSN of the server in use. The embedded one is started or joined, and left at the end."""
    if settings.database_url is not None:
        yield settings.database_url.get_secret_value()
        return
    embedded = EmbeddedPostgres(settings.home / "postgres")
    url = await asyncio.to_thread(embedded.start)
    try:
        yield url
    finally:
        await asyncio.to_thread(embedded.stop)


async def watch(settings: Settings, stop: asyncio.Event) -> None:
    """Start the embedded server again whenever it has died, be it by kill -9, until ``stop``.

    Everybody else finds the database away meanwhile, waits and goes on, as with any other. A server that cannot be
    started is tried again: its cause may go, such as a full disk. ``TransportError`` if it comes back elsewhere.
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
async def ready_database(settings: Settings) -> AsyncIterator[str]:
    """Yield the DSN of ``server`` with the schema at head; upgrade it, unless COUNTERSEAL_AUTO_MIGRATE is off.

    The schema stays as it is meanwhile, but see ``keep_schema``.
    """
    async with server(settings) as url, _connected(url) as connection:
        if settings.auto_migrate and await _revision(connection) != head_revision():
            await upgrade(url)
        await _hold_schema(connection)
        yield url


async def keep_schema(settings: Settings, stop: asyncio.Event) -> None:
    """Keep the schema as it is until ``stop``, also if the connection that does so is lost, and its lock with it.

    ``ConfigurationError`` if another release has upgraded it in between: this process may not go on with that.
    """
    async with server(settings) as url:
        while not stop.is_set():
            # While PostgreSQL is away everybody waits for it.
            with suppress(TransportError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                async with _connected(url) as connection:
                    await _hold_schema(connection)
                    while not (stop.is_set() or connection.is_closed()):
                        await rest(stop, WATCH_SECONDS)
            await rest(stop, WATCH_SECONDS)


async def _hold_schema(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Keep the schema from being upgraded by others; ``ConfigurationError`` if it is not at head."""
    await connection.execute(f"SELECT pg_advisory_lock_shared({_RUNNING_KEY})")
    found = await _revision(connection)
    if found != head_revision():
        words = f"the database's schema is at {found or 'nothing'}, and this release needs {head_revision()}."
        raise ConfigurationError(words, remedy="Run `counterseal db upgrade`.")


async def upgrade(url: str, revision: str = "head") -> None:
    """Bring the schema to head, in one transaction; safe to run concurrently. A crash leaves it as it was.

    ``TransportError`` or ``ConfigurationError`` if the server refuses, or if processes are at work in the database.
    """
    # These take long to import, and are seldom needed.
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


async def schema_revision(url: str) -> str | None:
    """The revision that the database is at; None if it has no schema of ours. ``TransportError`` if unreachable.

    ``ConfigurationError`` if another release made it that this one cannot migrate, such as 0.1.0.
    """
    async with _connected(url) as connection:
        return await _revision(connection)


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    try:
        connection = await asyncpg.connect(
            address(url), timeout=10, server_settings={"application_name": "counterseal"}
        )
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise TransportError(f"PostgreSQL cannot be reached: {error}.", remedy=_REMEDY) from None
    try:
        yield connection
    finally:
        await connection.close()


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
    """The revisions that this release knows, from the names of their files; Alembic takes long to import."""
    return {path.name.split("_", 1)[0] for path in _VERSIONS.glob("[0-9]*_*.py")}


async def found_default_tenant(database: Database) -> None:
    """Create the default tenant. A crash leaves it whole or not there; the next ``up`` makes it."""
    from runtime.requests.publishing import ensure_tenant

    async with database.transaction(DEFAULT_TENANT) as connection:
        await ensure_tenant(connection, DEFAULT_TENANT)


async def require_tenants(database: Database, url: str, names: Iterable[str]) -> None:
    """Raise ``NotFoundError`` for a missing tenant. ``database`` is under the faces' role, ``url`` its address."""
    for name in names:
        async with database.transaction(name) as connection:
            there = await tenants.exists(connection, name)
        if not there:
            # The holder of the database's address operates the installation, and may know all its tenants.
            async with Database(url, ENGINE_ROLE, connections=1) as engine, engine.transaction() as connection:
                raise await unknown_tenant(connection, name)


async def unknown_tenant(connection: Connection, name: str) -> NotFoundError:
    """The error for a tenant that is not there. ``connection`` is under the engine's role."""
    others = nearest(name, await tenants.names(connection))
    remedy = f"`counterseal tenant create {name}` creates it."
    return NotFoundError(f"There is no tenant {name!r}.", remedy=f"{others} {remedy}".lstrip())
