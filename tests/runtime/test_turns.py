"""Keepers take turns among tenants and kinds: nobody's due work waits for another's backlog. Turns are counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from core import terms
from core.db import Connection
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from runtime.keep.bundling import Bundling
from runtime.keep.dispatcher import Deliver, Delivered, Dispatcher, Result
from runtime.keep.sweeper import Sweeper
from runtime.store import outbox
from runtime.store.outbox import Message

CROWD = """
workflow: crowd
version: 1
reference: ${{ trigger.ref }}
steps:
  - foreach: ${{ trigger.items }}
    max_parallel: 1000
    steps:
"""
TIMERS = CROWD + "      - {id: pause, wait: {for: PT1H}}\n"
CARDS = CROWD + '      - {id: ask, approve: {summary: "${{ item }}?", approvers: {group: owners}, expires: P1D}}\n'
SIGNALS = CROWD + '      - {id: hear, wait: {signal: go, correlate: "${{ item }}"}}\n'
PARENTS = CROWD + "      - {id: child, run: sleeper}\n"
SLEEPER = """
workflow: sleeper
version: 1
reference: x
steps: [{id: nap, wait: {for: P1D}}]
"""
SHORT = """
workflow: short
version: 1
reference: x
retention: P1D
steps: [{id: look, do: probe.value.read, with: {name: a}}]
"""
BIG, SMALL = "acme", "zeta"


class Post:
    """Delivers cards. Those of the tenants that are held up hang until ``go``; the others are sent at once."""

    def __init__(self, runtime: Any, *held_up: str) -> None:
        self.dispatcher = Dispatcher(runtime.database, {"card": self.card, "bundle": self.card}, "d")
        self.held_up, self.go = set(held_up), asyncio.Event()
        self.begun: list[tuple[str, str]] = []
        self.sent: list[str] = []
        self._news = asyncio.Condition()

    async def card(self, connection: Connection, message: Message) -> Deliver:
        async def deliver() -> Result:
            self.begun.append(message.lane)
            await self.tell()
            if message.tenant_id in self.held_up:
                await self.go.wait()
            self.sent.append(message.tenant_id)
            await self.tell()
            return Delivered()

        return deliver

    async def tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def until(self, fact: Callable[[], bool]) -> None:
        async with asyncio.timeout(60), self._news:
            await self._news.wait_for(fact)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        running = asyncio.create_task(self.dispatcher.run(stop))
        try:
            yield
        finally:
            self.go.set()
            stop.set()
            await running


@pytest.fixture
async def tenants(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A big one and a small one, whose name comes last. As many questions as there are may be open."""
    for bound in ("run", "requester"):
        monkeypatch.setitem(terms.QUESTIONS, bound, 10_000)
    for tenant in (BIG, SMALL):
        await runtime.tenant(tenant, concurrency=2000)
        await runtime.policy(tenant=tenant)
    return runtime


async def start(runtime: Any, tenant: str, text: str, items: list[str]) -> UUID:
    """Let a workflow run on these items, a hundred a run; the last run."""
    await runtime.publish(text, tenant)
    name = text.split("workflow: ", 1)[1].split("\n", 1)[0]
    for first in range(0, len(items), 100):
        trigger = {"ref": "r", "items": items[first : first + 100]}
        run: UUID = (await runtime.start(name, trigger, ref=f"{name}-{first}", tenant=tenant)).run_id
    await runtime.worker(concurrency=8).work_off()
    return run


def many(count: int, name: str = "i") -> list[str]:
    return [f"{name}{number}" for number in range(count)]


