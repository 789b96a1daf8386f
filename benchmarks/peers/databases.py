"""The databases of the server that all engines share, and its commit delay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

SLOW_COMMIT_MICROSECONDS = 2000
PATIENCE_SECONDS = 30.0
_COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = $1"
_USERS = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'"
_DELAY = "SELECT setting::int FROM pg_settings WHERE name = 'commit_delay'"
_OURS = "SELECT datname FROM pg_database WHERE datname LIKE 'bench\\_%' OR datname LIKE 'peer\\_%'"


class Databases:
    """Administers the server, over a connection to a database that no engine uses."""

    def __init__(self, url: str, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self.url = url
        self._connection = connection

    async def create(self, name: str) -> str:
        """Create a database. Returns its DSN."""
        await self._connection.execute(f'CREATE DATABASE "{name}"')
        return f"{self.url.rpartition('/')[0]}/{name}"

    async def committed(self, name: str) -> int:
        """The transactions since the database was created. Waits until all connections end, as they report then."""
        await self._until(0, _USERS, name)
        return int(await self._connection.fetchval(_COMMITS, name))

    async def drop_all(self) -> None:
        """Drop every database that an engine used, so that the next one begins without them."""
        for row in await self._connection.fetch(_OURS):
            await self._connection.execute(f'DROP DATABASE "{row["datname"]}" WITH (FORCE)')

    async def commit_delay(self, microseconds: int) -> None:
        """Delay every commit's flush, which later commits may join. 0 means no delay."""
        siblings = 0 if microseconds else 5
        for setting, value in (("commit_delay", microseconds), ("commit_siblings", siblings)):
            await self._connection.execute(f"ALTER SYSTEM SET {setting} = {value}")
        await self._connection.execute("SELECT pg_reload_conf()")
        await self._until(microseconds, _DELAY)

    async def _until(self, wanted: int, query: str, *arguments: str) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                if await self._connection.fetchval(query, *arguments) == wanted:
                    return
                await asyncio.sleep(0.05)

    async def version(self) -> str:
        """The version of PostgreSQL."""
        return str(await self._connection.fetchval("SHOW server_version"))


@asynccontextmanager
async def databases(url: str) -> AsyncIterator[Databases]:
    """The server at ``url``, a DSN of its superuser."""
    connection = await asyncpg.connect(url)
    try:
        yield Databases(url, connection)
    finally:
        await connection.close()
