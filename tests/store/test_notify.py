"""Wake-ups: an append that leaves something to do says so on its channel in the same transaction, and no other does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from runtime.store.commits import MESSAGES_CHANNEL, STEPS_CHANNEL
from tests.support.store_locks import GATE


@asynccontextmanager
async def listening_to(url: str) -> AsyncIterator[Callable[[], Awaitable[list[str]]]]:
    """List the channels on which something was told since the last time; the answer to a question comes behind it."""
    heard: list[str] = []
    listening = await asyncpg.connect(url)

    async def told() -> list[str]:
        await listening.execute("SELECT")
        await asyncio.sleep(0)
        said, heard[:] = sorted(set(heard)), []
        return said

    try:
        for channel in (STEPS_CHANNEL, MESSAGES_CHANNEL):
            await listening.add_listener(channel, lambda _connection, _pid, name, _payload: heard.append(name))
        yield told
    finally:
        await listening.close()


@pytest.mark.req("V-11")
async def test_a_vote_wakes_workers_and_dispatchers(runtime: Any, database_url: str) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.person("ana", ("leads",))
    await runtime.publish(GATE)
    async with listening_to(database_url) as told:
        await runtime.start("gate")
        assert await told() == [STEPS_CHANNEL]
        await runtime.worker().work_off()
        assert await told() == [MESSAGES_CHANNEL]  # a card is to be posted, and there is nothing for a worker
        assert (await runtime.vote("ana", "approve")).status == "approved"
        assert await told() == [MESSAGES_CHANNEL, STEPS_CHANNEL]
