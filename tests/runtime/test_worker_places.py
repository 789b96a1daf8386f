"""A worker and its queue, without a database: what it claims for whom, what it leaves, and how it stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from core.errors import TransportError
from runtime.work import worker as module
from runtime.work.lease import Lease
from runtime.work.worker import PAUSE_SECONDS, Worker

LEASE = timedelta(seconds=30)
AWAY = TransportError("PostgreSQL cannot be reached")
SOON = 20.0


class Delivery:
    """One delivery of so many records. It notes what it is asked for."""

    def __init__(self, *records: str, fails: Exception | None = None, undone: Exception | None = None) -> None:
        self.told: list[Any] = []
        self._records, self._fails, self._undone = records, fails, undone

    async def claim(self, *given: Any) -> Any:
        self.told.append(given)
        if self._fails is not None:
            raise self._fails
        return [*self._records]

    async def done(self) -> None:
        self.told.append("done")
        if self._undone is not None:
            raise self._undone


CLAIMED = ("the connection", "me", LEASE)


class Work:
    """A worker whose drives note what they were given, and wait until they are let go, or fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *turns: Any, concurrency: int = 4) -> None:
        self.now, self.slept, self.wakes = 50.0, list[float](), 0
        self.driven: list[Any] = []
        self.asked: list[int] = []
        self.fails: dict[str, Exception] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self._turns = [*turns]
        self.empty = asyncio.Event()

        @asynccontextmanager
        async def connection() -> AsyncIterator[str]:
            self.now += 5
            yield "the connection"

        async def sleep(seconds: float) -> None:
            if seconds:
                self.slept.append(seconds)
            await pause(0)

        pause = asyncio.sleep
        monkeypatch.setattr(asyncio, "sleep", sleep)
        monkeypatch.setattr(module, "Drive", self._drive)
        monkeypatch.setattr(Lease, "now", staticmethod(lambda: self.now))
        tools: Any = SimpleNamespace(owner="me", lease=LEASE, database=SimpleNamespace(connection=connection))
        self.tools = tools
        queue: Any = SimpleNamespace(receive=self._receive, wake=self._wake)
        self.queue = queue
        self.worker = Worker(tools, queue, concurrency=concurrency)

    async def _receive(self, count: int) -> Any:
        self.asked.append(count)
        if not self._turns:
            self.empty.set()
            await asyncio.Event().wait()
        turn = self._turns.pop(0)
        if isinstance(turn, Exception):
            raise turn
        return turn

    def _wake(self) -> None:
        self.wakes += 1

    def _drive(self, tools: Any, patience: Any = None) -> Any:
        assert tools is self.tools

        async def run(record: str, began: float) -> None:
            self.driven.append((record, began, patience))
            if record in self.gates:
                await self.gates[record].wait()
            if record in self.fails:
                raise self.fails[record]

        return SimpleNamespace(run=run, leased=[])

    async def until(self, fact: Callable[[], Any]) -> None:
        async with asyncio.timeout(SOON):
            while True:
                if fact():
                    return
                await asyncio.sleep(0)


# -- one delivery ----------------------------------------------------------------------------------------------------


async def test_a_delivery_is_taken_off_the_queue_when_its_step_was_driven(monkeypatch: pytest.MonkeyPatch) -> None:
    delivery = Delivery("one")
    work = Work(monkeypatch, [delivery], [])
    assert await work.worker.work_off() == 1
    assert delivery.told == [(*CLAIMED, 1), "done"]
    assert (work.asked, work.wakes, work.slept) == ([1, 1], 1, [])
    assert work.driven == [("one", 50.0, None)], "its lease counts from before the claim"


async def test_everything_is_worked_off_that_can_be_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(monkeypatch, [Delivery("one")], [Delivery("two"), Delivery()], [Delivery()], [Delivery("never")])
    assert await work.worker.work_off() == 2
    assert [record for record, *_ in work.driven] == ["one", "two"]
    assert work.wakes == 2


async def test_a_delivery_without_a_step_is_taken_off_at_once_and_wakes_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    delivery = Delivery()
    work = Work(monkeypatch, [delivery])
    assert await work.worker.work_off() == 0
    assert (delivery.told, work.wakes) == ([(*CLAIMED, 1), "done"], 0)


async def test_a_claim_that_fails_leaves_the_delivery_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    delivery = Delivery("one", fails=AWAY)
    work = Work(monkeypatch, [delivery])
    with structlog.testing.capture_logs() as logs:
        assert await work.worker.work_off() == 0
    assert (delivery.told, work.slept, work.wakes) == ([(*CLAIMED, 1)], [PAUSE_SECONDS], 0)
    assert [each["event"] for each in logs] == ["claim failed; retrying"]


async def test_a_step_that_is_abandoned_stays_on_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    delivery = Delivery("one")
    work = Work(monkeypatch, [delivery], [])
    work.fails["one"] = AWAY
    with structlog.testing.capture_logs() as logs:
        assert await work.worker.work_off() == 1
    assert (delivery.told, work.slept) == ([(*CLAIMED, 1)], [PAUSE_SECONDS])
    assert [each["event"] for each in logs] == ["step abandoned until its lease runs out"]


