"""A worker's heartbeat and its places, by themselves: without a database, and without the time that passes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from runtime.engine.commit import Claim
from runtime.work import worker as module
from runtime.work.lease import Lease
from runtime.work.worker import PAUSE_SECONDS, Worker
from tests.support.rows import uid

pytestmark = pytest.mark.req("Q-10")

LEASE = timedelta(seconds=30)
MINE, LOST = Claim("a", uid(1), 1), Claim("b", uid(2), 3)


class Enough(Exception):
    """The test has seen enough beats."""


class Job:
    """A job of a worker that holds these leases of runs, and notes what it is told of them."""

    def __init__(self, *held: tuple[Any, Claim], given_up: bool = False) -> None:
        self.told: list[Any] = []
        self.hidden: list[timedelta] = []
        self.drive = SimpleNamespace(leased=[*held], beaten=self._beaten)
        self.delivery = SimpleNamespace(extend=self._extend)
        self._given_up = given_up

    def _beaten(self, claim: Claim, began: float, *, ours: bool) -> bool:
        self.told.append((claim, began, ours))
        return self._given_up

    async def _extend(self, lease: timedelta) -> None:
        self.hidden.append(lease)


@asynccontextmanager
async def connected() -> AsyncIterator[str]:
    yield "the connection"


def working(*jobs: Any, concurrency: int = 4, lease: timedelta = LEASE) -> Any:
    tools: Any = SimpleNamespace(lease=lease, owner="w1", database=SimpleNamespace(connection=connected))
    queue: Any = None
    worker = Worker(tools, queue, concurrency=concurrency)
    known: Any = dict(enumerate(jobs))
    worker._jobs = known
    return worker


@pytest.mark.parametrize(
    ("lease", "fails", "pauses"),
    [
        (30, [False, False, False], [10, 10, 10, 10]),
        (30, [True, False], [10, PAUSE_SECONDS, 10]),
        (1.5, [True, True], [0.5, 0.5, 0.5]),
    ],
)
async def test_leases_are_extended_three_times_and_soon_again_after_an_error(
    monkeypatch: pytest.MonkeyPatch, lease: float, fails: list[bool], pauses: list[float]
) -> None:
    slept: list[float] = []
    extended: list[Any] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) > len(fails):
            raise Enough

    async def extend(held: Any) -> None:
        extended.append([(run, claim) for run, claim, _ in held])
        if fails[len(extended) - 1]:
            raise OSError("PostgreSQL is away")

    within = Claim("c", uid(3), 2)
    worker = working(Job((uid(8), MINE), (uid(7), within)), Job((uid(9), LOST)), lease=timedelta(seconds=lease))
    monkeypatch.setattr(module, "asyncio", SimpleNamespace(sleep=sleep))
    worker._extend = extend
    with pytest.raises(Enough):
        await worker._beat()
    assert slept == pauses
    assert extended == [[(uid(8), MINE), (uid(7), within), (uid(9), LOST)]] * len(fails)


async def test_a_beat_says_of_each_lease_if_it_is_ours_as_of_when_it_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    async def heartbeat(connection: Any, span: timedelta, held: Any) -> set[Any]:
        asked.append((connection, span, held))
        return {MINE.id}

    monkeypatch.setattr(module.claims, "heartbeat", heartbeat)
    monkeypatch.setattr(Lease, "now", staticmethod(lambda: 100.0))
    mine, lost = Job((uid(8), MINE)), Job((uid(9), LOST), given_up=True)
    await working()._extend([(uid(8), MINE, mine), (uid(9), LOST, lost)])
    assert asked == [("the connection", LEASE, [(uid(8), MINE), (uid(9), LOST)])]
    assert (mine.told, mine.hidden) == ([(MINE, 100.0, True)], [LEASE])
    assert (lost.told, lost.hidden) == ([(LOST, 100.0, False)], [])


async def test_each_lease_of_a_run_is_beaten_with_the_time_before_it_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that ended by itself is hidden no longer, and is nobody's fault: no call under it is given up."""
    asked: list[Any] = []
    clock = [100.0]

    async def heartbeat(_: Any, __: timedelta, held: Any) -> set[Any]:
        asked.extend(held)
        clock[0] += 9
        return {MINE.id, other.id}

    monkeypatch.setattr(module.claims, "heartbeat", heartbeat)
    monkeypatch.setattr(Lease, "now", staticmethod(lambda: clock[0]))
    other = Claim("c", uid(3), 1)
    jobs = [Job((uid(8), claim)) for claim in (MINE, other, LOST)]
    with capture_logs() as logs:
        await working()._extend([(uid(8), claim, job) for claim, job in zip((MINE, other, LOST), jobs, strict=True)])
    assert asked == [(uid(8), MINE), (uid(8), other), (uid(8), LOST)]
    assert [job.told for job in jobs] == [[(MINE, 100.0, True)], [(other, 100.0, True)], [(LOST, 100.0, False)]]
    assert ([job.hidden for job in jobs], logs) == ([[LEASE], [LEASE], []], [])


async def test_a_call_that_is_given_up_is_told_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    async def heartbeat(*_: Any) -> set[Any]:
        return set()

    monkeypatch.setattr(module.claims, "heartbeat", heartbeat)
    lost = Job((uid(9), LOST), given_up=True)
    with capture_logs() as logs:
        await working()._extend([(uid(9), LOST, lost)])
    words = "lease is no longer ours; its call is given up"
    assert logs == [{"event": words, "run": str(uid(9)), "step": "b", "log_level": "warning"}]


@pytest.mark.req("Q-12")
@pytest.mark.parametrize(("jobs", "free"), [(0, 4), (1, 3), (3, 1), (4, 1), (6, 1)])
async def test_a_worker_has_as_many_places_as_steps_may_be_driven_at_once(jobs: int, free: int) -> None:
    assert await working(*(Job() for _ in range(jobs)))._places() == free


async def test_jobs_that_end_one_after_the_other_leave_their_places_together() -> None:
    """One append may end several of them."""
    worker = working(*(Job() for _ in range(4)))
    loop = asyncio.get_running_loop()

    def leaves() -> None:
        if worker._jobs:
            worker._jobs.popitem()
            loop.call_soon(leaves)

    loop.call_soon(leaves)
    assert await worker._places() == 4
