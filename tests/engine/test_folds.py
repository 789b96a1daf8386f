"""The change that one event makes in a run: everything that is another value afterwards (promise 6)."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from approvals.model import ApprovalKind
from core.canonical import digest
from core.errors import ConsistencyError
from evidence.chain import Actor
from evidence.receipts import ReceiptStatus, Resolution
from runtime.engine import events as e
from runtime.engine.agent_chat import said_of
from runtime.engine.agent_state import Agent, Called, Came, Spoken, Stage
from runtime.engine.commit import ApprovalMove, ApprovalRow, ReceiptRow, StepRow, WaitRow, step_id_of, wait_of
from runtime.engine.fold import fold, of_agents
from runtime.engine.graph import NO_GRAPH, Channel
from runtime.engine.replaying import unopened
from runtime.engine.run import Run
from runtime.engine.states import RunState, StepState, WaitKind, WaitState
from runtime.engine.told import Told
from tests.engine.conftest import KEY, NOW, RUN_ID

pytestmark = pytest.mark.req("X-15")

ANN, LATER = Actor("person", "ann"), NOW + timedelta(seconds=9)
W, V, A, R = (UUID(int=number) for number in range(1, 5))
S = step_id_of(RUN_ID, "a")
ERROR: dict[str, Any] = {"class": "transport", "code": "x", "message": "No."}
READY, RUNNING, WAITING, ASKS, RETRIES = (
    StepState.READY,
    StepState.RUNNING,
    StepState.WAITING,
    StepState.WAITING_APPROVAL,
    StepState.FAILED_RETRYABLE,
)


def step(key: str = "a", status: StepState = RUNNING, superstep: int = 3, **more: Any) -> StepRow:
    return StepRow(step_id_of(RUN_ID, key), key, 0, "probe.effect.apply", superstep, status, lease_epoch=2, **more)


def wait(number: UUID = W, key: str = "a", kind: WaitKind = WaitKind.TIMER, **more: Any) -> WaitRow:
    return WaitRow(number, step_id_of(RUN_ID, key), key, kind, more.pop("status", WaitState.WAITING), "t", **more)


def receipt(status: ReceiptStatus = ReceiptStatus.INTENDED, key: str = "a") -> ReceiptRow:
    return ReceiptRow(
        receipt_id=R, step_key=key, operation="probe.effect.apply", target="t", idempotency_key="k", action_digest="d",
        action={"approval": None, "terms": {"old": 1}}, status=status, attempt=1, lease_epoch=1, reversible=False,
        reverse=None, intended_at=NOW, run_id=RUN_ID, error=ERROR,
    )  # fmt: skip


def approval(kind: str = "action", key: str = "a", number: UUID = A) -> ApprovalRow:
    return ApprovalRow(
        number, step_id_of(RUN_ID, key), key, kind, "d", "n", "low", {}, "ann", {}, None, timedelta(hours=1)
    )


def run_of(*rows: Any, status: RunState = RunState.RUNNING, executing: int = 1, **more: Any) -> Run:
    """A run in super-step 3 with these rows."""
    run = unopened(RUN_ID, KEY, NO_GRAPH)
    run.status, run.superstep, run.executing, run.width, run.checkpointed = status, 3, executing, 2, True
    for row in rows:
        match row:
            case StepRow():
                run.steps[row.key] = row
            case WaitRow():
                run.waits[row.wait_id] = row
            case ReceiptRow():
                run.receipts[row.receipt_id] = row
            case ApprovalRow():
                run.approvals[row.approval_id] = row
                run.answers[row.approval_id] = ApprovalMove(row.approval_id, "requested")
    run.state.open = [row.key for row in rows if isinstance(row, StepRow) and row.status in (READY, RUNNING)]
    for name, value in more.items():
        setattr(run if name in Run.__struct_fields__ else run.state, name, value)
    return run


def flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict) and value:
        return {place: leaf for name, item in value.items() for place, leaf in flat(item, f"{path}.{name}").items()}
    return {path[1:]: value}


def changes(run: Run, event: e.Event, key: str | None = "a", actor: Actor = ANN) -> dict[str, Any]:
    """The values of a run that are others after the event, by their places; None for what is not there any more."""
    before = flat(to_builtins(run, str_keys=True))
    after = flat(to_builtins(fold(run, Told(event, actor, LATER, key), NO_GRAPH), str_keys=True))
    places = [place for place in {**before, **after} if before.get(place) != after.get(place) or place not in before]
    told = [place for place in places if not place.startswith("times") and not _is_within(place, before, after)]
    return {place: after.get(place) for place in told}


def _is_within(place: str, before: dict[str, Any], after: dict[str, Any]) -> bool:
    """True for a place of which more, or less, is told by another one."""
    parents = [place[:at] for at, letter in enumerate(place) if letter == "."]
    return any(parent in after for parent in parents) or (
        place in before and any(other.startswith(f"{place}.") for other in after)
    )


def iso(seconds: float) -> str:
    return str(to_builtins(timedelta(seconds=seconds)))


OUT = {"state.open": [], "executing": 0}
FAILS = {f"steps.a.last_error.{name}": value for name, value in ERROR.items()}

# -- steps -------------------------------------------------------------------------------------------------------------


def test_a_step_that_begins_has_its_worker_and_starts_a_run_that_was_queued() -> None:
    event, worker = e.StepStarted("probe.effect.apply", 0, 7), Actor("worker", "w9")
    row = step(status=READY, eligible_in=timedelta(1))
    began = {"steps.a.status": "running", "steps.a.lease_owner": "w9", "steps.a.lease_epoch": 7,
             "steps.a.eligible_in": None}  # fmt: skip
    assert changes(run_of(row), event, actor=worker) == began
    assert changes(run_of(row, status=RunState.QUEUED), event, actor=worker) == {**began, "status": "running"}
    with pytest.raises(ConsistencyError, match=r"step\.started is about the step b, which is not open"):
        changes(run_of(row), event, "b")
    with pytest.raises(ConsistencyError, match="about the step b, which is not open"):
        changes(run_of(row, past={"b": step("b", READY)}), event, "b")


@pytest.mark.parametrize(
    ("row", "left"),
    [
        (step(), OUT),
        (step(superstep=4), {"state.open": []}),
    ],
)
def test_a_step_that_succeeds_has_its_output_its_writes_and_what_it_cost(row: StepRow, left: Any) -> None:
    run = run_of(replace(row, last_error=ERROR), step("b", READY), executing=1)
    left = {name: ["b"] if name == "state.open" else value for name, value in left.items()}
    found = changes(run, e.StepSucceeded(["n"], {"tokens": 1}, {"o": 1}, {"n": 2}))
    assert found == {
        **left, "steps.a.status": "succeeded", "steps.a.output.o": 1, "steps.a.writes.n": 2,
        "steps.a.usage.tokens": 1, "steps.a.last_error": None,
    }  # fmt: skip
    plain = run_of(row)
    changes(plain, e.StepSucceeded([]))
    assert (plain.steps["a"].output, plain.steps["a"].writes, plain.steps["a"].usage) == (None, {}, None)


@pytest.mark.parametrize(
    ("row", "left"),
    [
        (step(), OUT),
        (step(status=WAITING, superstep=1), {}),
        (step(status=ASKS, superstep=3), {}),
        (step(status=RETRIES, superstep=2, eligible_in=timedelta(1)), {}),
    ],
)
def test_a_step_that_fails_joins_the_super_step_in_which_it_failed(row: StepRow, left: Any) -> None:
    run = run_of(row, parked={"a": "wait:1", "b": "wait:2"}, executing=1)
    found = changes(run, e.StepFailed("transport", "x", None, ERROR))
    moved = {} if row.superstep == 3 else {"steps.a.superstep": 3}
    due = {} if row.eligible_in is None else {"steps.a.eligible_in": None}
    assert found == {**left, **moved, **due, **FAILS, "steps.a.status": "failed_terminal", "state.parked.a": None}


@pytest.mark.parametrize(("code", "counted"), [("policy_denied", 1), ("rejected", 0), (None, 0)])
@pytest.mark.parametrize("key", ["a", "each[2].a", "b/1/1"])
def test_a_step_that_policy_denied_is_counted_and_its_error_is_known_without_its_values(
    code: str | None, counted: int, key: str
) -> None:
    run = run_of(step(key))
    changes(run, e.StepFailed("authorization", code), key)
    lost = "What happened cannot be told: the key of this run is lost."
    assert (run.refused, run.steps[key].last_error) == (
        counted,
        {"class": "authorization", "code": code, "message": lost},
    )


@pytest.mark.parametrize(
    ("kind", "status", "parked"),
    [
        (WaitKind.APPROVAL, "waiting_approval", "approval"),
        *((kind, "waiting", "wait") for kind in WaitKind if kind not in (WaitKind.APPROVAL, WaitKind.RETRY)),
    ],
)
def test_a_step_that_parks_opens_its_wait_and_leaves_its_worker(kind: WaitKind, status: str, parked: str) -> None:
    row = step(lease_owner="w")
    own = wait_of(RUN_ID, row)
    moved = {**OUT, "steps.a.status": status, "steps.a.lease_owner": None, "state.parked.a": f"{parked}:{own}"}
    found = changes(run_of(row), e.StepParked(W, kind, False, 60, "tok", {"c": 1}, "key", ERROR))
    opened = {"wait_id": str(W), "step_id": str(S), "step_key": "a", "kind": str(kind), "status": "waiting",
              "token": "tok", "due_in": iso(60), "context.c": 1, "correlation_key": "key", "result": None,
              "parked": True, "left": False}  # fmt: skip
    assert found == {
        **moved, **FAILS, **{f"waits.{W}.{name}": value for name, value in opened.items()},
    }  # fmt: skip
    plain = run_of(replace(row, last_error=ERROR))
    changes(plain, e.StepParked(W, kind))
    assert plain.steps["a"].last_error is None, "what was wrong before is not what it waits for"
    assert plain.waits[W] == WaitRow(W, S, "a", kind, WaitState.WAITING, "", None, {}, None)


def test_a_step_parks_on_the_wait_that_was_opened_before() -> None:
    run = run_of(step(), wait(parked=False), wait(V, "b", parked=False))
    found = changes(run, e.StepParked(W, WaitKind.EXTERNAL, known=True))
    assert found[f"waits.{W}.parked"] is True
    assert {place for place in found if place.startswith("waits")} == {f"waits.{W}.parked"}


@pytest.mark.parametrize(("due", "seconds"), [(None, 5), (4.25, 4.25), (0, 0)])
def test_a_step_that_is_tried_again_waits_for_its_time(due: float | None, seconds: float) -> None:
    run = run_of(step(lease_owner="w", attempt=1))
    changes(run, e.StepRetryScheduled(W, 2, 5, None, due, ERROR))
    span = timedelta(seconds=seconds)
    assert run.waits == {
        W: WaitRow(W, S, "a", WaitKind.RETRY, WaitState.WAITING, str(W), span, {"attempt": 2, "error": ERROR})
    }
    row = step(status=RETRIES, attempt=2, last_error=ERROR, eligible_in=span)
    assert (run.steps["a"], run.state.open, run.executing) == (row, [], 0)
    assert run.state.parked == {"a": f"retry:{wait_of(RUN_ID, step())}"}


@pytest.mark.parametrize(
    ("status", "executing", "after"),
    [
        (RunState.WAITING, 0, "running"),
        (RunState.WAITING_APPROVAL, 0, "running"),
        (RunState.FAILED_RETRYABLE, 0, "running"),
        (RunState.RUNNING, 0, "running"),
        (RunState.RUNNING, 1, "running"),
        (RunState.WAITING, 1, "waiting"),
    ],
)
@pytest.mark.parametrize("superstep", [2, 3])
def test_a_step_that_goes_on_joins_the_next_super_step_and_ends_the_wait_that_is_named(
    status: RunState, executing: int, after: str, superstep: int
) -> None:
    row = step(status=WAITING, superstep=superstep, eligible_in=timedelta(1))
    run = run_of(row, wait(), wait(V), status=status, executing=executing, parked={"a": "retry:1", "b": "wait:2"})
    found = changes(run, e.StepResumed(f"resume:{W}"))
    reason = {"state.parked.a": f"wait:{wait_of(RUN_ID, row)}"} if superstep == 3 else {}
    moved = {} if after == status else {"status": after}
    assert found == {
        "steps.a.status": "ready", "steps.a.superstep": 4, "steps.a.eligible_in": None,
        f"waits.{W}.status": "completed", **reason, **moved,
    }  # fmt: skip
    for kind in WaitKind:
        run = run_of(step(status=WAITING), wait(kind=kind), wait(V, kind=kind), executing=1)
        changes(run, e.StepResumed(f"resume:{W}"))
        assert [run.waits[number].status for number in (W, V)] == [WaitState.COMPLETED, WaitState.WAITING]
    for ended in (WaitState.COMPLETED, WaitState.TIMED_OUT, WaitState.CANCELED):
        run = run_of(step(status=WAITING), wait(status=ended), executing=1)
        changes(run, e.StepResumed(f"resume:{W}"))
        assert (run.waits[W].status, run.state.parked) == (ended, {})


@pytest.mark.parametrize(("superstep", "left"), [(3, 1), (4, 2)])
def test_a_step_of_the_next_super_step_that_ends_was_never_a_part_of_this_one(superstep: int, left: int) -> None:
    run = run_of(step(status=READY, superstep=superstep), step("b"), executing=2)
    changes(run, e.StepCanceled())
    assert (run.executing, run.state.open) == (left, ["b"])


def test_a_step_that_is_set_back_stays_and_counts() -> None:
    run = run_of(step(last_error=ERROR, lease_owner="w"))
    changes(run, e.StepSetBack(3))
    assert run.steps["a"] == step(last_error={"setbacks": 3}, lease_owner="w")
    changes(run, e.StepSetBack(4, {"setbacks": 4, "code": "y"}))
    assert run.steps["a"].last_error == {"setbacks": 4, "code": "y"}


def test_a_step_that_is_canceled_ends_its_open_waits_and_no_others() -> None:
    over, opened = wait(UUID(int=8), status=WaitState.COMPLETED), wait(UUID(int=9), parked=False)
    rows = (wait(due_in=timedelta(1)), wait(V, "b"), over, opened)
    run = run_of(step(lease_owner="w"), *rows, parked={"a": "x", "b": "y"})
    assert changes(run, e.StepCanceled()) == {
        **OUT, "steps.a.status": "canceled", "steps.a.lease_owner": None, "state.parked.a": None,
        f"waits.{W}.status": "canceled", f"waits.{W}.due_in": None, f"waits.{opened.wait_id}.status": "canceled",
    }  # fmt: skip
    gone = run_of(step("b"), wait(), parked={"a": "x"})
    assert changes(gone, e.StepCanceled()) == {
        "state.parked": {}, f"waits.{W}.status": "canceled",
    }  # fmt: skip


@pytest.mark.parametrize("detail", [None, {"lapses": 2}])
def test_a_lease_that_has_run_out_gives_the_step_back(detail: Any) -> None:
    run = run_of(step(lease_owner="w", last_error=ERROR))
    changes(run, e.LeaseExpired(2, "w", detail))
    assert run.steps["a"] == step(status=READY, last_error=ERROR if detail is None else detail)
    assert (run.state.open, run.executing) == (["a"], 1)


# -- receipts ----------------------------------------------------------------------------------------------------------


def intent(**more: Any) -> e.ActionIntended:
    given = {
        "key": "k1", "digest": "d1", "target": "thing/x", "proposed": {"input": {}}, "reversible": True,
        "reverse": {"operation": "o"}, "shared": True, "replaces": V,
    }  # fmt: skip
    return e.ActionIntended(R, "#", "probe.mail.send", 4, "dec", more.pop("approval", None), **{**given, **more})


def test_an_intent_is_a_receipt_and_counts_as_a_write() -> None:
    run = run_of(step(), writes=5)
    found = changes(run, intent())
    assert run.receipts[R] == ReceiptRow(
        receipt_id=R, step_key="a", operation="probe.mail.send", target="thing/x", idempotency_key="k1",
        action_digest="d1", action={"input": {}}, status=ReceiptStatus.INTENDED, attempt=4, lease_epoch=2,
        reversible=True, reverse={"operation": "o"}, intended_at=LATER, run_id=RUN_ID, shared=True, replaces=V,
    )  # fmt: skip
    assert {place: value for place, value in found.items() if not place.startswith("receipts")} == {
        "writes": 6, "steps.a.idempotency_key": "k1",
    }  # fmt: skip


def test_equal_calls_are_known_by_their_steps_each_once_and_sorted() -> None:
    run = run_of(step(), step("b"), same={"s": ["b", "z"], "t": ["z"]})
    changes(run, intent(same="s"))
    changes(run, intent(same="s"))
    changes(run, intent(same=""), "b")
    assert run.same == {"s": ["a", "b", "z"], "t": ["z"]}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("key", [None, "k1"])
def test_an_intent_uses_up_the_approval_that_it_names_if_the_run_holds_it(known: bool, key: str | None) -> None:
    other = approval(number=V)
    run = run_of(step(), receipt(ReceiptStatus.IN_DOUBT), *([approval()] if known else []), other)
    changes(run, intent(approval=A, key=key))
    assert run.answers.get(A) == (ApprovalMove(A, "requested", consumed=True) if known else None)
    assert run.answers[V] == ApprovalMove(V, "requested")


@pytest.mark.parametrize("status", [ReceiptStatus.IN_DOUBT, ReceiptStatus.FAILED])
def test_a_repeat_is_of_the_receipt_that_is_there(status: ReceiptStatus) -> None:
    before = replace(receipt(status), settled_at=NOW, resolution="why")
    run = run_of(step(), before, writes=5)
    changes(run, intent(key=None, authority={"terms": {"new": 1}}, resolution="again"))
    assert run.receipts[R] == replace(
        before, status=ReceiptStatus.INTENDED, attempt=4, lease_epoch=2, error=None, intended_at=LATER,
        resolution="again", settled_at=None, action={"approval": None, "terms": {"new": 1}},
    )  # fmt: skip
    assert (run.writes, run.steps["a"].idempotency_key) == (5, None)
    plain = run_of(step(), before)
    changes(plain, intent(key=None))
    assert (plain.receipts[R].resolution, plain.receipts[R].action) == ("why", before.action)


OUTCOMES: list[tuple[ReceiptStatus, Any, dict[str, Any]]] = [
    (ReceiptStatus.INTENDED, e.ActionSucceeded(R, {"o": 1}, "e1", {"u": 1}, {"code": "y"}),
     {"status": ReceiptStatus.SUCCEEDED, "output": {"o": 1}, "external_id": "e1", "usage": {"u": 1},
      "error": {"code": "y"}, "settled_at": LATER}),
    (ReceiptStatus.INTENDED, e.ActionSucceeded(R),
     {"status": ReceiptStatus.SUCCEEDED, "error": None, "settled_at": LATER}),
    (ReceiptStatus.INTENDED, e.ActionFailed(R, "k", "c", {"code": "y"}),
     {"status": ReceiptStatus.FAILED, "error": {"code": "y"}, "settled_at": LATER}),
    (ReceiptStatus.INTENDED, e.ActionInDoubt(R, "lost"), {"status": ReceiptStatus.IN_DOUBT, "resolution": "lost"}),
    (ReceiptStatus.IN_DOUBT, e.ActionHeld(R, "denied"), {"resolution": "denied"}),
    (ReceiptStatus.IN_DOUBT, e.ActionDoubtResolved(R, Resolution.APPLIED, "seen", {"o": 2}),
     {"status": ReceiptStatus.SUCCEEDED, "output": {"o": 2}, "resolution": "seen", "settled_at": LATER}),
    (ReceiptStatus.IN_DOUBT, e.ActionDoubtResolved(R, Resolution.FAILED, "gone", {"o": 2}),
     {"status": ReceiptStatus.FAILED, "resolution": "gone", "settled_at": LATER}),
    (ReceiptStatus.IN_DOUBT, e.ActionDoubtResolved(R, Resolution.NOT_APPLIED, "none"), {}),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(OUTCOMES)))
def test_an_outcome_settles_its_receipt_and_moves_no_step(case: int) -> None:
    status, event, moved = OUTCOMES[case]
    run = run_of(step(), receipt(status))
    changes(run, event)
    assert run.receipts == {R: replace(receipt(status), **moved)}
    assert run.steps["a"] == step()
    if moved:
        with pytest.raises(ConsistencyError, match=f"there is no receipt {R}"):
            changes(run_of(step()), event)


def test_a_late_answer_is_kept_with_its_receipt_whatever_time_it_has() -> None:
    one = e.ActionLate(R, 1, 2, "answered", "s", "t", "c", {"o": 1}, "e1", ERROR)  # type: ignore[arg-type]
    run = run_of(step(), receipt(ReceiptStatus.SUCCEEDED), times={"a": LATER + timedelta(days=1)})
    changes(run, one)
    changes(run, replace(one, answered=None, code=None, output=None, external_id=None, detail=None))
    (first, second) = run.receipts[R].late
    assert first == {
        "attempt": 1, "epoch": 2, "known": "answered", "sent": "s", "answered": "t", "code": "c", "output": {"o": 1},
        "external_id": "e1", "detail": ERROR,
    }  # fmt: skip
    assert second == {"attempt": 1, "epoch": 2, "known": "answered", "sent": "s"}
    assert run.receipts[R] == replace(receipt(ReceiptStatus.SUCCEEDED), late=(first, second))
    assert run.times == {"a": LATER + timedelta(days=1)}
    assert changes(run_of(), one) == {}, "a rested run holds neither the receipt nor the step"
    alone = run_of(receipt(ReceiptStatus.SUCCEEDED))
    changes(alone, one)
    assert alone.receipts[R].late == (first,)
    for run in (run_of(step()), run_of(past={"a": step()})):
        with pytest.raises(ConsistencyError, match="there is no receipt"):
            changes(run, one)


# -- waits and questions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("due", [0, 1, None])
def test_a_wait_that_is_due_at_once_is_due(due: int | None) -> None:
    run = run_of(step())
    changes(run, e.WaitOpened(W, WaitKind.TIMER, due))
    assert run.waits[W].due_in == (None if due is None else timedelta(seconds=due))


def test_a_wait_may_be_opened_before_its_step_parks() -> None:
    run = run_of(step())
    changes(run, e.WaitOpened(W, WaitKind.EXTERNAL, 60, "tok", {"c": 1}, "key"))
    changes(run, e.WaitOpened(V, WaitKind.CHILD), None)
    assert run.waits == {
        W: WaitRow(W, S, "a", WaitKind.EXTERNAL, WaitState.WAITING, "tok", timedelta(seconds=60), {"c": 1}, "key",
                   parked=False),
        V: WaitRow(V, step_id_of(RUN_ID, ""), "", WaitKind.CHILD, WaitState.WAITING, "", None, {}, None, parked=False),
    }  # fmt: skip
    assert (run.steps["a"].status, run.state.parked) == (RUNNING, {})


@pytest.mark.parametrize(
    ("context", "setbacks", "after"),
    [
        ({"c": 1, "setbacks": 1}, 2, {"c": 1, "setbacks": 2}),
        (None, 2, {"setbacks": 2}),
        (None, 1, {"setbacks": 1}),
        ({"c": 1, "setbacks": 1}, 0, {"c": 1, "setbacks": 1}),
    ],
)
def test_a_wait_that_is_postponed_is_due_later_and_counts_what_went_wrong(
    context: Any, setbacks: int, after: Any
) -> None:
    before = wait(due_in=timedelta(seconds=1), context=context)
    run = run_of(step(status=WAITING), before, wait(V))
    changes(run, e.WaitPostponed(W, WaitKind.TIMER, 90, setbacks))
    assert run.waits == {W: replace(before, due_in=timedelta(seconds=90), context=after), V: wait(V)}


ENDS: list[tuple[Any, str, Any]] = [
    (e.WaitCompleted(W, WaitKind.TIMER, None, {"n": 1}), "completed", {"n": 1}),
    (e.WaitTimedOut(W, WaitKind.TIMER, {"n": 2}), "timed_out", {"n": 2}),
    (e.WaitCanceled(W, WaitKind.TIMER), "canceled", None),
]


@pytest.mark.parametrize(("event", "status", "result"), ENDS)
def test_a_wait_ends_once_and_is_due_no_more(event: Any, status: str, result: Any) -> None:
    before = wait(due_in=timedelta(seconds=1), context={"c": 1})
    run = run_of(step(status=WAITING), before, wait(V))
    changes(run, event)
    assert run.waits == {W: replace(before, status=WaitState(status), due_in=None, result=result), V: wait(V)}
    assert run.state.origins == {}
    with pytest.raises(ConsistencyError):
        changes(run, event)
    with pytest.raises(ConsistencyError, match=f"there is no wait {W}"):
        changes(run_of(step()), event)


def test_the_end_of_a_run_within_tells_where_its_result_comes_from() -> None:
    told: Any = [[[], [["person"]]]]
    results: list[tuple[Any, Any]] = [
        ({"origins": told}, {"a": told, "b": []}), ({"origins": []}, {"a": [], "b": []}), ({"n": 1}, {"b": []}),
        (None, {"b": []}),
    ]  # fmt: skip
    for result, kept in results:
        run = run_of(wait(kind=WaitKind.CHILD))
        run.state.origins = {"b": []}
        changes(run, e.WaitCompleted(W, WaitKind.CHILD, None, result))
        assert (run.state.origins, run.waits[W].result) == (kept, result)
    within = run_of(wait(key="b/1/1", kind=WaitKind.CHILD), agents={"b": Agent(Stage.CALLS, 1, made=1)})
    usage: list[Any] = [{"input_tokens": 1, "cost_usd": "1"}, {"output_tokens": 2, "cost_usd": "0.5"}]
    both = {"origins": told, "used": {"calls": 3, "usage": usage}}
    changes(within, e.WaitCompleted(W, WaitKind.CHILD, None, both), "b/1/1")
    assert within.state.origins == {"b/1/1": told}
    assert within.state.agents == {"b": Agent(Stage.CALLS, 1, made=4, tokens=3, cost="1.5")}


COUNTED: dict[str, Any] = {"made": 3, "tokens": 3, "cost": "0.5"}


@pytest.mark.parametrize("kind", [*WaitKind])
@pytest.mark.parametrize("event", [e.WaitCompleted, e.WaitTimedOut, e.WaitCanceled])
def test_the_end_of_its_own_wait_ends_an_agent_and_a_run_within_counts_for_it(kind: WaitKind, event: Any) -> None:
    usage = [{"input_tokens": 1, "output_tokens": 2, "cost_usd": "0.5"}]
    result = {"result": {"used": {"calls": 3, "usage": usage}}} if event is not e.WaitCanceled else {}
    agents = {"a": Agent(Stage.CALLS, 1), "b": Agent(Stage.CALLS, 1)}
    for key in ("a", "a/1/1"):
        run = run_of(wait(key=key, kind=kind), agents={name: agent.copy() for name, agent in agents.items()})
        changes(run, event(W, kind, **result), key)
        over = key == "a" and kind is WaitKind.AGENT and event is not e.WaitCanceled
        counts = key != "a" and kind is WaitKind.CHILD and event is e.WaitCompleted
        assert run.state.agents == {
            "a": replace(agents["a"], stage=Stage.OVER if over else Stage.CALLS, **(COUNTED if counts else {})),
            "b": agents["b"],
        }


@pytest.mark.parametrize(("kind", "counted"), [("action", 1), ("gate", 0), ("in_doubt", 0)])
def test_a_question_is_kept_as_it_was_put_and_those_about_actions_are_counted(kind: str, counted: int) -> None:
    run = run_of(step())
    shaped: Any = [{"role": "requester"}]
    put = e.ApprovalRequested(
        A, "#", "#", kind, "high", None, "d1", "n1", {"t": 1}, "ann", {"title": "x"}, {"input": 1}, 90, shaped
    )
    changes(run, put)
    assert run.approvals == {
        A: ApprovalRow(A, S, "a", kind, "d1", "n1", "high", {"t": 1}, "ann", {"title": "x"}, {"input": 1},
                       timedelta(seconds=90), contributors=shaped),
    }  # fmt: skip
    assert (run.answers, run.asked) == ({A: ApprovalMove(A, "requested")}, counted)
    bare = run_of(step())
    changes(bare, e.ApprovalRequested(A, None, "#", kind, ""))
    assert bare.approvals[A] == ApprovalRow(
        A, S, "a", kind, "", "", "", {}, "", {}, None, timedelta(0), contributors=None
    )
    called = run_of(step("b/2/1"))
    changes(called, e.ApprovalRequested(A, None, "#", kind, ""), "b/2/1")
    assert (called.approvals[A].step_id, called.approvals[A].step_key) == (step_id_of(RUN_ID, "b/2/1"), "b/2/1")


def test_votes_are_kept_in_their_order_with_their_voter() -> None:
    run = run_of(step(status=ASKS), approval())
    changes(run, e.ApprovalVoted(A, "reject", "slack", True, reason="No.", groups=["group:b", "group:a"]))
    changes(run, e.ApprovalVoted(A, "approve", "cli", False), actor=Actor("person", "ben"))
    assert [to_builtins(vote) for vote in run.votes] == [
        {"approval_id": str(A), "person_id": "ann", "choice": "reject", "reason": "No.",
         "groups": ["group:b", "group:a"], "channel": "slack"},
        {"approval_id": str(A), "person_id": "ben", "choice": "approve", "reason": "", "groups": [], "channel": "cli"},
    ]  # fmt: skip


DECIDED: list[tuple[str, str]] = [
    ("approved", "approved"), ("rejected", "rejected"), ("canceled", "canceled"), ("happened", "approved"),
    ("again", "approved"), ("fail", "rejected"),
]  # fmt: skip


@pytest.mark.parametrize(("outcome", "status"), DECIDED)
@pytest.mark.parametrize("kind", [*ApprovalKind])
def test_an_answer_moves_its_question_and_rejected_actions_are_counted(
    outcome: str, status: str, kind: ApprovalKind
) -> None:
    run = run_of(step(status=ASKS), approval(str(kind)), approval(number=V))
    run.answers[A] = replace(run.answers[A], escalated=True)
    changes(run, e.ApprovalDecided(A, outcome, "c", "why"))
    answered = ApprovalMove(A, status, "c", "why", escalated=True, at=LATER)
    assert run.answers == {A: answered, V: ApprovalMove(V, "requested")}
    assert run.refused == (kind is ApprovalKind.ACTION and outcome == "rejected")
    if outcome == "rejected":
        rested = run_of(step(status=ASKS))
        changes(rested, e.ApprovalDecided(A, outcome, "c", "why"))
        assert (rested.answers[A].status, rested.refused) == ("rejected", 0)


MOVES: list[tuple[Any, dict[str, Any]]] = [
    (e.ApprovalConsumed(A, "d"), {"consumed": True}),
    (e.ApprovalSuperseded(A), {"status": "superseded"}),
    (e.ApprovalExpired(A), {"status": "expired"}),
    (e.ApprovalReminded(A), {}),
    (e.ApprovalEscalated(A), {"escalated": True}),
]


@pytest.mark.parametrize(("event", "moved"), MOVES)
def test_a_question_moves_as_its_event_says(event: Any, moved: dict[str, Any]) -> None:
    known = ApprovalMove(A, "requested", "c", "why", consumed=True, escalated=True, at=NOW)
    for before in (ApprovalMove(A, "requested"), known):
        run = run_of(step(status=ASKS), approval(), approval(number=V), wait())
        run.answers[A] = before
        changes(run, event)
        assert run.answers == {A: replace(before, **moved), V: ApprovalMove(V, "requested")}
        assert run.waits == {W: wait()}


@pytest.mark.parametrize("kind", [e.ApprovalReminded, e.ApprovalEscalated])
@pytest.mark.parametrize("context", [None, {"ladder": [1], "next": 0}])
def test_the_next_rung_of_a_question_is_due_after_its_time(kind: Any, context: Any) -> None:
    before = wait(context=context, due_in=timedelta(seconds=9))
    run = run_of(step(status=ASKS), approval(), before, wait(V))
    changes(run, kind(A, W, 2, 70))
    after = replace(before, context={**(context or {}), "next": 2}, due_in=timedelta(seconds=70))
    assert run.waits == {W: after, V: wait(V)}
    changes(run, kind(A, UUID(int=99), 3, 80))
    assert run.waits == {W: after, V: wait(V)}


# -- agents ------------------------------------------------------------------------------------------------------------

DONE: Any = {"text": "x"}


def talks(*, stage: Stage = Stage.ASKED, turn: int = 1, spoken: Any = None, **more: Any) -> Run:
    run = run_of(step("a", WAITING), spoken={"a": Spoken("a", input={"t": {"n": 1}})} if spoken is None else spoken)
    run.state.agents = {"a": Agent(stage, turn, **more), "b": Agent(Stage.ASKED, 1)}
    return run


@pytest.mark.parametrize("before", [None, Agent(Stage.OVER, 4, first=2, made=3, tokens=9, barred=["x"])])
def test_an_agent_begins_with_nothing_but_the_number_of_its_turns(before: Agent | None) -> None:
    run = run_of(step("a", WAITING))
    run.state.agents = {} if before is None else {"a": before}
    event = e.AgentBegan("m", [], [{"role": "user", "content": "u"}], {"t": {"n": 1}}, remembered=[["r", "p/1"]])
    changes(run, event)
    turn = 0 if before is None else 4
    shown = digest([{"role": "user", "content": "u"}, {"past": [["r", "p/1"]]}])
    assert run.state.agents == {"a": Agent(turn=turn, first=turn + 1, digest=shown)}
    assert run.spoken == {"a": Spoken("a", input={"t": {"n": 1}})}
    changes(run, replace(event, fixed=None, remembered=None))
    assert (run.spoken["a"].input, run.state.agents["a"].digest) == ({}, digest([{"role": "user", "content": "u"}]))


SAID: Any = [
    {"id": "1", "tool": "t", "source": "s", "input": {"n": 1}, "digest": "d1"},
    {"id": "2", "tool": "u", "source": "s", "refused": "No."},
    {"id": "3", "tool": "desk", "source": "s", "input": {"q": 1}, "digest": "d3", "after": 1, "ask": True},
    {"id": "4", "tool": "u", "source": "s", "refused": ""},
    {"id": "5", "tool": "t", "source": "s", "input": {}, "digest": "d5", "after": 3},
]


def test_calls_that_a_model_asks_for_are_counted_and_spoken_of() -> None:
    run = talks(made=2, asks=1, refusals=1, repairs=2)
    changes(run, e.AgentAnswered("calls", [], SAID), "a/1")
    refused = [Called("", came=Came.REFUSED, said=said_of(Came.REFUSED, words)) for words in ("No.", "")]
    assert run.state.agents["a"] == Agent(
        Stage.CALLS, 1, made=5, asks=2, refusals=3, repairs=2,
        calls={1: Called("d1"), 2: refused[0], 3: Called("d3", 1), 4: refused[1], 5: Called("d5", 3)},
    )  # fmt: skip
    assert run.state.agents["b"] == Agent(Stage.ASKED, 1)
    assert run.spoken == {
        "a": Spoken("a", input={"t": {"n": 1}}), "a/1/1": Spoken("a/1/1", "t", {"n": 1}),
        "a/1/3": Spoken("a/1/3", "desk", {"q": 1}), "a/1/5": Spoken("a/1/5", "t", {}),
    }  # fmt: skip


def test_an_answer_is_the_result_and_a_misfit_is_counted() -> None:
    run = talks()
    changes(run, e.AgentAnswered("answer", [], result={"n": 2}), "a/1")
    assert run.state.agents["a"] == Agent(Stage.ANSWER, 1)
    assert run.spoken == {"a": Spoken("a", input={"t": {"n": 1}}, result={"n": 2})}
    run = talks(repairs=1)
    changes(run, e.AgentAnswered("misfit", [], problem="?", result={"n": 2}), "a/1")
    assert run.state.agents["a"] == Agent(Stage.MISFIT, 1, repairs=2)
    assert run.spoken == {"a": Spoken("a", input={"t": {"n": 1}})}


@pytest.mark.parametrize("stage", [stage for stage in Stage if stage is not Stage.ASKED])
def test_an_answer_that_nobody_waits_for_changes_nothing(stage: Stage) -> None:
    assert changes(talks(stage=stage), e.AgentAnswered("calls", [], SAID), "a/1") == {}
    assert changes(talks(), e.AgentAnswered("calls", [], SAID), "c/1") == {}


def turned(event: e.Event, key: str = "a/1", status: StepState = RUNNING, **more: Any) -> Run:
    """An agent's run after its turn or call has ended so."""
    run = talks(**{"digest": "before", **more})
    run.steps[key] = step(key, status)
    changes(run, event, key)
    return run


