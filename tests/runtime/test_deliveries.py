"""Ends of deliveries, and what is full: by themselves, without a database."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from core.errors import TransportError
from runtime.keep import dispatcher
from runtime.keep.dispatcher import ATTEMPTS_MAX, KIND_MAX, Delivered, Dispatcher, Later, Undeliverable
from runtime.store.outbox import Message

pytestmark = pytest.mark.req("O-4")

ID = UUID(int=1)


class Kept:
    """A database that notes what is written of a message, in its order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.written: list[Any] = []

        async def end(_: Any, message: Message, status: str, error: str | None, again_in: timedelta) -> bool:
            self.written.append((str(status), error, again_in.total_seconds()))
            return True

        async def shown(_: Any, message: Message) -> None:
            self.written.append("shown")

        monkeypatch.setattr(dispatcher.outbox, "end_message", end)
        monkeypatch.setattr(dispatcher.outbox, "end_shown", shown)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        yield None

    async def record(self, _: Any) -> None:
        self.written.append("recorded")


def message(attempts: int = 1) -> Message:
    return Message(ID, "acme", None, "card", {}, attempts, 0.0)


def sending(kept: Kept, **more: Any) -> Any:
    made: Any = Dispatcher(kept, {}, "d", **more)
    return made


@pytest.mark.parametrize(
    ("attempts", "result", "written"),
    [
        (1, Delivered(), [("dispatched", None, 0)]),
        (7, Delivered(shows_all=True), ["shown", ("dispatched", None, 0)]),
        (1, Undeliverable("It is gone."), [("failed", "It is gone.", 0)]),
        (1, Later("busy"), [("pending", "busy", 2)]),
        (3, Later("busy"), [("pending", "busy", 8)]),
        (9, Later("busy"), [("pending", "busy", 512)]),
        (10, Later("busy"), [("pending", "busy", 900)]),
        (5000, Later("busy"), [("pending", "busy", 900)]),
        (1, Later("busy", 1.5), [("pending", "busy", 2)]),
        (1, Later("busy", 2.5), [("pending", "busy", 2.5)]),
        (1, Later("busy", 4000.0), [("pending", "busy", 4000)]),
        (1, Later("a bug", counted=True), [("pending", "a bug", 2)]),
        (ATTEMPTS_MAX - 1, Later("a bug", counted=True), [("pending", "a bug", 900)]),
        (ATTEMPTS_MAX, Later("a bug", counted=True), [("failed", "a bug", 0)]),
        (ATTEMPTS_MAX + 1, Later("a bug", counted=True), [("failed", "a bug", 0)]),
        (ATTEMPTS_MAX, Later("a bug", 4000.0, counted=True), [("failed", "a bug", 0)]),
        (1, Later("no\u0000text"), [("pending", "no\ufffdtext", 2)]),
    ],
)
async def test_a_delivery_ends_as_its_result_says(
    monkeypatch: pytest.MonkeyPatch, attempts: int, result: Any, written: list[Any]
) -> None:
    kept = Kept(monkeypatch)
    await sending(kept)._end(message(attempts), result)
    assert kept.written == written


@pytest.mark.parametrize(
    ("made", "written"),
    [(Delivered, ("dispatched", None, 0)), (lambda record: Undeliverable("gone", record), ("failed", "gone", 0))],
)
async def test_what_is_to_be_remembered_is_written_with_the_end(
    monkeypatch: pytest.MonkeyPatch, made: Any, written: Any
) -> None:
    kept = Kept(monkeypatch)
    await sending(kept)._end(message(), made(kept.record))
    assert kept.written == ["recorded", written]


async def raises(error: Exception) -> Any:
    raise error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("no such field"), "ValueError: no such field"),
        (TransportError("It is away."), "TransportError: It is away."),
        (TimeoutError(), "It took too long."),
    ],
)
async def test_a_handler_that_fails_leaves_its_message_for_later(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    kept = Kept(monkeypatch)
    await sending(kept)._carry((message(2), lambda: raises(error)))
    assert kept.written == [("pending", words, 4)]


async def test_an_end_that_cannot_be_remembered_is_noted_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(monkeypatch)
    result = Delivered(lambda _: raises(ValueError("no such column")))
    await sending(kept)._carry((message(), lambda: dispatcher.saying(result)))
    assert kept.written == [("pending", "It was delivered, but: ValueError: no such column", 2)]


@pytest.mark.parametrize("attempts", [1, ATTEMPTS_MAX])
async def test_a_message_of_an_unknown_kind_is_given_up_at_once(monkeypatch: pytest.MonkeyPatch, attempts: int) -> None:
    kept = Kept(monkeypatch)
    deliver = await dispatcher._unknown(None, message(attempts))
    await sending(kept)._carry((message(attempts), deliver))
    assert kept.written == [("failed", "Nobody here delivers messages of kind 'card'.", 0)]


@pytest.mark.req("O-7")
@pytest.mark.parametrize(
    ("under_way", "concurrency", "full"),
    [
        ({}, 4, []),
        ({("acme", "card"): 1}, 1, ["acme:card"]),
        ({("acme", "card"): 1, ("beta", "task"): 1}, 2, []),
        ({("acme", "card"): 2, ("beta", "task"): 1}, 2, ["acme:card", "beta:task"]),
        ({("acme", "card"): 3}, 4, []),
        ({("acme", "card"): 4}, 4, ["acme:card"]),
        ({(f"t{n}", "card"): 1 for n in range(KIND_MAX - 1)}, 4, []),
        ({(f"t{n}", "card"): 1 for n in range(KIND_MAX)}, 4, ["card"]),
    ],
)
async def test_a_lane_or_a_kind_is_full_when_it_has_its_share(
    monkeypatch: pytest.MonkeyPatch, under_way: dict[Any, int], concurrency: int, full: list[str]
) -> None:
    made = sending(Kept(monkeypatch), concurrency=concurrency)
    made._under_way = Counter(under_way)
    assert made._full() == full


async def test_whoever_waited_for_a_delivery_is_looked_for_when_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(monkeypatch)
    made = sending(kept)
    made._under_way = Counter({("acme", "card"): 1, ("beta", "card"): 1})
    await made._deliver((message(), lambda: dispatcher.saying(Delivered())))
    assert (made._under_way, made._woken.is_set()) == (Counter({("beta", "card"): 1}), True)
    assert isinstance(made._woken, asyncio.Event)
