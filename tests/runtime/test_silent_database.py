"""A database that falls silent: every exchange has a deadline, a silent connection is dropped and replaced (promise 4).

The connections stay open, and what is sent is taken: no error tells that nobody answers any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from app.processes import listen
from core.db import ENGINE_ROLE, FACES_ROLE, Database
from core.errors import TransportError
from core.limits import Limits
from runtime.keep.sweeper import Sweeper
from tests.support.proxy import Proxy, proxied

SHORT = Limits(lock=0.2, idle=1.0, statement=1.5, answer=2.0, alive=1.0)
TEXT = """
workflow: w
version: 1
reference: r
channels: {done: {initial: ''}}
steps: [{set: {done: 'yes'}}]
"""


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[Proxy]:
    async with proxied(database_url) as found:
        yield found


async def test_who_worked_on_silent_connections_goes_on_with_new_ones(proxy: Proxy, runtime: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(TEXT)
    stop, woken = asyncio.Event(), asyncio.Event()
    async with Database(proxy.url, ENGINE_ROLE, connections=8, limits=SHORT) as database:
        found = replace(runtime, database=database)
        keeper = Sweeper(database, runtime.definitions, interval=timedelta(seconds=0.05))
        tasks = [
            asyncio.create_task(keeper.run(stop)),
            asyncio.create_task(found.worker().run(stop)),
            asyncio.create_task(listen(database, {"counterseal_steps": [woken.set]}, stop)),
        ]
        await runtime.start("w")
        await runtime.until(lambda: _all_done(runtime))
        proxy.silence(only_old=True)
        woken.clear()
        await runtime.start("w", ref="2")
        await runtime.until(lambda: _all_done(runtime))
        await asyncio.wait_for(woken.wait(), 60)  # whoever listens has noticed, too

        proxy.silence(only_old=False)
        stop.set()
        await asyncio.wait_for(asyncio.gather(*tasks), 60)  # it hears the end although nothing answers


async def _all_done(runtime: Any) -> bool:
    return all(run.status == "succeeded" for run in await runtime.books.runs())


async def test_every_free_connection_that_fell_silent_is_dropped_by_the_first_who_notices(
    proxy: Proxy, runtime: Any
) -> None:
    del runtime
    async with Database(proxy.url, FACES_ROLE, limits=SHORT) as database:
        async with database.connection(), database.connection(), database.connection():
            pass
        proxy.silence(only_old=True)
        with pytest.raises(TransportError):
            async with database.connection() as connection:
                await connection.execute("SELECT 1")
        async with database.connection() as connection:
            assert await connection.fetchval("SELECT 1") == 1


async def test_a_silent_pool_is_not_ready_and_is_ready_again_on_new_connections(proxy: Proxy, runtime: Any) -> None:
    del runtime
    async with Database(proxy.url, FACES_ROLE, limits=SHORT) as database:
        await database.answers(5)
        proxy.silence(only_old=True)
        with pytest.raises(TransportError):
            await database.answers(0.5)
        await database.answers(5)