USE: dict[str, Any] = {"input_tokens": 10, "output_tokens": 5, "cost_usd": "0.01"}
USED: list[tuple[Any, dict[str, Any]]] = [
    (None, {}),
    (USE, {"tokens": 16, "cost": "0.51"}),
    ({**USE, "cost_usd": None}, {"tokens": 16, "unpriced": True}),
    ({"input_tokens": 2, "cost_usd": "0"}, {"tokens": 3}),
    ({"output_tokens": 3, "cost_usd": "0"}, {"tokens": 4}),
    ({}, {"unpriced": True}),
]


@pytest.mark.parametrize(("usage", "counted"), USED)
def test_what_a_turn_has_used_counts_however_it_ends(usage: Any, counted: dict[str, Any]) -> None:
    ends: list[e.Event] = [
        e.StepSucceeded([], usage, DONE), e.StepSucceeded([], usage), e.StepFailed("transport", "x", usage, ERROR),
        e.StepRetryScheduled(W, 1, 5, usage, None, ERROR),
    ]  # fmt: skip
    for event in ends:
        agent = turned(event, tokens=1, cost="0.5").state.agents["a"]
        assert agent == replace(
            Agent(tokens=1, cost="0.5", **{k: v for k, v in counted.items() if k == "unpriced"}), stage=agent.stage,
            turn=1, digest=agent.digest, **{k: v for k, v in counted.items() if k != "unpriced"},
        )  # fmt: skip


