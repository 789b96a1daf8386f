"""The loop of background tasks, turn by turn, and what it logs; which errors pass, state by state."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest
from structlog.testing import capture_logs

from core import clock
from core.clock import PAUSE_SECONDS, PAUSE_SECONDS_MAX, Patience, repeat, rest, unless
from core.errors import ConfigurationError, InputError, TransportError
from core.outage import is_away, is_passing, report

pytestmark = pytest.mark.req("Q-18")


async def test_a_loop_rests_after_what_found_nothing_and_after_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, woken, told = asyncio.Event(), asyncio.Event(), list[Any]()
    turns: list[Any] = [True, 3, False, None, 0, ValueError("v"), TransportError("t", remedy="Wait."), True, "stop"]

    async def turn() -> object:
        found = turns.pop(0)
        told.append(found)
        if found == "stop":
            stop.set()
        if isinstance(found, Exception):
            raise found
        return found

    async def resting(event: asyncio.Event, seconds: float, waker: asyncio.Event | None = None) -> None:
        assert (event, waker) == (stop, woken)
        told.append(f"rest {seconds:g}")

    monkeypatch.setattr(clock, "rest", resting)
    with capture_logs() as logs:
        await repeat(stop, turn, 7.0, "Sweeping failed.", woken=woken, tenant="acme")
    bare = [type(one).__name__ if isinstance(one, Exception) else one for one in told]
    paused = [False, "rest 7", None, "rest 7", 0, "rest 7", "ValueError", "rest 7", "TransportError", "rest 7"]
    assert bare == [True, 3, *paused, True, "stop"]
    lines = [(one["log_level"], one["event"], one["tenant"], one.get("reason")) for one in logs]
    assert lines == [
        ("error", "Sweeping failed.", "acme", None),
        ("warning", "Sweeping failed.", "acme", "TransportError: t. Wait."),
    ]
    await repeat(stop, turn, 7.0, "never")
    assert turns == [], "one that is stopped takes no turn"


async def test_a_loop_that_is_canceled_ends() -> None:
    async def turn() -> object:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await repeat(asyncio.Event(), turn, 7.0, "never")


async def test_an_answer_comes_if_it_is_there_before_the_stop() -> None:
    async def ask() -> str:
        return "answer"

    async def fail() -> str:
        raise InputError("no")

    stop = asyncio.Event()

    async def ask_at_last() -> str:
        stop.set()
        return "last answer"

    assert await unless(asyncio.Event(), ask()) == "answer"
    assert await unless(stop, ask_at_last()) == "last answer"
    with pytest.raises(InputError, match="no"):
        await unless(asyncio.Event(), fail())


async def test_what_nobody_waits_for_any_more_has_ended_when_the_waiting_ends() -> None:
    stop, told = asyncio.Event(), list[str]()

    async def ask() -> str:
        told.append("asked")
        try:
            return str(await asyncio.Event().wait())
        finally:
            for _ in range(9):
                await asyncio.sleep(0)
            told.append("put away")

    waiting = asyncio.create_task(unless(stop, ask()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    stop.set()
    assert await asyncio.wait_for(waiting, 30) is None
    assert told == ["asked", "put away"]
    waiting = asyncio.create_task(unless(asyncio.Event(), ask()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert told == ["asked", "put away"] * 2
    assert len(asyncio.all_tasks()) == 1


async def test_a_rest_ends_by_its_event_or_its_time() -> None:
    event = asyncio.Event()
    await rest(event, 0.0)
    await rest(event, 0.0, asyncio.Event())
    event.set()
    await asyncio.wait_for(rest(event, 3600.0), 30)
    woken = asyncio.Event()
    woken.set()
    await asyncio.wait_for(rest(asyncio.Event(), 3600.0, woken), 30)
    assert not woken.is_set()
    woken.set()
    await asyncio.wait_for(rest(event, 3600.0, woken), 30)
    assert not woken.is_set(), "whatever has ended the rest"


async def test_an_outcome_that_is_not_recorded_is_logged_until_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, rests = asyncio.Event(), list[float]()

    async def resting(event: asyncio.Event, seconds: float, _: Any = None) -> None:
        assert event is stop
        rests.append(seconds)

    monkeypatch.setattr(clock, "rest", resting)
    monkeypatch.setattr("random.random", lambda: 1.0)
    patience, error = Patience(stop), ConnectionResetError("reset")
    with capture_logs() as logs:
        for tries in range(4):
            await patience.pause("a", tries, error, step="s1")
        stop.set()
        with pytest.raises(ConnectionResetError):
            await patience.pause("a", 4, error, step="s1")
    assert rests == pytest.approx([0.1, 0.2, 0.4, 0.5])
    assert (PAUSE_SECONDS, PAUSE_SECONDS_MAX) == (0.1, 0.5)
    facts = {"step": "s1", "reason": "ConnectionResetError: reset"}
    away = {"event": "PostgreSQL is away; retrying to record an outcome", "log_level": "warning", **facts}
    last = {"event": "stopping while PostgreSQL is away; an outcome is not recorded", "log_level": "error", **facts}
    assert logs == [*(away | {"tries": tries} for tries in (1, 2, 3, 4)), last]


STATES = {
    **dict.fromkeys(("22P02", "23505", "42P01", "54000", "P0001"), (False, False)),
    **dict.fromkeys(("08006", "25006", "40001", "53300", "55P03", "57014", "58030"), (True, True)),
    **dict.fromkeys(("25001", "28000", "3D000", "XX000", "0A000", ""), (True, False)),
}


@pytest.mark.parametrize("state", STATES)
def test_a_state_says_whether_its_error_passes_and_whether_postgresql_is_away(state: str) -> None:
    error: Any = asyncpg.PostgresError("x")
    error.sqlstate = state
    assert (is_passing(error), is_away(error)) == STATES[state]


def test_other_errors_pass_by_their_kind() -> None:
    passing = [OSError(), ConnectionRefusedError(), TimeoutError(), TransportError("x"), asyncpg.InterfaceError("x")]
    lasting = [ValueError(), InputError("x"), ConfigurationError("x"), KeyError(), asyncpg.InternalClientError("x")]
    assert [(is_passing(one), is_away(one)) for one in passing] == [(True, True)] * len(passing)
    assert [(is_passing(one), is_away(one)) for one in lasting] == [(False, False)] * len(lasting)


def test_an_error_that_is_reported_has_its_remedy() -> None:
    with capture_logs() as logs:
        report("It failed.", ConfigurationError("is missing.", remedy="Set X."), tenant="a", step="s")
    facts = {"tenant": "a", "step": "s"}
    assert logs == [{"event": "It failed.", "log_level": "error", "reason": "is missing. Set X.", **facts}]
