"""Ends of deliveries, and what is full: by themselves, without a database."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from structlog.testing import capture_logs

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

        async def end(at: str, message: Message, status: str, error: str | None, again_in: timedelta) -> bool:
            assert (at, type(message)) == ("transaction", Message)
            self.written.append((str(status), error, again_in.total_seconds()))
            return True

        async def shown(at: str, message: Message) -> None:
            assert (at, type(message)) == ("transaction", Message)
            self.written.append("shown")

        monkeypatch.setattr(dispatcher.outbox, "end_message", end)
        monkeypatch.setattr(dispatcher.outbox, "end_shown", shown)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[str]:
        yield "transaction"

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[str]:
        yield "connection"

    async def record(self, at: str) -> None:
        assert at == "transaction"
        self.written.append("recorded")


def message(attempts: int = 1, kind: str = "card", number: int = 1, tenant: str = "acme") -> Message:
    return Message(UUID(int=number), tenant, None, kind, {}, attempts, 0.0)


def sending(kept: Any, handlers: Any = None, **more: Any) -> Any:
    return Dispatcher(kept, handlers or {}, "d", **more)


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
    with capture_logs() as logs:
        await sending(kept)._end(message(attempts), result)
    assert kept.written == written
    ends = [end for end in written if isinstance(end, tuple)]
    about = {"kind": "card", "reason": ends[0][1]}
    retrying = {"event": "delivery failed; retrying", "log_level": "warning", **about}
    failed = {"event": "a message could not be delivered", "log_level": "error", **about}
    told = {"pending": [retrying] if attempts == 1 else [], "failed": [failed], "dispatched": []}
    assert logs == told[ends[0][0]], "a delivery that is tried again and again is told of once"


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
    ("error", "words", "passes"),
    [
        (ValueError("no such field"), "ValueError: no such field", False),
        (TransportError("It is away."), "TransportError: It is away.", True),
        (TimeoutError(), "It took too long.", True),
    ],
)
async def test_a_handler_that_fails_leaves_its_message_for_later(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str, passes: bool
) -> None:
    """Without end, if that passes by itself."""
    kept = Kept(monkeypatch)
    with capture_logs():
        await sending(kept)._carry((message(ATTEMPTS_MAX), lambda: raises(error)))
    assert kept.written == [("pending", words, 900) if passes else ("failed", words, 0)]
    kept.written.clear()
    with capture_logs() as logs:
        await sending(kept)._carry((message(2), lambda: raises(error)))
    assert kept.written == [("pending", words, 4)]
    told = [(line["event"], line["kind"], line["command"]) for line in logs]
    assert told == ([] if isinstance(error, TimeoutError) else [("a handler failed", "card", str(ID))])


async def test_a_delivery_has_less_time_than_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    @asynccontextmanager
    async def timeout(seconds: float) -> AsyncIterator[None]:
        given.append(seconds)
        yield None

    kept = Kept(monkeypatch)
    monkeypatch.setattr(dispatcher, "asyncio", SimpleNamespace(timeout=timeout))
    await sending(kept)._carry((message(), lambda: dispatcher.saying(Delivered())))
    assert (given, dispatcher.LEASE) == ([48.0], timedelta(seconds=60))


async def test_an_end_that_cannot_be_remembered_is_noted_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(monkeypatch)
    result = Delivered(lambda _: raises(ValueError("no such column")))
    with capture_logs() as logs:
        await sending(kept)._carry((message(), lambda: dispatcher.saying(result)))
    assert kept.written == [("pending", "It was delivered, but: ValueError: no such column", 2)]
    assert (logs[0]["event"], logs[0]["command"]) == ("the end of a delivery could not be recorded", str(ID))


@pytest.mark.parametrize(("error", "status"), [(OSError("away"), "pending"), (ValueError("no"), "failed")])
async def test_an_end_is_tried_without_end_if_what_hinders_it_passes(
    monkeypatch: pytest.MonkeyPatch, error: Exception, status: str
) -> None:
    kept = Kept(monkeypatch)
    result = Delivered(lambda _: raises(error))
    with capture_logs():
        await sending(kept)._carry((message(ATTEMPTS_MAX), lambda: dispatcher.saying(result)))
    assert [end[:1] for end in kept.written] == [(status,)]


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
        ({("acme", "card"): KIND_MAX - 1, ("acme", "task"): 1}, 99, []),
        ({("acme", "card"): KIND_MAX, ("acme", "task"): 1}, 99, ["card"]),
        ({("acme", "card"): 2, ("beta", "card"): KIND_MAX - 2}, 99, ["card"]),
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


async def test_a_delivery_whose_end_cannot_be_written_is_left_to_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(monkeypatch)
    monkeypatch.setattr(dispatcher.outbox, "end_message", lambda *_: raises(OSError("PostgreSQL is away")))
    made = sending(kept)
    made._under_way = Counter({("acme", "card"): 2})
    with capture_logs() as logs:
        await made._deliver((message(), lambda: dispatcher.saying(Delivered())))
    assert logs[-1] == {
        "event": "delivery abandoned until the lease of its message runs out",
        "log_level": "warning",
        "command": str(ID),
        "reason": "OSError: PostgreSQL is away",
    }
    assert (made._under_way, made._woken.is_set()) == (Counter({("acme", "card"): 1}), True)


class Outbox(Kept):
    """Messages in line, and what a dispatcher asks of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *messages: Message | None) -> None:
        super().__init__(monkeypatch)
        self.messages = list(messages)
        self.asked: list[Any] = []

        async def lease(
            at: str, owner: str, span: timedelta, after: Any, full: list[str], *, only: UUID | None = None
        ) -> Message | None:
            self.asked.append((at, owner, span.total_seconds(), after, full, only))
            return self.messages.pop(0) if self.messages else None

        monkeypatch.setattr(dispatcher.outbox, "lease_message", lease)