def test_what_has_no_price_once_is_unpriced_for_good_and_what_costs_nothing_has_a_price() -> None:
    run = talks()
    for usage in ({"cost_usd": "0.2"}, {"cost_usd": None}, {"cost_usd": "0.3"}):
        of_agents.used(run, "a/1", usage)
    assert (run.state.agents["a"].unpriced, run.state.agents["a"].cost) == (True, "0.5")
    run = talks()
    of_agents.used(run, "a/1", {"cost_usd": "0"})
    assert (run.state.agents["a"].unpriced, run.state.agents["a"].cost) == (False, "0")


def test_a_turn_that_is_done_adds_its_answer_to_what_was_said() -> None:
    outputs: tuple[Any, ...] = (DONE, {}, None, "")
    for output in outputs:
        run = turned(e.StepSucceeded([], None, output))
        assert run.state.agents["a"] == Agent(Stage.ASKED, 1, digest=digest(["before", output]))
    assert run.state.agents["b"] == Agent(Stage.ASKED, 1)


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (e.StepFailed("transport", "x", None, ERROR), ERROR),
        (e.StepCanceled(), {"class": "canceled", "message": "Its turn was canceled."}),
    ],
)
def test_a_turn_that_ends_badly_fails_its_agent_with_its_error(event: e.Event, error: Any) -> None:
    run = turned(event)
    assert run.state.agents["a"] == Agent(Stage.FAILED, 1, digest="before")
    assert run.spoken["a"] == Spoken("a", error=error)


