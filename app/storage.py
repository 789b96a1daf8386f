"""The database of this installation: the embedded server or the configured one, at the newest schema."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import structlog
from sqlalchemy.engine import make_url

import migrations
from app.embedded_postgres import EmbeddedPostgres
from app.settings import Settings
from core.clock import rest
from core.errors import ConfigurationError, TransportError

log = structlog.get_logger(__name__)

WATCH_SECONDS = 0.5
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
    """Until ``stop``: start the embedded server again when it has died, be it by kill -9.

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
                raise TransportError(
                    "the embedded PostgreSQL had died, and somebody else has taken its port.",
                    remedy="It has another port now: start this process again.",
                )
            await rest(stop, WATCH_SECONDS)
    finally:
        await asyncio.to_thread(embedded.stop)


@asynccontextmanager
async def ready_database(settings: Settings) -> AsyncIterator[str]:
    """As ``server``, with the schema at head: brought there, unless COUNTERSEAL_AUTO_MIGRATE is off."""
    async with server(settings) as url:
        found = await schema_revision(url)
        if found != head_revision():
            if not settings.auto_migrate:
                raise ConfigurationError(
                    f"the database's schema is at {found or 'nothing'}, and this release needs {head_revision()}.",
                    remedy="Run `counterseal db upgrade`.",
                )
            await upgrade(url)
        yield url


async def upgrade(url: str) -> None:
    """Bring the schema to head. ``TransportError`` or ``ConfigurationError`` where the server does not let us."""
    from app.migrate import upgrade_async

    try:
        await upgrade_async(url)
    except asyncpg.InsufficientPrivilegeError as error:
        raise ConfigurationError(
            f"this database user may not change the schema: {error}.",
            remedy="Run `counterseal db upgrade` once as the owner of the database, who may create roles.",
        ) from None
    except (OSError, asyncpg.PostgresError) as error:
        raise TransportError(f"the schema cannot be upgraded: {error}.", remedy=_REMEDY) from None


async def schema_revision(url: str) -> str | None:
    """The revision that the database is at; None if it has no schema of ours. ``TransportError`` if unreachable.

    ``ConfigurationError`` if another release made it, such as 0.1.0: from there no migration of this one leads on.
    """
    dsn = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    try:
        connection = await asyncpg.connect(dsn, timeout=10)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise TransportError(f"PostgreSQL cannot be reached: {error}.", remedy=_REMEDY) from None
    try:
        exists = await connection.fetchval("SELECT to_regclass('public.alembic_version') IS NOT NULL")
        found = await connection.fetchval("SELECT version_num FROM alembic_version") if exists else None
    finally:
        await connection.close()
    if found is not None and found not in _revisions():
        known = f"the database's schema is at {found}, which this release cannot carry on: another release made it."
        raise ConfigurationError(known, remedy=_ANOTHER)
    return found


def head_revision() -> str:
    """The newest revision of this release."""
    return max(_revisions())


def _revisions() -> set[str]:
    """The revisions that this release knows, from the names of their files; Alembic takes long to import."""
    versions = Path(migrations.__file__).parent / "versions"
    return {path.name.split("_", 1)[0] for path in versions.glob("[0-9]*_*.py")}
