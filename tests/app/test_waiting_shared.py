"""Places to wait: whoever comes late gets one of the tenant that holds most, and nobody is kept out (promise 9)."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from app.waiting import Waiting

PLACES = 4


@pytest.mark.req("promise 9")
async def test_no_tenant_takes_all_places_to_wait(installation: Any) -> None:
    waiting, stop = Waiting(installation.app.faces.database, PLACES), asyncio.Event()
    ending = asyncio.create_task(waiting.until(stop))
    waits: list[tuple[str, asyncio.Task[None]]] = []

    async def come(tenant: str, number: int) -> list[int]:
        """So many come; the numbers of all tenants' waits that go on now, in the order in which they came."""
        for _ in range(number):
            waits.append((tenant, asyncio.create_task(waiting.ended(tenant, uuid4(), 50))))
            for _ in range(3):
                await asyncio.sleep(0)
        left = [number for number, (_, wait) in enumerate(waits) if not wait.done()]
        assert waiting.count == len(left) <= PLACES
        return left

    assert await come("default", 6) == [0, 1, 2, 3], "one that is alone takes all; more are answered at once"
    assert await come("other", 3) == [2, 3, 6, 7], "the longest of whoever holds most make room, down to equal parts"
    assert await come("default", 2) == [2, 3, 6, 7], "and nobody takes it back"
    assert await come("third", 2) == [3, 6, 7, 11] or waiting.count == PLACES
    assert {tenant for tenant, wait in waits if not wait.done()} == {"default", "other", "third"}
    waits[3][1].cancel()
    await asyncio.gather(waits[3][1], return_exceptions=True)
    assert waiting.count == PLACES - 1, "whoever goes away leaves a place"
    stop.set()
    await ending
    await asyncio.gather(*(wait for _, wait in waits), return_exceptions=True)
    await waiting.ended("default", uuid4(), 50)
    await waiting.close()
    assert waiting.count == 0, "a process that stops keeps nobody"