@pytest.mark.parametrize(
    ("event", "came", "value", "bars"),
    [
        (e.StepSucceeded([], None, DONE), "done", DONE, False),
        (e.StepFailed("transport", "x", None, ERROR), "failed", ERROR, False),
        (e.StepFailed("authorization", "policy_denied", None, {"code": "policy_denied"}), "denied",
         {"code": "policy_denied"}, True),
        (e.StepFailed("authorization", "rejected", None, {"code": "rejected"}), "rejected", {"code": "rejected"}, True),
        (e.StepFailed("timeout", "expired", None, {"code": "expired"}), "expired", {"code": "expired"}, True),
        (e.StepCanceled(), "canceled", None, False),
    ],
)  # fmt: skip
def test_a_call_has_its_result_and_what_was_not_let_out_is_barred(
    event: e.Event, came: str, value: Any, bars: bool
) -> None:
    calls = {1: Called("d1", came="open"), 2: Called("d2", came="open")}
    for barred in ([], ["d0", "d9"], ["d2"]):
        run = turned(
            event, "a/1/2", stage=Stage.CALLS, calls={n: replace(c) for n, c in calls.items()}, barred=[*barred]
        )
        ended = Called("d2", came=came, said=said_of(Came(came), value))
        assert run.state.agents["a"] == Agent(
            Stage.CALLS, 1, digest="before", calls={1: calls[1], 2: ended},
            barred=sorted({*barred, *(["d2"] if bars else [])}),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("key", "more"),
    [
        ("a/1", {"stage": Stage.OVER}),
        ("a/1/1", {"stage": Stage.OVER, "calls": {1: Called("d")}}),
        ("a/2", {}),
        ("a/2/1", {"stage": Stage.CALLS, "calls": {1: Called("d")}}),
        ("a/1/2", {"stage": Stage.CALLS, "calls": {1: Called("d")}}),
        ("a/1", {"turn": 2}),
        ("a/1/1", {"stage": Stage.CALLS, "turn": 2, "calls": {1: Called("d")}}),
        ("c/1", {}),
    ],
)
def test_a_result_of_another_turn_or_of_an_agent_that_is_over_is_none(key: str, more: dict[str, Any]) -> None:
    for event in (e.StepSucceeded([], None, DONE), e.StepFailed(None, "rejected", None, {"code": "rejected"})):
        run = turned(event, key, **more)
        assert run.state.agents == {"a": Agent(**{"stage": Stage.ASKED, "turn": 1, "digest": "before", **more}),
                                    "b": Agent(Stage.ASKED, 1)}  # fmt: skip
        assert run.spoken == {"a": Spoken("a", input={"t": {"n": 1}})}