@pytest.mark.parametrize("error", [AWAY, OSError("no"), RuntimeError("no")])
async def test_a_message_that_cannot_be_deleted_costs_nothing(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    delivery = Delivery("one", undone=error)
    work = Work(monkeypatch, [delivery], [])
    with structlog.testing.capture_logs() as logs:
        assert await work.worker.work_off() == 1
    assert (delivery.told[1:], work.slept) == (["done"], [])
    assert [(each["event"], each["log_level"]) for each in logs] == [
        ("message was not deleted; redelivery will be a no-op", "error")
    ]


async def test_a_queue_that_cannot_be_woken_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(monkeypatch, [Delivery("one")], [])
    del work.queue.wake
    assert await work.worker.work_off() == 1


async def test_nothing_is_claimed_while_an_outcome_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim could lease the very step that has it."""
    delivery: Any = Delivery("one")
    work = Work(monkeypatch)
    work.worker._patience._calm.clear()
    claiming = asyncio.ensure_future(work.worker._claim(delivery, 1))
    for _ in range(10):
        await asyncio.sleep(0)
    assert delivery.told == []
    work.worker._patience.told("somebody")
    found: Any = await claiming
    assert found == ["one"]


# -- its places ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def at_work(work: Work) -> AsyncIterator[asyncio.Event]:
    """The worker at work, until the block or the test ends it."""
    stop = asyncio.Event()
    running = asyncio.ensure_future(work.worker.run(stop))
    try:
        yield stop
    finally:
        stop.set()
        for gate in work.gates.values():
            gate.set()
        await asyncio.wait_for(running, SOON)


@pytest.mark.req("Q-12")
async def test_no_more_is_asked_for_and_claimed_than_there_are_places(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = Delivery("a", "b"), Delivery("c"), Delivery("d")
    work = Work(monkeypatch, [first], [second, third], concurrency=3)
    work.gates = {name: asyncio.Event() for name in "abc"}
    async with at_work(work):
        await work.until(lambda: len(work.driven) == 3)
        # All places are taken. The one that is claimed beyond them waits for its turn, and nothing more is received.
        await work.until(lambda: third.told)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(work.driven) == 3
        assert (first.told, second.told, third.told) == ([(*CLAIMED, 3)], [(*CLAIMED, 1)], [(*CLAIMED, 1)])
        assert work.asked == [3, 1]
        assert len(work.worker._jobs) == 4
        work.gates["a"].set()
        await work.until(lambda: len(work.driven) == 4)
        work.gates["b"].set()
        await work.until(work.empty.is_set)
        assert work.asked[:2] == [3, 1]
        assert len(work.asked) == 3
    assert [(record, patience is work.worker._patience) for record, _, patience in work.driven] == [
        (name, True) for name in "abcd"
    ]
    assert [began for _, began, _ in work.driven] == [50.0, 50.0, 55.0, 60.0]
    assert work.worker._jobs == {}
    assert set(work.slept) == {LEASE.total_seconds() / 3}, "only its heart rests"
    assert [each.told[-1] for each in (first, second, third)] == ["done"] * 3


@pytest.mark.req("Q-12")
async def test_of_several_deliveries_each_may_claim_what_the_others_have_left(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = [Delivery("a", "b"), Delivery("c"), Delivery("d")]
    work = Work(monkeypatch, turn, concurrency=5)
    work.gates = {name: asyncio.Event() for name in "abcd"}
    async with at_work(work):
        await work.until(lambda: len(work.driven) == 4)
        assert [each.told for each in turn] == [[(*CLAIMED, count)] for count in (5, 3, 2)]
        assert work.wakes == 3, "there may be more of each, however many were free"
        assert [began for _, began, _ in work.driven] == [50.0, 50.0, 55.0, 60.0]


async def test_what_was_received_when_the_worker_is_stopped_is_not_thrown_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its message would be hidden from everybody until its time is over."""
    stop, delivery = asyncio.Event(), Delivery("a")
    work = Work(monkeypatch, [delivery])
    receive = work.queue.receive

    async def receives(count: int) -> Any:
        stop.set()
        return await receive(count)

    work.queue.receive = receives
    await asyncio.wait_for(work.worker.run(stop), SOON)
    assert ([record for record, *_ in work.driven], delivery.told[-1:]) == (["a"], ["done"])


async def test_a_worker_that_is_stopped_finishes_what_is_under_way_and_claims_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delivery, never = Delivery("a"), Delivery("b")
    work = Work(monkeypatch, [delivery])
    work.gates = {"a": asyncio.Event()}
    stop = asyncio.Event()
    running = asyncio.ensure_future(work.worker.run(stop))
    await work.until(work.empty.is_set)
    stop.set()
    for _ in range(5):
        await asyncio.sleep(0)
    beats = len(work.slept)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not running.done(), "a step is under way"
    assert len(work.slept) > beats, "and its lease is extended until it is over"
    work.gates["a"].set()
    await asyncio.wait_for(running, SOON)
    assert (delivery.told[-1], never.told) == ("done", [])
    assert work.worker._patience._stop is stop


async def test_a_worker_that_is_idle_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(monkeypatch)
    stop = asyncio.Event()
    running = asyncio.ensure_future(work.worker.run(stop))
    await work.until(work.empty.is_set)
    stop.set()
    await asyncio.wait_for(running, SOON)
    assert (work.driven, work.asked) == ([], [4])


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (AWAY, ("queue unavailable", "error", "PostgreSQL cannot be reached")),
        (RuntimeError("no"), ("unexpected error of the queue; retrying", "error", None)),
    ],
)
async def test_a_queue_that_fails_is_asked_again_after_a_pause(
    monkeypatch: pytest.MonkeyPatch, error: Exception, said: Any
) -> None:
    delivery = Delivery("a")
    work = Work(monkeypatch, error, [delivery])
    with structlog.testing.capture_logs() as logs:
        async with at_work(work):
            await work.until(lambda: delivery.told[1:])
    assert [(each["event"], each["log_level"], each.get("reason")) for each in logs] == [said]
    assert (work.slept[:1], work.driven[0][0]) == ([LEASE.total_seconds() / 3], "a")
    assert PAUSE_SECONDS in work.slept
