"""Keepers of a queue: the steps that they admit, and its dead letters. Without a database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from core.canonical import digest
from runtime.engine.commit import Claim
from runtime.keep import scheduler
from runtime.keep.scheduler import BATCH, PoisonMessage, Reconciler, Scheduler
from runtime.queue.port import DeadLetter
from tests.support.rows import uid

pytestmark = pytest.mark.req("Q-11")

NOTHING: Any = None


class Connected:
    """A database that gives a connection of this name."""

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[str]:
        yield "connection"

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[str]:
        yield "transaction"


class Queue:
    """A queue that accepts these keys, and notes what it was sent."""

    needs_dispatch = True

    def __init__(self, refuses: Sequence[str] = ()) -> None:
        self.messages: list[Any] = []
        self._refuses = refuses

    async def sent(self, messages: list[tuple[str, str, str]]) -> list[str]:
        self.messages += messages
        return [key for key, _, step in messages if step not in self._refuses]


def row(number: int) -> dict[str, Any]:
    return {"run_id": uid(number), "step_key": f"s{number}", "step_id": uid(100 + number), "epoch": number}


@pytest.mark.req("Q-12")
@pytest.mark.parametrize("within", [77, 7])
@pytest.mark.parametrize(
    ("found", "asked"),
    [([], [10]), ([3], [10, 7]), ([3, 7], [10, 7]), ([10], [10]), ([1, 1, 1], [10, 9, 8, 7])],
)
async def test_one_batch_is_admitted_and_those_are_waited_for_that_the_queue_has(
    monkeypatch: pytest.MonkeyPatch, found: list[int], asked: list[int], within: int
) -> None:
    found = [*found]
    calls: list[Any] = []
    noted: list[Any] = []
    rows = iter(map(row, range(1, 99)))

    async def admit(connection: Any, owner: str, lease: timedelta, count: int) -> list[Any]:
        calls.append((connection, owner, lease, count))
        return [next(rows) for _ in range(found.pop(0))] if found else []

    async def expected(connection: Any, steps: Any, within: timedelta) -> None:
        noted.append((steps, within))

    monkeypatch.setattr(scheduler.claims, "admit", admit)
    monkeypatch.setattr(scheduler.claims, "expected", expected)
    count = sum(found)
    queue = Queue(refuses=[str(uid(102))])
    database: Any = Connected()
    keeper = Scheduler(database, queue, "k1", claimed_within=timedelta(seconds=within))
    accepted = [number for number in range(1, count + 1) if number != 2]
    assert await keeper.admit() == len(accepted)
    assert calls == [("connection", "k1", timedelta(seconds=60), number) for number in asked]
    assert queue.messages == [
        (digest([str(uid(number)), f"s{number}", number + 1]), str(uid(number)), str(uid(100 + number)))
        for number in range(1, count + 1)
    ]
    steps = [(uid(number), f"s{number}") for number in accepted]
    assert noted == ([(steps, timedelta(seconds=within))] if count else [])
    assert asked[0] == BATCH


async def test_steps_are_not_admitted_where_workers_lease_them_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue()
    queue.needs_dispatch = False
    await Scheduler(NOTHING, queue, "k1").run(NOTHING)
    assert queue.messages == []


async def test_a_queue_s_keeper_rests_until_it_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[Any] = []

    async def repeat(stop: Any, turn: Any, seconds: float, words: str, *, woken: Any = None) -> None:
        turns.append((stop, turn.__name__, seconds, words, woken))

    monkeypatch.setattr(scheduler, "repeat", repeat)
    keeper = Scheduler(NOTHING, Queue(), "k1")
    await keeper.run(NOTHING)
    assert turns.pop() == (None, "admit", 5.0, "queue unavailable", keeper._woken)
    assert not keeper._woken.is_set()
    keeper.wake()
    assert keeper._woken.is_set()
    for idle in (timedelta(milliseconds=250), timedelta(days=1, seconds=1.5)):
        await Scheduler(NOTHING, Queue(), "k1", idle=idle).run(NOTHING)
        assert turns.pop()[2] == idle.total_seconds()
    woken = keeper._woken
    keeper.wake()
    assert keeper._woken is woken, "who rests on it hears it"
    await Reconciler(NOTHING, NOTHING, NOTHING, "k1", interval=timedelta(seconds=7.5)).run(NOTHING)
    assert turns.pop()[2] == 7.5
    await Reconciler(NOTHING, NOTHING, NOTHING, "k1", pause=timedelta(seconds=7)).run(NOTHING)
    assert turns == [(None, "reconcile", 30.0, "the dead letters could not be looked at", None)]


class Letters:
    """Dead letters: those that there are, and those that were deleted."""

    def __init__(self, *letters: DeadLetter) -> None:
        self.letters = letters
        self.deleted: list[str] = []

    async def receive(self) -> Sequence[DeadLetter]:
        return self.letters

    async def delete(self, letter: DeadLetter) -> None:
        self.deleted.append(letter.message_id)


def letter(number: int, step: Any = NOTHING, body: str = "its body") -> DeadLetter:
    return DeadLetter(f"m{number}", step, body, f"h{number}")


async def test_each_letter_is_settled_by_its_step_s_row_and_deleted_then(monkeypatch: pytest.MonkeyPatch) -> None:
    claimed: list[Any] = []
    setbacks: list[Any] = []
    record = {"run": {"run_id": str(uid(1))}, "step": {"step_key": "a", "lease_id": str(uid(5)), "lease_epoch": 3}}
    record["step"]["lease_owner"] = "k1"

    async def claim_step(connection: Any, owner: str, lease: timedelta, step_id: Any) -> list[Any]:
        claimed.append((connection, owner, lease, step_id))
        if step_id == uid(13):
            raise OSError("PostgreSQL is away")
        return [record] if step_id == uid(11) else []

    async def set_back(*given: Any) -> None:
        setbacks.append(given)

    monkeypatch.setattr(scheduler.claims, "claim_step", claim_step)
    monkeypatch.setattr(scheduler, "set_back", set_back)
    letters = Letters(letter(1, uid(11)), letter(2, body="\0" + "x" * 200), letter(3, uid(13)), letter(4, uid(14)))
    database: Any = Connected()
    definitions: Any = "definitions"
    keeper = Reconciler(database, definitions, letters, "k1", pause=timedelta(seconds=33))
    with capture_logs() as logs:
        assert await keeper.reconcile() == 3
    strange = "a message that is none of ours was deleted from the dead letters"
    dropped = "a dead letter was dropped: its step is not waiting for it"
    assert logs == [
        {"event": strange, "log_level": "error", "message": "m2", "characters": 201, "begins": "\ufffd" + "x" * 199},
        {
            "event": "dead letter not settled; retrying later",
            "log_level": "warning",
            "message": "m3",
            "reason": "OSError: PostgreSQL is away",
        },
        {"event": dropped, "log_level": "info", "step": str(uid(14))},
    ]
    assert letters.deleted == ["m1", "m2", "m4"]
    assert claimed == [("transaction", "k1", timedelta(seconds=33), uid(number)) for number in (11, 13, 14)]
    ((connection, known, run_id, claim, owner, error),) = setbacks
    assert (connection, known, run_id, claim, owner) == (
        "transaction", "definitions", uid(1), Claim("a", uid(5), 3), "k1",
    )  # fmt: skip
    assert isinstance(error, PoisonMessage)
    assert error.code == "consistency"
    assert str(error) == (
        "The message for this step went to the dead letters (SQS message m1): it was received as often as the queue's "
        "redrive policy allows, and no worker claimed the step. Look in the workers' logs for what ends them, or keeps "
        "them from the database, at this step."
    )
