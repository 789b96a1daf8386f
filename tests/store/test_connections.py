"""Connections are closed by whoever ends: also one in use at that moment, and one that was only half made."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest

from core.db import ENGINE_ROLE, Database


async def test_a_connection_that_comes_back_after_the_end_is_closed(database_url: str) -> None:
    database = Database(database_url, ENGINE_ROLE)
    async with database.connection() as connection:
        await database.close()
        assert await connection.fetchval("SELECT 1") == 1
    assert connection.is_closed()


async def test_a_connection_is_used_again_unless_its_state_is_unknown(database_url: str) -> None:
    async with Database(database_url, ENGINE_ROLE) as database:
        with pytest.raises(asyncpg.PostgresError):
            async with database.connection() as first:
                await first.execute("SELECT 1 / 0")
        with pytest.raises(asyncio.CancelledError):
            async with database.connection() as again:
                raise asyncio.CancelledError
        assert again is first
        assert first.is_closed()
        async with database.connection() as other:
            assert await other.fetchval("SELECT 1") == 1


async def test_a_connection_that_was_closed_meanwhile_is_not_given_out(database_url: str) -> None:
    async with Database(database_url, ENGINE_ROLE) as database:
        async with database.connection() as first:
            pass
        await first.close()
        async with database.connection() as other:
            assert await other.fetchval("SELECT 1") == 1
        async with database.connection() as left_open:
            await left_open.execute("BEGIN")
        assert left_open.is_closed()


async def test_a_connection_whose_maker_is_cancelled_is_closed(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    async def cancelled(self: Any, *_: Any, **__: Any) -> None:
        made.append(self)
        raise asyncio.CancelledError

    monkeypatch.setattr(asyncpg.Connection, "set_type_codec", cancelled)
    with pytest.raises(asyncio.CancelledError):
        await Database(database_url, ENGINE_ROLE).connect()
    (connection,) = made
    assert connection.is_closed()


async def test_one_tenant_leaves_connections_to_others(database_url: str) -> None:
    async with Database(database_url, ENGINE_ROLE, connections=4) as database, AsyncExitStack() as held:
        for _ in range(3):
            await held.enter_async_context(database.transaction("loud"))
        more = asyncio.create_task(held.enter_async_context(database.transaction("loud")))
        async with database.transaction("quiet") as connection:
            assert await connection.fetchval("SELECT 1") == 1
        assert not more.done(), "three of four are the share of one tenant"
        more.cancel()