def test_the_values_of_turns_that_are_over_are_dropped_and_those_of_a_call_in_doubt_are_kept() -> None:
    keys = ["a", "a/1/1", "a/2/1", "a/1/2", "b", "b/1/1", "c", "c/1/1"]
    run = run_of(step("a/1/2", RETRIES), spoken={key: Spoken(key) for key in keys})
    run.steps["b"], run.steps["b/1/1"] = step("b"), step("b/1/1")
    run.state.agents = {"a": Agent(Stage.CALLS, 2), "b": Agent(Stage.OVER, 1)}
    of_agents.forget(run)
    assert [*run.spoken] == ["a", "a/2/1", "a/1/2", "b/1/1"]


# -- runs --------------------------------------------------------------------------------------------------------------


def test_a_run_is_opened_with_what_it_was_given() -> None:
    run = unopened(RUN_ID, KEY, NO_GRAPH)
    run.state.channels = {"n": 1, "m": 2}
    event = e.RunOpened(
        {"name": "w"}, inputs={"x": 1}, reference="R1", requested_by="ann", shaped=["updater  person:ben", "adder  x"],
        inherited=["n"], open=0, channels={"n": 5}, origins={"trigger": []},
    )  # fmt: skip
    fold(run, Told(event, ANN, LATER, None), NO_GRAPH)
    assert (run.reference, run.requested_by, run.trigger, run.held_open) == ("R1", "ann", {"x": 1}, True)
    assert (run.state.channels, run.state.shaped) == ({"n": 5, "m": 2}, {"run": ["adder  x", "updater  person:ben"]})
    assert (run.origins, run.copied, run.opened_at, run.status) == ({"trigger": []}, ["n"], LATER, RunState.QUEUED)
    bare = replace(unopened(RUN_ID, KEY, NO_GRAPH), reference="kept", requested_by="by")
    fold(bare, Told(e.RunOpened({"name": "w"}), ANN, LATER, None), NO_GRAPH)
    assert (bare.reference, bare.requested_by, bare.trigger, bare.held_open) == ("kept", "by", {}, False)
    assert (bare.origins, bare.copied, bare.state.shaped) == (None, [], {})
    copies = unopened(RUN_ID, KEY, NO_GRAPH)
    fold(copies, Told(e.RunOpened({"name": "w"}, inherited=["n"]), ANN, LATER, None), NO_GRAPH)
    assert (copies.origins, copies.copied) == (None, ["n"])


