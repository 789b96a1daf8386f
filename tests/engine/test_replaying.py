"""Replaying a book with the pure engine: what it derives, and where it stops."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import orjson
import pytest
from msgspec.structs import replace

from core.errors import ConsistencyError
from evidence.chain import Actor
from runtime.engine.book.recorded import RecordedEvent, read_line
from runtime.engine.life.transition import Transition, writes_of
from runtime.engine.model.events import EVENTS, CheckpointCommitted, DecisionMade, RunOpened, StepStarted, StepSucceeded
from runtime.engine.model.rows import WaitRow
from runtime.engine.model.states import WaitKind, WaitState
from runtime.engine.replay.past import past_of
from runtime.engine.replay.replay import Divergence, replay

HEAD = "workflow: w\nversion: 1\nreference: r\nchannels: {seen: {reduce: append}}\nsteps:\n"


def beside(count: int) -> str:
    return HEAD + "".join(
        f"  - {{id: p{number}, do: probe.value.read, with: {{name: p{number}}}, needs: [],"
        ' set: {seen: "${{ output.name }}"}}\n'
        for number in range(count)
    )


def began(simulate: Any, count: int) -> Any:
    run = simulate(beside(count))
    for number in range(count):
        run.claim(f"p{number}")
    return run


def equal(run: Any, book_of: Any) -> bool:
    derived = {found.number: found.digest for found in replay(book_of(run, writes_of))}
    return derived == {number: digest for number, (_, digest) in run.checkpoints.items()}


@pytest.mark.req("P-9")
def test_a_book_gives_the_checkpoints_that_it_gave_before(simulate: Any, book_of: Any) -> None:
    run = simulate(beside(3)).settle_all(max)
    assert len(run.checkpoints) == 2
    assert equal(run, book_of)


@pytest.mark.parametrize("kind", [WaitKind.APPROVAL, WaitKind.RETRY, WaitKind.SIGNAL])
def test_a_step_that_parks_as_its_run_fails_is_told_and_canceled(simulate: Any, book_of: Any, kind: WaitKind) -> None:
    run = began(simulate, 2)
    run.fail("p0")
    run.park("p1", kind)
    assert (run.status, run.rows["p1"].status, run.waits["p1"].status) == ("failed_terminal", "canceled", "canceled")
    assert equal(run, book_of)


def test_a_step_that_was_canceled_with_its_run_is_told(simulate: Any, book_of: Any) -> None:
    run = began(simulate, 3)
    transition = Transition(run.view(), run.workflow.graph)
    transition.cancel(Actor("person", "ann"), "enough")
    run.apply(transition)
    run.succeed("p0")
    for key in ("p1", "p2"):
        run.attempt(key, lambda t, step: t.cancel_step(step))
    assert run.status == "canceled"
    assert sum(b'"step.canceled"' in line for line in run.lines) == 2
    assert equal(run, book_of)


def test_a_lost_lease_changes_nothing(simulate: Any, book_of: Any) -> None:
    run = began(simulate, 2)
    run.attempt("p1", lambda t, step: t.expire_lease(step))
    run.settle_all()
    run.succeed("p0")
    run.settle_all()
    assert run.status == "succeeded"
    assert equal(run, book_of)


def test_the_fold_alone_gives_every_row_of_the_run(simulate: Any, book_of: Any) -> None:
    run = simulate(beside(3)).settle_all(max)
    book = book_of(run, writes_of)
    folded = past_of(book.first, book.events, book.graphs).run
    assert {**folded.past, **folded.steps} == run.rows
    assert (str(folded.status), folded.superstep, folded.state) == (run.status, 1, run.state)


def test_a_value_that_is_not_the_one_of_its_line_is_never_folded(simulate: Any) -> None:
    run = simulate(beside(1)).settle_all()
    (seq,) = [seq for seq, values in run.values.items() if "output" in values]
    forged = {**run.values[seq], "output": {"name": "forged"}}
    with pytest.raises(ConsistencyError, match=f"line {seq} .step.succeeded. commits to other values"):
        read_line(run.lines[seq], forged, b"k" * 32, seq)
    with pytest.raises(ConsistencyError, match="commits to other values"):
        read_line(run.lines[seq], {}, b"k" * 32)


def told_at(run: Any, place: int) -> Any:
    """End a step on a book that has grown by so many foreign lines meanwhile; what it writes."""
    view = run.view()
    head = replace(view.head, count=view.head.count + place, hash=f"{place:064x}")
    transition = Transition(replace(view, head=head, version=view.version + place), run.workflow.graph)
    transition.succeed(run.rows["p0"], {"name": "a"}, {"seen": "a"})
    return transition.commit()


def test_what_is_told_of_a_step_does_not_depend_on_its_place(simulate: Any) -> None:
    run = began(simulate, 2)
    here, there = told_at(run, 0), told_at(run, 7)
    assert here.lines
    assert (here.lines, here.values) == (there.lines, there.values)


def test_the_values_of_one_line_are_not_those_of_another(simulate: Any) -> None:
    """Not even where the two lines say the same: each commits to its own."""
    run = began(simulate, 2)
    for key in ("p0", "p1"):
        run.succeed(key, {"name": "same"})
    one, two = (seq for seq, values in run.values.items() if "output" in values)
    assert run.values[one] == run.values[two]
    digests = [orjson.loads(run.lines[seq])["data"]["values"] for seq in (one, two)]
    assert digests[0] != digests[1], "equal values are seen to be equal"
    swapped = run.lines[one].replace(digests[0].encode(), digests[1].encode())
    with pytest.raises(ConsistencyError, match="commits to other values"):
        read_line(swapped, run.values[one], b"k" * 32)


def test_no_public_fact_is_called_like_what_an_append_adds_to_a_line() -> None:
    """Else the name of its event would not hold that fact."""
    public = {
        name
        for cls in EVENTS.values()
        for name, declared in cls.__annotations__.items()
        if not declared.startswith("Private[")
    }
    assert not public & {"values", "receipt_digest", "state", "count"}
    assert "reason_given" in public


def change(book: Any, kind: type, **changes: Any) -> Any:
    """The book with the first event of this kind changed, as somebody with the run's key could do it."""
    at = next(n for n, told in enumerate(book.events) if isinstance(told.event, kind))
    told = [*book.events]
    told[at] = replace(told[at], event=replace(told[at].event, **changes))
    return replace(book, events=told)


