"""Rows of a commit that others read: shared effects, counters, questions that change, and what retention leaves."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from connectors.port import Done, InDoubt, Parked, Refused
from core.identity import Contributor, Role
from core.terms import Tier
from evidence.chain import Actor
from runtime.engine import waits
from runtime.engine.contributors import added_by, mark, parted, refusal
from runtime.engine.instructions import open_wait
from runtime.engine.past import REMOVED, emptied, past_of, questions, step_rows
from runtime.engine.replaying import unopened
from runtime.engine.run import State
from runtime.engine.told import read_line
from runtime.engine.transition import Transition
from tests.engine.conftest import KEY, NOW, RUN_ID
from tests.engine.governing import ASK, CASE, EFFECT, HEAD, TICKET, WRITE, Governed, governed
from tests.engine.test_sharing import SHARED_CASE, begun, known_as, later

TASK = HEAD + (
    "  - {id: a, task: {title: 'Look at ${{ state.n }}', form: {type: object, properties: {x: {type: string}}},"
    " assign: {group: owners}}}\n"
)


def past(run: Governed) -> Any:
    book = [read_line(line, run.values.get(n, {}), KEY, n) for n, line in enumerate(run.lines)]
    return past_of(unopened(RUN_ID, KEY, run.workflow.graph), book, [run.workflow.graph])


@pytest.mark.req("Q-15")
def test_a_shared_effect_moves_its_row_with_each_append() -> None:
    run = governed(TICKET, said=(Done({}),))
    moves: list[Any] = []

    class Watched(Governed):
        def apply(self, transition: Transition) -> Any:
            commit = super().apply(transition)
            moves.extend((str(row.status), row.key != "") for row in commit.effects)
            return commit

    run.__class__ = Watched
    run.drive()
    assert moves == [("intended", True), ("succeeded", True)]
    alone = governed(EFFECT)
    alone.__class__ = Watched
    moves.clear()
    alone.drive()
    assert moves == []


@pytest.mark.req("Q-15")
@pytest.mark.parametrize("leaf", [None, "P1D"])
def test_who_joins_waits_as_long_as_its_own_step_says(leaf: str | None) -> None:
    text = (
        SHARED_CASE if leaf is None else SHARED_CASE.replace("with: {name: x}", f"with: {{name: x}}, timeout: {leaf}")
    )
    run = later(known_as(begun()), text)
    assert run.waits["a"].due_in == timedelta(days=14 if leaf is None else 1)
    ticket = governed(TICKET, said=(Done({}),)).drive(dies=True)
    assert later(known_as(ticket), TICKET).waits["a"].due_in is None


@pytest.mark.req("Q-19")
def test_a_call_without_an_outcome_is_tried_so_often_where_nothing_can_have_happened() -> None:
    text = EFFECT.replace("probe.effect.apply", "probe.value.read")
    run = governed(text, said=(InDoubt("away"),) * 9)
    for attempt in range(1, 9):
        run.drive()
        if run.finished:
            break
        assert run.rows["a"].attempt == attempt
        run.due()
    error = run.rows["a"].last_error or {}
    assert run.status == "failed_terminal"
    assert error["message"] == f"away ({attempt} attempts were made)"


def test_a_task_that_would_ask_something_else_is_put_anew() -> None:
    text = TASK.replace("steps:\n", "channels: {n: {initial: 1}}\nsteps:\n", 1)
    run = governed(text).drive()
    transition = Transition(run.view(), run.workflow.graph)
    wait = open_wait(transition.run, "a")
    assert wait is not None
    assert (wait.context or {})["title"] == "Look at 1"
    assert waits.still_asks(transition, run.rows["a"], wait)
    for name in ("title", "description"):
        other = replace(wait, context={**(wait.context or {}), name: "other"})
        assert not waits.still_asks(transition, run.rows["a"], other)
    orders = len(run.commands)
    run.over("a", lambda t, s, open_: waits.ask_anew(t, s, open_, Actor("engine", "counterseal")))
    assert (run.waits["a"].status, run.rows["a"].status) == ("canceled", "ready")
    assert len(run.commands) == orders + 1
    run.drive()
    assert open_wait(run.view().run, "a") is not None


def test_a_wait_outside_that_takes_too_long_is_ended_there() -> None:
    run = governed(CASE, said=(Parked("case-1"),)).drive().over("a", waits.time_out)
    assert [command.kind for command in run.commands.values()] == ["cancel"]
    assert run.rows["a"].status == "ready"


@pytest.mark.req("Q-15")
def test_retention_leaves_who_did_what_when_and_no_words() -> None:
    run = governed(WRITE, ASK).drive().answer("ana", "ben").drive()
    steps, receipts, extensions = emptied(past(run))
    assert (steps[0]["output"], steps[0]["status"], extensions) == (None, "succeeded", [])
    (receipt,) = receipts
    assert receipt["error"] == {
        "class": "consistency",
        "code": "output_removed",
        "message": "This effect was done before; retention has removed its result.",
    }
    assert (receipt["output"], receipt["reverse"], receipt["resolution"]) == (None, None, None)
    assert (receipt["action"]["input"], receipt["action"]["before"], receipt["action"]["summary"]) == (
        {},
        None,
        REMOVED,
    )
    assert (receipt["status"], receipt["external_id"], receipt["target"]) == ("succeeded", "e1", "record/x")
    ((asked),) = questions(past(run)).values()
    shown = asked["shown"]
    assert (shown["title"], shown["summary"], shown["target"], shown["changes"], shown["inputs"]) == (
        REMOVED,
        REMOVED,
        "",
        (),
        (),
    )
    assert (asked["requester"], asked["nonce"], shown["operation"]) == ("someone", "n1", "probe.record.update")


@pytest.mark.req("Q-15")
@pytest.mark.parametrize(
    ("said", "error"),
    [
        (Refused("422", "secret words"), {"class": "transport", "code": "422", "message": REMOVED}),
        (Done({}), None),
    ],
)
def test_retention_takes_the_words_of_an_error(said: Any, error: Any) -> None:
    steps, (receipt,), _ = emptied(past(governed(EFFECT, said=(said,)).drive()))
    assert receipt["error"] == error
    wanted = None if error is None else {"class": "transport", "code": "422"}
    assert steps[0]["last_error"] == wanted


def test_a_step_that_waits_for_its_next_attempt_says_when_that_is() -> None:
    run = governed(EFFECT, said=(InDoubt("away"),)).drive()
    (row,) = step_rows(past(run))
    assert (row["status"], row["next_eligible_at"]) == ("failed_retryable", NOW + timedelta(seconds=5))
    (over,) = step_rows(past(governed(EFFECT).drive()))
    assert over["next_eligible_at"] is None


def test_nobody_is_asked_where_a_part_was_nobodys() -> None:
    known, stranger = (Contributor(Role.UPDATER, name, person) for name, person in (("os:a", "a"), ("os:b", None)))
    assert not refusal([known], Tier.HIGH)
    words = refusal([known, stranger], Tier.HIGH)
    assert words is not None
    assert words.startswith("'os:b' ")
    assert "At tier high nobody is asked then" in words


def test_a_step_that_somebody_added_is_theirs() -> None:
    state = State({})
    state.shaped["added.x"] = [mark(Role.STEP_ADDER, "person:ana", "x")]
    assert (added_by(state, "loop[0].x"), added_by(state, "y")) == ("person:ana", "")
    assert parted(state.shaped["added.x"][0]) == (Role.STEP_ADDER, "x", "person:ana")
