"""The way to the database of a test: its ``Database``, or one connection of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias

import orjson

from core.db import Connection, Database, within

Source: TypeAlias = "Database | Connection"


@asynccontextmanager
async def asking(source: Source) -> AsyncIterator[Connection]:
    """A connection to ask over."""
    if isinstance(source, Database):
        async with source.connection() as connection:
            yield connection
    else:
        yield source


@asynccontextmanager
async def owning(source: Source) -> AsyncIterator[Connection]:
    """A connection in a transaction that may write what no role may: as the user that the test logs in as."""
    async with asking(source) as connection, within(connection, None):
        await connection.execute("SET LOCAL ROLE NONE")
        yield connection


async def reads_json(connection: Connection) -> Connection:
    """The same connection, which gives JSON as values from now on: as those of ``Database`` do."""
    for name in ("json", "jsonb"):
        await connection.set_type_codec(
            name, schema="pg_catalog", encoder=lambda value: orjson.dumps(value).decode(), decoder=orjson.loads
        )
    return connection