def without(book: Any, kind: type, number: int = 0) -> Any:
    at = [n for n, told in enumerate(book.events) if isinstance(told.event, kind)][number]
    return replace(book, events=[*book.events[:at], *book.events[at + 1 :]])


def judged(book: Any, outcome: str) -> Any:
    """The book with a recorded allow before its last event; its policy says this today."""
    last = book.events[-1]
    made = DecisionMade(UUID(int=1), "0" * 64, "probe.value.read", "allow", None, ["may"], [])
    told = replace(last, event=made, step="p0", actor=Actor("policy", "p@1"))
    return replace(book, events=[*book.events[:-1], told, last], judge=lambda _: (outcome, ["may"]))


def ended(number: int, kind: WaitKind, status: str = "completed", key: str = "a", **result: Any) -> WaitRow:
    return WaitRow(UUID(int=number), UUID(int=7), key, kind, WaitState(status), "t", result=result or None)


def test_a_decision_is_made_once_more(simulate: Any, book_of: Any) -> None:
    book = judged(book_of(simulate(beside(2)).settle_all(), writes_of), "allow")
    assert len(list(replay(book))) == 2


CUTS = {
    "a decision that its policy would not make": (lambda b: judged(b, "deny"), "judged allow; .* it is deny"),
    "a write that its expression does not give": (lambda b: change(b, StepSucceeded, values={"seen": "x"}), "wrote"),
    "an output that its expressions read otherwise": (lambda b: change(b, StepSucceeded, output={"name": 1}), "wrote"),
    "a step that never started": (lambda b: without(b, StepStarted), "step.succeeded"),
    "a checkpoint that is not recorded": (lambda b: without(b, CheckpointCommitted, 0), "p0, which is not open"),
    "a checkpoint of another number": (
        lambda b: change(b, CheckpointCommitted, number=5), "checkpoint 5 is not the one that was recorded",
    ),
    "a checkpoint of another state": (lambda b: change(b, CheckpointCommitted, digest="0" * 64), "not the one"),
    "a step that nobody knows": (
        lambda b: replace(
            b, events=[*b.events, RecordedEvent(StepStarted("x", 0, 1), Actor("w", "w"), b.events[0].at, "x", 99)]
        ),
        "not open",
    ),
    "an output that the expressions cannot read": (lambda b: change(b, StepSucceeded, output={}), "follow"),
}  # fmt: skip


@pytest.mark.parametrize("what", CUTS)
def test_a_book_that_cannot_be_followed_says_where(simulate: Any, book_of: Any, what: str) -> None:
    cut, words = CUTS[what]
    cut_it: Any = cut
    book = cut_it(book_of(simulate(beside(2)).settle_all(), writes_of))
    assert isinstance(book.events[0].event, RunOpened)
    with pytest.raises(Divergence, match=words):
        list(replay(book))
