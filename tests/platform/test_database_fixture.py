"""The fixture that all store tests stand on: a database each, with nothing of another's in it."""

from __future__ import annotations

import asyncpg
import pytest


@pytest.mark.parametrize("who", ["first", "second"])
async def test_each_test_has_a_database_to_itself(database_url: str, who: str) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute("CREATE TABLE mine (who text)")
        await connection.execute("INSERT INTO mine VALUES ($1)", who)
        assert await connection.fetchval("SELECT array_agg(who) FROM mine") == [who]
    finally:
        await connection.close()
