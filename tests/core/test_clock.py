"""The one loop: it rests until it is woken, is stopped at once, and goes on after a turn that failed."""

from __future__ import annotations

import asyncio

import pytest

from core.clock import Patience, repeat, rest, unless

LONG = 3600.0


async def test_a_rest_ends_when_it_is_stopped_or_woken() -> None:
    for which in range(2):
        stop, woken = asyncio.Event(), asyncio.Event()
        resting = asyncio.create_task(rest(stop, LONG, woken))
        (stop, woken)[which].set()
        await asyncio.wait_for(resting, 30)
        assert not woken.is_set(), "the next rest is one"


async def test_nobody_waits_for_an_answer_after_the_stop() -> None:
    stop, let_go = asyncio.Event(), asyncio.Event()

    async def ask() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            let_go.set()
        return "never"

    asking = asyncio.create_task(unless(stop, ask()))
    stop.set()
    assert await asyncio.wait_for(asking, 30) is None
    assert let_go.is_set()


async def test_a_turn_that_fails_or_finds_nothing_is_followed_by_a_rest() -> None:
    stop, woken, turns = asyncio.Event(), asyncio.Event(), 0

    async def turn() -> bool:
        nonlocal turns
        turns += 1
        if turns == 2:
            raise RuntimeError("a fault")
        if turns == 3:
            stop.set()
        woken.set()
        return turns == 1

    await asyncio.wait_for(repeat(stop, turn, LONG, "a turn failed", woken=woken), 30)
    assert turns == 3


async def test_it_is_calm_once_nobody_keeps_anything_any_more() -> None:
    stop = asyncio.Event()
    patience, away = Patience(stop), ConnectionError("away")
    stop.set()
    for who in ("one", "other"):
        await patience.pause(who, 0, away)  # one more try, though the stop came during the last
    for who in ("one", "other", "one"):
        with pytest.raises(ConnectionError):
            await patience.pause(who, 1, away)
    calm = asyncio.create_task(patience.calm())
    patience.settled("one")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not calm.done(), "the other keeps what it did not tell"
    patience.settled("other")
    await asyncio.wait_for(calm, 30)
