"""Each move of a step and of a run as it is told: all of its event, by whom, and what follows at once (X-15)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from core.errors import CountersealError, ExpressionError, InputError
from evidence.chain import Actor
from evidence.commitments import commit_fields
from runtime.engine import events as e
from runtime.engine.commit import StepRow, wait_of
from runtime.engine.graph import NO_GRAPH
from runtime.engine.run import Run
from runtime.engine.states import RunState, StepState, WaitKind
from runtime.engine.transition import Transition, fail_expression
from tests.engine.conftest import KEY, RUN_ID
from tests.engine.test_drafts import view_of
from tests.engine.test_folds import ANN, ERROR, READY, RUNNING, V, W, run_of, step, wait

pytestmark = pytest.mark.req("X-15")

ROW = replace(step("a"), attempt=3, lease_epoch=7, lease_owner="w1")
ENGINE = ("engine", "counterseal")
USAGE: Any = {"cost_usd": "0.01"}


def transition(*rows: Any, **more: Any) -> Transition:
    """A transition of a run in which another step still executes, so that no barrier is crossed."""
    run = run_of(*(rows or (ROW, step("other"))), executing=2, **more)
    return Transition(view_of(run), NO_GRAPH)


def told(move: Callable[[Transition], object], made: Transition | None = None) -> Any:
    """The one event that a move tells, its step and its actor."""
    made = made or transition()
    move(made)
    (one,) = made._told
    return one.event, one.step, (one.actor.kind, one.actor.id)


OWN = wait_of(RUN_ID, ROW)
SPANS: Any = [(None, None), (timedelta(0), 0), (timedelta(seconds=5), 5), (timedelta(milliseconds=1500), 1.5)]


@pytest.mark.parametrize(("span", "due"), SPANS)
@pytest.mark.parametrize("context", [None, {}, {"c": 1}])
@pytest.mark.parametrize("given", [None, V])
@pytest.mark.parametrize(("correlation", "error"), [(None, None), ("k", ERROR)])
def test_a_step_parks_with_all_that_its_wait_needs(
    span: Any, due: Any, context: Any, given: UUID | None, correlation: Any, error: Any
) -> None:
    def park(made: Transition) -> None:
        made.park(ROW, WaitKind.TASK, "t1", span, context, correlation, wait=given, error=error)

    parked = e.StepParked(given or OWN, WaitKind.TASK, False, due, "t1", context or None, correlation, error)
    assert told(park) == (parked, "a", ENGINE)
    made = transition()
    park(made)
    assert made.run.waits[given or OWN].due_in == span


@pytest.mark.parametrize(("span", "due"), SPANS[1:])
@pytest.mark.parametrize("attempted", [None, True, False])
@pytest.mark.parametrize("usage", [None, USAGE])
def test_a_retry_is_told_with_its_delay_its_attempts_and_what_it_cost(
    span: timedelta, due: Any, attempted: bool | None, usage: Any
) -> None:
    more = {} if attempted is None else {"attempted": attempted}
    scheduled = e.StepRetryScheduled(OWN, 3 if attempted is False else 4, int(due), usage, due, ERROR)
    assert told(lambda made: made.retry_later(ROW, span, ERROR, usage, **more)) == (scheduled, "a", ENGINE)


FAILURES: Any = [
    (ERROR, "transport", "x"),
    ({"class": "transport"}, "transport", None),
    ({"code": "x"}, None, "x"),
    ({"message": "No."}, None, None),
    ({"class": 1, "code": 422}, "1", "422"),
    ({"class": None, "code": None}, None, None),
]


@pytest.mark.parametrize(("error", "kind", "code"), FAILURES)
@pytest.mark.parametrize("usage", [None, USAGE])
def test_a_failure_is_told_by_its_class_and_code_if_it_has_them(error: Any, kind: Any, code: Any, usage: Any) -> None:
    failed = e.StepFailed(kind, code, usage, error)
    assert told(lambda made: made.fail(ROW, error, usage)) == (failed, "a", ENGINE)
    paid = replace(ROW, usage=USAGE)  # what an earlier attempt has cost is told already
    assert told(lambda made: made.give_up(paid, error)) == (replace(failed, usage=None), "a", ENGINE)


@pytest.mark.parametrize("writes", [{}, {"n": 1, "m": None, "$reference": "R2"}])
@pytest.mark.parametrize("usage", [None, USAGE])
@pytest.mark.parametrize("output", [None, 0, {"x": 1}])
def test_a_success_is_told_with_the_names_of_its_writes_in_order(writes: Any, usage: Any, output: Any) -> None:
    names = ["m", "n"] if writes else []
    succeeded = e.StepSucceeded([*names], usage, output, writes or None)
    assert told(lambda made: made.succeed(ROW, output, writes, usage)) == (succeeded, "a", ENGINE)


@pytest.mark.parametrize(("output", "writes"), [({"n": 2**60}, {}), ({}, {"n": [2**60]})])
def test_a_success_that_no_line_can_hold_is_a_failure_with_what_it_cost(output: Any, writes: Any) -> None:
    event, key, _ = told(lambda made: made.succeed(ROW, output, writes, USAGE))
    assert (event.kind, event.code, event.usage, key) == ("transport", "unusable_output", USAGE, "a")
    assert "Integer exceeds 53-bit range" in event.detail["message"]


@pytest.mark.parametrize(("owner", "named"), [("w1", "w1"), (None, "?"), ("", "?")])
def test_a_lease_is_told_as_it_is_taken_and_as_it_runs_out(owner: str | None, named: str) -> None:
    row = replace(ROW, lease_owner=owner)
    started = e.StepStarted("probe.effect.apply", 3, 7)
    ready = transition(replace(row, status=READY), step("other"))
    assert told(lambda made: made.started(row), ready) == (started, "a", ("worker", named))
    made = transition(replace(row, status=READY), step("other"))
    assert made.started(row) is made.run.steps["a"]
    assert made.run.steps["a"].status is RUNNING
    for error in (None, ERROR):
        made = transition(row, step("other"))
        expired = e.LeaseExpired(7, named, error)

        def expire(made: Transition, error: Any = error) -> None:
            made.expire_lease(row, error)

        assert told(expire, made) == (expired, "a", ENGINE)
        assert made.rows.requeued == ["a"]


def test_a_step_that_was_parked_before_is_parked_on_that_wait_and_resumed_by_its_end() -> None:
    on = transition(ROW, step("other"), wait(V, kind=WaitKind.EXTERNAL))
    parked = e.StepParked(V, WaitKind.EXTERNAL, known=True)
    assert told(lambda made: made.park_on(ROW, V, WaitKind.EXTERNAL), on) == (parked, "a", ENGINE)
    asleep = transition(replace(ROW, status=StepState.WAITING), step("other"), parked={"a": f"wait:{V}"})
    over = wait(V)
    assert told(lambda made: made.resume(ROW, over), asleep) == (e.StepResumed(f"resume:{V}"), "a", ENGINE)
    assert told(lambda made: made.cancel_step(ROW)) == (e.StepCanceled(), "a", ENGINE)


ERRORS: Any = [
    (ExpressionError("has no value", where="state.n"), "expression"),
    (InputError("is no object", where="with"), "definition"),
    (CountersealError("is odd"), "definition"),
]


@pytest.mark.parametrize(("error", "kind"), ERRORS)
def test_an_expression_that_fails_is_told_apart_from_an_action_that_cannot_be_built(error: Any, kind: str) -> None:
    event, key, _ = told(lambda made: fail_expression(made, ROW, error))
    assert (event.kind, event.code, key) == (kind, error.code, "a")
    assert event.detail["message"] == str(error)


def test_what_leaves_a_super_step_last_crosses_its_barrier() -> None:
    moves: list[tuple[Callable[[Transition], object], Any]] = [
        (lambda t: t.park(ROW, WaitKind.TIMER, "t"), {}),
        (lambda t: t.park_on(ROW, V, WaitKind.EXTERNAL), {}),
        (lambda t: t.retry_later(ROW, timedelta(seconds=1), ERROR), {}),
        (lambda t: t.cancel_step(ROW), {"canceling": {"by": "x", "reason": ""}}),
    ]
    for move, more in moves:
        rows = (ROW, wait(V, kind=WaitKind.EXTERNAL), wait(W, key="other"))
        run = run_of(*rows, executing=1, **more)
        made = Transition(view_of(run), NO_GRAPH)
        move(made)
        assert "checkpoint.committed" in [str(one.event.TYPE) for one in made._told]


def planned(*keys: str, known: tuple[str, ...] = ()) -> Transition:
    """A transition that has planned these steps beside those that were there."""
    made = transition(*(step(key, READY) for key in known), step("other"))
    made.run.steps |= {key: step(key, READY) for key in keys}
    return made


@pytest.mark.parametrize(
    ("made", "taken"),
    [
        (planned("z", "b"), "z"),
        (planned("b", known=("a",)), "b"),
        (planned(known=("a", "z")), None),
        (planned(), None),
    ],
)
def test_a_worker_takes_the_first_step_that_was_planned_and_none_that_others_can_claim(
    made: Transition, taken: str | None
) -> None:
    found = made.take("w9", "other")
    assert (found and found.key) == taken
    assert made.rows.taken == ({} if taken is None else {taken: "other"})


# -- cancelation -------------------------------------------------------------------------------------------------------


def canceling(reason: str, *rows: StepRow, **more: Any) -> tuple[list[Any], Run]:
    made = Transition(view_of(run_of(*rows, executing=len(rows), **more)), NO_GRAPH)
    made.cancel(Actor("token", "t1"), reason)
    return [(one.event, one.step, one.actor.id) for one in made._told], made.run


LEFT_BEHIND = replace(step("left", READY), idempotency_key="k")
TRIED = replace(step("tried", READY), attempt=2)
JOINED = step("joined", READY, 4)


@pytest.mark.parametrize("reason", ["", "Enough."])
@pytest.mark.parametrize("under_way", [step("runs"), LEFT_BEHIND])
def test_a_cancel_ends_what_has_not_begun_and_waits_for_what_may_be_under_way(reason: str, under_way: StepRow) -> None:
    found, run = canceling(reason, under_way, TRIED, JOINED, step("ready", READY))
    committed = [*commit_fields(KEY, "/cancel", {"reason": reason})] if reason else None
    assert found == [
        (e.RunCanceled(bool(reason), committed, reason), None, "t1"),
        (e.StepCanceled(), "tried", "counterseal"),
        (e.StepCanceled(), "ready", "counterseal"),
    ]
    assert (run.status, run.canceling) == (RunState.RUNNING, {"by": "t1", "reason": reason})


def test_the_first_reason_to_cancel_is_the_one_that_is_kept() -> None:
    found, run = canceling("Once more.", step("runs"), canceling={"by": "ann", "reason": "First."})
    assert found == [(e.RunCanceled(True, None, ""), None, "t1")]
    assert run.canceling == {"by": "ann", "reason": "First."}


ASKS = step("asks", StepState.WAITING_APPROVAL)


@pytest.mark.parametrize("rows", [(), (TRIED,), (JOINED,), (step("waits", StepState.WAITING),), (ASKS, TRIED)])
def test_a_cancel_ends_a_run_of_which_nothing_is_under_way(rows: tuple[StepRow, ...]) -> None:
    found, run = canceling("Enough.", *rows, parked={row.key: f"approval:{W}" for row in rows if row is ASKS})
    assert [str(event.TYPE) for event, _, _ in found] == ["run.canceled", *["step.canceled"] * len(rows), "run.closed"]
    assert (run.status, run.error) == (
        RunState.CANCELED, {"class": "canceled", "message": "Enough.", "by": "t1"},
    )  # fmt: skip


def test_whoever_extends_a_run_is_told() -> None:
    made = transition()
    event = e.RunExtended(1, ["b"], ["#b"], {}, {})
    assert told(lambda made: made.extend(event, ANN), made) == (event, None, ("person", "ann"))