async def test_two_turns_serve_whoever_comes_behind_another_s_backlog(tenants: Any) -> None:
    """Serve a timer, a card and a signal beside 1,000 due waits, 400 cards, 100 kept signals, 4 hanging deliveries."""
    await start(tenants, BIG, TIMERS, many(1000))
    await start(tenants, BIG, CARDS.replace("crowd", "cards"), many(400))
    for number in range(100):
        await tenants.signal(f"go:b{number}", tenant_id=BIG)
    await start(tenants, BIG, SIGNALS.replace("crowd", "signals"), many(100, "b"))
    await tenants.trouble.make_waits_due("timer", tenant=BIG)
    post = Post(tenants, BIG)
    async with post.open():
        await post.until(lambda: len(post.begun) == 4)
        timer = await start(tenants, SMALL, TIMERS, ["one"])
        await start(tenants, SMALL, CARDS.replace("crowd", "cards"), ["one"])
        await tenants.signal("go:one", tenant_id=SMALL)
        signal = await start(tenants, SMALL, SIGNALS.replace("crowd", "signals"), ["one"])
        await tenants.trouble.make_waits_due("timer", tenant=SMALL)
        post.dispatcher.wake()
        await post.until(lambda: post.sent == [SMALL])
        assert len(post.begun) == 5, "it was the next"
        assert await tenants.sweep() <= 100 + 101 + 101, "a sweep is bounded"
        assert await tenants.books.waits(run=timer, open=True) == []
        await tenants.sweep()
        assert await tenants.books.waits(run=signal, open=True) == []
        assert len(await tenants.books.waits(kind="timer", tenant=BIG, open=True)) >= 1000 - 2 * 100


async def test_a_signal_is_served_whatever_another_keeps(tenants: Any) -> None:
    """Signals to runs within others end nothing: nobody outside speaks for those."""
    await tenants.publish(SLEEPER, BIG)
    await start(tenants, BIG, PARENTS, many(101))
    for wait in await tenants.books.waits(tenant=BIG, kind="child"):
        assert (await tenants.signal(wait.correlation_key, tenant_id=BIG)).code == "kept"
    await start(tenants, BIG, TIMERS.replace("crowd", "timers"), many(300))
    for number in range(150):
        assert (await tenants.signal(f"go:b{number}", tenant_id=BIG)).code == "kept"
    await start(tenants, BIG, SIGNALS.replace("crowd", "signals"), many(150, "b"))
    assert (await tenants.signal("go:one", tenant_id=SMALL)).code == "kept"
    small = await start(tenants, SMALL, SIGNALS, ["one"])
    await tenants.trouble.make_waits_due("timer", tenant=BIG)
    await tenants.sweep()
    assert await tenants.books.waits(run=small, open=True) == []
    await tenants.sweep()
    assert await tenants.books.waits(tenant=BIG, kind="signal", open=True) == []


async def test_a_card_is_the_next_whatever_another_has_ordered(tenants: Any) -> None:
    await start(tenants, BIG, CARDS, many(400))
    await start(tenants, SMALL, CARDS, ["one"])
    post = Post(tenants)
    assert await post.dispatcher.work_off() == 401
    assert post.begun.index((SMALL, "card")) <= 1, "two lanes take turns"


async def test_hanging_deliveries_hold_up_their_own_lane_and_no_other(tenants: Any) -> None:
    await start(tenants, BIG, CARDS, many(400))
    post = Post(tenants, BIG)
    async with post.open():
        await post.until(lambda: len(post.begun) == 4)
        await start(tenants, SMALL, CARDS, many(10))
        post.dispatcher.wake()
        await post.until(lambda: post.sent == [SMALL] * 10)
        assert post.begun.count((BIG, "card")) == 4, "a tenant has its own place, and three that all share"
        post.go.set()
        await post.until(lambda: post.sent.count(BIG) == 400)
    assert len(await tenants.books.commands(status="dispatched")) == 410


async def test_a_kind_that_hangs_holds_up_no_other_kind(tenants: Any) -> None:
    await start(tenants, BIG, CARDS, many(20))
    post = Post(tenants, BIG)
    async with post.open():
        await post.until(lambda: len(post.begun) == 4)
        await start(tenants, BIG, TIMERS.replace("crowd", "timers"), ["x"])
        await tenants.trouble.make_waits_due("timer")
        await tenants.sweep()
        await tenants.worker().work_off()
        post.dispatcher.wake()
        await post.until(lambda: (BIG, "bundle") in post.begun)