def test_a_ledger_begins_with_what_its_channel_was_given() -> None:
    channels = {
        "m": Channel("m", initial=1, ledger=True), "n": Channel("n", initial=2, ledger=True), "o": Channel("o"),
    }  # fmt: skip
    graph = dataclasses.replace(NO_GRAPH, channels=channels)
    run = unopened(RUN_ID, KEY, graph)
    fold(run, Told(e.RunOpened({"name": "w"}, channels={"m": 5, "o": 6}), ANN, LATER, None), graph)
    assert run.state.channels == {"m": 5, "n": 2, "o": 6}
    assert [(row.channel, row.value) for row in run.ledger] == [("m", 5), ("n", 2)]


@pytest.mark.parametrize(("held", "status"), [(False, "running"), (True, "waiting")])
def test_a_run_without_steps_starts_and_waits_for_some_if_it_is_held_open(held: bool, status: str) -> None:
    assert changes(run_of(status=RunState.QUEUED, held_open=held), e.RunStarted(), None) == {"status": status}
    assert changes(run_of(held_open=True), e.RunSealed(False), None) == {"held_open": False}
    assert changes(run_of(), e.RunReferenceSet([], "R9")) == {"reference": "R9"}


@pytest.mark.parametrize("status", [RunState.QUEUED, RunState.RUNNING, RunState.WAITING, RunState.WAITING_APPROVAL])
@pytest.mark.parametrize("executing", [0, 1])
def test_an_extension_is_kept_and_wakes_a_run_in_which_all_wait(status: RunState, executing: int) -> None:
    run = run_of(status=status, executing=executing, outputs={"s": 1})
    event = e.RunExtended(3, ["n1", "n2"], [], {"steps": []}, {"op": "d"}, {"t": 2}, ["g"])
    found = changes(run, event, None)
    wakes = executing == 0 and status in (RunState.WAITING, RunState.WAITING_APPROVAL)
    assert found.pop("status", None) == ("running" if wakes else None)
    row = {"number": 3, "actor": "ann", "source": {"steps": []}, "operations": {"op": "d"}, "gates": ("g",)}
    assert found == {
        "extensions": 1, "mutations": [row], "state.outputs.t": 2,
        "state.shaped.added.n1": ["step_adder n1 person:ann"], "state.shaped.added.n2": ["step_adder n2 person:ann"],
    }  # fmt: skip


