"""Drops indexes and constraints while a database is filled: building them at the end is faster than updating them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg

_BUILDERS = 2

_CONSTRAINTS = """
SELECT conrelid::regclass::text AS "table", conname::text AS name, contype = 'f' AS foreign_key,
  pg_get_constraintdef(oid) AS definition
FROM pg_constraint WHERE contype IN ('p', 'u', 'f') AND connamespace = 'public'::regnamespace
ORDER BY contype = 'f' DESC, conname"""

_INDEXES = """
SELECT i.indexrelid::regclass::text AS name, pg_get_indexdef(i.indexrelid) AS definition
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE c.relnamespace = 'public'::regnamespace AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = i.indexrelid)
ORDER BY pg_relation_size(i.indrelid) DESC"""


@asynccontextmanager
async def put_aside(url: str) -> AsyncIterator[None]:
    """Drop every index and constraint of the database, and create them all again at the end, also after an error."""
    connection = await asyncpg.connect(url)
    try:
        constraints = await connection.fetch(_CONSTRAINTS)
        indexes = await connection.fetch(_INDEXES)
        dropped = [f'ALTER TABLE {row["table"]} DROP CONSTRAINT "{row["name"]}"' for row in constraints]
        dropped += [f"DROP INDEX {row['name']}" for row in indexes]
        async with connection.transaction():
            for statement in dropped:
                await connection.execute(statement)
    finally:
        await connection.close()
    try:
        yield
    finally:
        keys = [_added(row) for row in constraints if not row["foreign_key"]]
        await _in_parallel(url, keys + [str(row["definition"]) for row in indexes])
        # NOT VALID: the copied rows need no check, and later rows are checked all the same.
        await _in_parallel(url, [f"{_added(row)} NOT VALID" for row in constraints if row["foreign_key"]], builders=1)


def _added(row: asyncpg.Record) -> str:
    return f'ALTER TABLE {row["table"]} ADD CONSTRAINT "{row["name"]}" {row["definition"]}'


async def _in_parallel(url: str, statements: Sequence[str], builders: int = _BUILDERS) -> None:
    left = list(reversed(statements))

    async def build() -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute("SET maintenance_work_mem = '512MB'; SET max_parallel_maintenance_workers = 0")
            while left:
                await _patiently(connection, left.pop())
        finally:
            await connection.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(builders):
            group.create_task(build())


async def _patiently(connection: asyncpg.Connection[asyncpg.Record], statement: str) -> None:
    """Run a statement; retry it as a deadlock victim. Two builders may lock the same tables in another order."""
    while True:
        try:
            await connection.execute(statement, timeout=600)
        except asyncpg.DeadlockDetectedError:
            continue
        return