async def test_so_many_deliveries_of_one_kind_at_once_and_no_more(
    tenants: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.keep.dispatcher.KIND_MAX", 2)
    await start(tenants, BIG, CARDS, many(5))
    await start(tenants, SMALL, CARDS, many(5))
    post, looks, lease = Post(tenants, BIG, SMALL), [], outbox.lease_message

    async def look(*named: Any, **more: Any) -> Message | None:
        looks.append(await lease(*named, **more))
        await post.tell()
        return looks[-1]

    monkeypatch.setattr(outbox, "lease_message", look)
    async with post.open():
        await post.until(lambda: len(post.begun) == 2 and looks[-1] is None)
        assert post.begun == [(BIG, "card"), (SMALL, "card")]
        post.go.set()
        await post.until(lambda: len(post.sent) == 10)


async def test_lanes_take_turns_from_wherever_the_last_one_was(tenants: Any) -> None:
    """Put whoever orders anew after those who wait: a name that sorts first is no better place."""
    await start(tenants, BIG, CARDS, many(3))
    await start(tenants, SMALL, CARDS, many(3))
    post = Post(tenants)
    await post.dispatcher.work_off()
    assert [tenant for tenant, _ in post.begun] == [BIG, SMALL] * 3


async def test_messages_that_are_put_off_are_not_in_the_way(tenants: Any) -> None:
    await start(tenants, BIG, CARDS, many(50))
    await tenants.trouble.pass_time_of_messages(timedelta(hours=-1))
    await start(tenants, SMALL, CARDS, ["one"])
    post = Post(tenants)
    assert await post.dispatcher.work_off() == 1
    assert post.sent == [SMALL]


async def test_a_full_sweep_is_followed_by_the_next_at_once(tenants: Any) -> None:
    await start(tenants, BIG, TIMERS, many(250))
    await tenants.trouble.make_waits_due()
    stop = asyncio.Event()
    sweeping = asyncio.create_task(Sweeper(tenants.database, tenants.definitions, timedelta(hours=1)).run(stop))

    async def rests() -> bool:
        return await tenants.books.waits(open=True) == []

    await tenants.until(rests)
    stop.set()
    await asyncio.wait_for(sweeping, 60)


async def test_a_lease_is_taken_away_in_the_first_sweep_whatever_others_have_lost(tenants: Any) -> None:
    for tenant, count in ((BIG, 150), (SMALL, 1)):
        await tenants.publish(SHORT, tenant)
        for number in range(count):
            await tenants.start("short", {"ref": "r"}, ref=str(number), tenant=tenant)
    await tenants.trouble.hand_steps_to("dead")
    await tenants.trouble.expire_leases(BIG)
    await tenants.trouble.expire_leases(SMALL)
    await tenants.sweep()
    assert [place.status for place in await tenants.books.places(tenant=SMALL)] == ["claimable"]
    assert "leased" in {place.status for place in await tenants.books.places(tenant=BIG)}, "a sweep is bounded"


async def test_a_run_is_emptied_whatever_others_have_to_empty(tenants: Any, tmp_path: Path) -> None:
    signer = FileSigner.load_or_create(tmp_path / "key.pem")
    bundling = Bundling(FileBlobStore(tmp_path / "blobs"), signer, "test", tenants.definitions)
    for tenant, count in ((BIG, 30), (SMALL, 1)):
        await tenants.publish(SHORT, tenant)
        for number in range(count):
            await tenants.start("short", {"ref": "r"}, ref=str(number), tenant=tenant)
        await tenants.worker().work_off()
        await Dispatcher(tenants.database, bundling.handlers(), "d").work_off()
        await tenants.trouble.make_purge_due()
    assert await tenants.sweep() == 20, "a sweep is bounded"
    emptied = [run.tenant for run in await tenants.books.runs() if run.purged_at is not None]
    assert emptied.count(SMALL) == 1
