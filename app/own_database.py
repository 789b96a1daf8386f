"""The identity of Counterseal's own database, which no operation may touch (``connectors.sql``)."""

from __future__ import annotations

import asyncpg

from app import storage
from app.settings import Settings
from connectors.sql.statements import IDENTITY
from core.db import address
from core.errors import TransportError


async def identity(settings: Settings) -> str:
    """The server's identifier and the database's number, so that two addresses of one database compare equal.

    ``TransportError`` if the database does not answer. Then the caller cannot exclude that another address is ours.
    """
    async with storage.server(settings) as logins:
        try:
            connection = await asyncpg.connect(address(logins.engine or logins.faces), timeout=10)
            try:
                return str(await connection.fetchval(IDENTITY))
            finally:
                await connection.close()
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise TransportError(
                f"Counterseal's own database cannot be told from the one to write to: {error}"
            ) from None