async def test_a_message_is_leased_and_read_by_the_handler_of_its_kind_in_one_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outbox, read = Outbox(monkeypatch, message(), message(kind="task", number=2), message(kind="none")), list[Any]()

    async def card(*given: Any) -> Any:
        read.append(("card", *given))
        return "deliver the card"

    async def task(*given: Any) -> Any:
        read.append(("task", *given))
        return "deliver the task"

    made = sending(outbox, {"card": card, "task": task})
    made._under_way = Counter({("acme", "note"): 4})
    assert await made._lease() == (message(), "deliver the card")
    assert await made._lease() == (message(kind="task", number=2), "deliver the task")
    _, unknown = await made._lease()
    assert await unknown() == Undeliverable("Nobody here delivers messages of kind 'none'.")
    assert await made._lease() is None
    assert read == [("card", "transaction", message()), ("task", "transaction", message(kind="task", number=2))]
    lanes = [("", ""), ("acme", "card"), ("acme", "task"), ("acme", "none")]
    assert outbox.asked == [("transaction", "d", 60.0, lane, ["acme:note"], None) for lane in lanes]


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize(
    ("error", "result"),
    [
        (ValueError("no such field"), Later("ValueError: no such field", counted=True)),
        (TransportError("It is away."), Later("TransportError: It is away.", counted=False)),
        (asyncpg.UndefinedColumnError("no column"), Later("UndefinedColumnError: no column", counted=True)),
    ],
)
async def test_a_message_that_cannot_be_read_is_leased_once_more_to_say_so(
    monkeypatch: pytest.MonkeyPatch, error: Exception, result: Any, gone: bool
) -> None:
    outbox = Outbox(monkeypatch, message(2), None if gone else message(3))
    made = sending(outbox, {"card": lambda *_: raises(error)})
    with capture_logs() as logs:
        job = await made._lease()
    if gone:
        assert job is None
    else:
        again, deliver = job
        assert (again, await deliver()) == (message(3), result)
    assert outbox.asked == [
        ("transaction", "d", 60.0, ("", ""), [], None),
        ("connection", "d", 60.0, ("", ""), [], ID),
    ]
    told = [(line["event"], line["kind"], line["command"]) for line in logs]
    assert told == [("a message could not be read", "card", str(ID))]
    assert await made._lease() is None
    assert outbox.asked[-1] == ("transaction", "d", 60.0, ("acme", "card"), [], None), "another lane comes first"


