"""Bring a database to the newest schema: `counterseal db upgrade`, and the embedded default at start."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import create_async_engine

import migrations

# One at a time, in this database and on this server: roles are shared by all databases of a server.
_LOCK_KEY = 7_236_118_011


async def upgrade_async(url: str) -> None:
    """Apply every migration that ``url``'s database lacks, in one transaction. Safe to run concurrently."""
    engine = create_async_engine(make_url(url).set(drivername="postgresql+asyncpg"))
    try:
        async with engine.begin() as connection:
            await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
            await connection.run_sync(lambda sync: command.upgrade(alembic_config(sync), "head"))
    finally:
        await engine.dispose()


def alembic_config(connection: Connection) -> Config:
    """Alembic's configuration for an open connection; there is no alembic.ini."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
