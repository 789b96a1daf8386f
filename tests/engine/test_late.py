"""The fold takes a late answer in beside the receipt, and changes nothing else by it; what it says is plain."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from connectors.port import Done, InDoubt, NotSent, Parked, Refused
from core.errors import ConsistencyError
from evidence.chain import Actor, ChainHead, seal, timestamp
from evidence.receipts import LateAnswer, ReceiptStatus
from runtime.engine.book.fold import fold
from runtime.engine.book.instructions import Unfit, last_receipt
from runtime.engine.book.recorded import RecordedEvent, line_of, read_line
from runtime.engine.book.snapshot import pack, unpack
from runtime.engine.life import late
from runtime.engine.life.transition import Transition
from runtime.engine.model.events import ActionLate
from runtime.engine.model.graph import NO_GRAPH
from runtime.engine.model.rows import ReceiptRow, StepRow
from runtime.engine.model.run import Run
from runtime.engine.model.states import RunState, StepState
from runtime.engine.replay.replay import unopened
from tests.engine.governing import ASK, EFFECT, governed

RECEIPT, RUN, KEY = UUID(int=1), UUID(int=2), b"k" * 32
HEAD = ChainHead(f"run:{RUN}", 7, "0" * 64)
AT = datetime(2026, 1, 1, 2, 3, 4, 567_890, tzinfo=UTC)
TWICE = "attempt 1 happened (e1). Attempt 2 counts as done as well: it may have happened twice."
THRICE = "attempt 2 happened. Attempt 3 counts as done as well: it may have happened twice."
SENT = "2026-01-01T02:03:04.567890Z"


def receipt(status: str = "succeeded", attempt: int = 1, external_id: str | None = "e2", **more: Any) -> ReceiptRow:
    action: Any = {"input": {}, "target": "t", "summary": "s", "before": None}
    place = (RECEIPT, RUN, "a", "x.y.z", "t", "key", "0" * 64, status, attempt, 1, False, None, AT, None, external_id)
    return ReceiptRow(*place, action=action, **more)


def run_with(row: ReceiptRow, *, finished: bool = False) -> Run:
    run = unopened(RUN, KEY, NO_GRAPH)
    run.status, run.finished = RunState.SUCCEEDED if finished else RunState.RUNNING, finished
    run.steps["a"] = StepRow(UUID(int=3), "a", 0, "x.y.z", 0, StepState.RUNNING)
    run.receipts[RECEIPT] = row
    return run


def told(known: str = "succeeded", attempt: int = 1, **more: Any) -> RecordedEvent:
    event = ActionLate(RECEIPT, attempt, 1, LateAnswer(known), SENT, **more)
    return RecordedEvent(event, Actor("worker", "w"), AT, "a")


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("status", [*ReceiptStatus])
def test_nothing_but_the_receipts_late_answers_changes(status: str, finished: bool) -> None:
    before = run_with(receipt(status), finished=finished)
    after = fold(before.copy(), told(external_id="e1", output={"n": 1}, answered=SENT), NO_GRAPH)
    (entry,) = after.receipts[RECEIPT].late
    assert entry == {
        "attempt": 1, "epoch": 1, "known": "succeeded", "sent": SENT, "answered": SENT, "external_id": "e1",
        "output": {"n": 1},
    }  # fmt: skip
    after.receipts[RECEIPT] = replace(after.receipts[RECEIPT], late=())
    assert after == before


def test_each_one_is_kept_and_outlives_what_is_kept_of_the_run() -> None:
    run = fold(run_with(receipt()), told("unanswered"), NO_GRAPH)
    run = unpack(pack(fold(run, told("failed", 2, code="400"), NO_GRAPH).rest(), HEAD), RUN, KEY)[0]
    assert [entry["known"] for entry in run.receipts[RECEIPT].late] == ["unanswered", "failed"]
    assert isinstance(run.receipts[RECEIPT].late, tuple)


def test_a_run_at_rest_passes_over_what_its_left_behind_and_a_whole_one_does_not() -> None:
    rested = run_with(receipt())
    del rested.steps["a"]
    rested.rest()
    assert fold(rested.copy(), told(), NO_GRAPH) == rested
    whole = run_with(receipt())
    del whole.receipts[RECEIPT]
    with pytest.raises(ConsistencyError, match="there is no receipt"):
        fold(whole, told(), NO_GRAPH)


def test_no_value_stands_in_its_line_and_its_line_tells_it_again() -> None:
    one = told("succeeded", external_id="secret-1", output={"n": "secret-2"}, detail={"message": "secret-3"})
    line, values = line_of(one, KEY)
    (written,), _ = seal(HEAD, [line])
    assert b"secret" not in written
    assert read_line(written, values, KEY) == one


OUTCOMES = [
    (None, {"known": LateAnswer.UNANSWERED}),
    (InDoubt("gone"), {"known": LateAnswer.IN_DOUBT, "detail": {"message": "gone"}}),
    (Refused("400", "no"), {"known": LateAnswer.FAILED, "code": "400", "detail": {"code": "400", "message": "no"}}),
    (Done({"n": 1}, "e1"), {"known": LateAnswer.SUCCEEDED, "output": {"n": 1}, "external_id": "e1"}),
    (Parked("p1"), {"known": LateAnswer.SUCCEEDED, "output": Parked("p1").output, "external_id": "p1"}),
    (
        Unfit(Done({}, "e1"), "too large"),
        {"known": LateAnswer.SUCCEEDED, "external_id": "e1", "detail": {"message": "too large"}},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("outcome", "facts"), OUTCOMES)
def test_a_worker_tells_all_that_it_knows(outcome: Any, facts: dict[str, Any]) -> None:
    answered = None if outcome is None else AT + timedelta(seconds=1)
    event = late.known_of(receipt(attempt=2), 3, AT, answered, outcome)
    at = None if answered is None else timestamp(answered)
    assert event == ActionLate(RECEIPT, 2, 3, sent=SENT, answered=at, **facts)


def test_what_was_not_sent_is_not_told() -> None:
    assert late.known_of(receipt(), 3, AT, AT, NotSent("away")) is None


@pytest.mark.parametrize(("finished", "orders"), [(False, ["card"]), (True, ["card", "bundle"])])
def test_it_is_told_once_and_shown_wherever_its_action_is(finished: bool, orders: list[str]) -> None:
    run = governed(EFFECT, ASK).drive().answer("ana", "ben").drive(dies=not finished)
    row = last_receipt(run.whole().run, "a")
    assert row is not None
    event = late.known_of(row, 1, AT, AT, Done({}, "late-1"))
    assert event is not None
    transition = Transition(late.without_rows(run.whole()), NO_GRAPH)
    assert not late.is_recorded(transition, event)
    late.tell(transition, event, Actor("worker", "w"))
    assert late.is_recorded(transition, event)
    assert not late.is_recorded(transition, replace(event, epoch=2))
    assert [command.kind for command in transition.commit().commands] == orders


@pytest.mark.parametrize(
    ("row", "known", "attempt", "more", "words"),
    [
        (receipt("failed"), "succeeded", 1, {"external_id": "e1"}, "attempt 1 happened (e1). It counts as failed."),
        (receipt(attempt=2), "succeeded", 1, {"external_id": "e1"}, TWICE),
        (receipt(attempt=2), "succeeded", 1, {"external_id": "e2"}, "attempt 1 happened (e2)."),
        (receipt(), "succeeded", 1, {"external_id": "e2"}, "attempt 1 happened (e2)."),
        (receipt("in_doubt"), "succeeded", 1, {}, "attempt 1 happened."),
        (receipt(), "failed", 1, {"code": "400"}, "attempt 1 failed (400). It counts as done."),
        (receipt(external_id=None), "failed", 1, {"code": "400"}, "attempt 1 failed (400). It counts as done."),
        (receipt("failed", external_id=None), "succeeded", 1, {}, "attempt 1 happened. It counts as failed."),
        (receipt(attempt=2, external_id=None), "succeeded", 1, {}, TWICE.replace(" (e1)", "")),
        (receipt(attempt=2), "succeeded", 1, {}, TWICE.replace(" (e1)", "")),
        (receipt(attempt=2), "failed", 1, {"code": "400"}, "attempt 1 failed (400)."),
        (receipt("failed"), "in_doubt", 1, {}, "nobody knows what became of attempt 1."),
        (receipt(attempt=3), "in_doubt", 2, {"external_id": "e1"}, "nobody knows what became of attempt 2."),
        (receipt(attempt=3), "succeeded", 2, {"external_id": ""}, THRICE),
        (receipt(), "unanswered", 1, {}, "it may have been sent, and no answer is known."),
    ],
)
def test_it_says_what_contradicts_the_receipt(
    row: ReceiptRow, known: str, attempt: int, more: dict[str, Any], words: str
) -> None:
    run = fold(run_with(row), told(known, attempt, **more), NO_GRAPH)
    (shown,) = late.shown(run.receipts[RECEIPT])
    assert shown["says"].endswith(words)