@pytest.mark.parametrize("leased", [False, True])
@pytest.mark.parametrize(("error", "raised"), [(asyncpg.DeadlockDetectedError("dead"), True), (ValueError("no"), None)])
async def test_what_is_away_for_now_leaves_the_message_as_it_was(
    monkeypatch: pytest.MonkeyPatch, error: Exception, raised: bool | None, leased: bool
) -> None:
    """A failure before there is a message is not the message's fault."""
    outbox = Outbox(monkeypatch, message(), message())
    if not leased:
        monkeypatch.setattr(dispatcher.outbox, "lease_message", lambda *_, **__: raises(error))
    made = sending(outbox, {"card": lambda *_: raises(error)})
    if leased and not raised:
        assert await made._lease() is not None
        return
    with pytest.raises(type(error)):
        await made._lease()
    assert len(outbox.asked) == leased


async def test_messages_are_delivered_side_by_side_and_all_that_are_under_way_are_finished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop, go = asyncio.Event(), asyncio.Event()
    first, second = message(), message(number=2, tenant="beta")
    outbox, under_way = Outbox(monkeypatch, first, second, None), list[Any]()

    async def card(_: Any, one: Message) -> Any:
        async def deliver() -> Any:
            under_way.append(one)
            if len(under_way) == 2:
                stop.set()
                asyncio.get_running_loop().call_soon(go.set)
            await go.wait()
            return Delivered()

        return deliver

    made = sending(outbox, {"card": card}, concurrency=1)
    assert (made._woken.is_set(), made.wake(), made._woken.is_set()) == (False, None, True)
    with capture_logs() as logs:
        async with asyncio.timeout(20):
            await made.run(stop)
    assert (under_way, logs) == ([first, second], [])
    assert outbox.written == [("dispatched", None, 0)] * 2
    assert [full for *_, full, _ in outbox.asked[:3]] == [[], ["acme:card"], ["acme:card", "beta:card"]]
    assert made._under_way == Counter()


async def test_a_dispatcher_rests_until_it_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[Any] = []

    async def repeat(stop: Any, turn: Any, seconds: float, words: str, *, woken: Any) -> None:
        turns.append((stop, seconds, words, woken))

    monkeypatch.setattr(dispatcher, "repeat", repeat)
    made, stop = sending(Kept(monkeypatch)), asyncio.Event()
    await made.run(stop)
    assert turns == [(stop, 5.0, "no message could be leased", made._woken)]


async def test_for_tests_everything_due_is_delivered_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    outbox = Outbox(monkeypatch, message(), message(number=2), None)
    made = sending(outbox)
    assert await made.work_off() == 2
    assert [status for status, *_ in outbox.written] == ["failed", "failed"]


async def test_deliveries_of_one_lane_are_counted_one_by_one_and_a_wake_up_is_heard_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop, counts = asyncio.Event(), list[int]()
    outbox = Outbox(monkeypatch, *(message(number=number) for number in (1, 2, 3)), None)

    async def card(_: Any, one: Message) -> Any:
        async def deliver() -> Any:
            counts.append(made._under_way["acme", "card"])
            made._woken.clear()
            made.wake()
            assert made._woken.is_set()
            if len(counts) == 3:
                stop.set()
            await stop.wait()
            return Delivered()

        return deliver

    made = sending(outbox, {"card": card}, concurrency=3)
    async with asyncio.timeout(20):
        await made.run(stop)
    assert counts[-1] == 3
    assert [one[4] for one in outbox.asked[:4]] == [[], [], [], ["acme:card"]]
    assert (made._under_way.total(), len(outbox.written)) == (0, 3)
