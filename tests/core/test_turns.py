"""Turns of tenants at scarce places: whoever asks a thousand times holds up nobody who asks once (promise 9)."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from functools import partial

import pytest
import structlog

from core.turns import NOBODY, Turns
from runtime.store.offload import LONG, THREADS, offload

LOUD, QUIET = "loud", "quiet"


# Places, the share of one, who asks, in their order, and who begins; those who began end in the same order.
@pytest.mark.parametrize(
    ("places", "share", "asking", "served"),
    [
        (1, 1, "lll q", "lqll"),
        (2, 1, "lll q r", "lqrll"),
        (4, 3, "lllllll qq", "lllqqllll"),
        (2, 2, "llll qq rr", "llqrlqrl"),
        (3, 1, "ll ...", "l..l."),
    ],
    ids=["the-quiet-one-is-next", "one-each", "a-share-is-left", "turns", "the-installation-itself"],
)
async def test_the_next_place_is_of_whoever_holds_least(places: int, share: int, asking: str, served: str) -> None:
    turns, began, ends = Turns(places, share), list[str](), asyncio.Queue[asyncio.Event]()

    async def ask(tenant: str) -> None:
        async with turns.place(NOBODY if tenant == "." else tenant):
            began.append(tenant)
            ends.put_nowait(end := asyncio.Event())
            await end.wait()

    async with asyncio.TaskGroup() as group:
        for tenant in asking.replace(" ", ""):
            group.create_task(ask(tenant))
        for _ in served:
            (await ends.get()).set()
    assert "".join(began) == served


async def test_no_place_is_lost_or_given_twice_whoever_is_canceled_when() -> None:
    chance, held, most = random.Random(43), Counter[str](), Counter[str]()
    turns = Turns(5, 3)

    async def ask(tenant: str) -> None:
        async with turns.place(tenant):
            held[tenant] += 1
            most["all"], most[tenant] = max(most["all"], held.total()), max(most[tenant], held[tenant])
            try:
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
            finally:
                held[tenant] -= 1

    tasks: list[asyncio.Task[None]] = []
    for _ in range(2_000):
        tasks.append(asyncio.create_task(ask(chance.choice("abcdef"))))
        if chance.random() < 0.5:
            chance.choice(tasks[-20:]).cancel()
        if chance.random() < 0.5:
            await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert max(most.values()) == most["all"] == 5
    assert max(count for name, count in most.items() if name != "all") == 3
    for _ in range(5):  # every place is there again
        await asyncio.wait_for(turns.take(NOBODY), 1)


async def test_long_work_of_one_tenant_leaves_a_thread_to_another() -> None:
    go, began = threading.Event(), list[str]()

    def work(tenant: str) -> str:
        began.append(tenant)
        if tenant == LOUD:
            assert go.wait(60)
        return tenant

    async def asks(tenant: str) -> str:
        structlog.contextvars.bind_contextvars(tenant=tenant)
        return await offload(LONG + 1, partial(work, tenant))

    many = [asyncio.create_task(asks(LOUD)) for _ in range(4 * THREADS)]
    assert await asyncio.create_task(asks(QUIET)) == QUIET, "it waits for none of them"
    many.pop().cancel()  # one that waits for its turn: nobody wants its work any more
    go.set()
    await asyncio.gather(*many)
    assert began.count(LOUD) == len(many)