def test_a_run_that_another_has_become_or_started_is_told_of() -> None:
    run = run_of(step())
    marks: Any = ["form_filler f person:ben"]
    changes(run, e.RunContinued(V, "w", marks, [[[], [["person"]]]], {"calls": 1, "usage": []}))
    assert run.state.shaped == {"steps.a": marks}
    assert run.state.origins == {"a": [[[], [["person"]]]]}
    assert changes(run_of(step()), e.RunContinued(V, "w")) == {}
    empty = run_of(step())
    changes(empty, e.RunContinued(V, "w", origins=[]))
    assert empty.state.origins == {"a": []}
    for key in ("b/1/1", "each[2].b/1/1"):
        within, told = run_of(step(key)), [[[], [["person"]]]]
        within.state.agents = {key[:-4]: Agent(Stage.CALLS, 1, made=1)}
        usage = [{"input_tokens": 4, "cost_usd": "1"}, {"output_tokens": 2, "cost_usd": "0.5"}]
        changes(within, e.RunContinued(V, "w", marks, told, {"calls": 3, "usage": usage}), key)
        assert within.state.agents == {key[:-4]: Agent(Stage.CALLS, 1, made=4, tokens=6, cost="1.5")}
        assert (within.state.shaped, within.state.origins) == ({f"steps.{key}": marks}, {key: told})


