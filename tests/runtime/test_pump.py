"""The pump of a run: which moves it puts into one append, and for whom it waits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runtime.engine.instructions import Over
from runtime.store import claims
from runtime.work import pump
from runtime.work.lease import LostLease, Moved
from tests.support.pumping import NEVER, RUN_ID, SOON, Pumping, World, met_wide, moved


async def test_all_moves_that_are_ready_go_in_one_append_in_step_order(monkeypatch: pytest.MonkeyPatch) -> None:
    pumping = met_wide(monkeypatch, 3)
    found = await moved(pumping, *(pumping.move(f"p{n}") for n in (2, 0, 1)))
    world = pumping.world
    assert world.told == [
        (
            "at hand, strict: p0.started p0.succeeded p1.started p1.succeeded p2.started p2.succeeded committed,"
            " holds p2 p0 p1: version 4, 1 executing"
        )
    ]
    assert [(type(each), each.work) for each in found] == [(Moved, Over())] * 3
    met = pumping.recent[RUN_ID]
    assert all(each.met is met for each in found)
    assert (met.seen, met.drifted, met.behind, met.exact is met.view) == (4, False, False, True)
    assert met.view.run.state.channels == {"seen": ["p0", "p1", "p2"]}


async def test_who_drives_only_some_of_the_steps_waits_for_these(monkeypatch: pytest.MonkeyPatch) -> None:
    pumping = met_wide(monkeypatch, 3, drives=2)
    await moved(pumping, pumping.move("p0"), pumping.move("p1"))
    assert pumping.world.told == [
        "at hand: p0.started p0.succeeded p1.started p1.succeeded, holds p0 p1: version 4, 1 executing"
    ]


async def test_who_is_not_ready_soon_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pumping = met_wide(monkeypatch, 3, drives=3)
    monkeypatch.setattr(pump, "LINGER_SECONDS", 0.0)
    await moved(pumping, pumping.move("p0"), pumping.move("p1"))
    assert len(pumping.world.told) == 1
    monkeypatch.setattr(pump, "LINGER_SECONDS", NEVER)
    # One step is left, so nobody is to come, whoever is driven.
    await moved(pumping, pumping.move("p2"))
    assert pumping.world.told[1:] == [
        "at hand, strict: p2.started p2.succeeded committed, holds p2: version 5, 1 executing"
    ]


async def test_who_was_waited_for_once_is_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pumping = met_wide(monkeypatch, 5, drives=2)
    for first, second in (("p0", "p1"), ("p2", "p3")):
        early = asyncio.ensure_future(pumping.pump.append(pumping.move(first)))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not early.done()
        await moved(pumping, pumping.move(second))
        await early
    assert [each.partition("holds ")[2] for each in pumping.world.told] == [
        "p0 p1: version 4, 3 executing", "p2 p3: version 5, 1 executing"
    ]  # fmt: skip


async def test_a_run_of_one_step_at_a_time_is_appended_to_in_the_callers_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other task is waited for: one append follows the other at once."""
    tasks = []
    for count in (1, 2):
        pumping = Pumping(World.of(count), monkeypatch)
        pumping.pump.drives += count
        pumping.met()
        pumping.world.before[0] = lambda: tasks.append(asyncio.current_task())
        await asyncio.gather(*(pumping.pump.append(pumping.move(f"p{n}")) for n in range(count)))
        pumping.world.before[1] = lambda: tasks.append(asyncio.current_task())
    mine = asyncio.current_task()
    pumping = Pumping(World.of(1), monkeypatch)
    pumping.met()
    pumping.world.before[0] = lambda: tasks.append(asyncio.current_task())
    await pumping.pump.append(pumping.move("p0"))
    assert [task is mine for task in tasks] == [False, False, True]


async def test_what_comes_while_the_last_append_is_made_is_answered_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of the run any more: the book says that nothing is left to settle."""
    pumping = met_wide(monkeypatch, 1)
    claim, later = pumping.world.claims["p0"], list[asyncio.Task[Any]]()

    def comes() -> None:
        later.append(asyncio.ensure_future(pumping.pump.append(pumping.move("p0", claim=claim))))

    async def slowly(commit: Any) -> Any:
        comes()
        await asyncio.sleep(0)
        applied = pumping.world.append("at hand", commit)
        pumping.recent.clear()
        return applied

    monkeypatch.setattr(pumping, "committing", slowly)
    monkeypatch.setattr(pumping.recent, "put", lambda met: met)
    await moved(pumping, pumping.move("p0"))
    (found,) = await asyncio.gather(*later, return_exceptions=True)
    assert isinstance(found, LostLease)


async def test_all_that_execute_are_here_and_nobody_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """More steps are driven than execute: another of them has just been claimed for the super-step to come."""
    pumping = met_wide(monkeypatch, 2, drives=3)
    await moved(pumping, pumping.move("p0"), pumping.move("p1"))
    assert len(pumping.world.told) == 1


async def test_no_more_go_together_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump, "TOGETHER_MAX", 2)
    pumping = met_wide(monkeypatch, 5)
    monkeypatch.setattr(pump, "LINGER_SECONDS", 0.0)
    await moved(pumping, *(pumping.move(f"p{n}") for n in range(5)))
    assert [each.partition("holds ")[2] for each in pumping.world.told] == [
        "p0 p1: version 4, 3 executing", "p2 p3: version 5, 1 executing", "p4: version 6, 1 executing"
    ]  # fmt: skip


async def test_what_comes_while_an_append_is_made_goes_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """An append at once, in the task of its only mover, holds up those that come meanwhile, and then lets them go."""
    pumping = Pumping(World.of(3), monkeypatch)
    pumping.pump.drives = 3
    later: list[asyncio.Task[Any]] = []
    comes = asyncio.Event()

    async def slowly(*given: Any) -> Any:
        later.extend(asyncio.ensure_future(pumping.pump.append(pumping.move(key))) for key in ("p1", "p2"))
        await asyncio.sleep(0)
        comes.set()
        return await hold(*given)

    hold = claims.hold
    monkeypatch.setattr(claims, "hold", slowly)
    # Nothing is known of the run yet: the first move goes alone, on the book.
    monkeypatch.setattr(pump, "LINGER_SECONDS", 0.0)
    await moved(pumping, pumping.move("p0"))
    assert comes.is_set()
    async with asyncio.timeout(SOON):
        await asyncio.gather(*later)
    assert pumping.world.told == [
        "locks p0",
        "reads lock",
        "on the book: p0.started p0.succeeded: version 4, 2 executing",
        (
            "at hand, strict: p1.started p1.succeeded p2.started p2.succeeded committed,"
            " holds p1 p2: version 5, 1 executing"
        ),
    ]


async def test_a_caller_that_is_canceled_takes_nobody_along(monkeypatch: pytest.MonkeyPatch) -> None:
    pumping = met_wide(monkeypatch, 2)
    gone, stays = pumping.move("p0"), pumping.move("p1")
    task = asyncio.ensure_future(pumping.pump.append(gone))
    await asyncio.sleep(0)
    task.cancel()
    found = await moved(pumping, stays)
    assert (gone.done.cancelled(), found[0].work) == (True, Over())
    assert "p0.succeeded p1.started p1.succeeded" in pumping.world.told[0]