def test_the_first_who_cancels_and_whoever_pauses_last_are_known() -> None:
    run = run_of()
    found = changes(run, e.RunCanceled(True, None, "enough"), None)
    assert found == {"canceling.by": "ann", "canceling.reason": "enough"}
    assert changes(run, e.RunCanceled(True, None, "again"), None, Actor("person", "ben")) == {}
    for event, found in ((e.RunPaused(False), {"paused": True}), (e.RunResumed(False), {"paused": False})):
        assert changes(run, event, None) == found
        assert changes(run, event, None) == {}


@pytest.mark.parametrize("status", [RunState.SUCCEEDED, RunState.FAILED_TERMINAL, RunState.CANCELED])
def test_a_run_ends_as_its_last_line_says(status: RunState) -> None:
    results: tuple[Any, ...] = ({"n": 1}, {}, [], 0, "", False, None)
    for result in results:
        run = run_of(executing=2)
        changes(run, e.RunClosed(status, {"code": "x"}, ERROR, result), None)
        assert (run.status, run.error, run.result, run.finished, run.executing) == (status, ERROR, result, True, 0)
        assert type(run.result) is type(result)


def test_a_run_that_is_retried_begins_the_named_steps_anew_and_forgets_its_end() -> None:
    run = run_of(
        step("a", StepState.FAILED_TERMINAL), step("b", READY), wait(), wait(V, "b"), status=RunState.FAILED_TERMINAL,
        error=ERROR, result=1, finished=True, reopened=1, past={"c": step("c"), "d": step("d")},
        parked={"a": "x", "b": "y"},
    )  # fmt: skip
    run.state.open = ["a", "b"]
    event = e.RunReopened("bundle", [["a", 4], ["c", 6]], False)
    changes(run, event, None)
    assert (run.status, run.error, run.result, run.finished, run.reopened) == (RunState.RUNNING, None, None, False, 2)
    assert (run.anew, [*run.steps], [*run.past]) == ({"a": 4, "c": 6}, ["b"], ["d"])
    assert (run.state.open, run.state.parked) == (["b"], {"b": "y"})
    assert run.waits == {W: replace(wait(), left=True), V: wait(V, "b")}
    assert run.state.shaped == {"run": ["retrier  person:ann"]}
    for kind, mark in (("token", "token:ops"), ("webhook", "ops")):
        run = run_of(step("a", StepState.FAILED_TERMINAL), status=RunState.FAILED_TERMINAL, reopened=4)
        changes(run, event, None, Actor(kind, "ops"))
        assert (run.state.shaped, run.reopened) == ({"run": [f"retrier  {mark}"]}, 5)


QUIET = [
    e.DecisionMade(V, "#", "op", "deny", [], [], []), e.PreflightFailed("people"),
    e.ApprovalVoteRefused(A, "late", "cli"), e.ActionRecalled(R),
]  # fmt: skip


@pytest.mark.parametrize("event", QUIET)
def test_what_is_told_for_readers_alone_changes_nothing(event: e.Event) -> None:
    run = run_of(step(), approval(), receipt())
    assert changes(run, event) == {}
    assert run.times == {"a": LATER}
