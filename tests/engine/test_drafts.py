"""The rows, orders and guards of an append, as they follow from what was told, and the end of a run (O-1)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import orjson
import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from core.canonical import derived_id, digest
from core.errors import ConsistencyError
from core.identity import Directory
from evidence.chain import Actor, ChainHead
from evidence.commitments import commit_fields
from evidence.receipts import ReceiptStatus, Resolution
from runtime.definition.workflow import load_workflow
from runtime.engine import events as e
from runtime.engine.agent_state import Spoken
from runtime.engine.closing import error_facts
from runtime.engine.commit import ApprovalMove, Commit, LedgerRow, VoteRow, expected_of, step_id_of, wait_of
from runtime.engine.draft import BARRIER, _derive, queued, seen_by, tell_of
from runtime.engine.graph import NO_GRAPH
from runtime.engine.keeping import EVERY, unpack
from runtime.engine.run import Run, RunView
from runtime.engine.states import RunState, StepState, WaitKind, WaitState
from runtime.engine.told import digest_of
from runtime.engine.transition import Transition
from tests.engine.conftest import KEY, NOW, RUN_ID
from tests.engine.governing import CATALOG, EFFECT, GATE, governed
from tests.engine.test_folds import ANN, ERROR, READY, RUNNING, A, V, W, approval, receipt, run_of, step, wait
from tests.engine.test_whole_books import held

pytestmark = pytest.mark.req("O-1")

SECOND = timedelta(seconds=1)
PARENT = UUID(int=77)


VIEW: RunView = governed(EFFECT).view()
HEAD = replace(ChainHead.of(f"run:{RUN_ID}"), count=9)


def view_of(run: Run, **more: Any) -> RunView:
    given: dict[str, Any] = {
        "version": 5, "gate": 2, "head": HEAD, "now": NOW, "error": SECOND, "kept_at": 3,
        "constants": {"run.id": str(RUN_ID)}, "directory": Directory.of("dir", []),
    }  # fmt: skip
    return replace(VIEW, run=run, **{**given, **more})


def draft(run: Run, **more: Any) -> Transition:
    return Transition(view_of(run, **more), NO_GRAPH)


# -- the queue ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("begun", [True, False])
def test_a_step_has_a_row_in_the_queue_while_it_runs_or_can_be_claimed(begun: bool) -> None:
    rows = [step(f"{status}.{at}", status, at) for status in StepState for at in (2, 3, 4)] + [step("first", READY)]
    found = queued({row.key: row for row in rows}, RunState.RUNNING if begun else RunState.QUEUED, 3, "first")
    runs = [f"running.{at}" for at in (2, 3, 4)]
    assert [*found] == [*(["ready.3"] if begun else []), *runs, "first"]
    assert found["first"] is rows[-1]


def derived(before: Run, run: Run, **rows: Any) -> Commit:
    commit = Commit(
        RUN_ID, "acme", "main", expected_version=1, gate=0, status=RunState.QUEUED, superstep=0, width=0, **rows
    )
    _derive(commit, before, run)
    return commit


def test_an_append_writes_what_differs_and_nothing_else() -> None:
    changed, kept, new = wait(), wait(V), wait(UUID(int=9))
    moved, asked, fresh = approval(), approval(number=V), approval(number=UUID(int=9))
    votes = [VoteRow(A, name, "approve", "", [], "cli") for name in ("ann", "ben")]
    ledger = [LedgerRow("c", 1, "a", 1)]
    before = run_of(step(), changed, kept, moved, asked, executing=3, writes=2, votes=votes[:1])
    run = before.copy()
    run.status, run.superstep, run.width, run.executing, run.writes = RunState.WAITING, 4, 7, 1, 5
    postponed = replace(kept, context={"setbacks": 1}, due_in=SECOND)
    run.waits |= {W: replace(changed, status=WaitState.COMPLETED), UUID(int=9): new}
    run.approvals[UUID(int=9)] = fresh
    run.answers |= {A: ApprovalMove(A, "approved"), UUID(int=9): ApprovalMove(UUID(int=9), "canceled")}
    run.votes, run.ledger, run.canceling, run.error, run.result = votes, ledger, {"by": "x"}, ERROR, {"n": 1}
    run.mutations = [1, 2]  # type: ignore[list-item]
    rows = derived(before, run)
    assert (rows.status, rows.superstep, rows.width, rows.executing, rows.writes, rows.writes_max) == (
        RunState.WAITING, 4, 7, -2, 3, None,
    )  # fmt: skip
    assert (rows.canceling, rows.error, rows.result, rows.finished) == ({"by": "x"}, ERROR, {"n": 1}, False)
    assert (rows.new_waits, rows.waits) == ([new], [replace(changed, status=WaitState.COMPLETED)])
    assert rows.new_approvals == [replace(fresh, status="canceled")]
    assert rows.approvals == [ApprovalMove(A, "approved")]
    assert (rows.votes, rows.ledger, rows.extended) == (votes[1:], ledger, 2)
    assert (rows.effects, rows.shares, rows.joins, rows.ended) == ([], [], [], [])
    run.waits[V] = postponed
    assert derived(before, run).waits == [replace(changed, status=WaitState.COMPLETED), postponed]
    assert derived(before, run, counted=True).writes_max == 5
    assert derived(before, before.copy(), counted=True).writes_max == 2


@pytest.mark.parametrize(
    ("was", "is_over", "finished"),
    [(RunState.RUNNING, True, True), (RunState.RUNNING, False, False), (RunState.SUCCEEDED, True, False),
     (RunState.FAILED_TERMINAL, True, False), (RunState.CANCELED, True, False), (RunState.WAITING, True, True)],
)  # fmt: skip
def test_a_run_ends_in_one_append(was: RunState, is_over: bool, finished: bool) -> None:
    before = run_of(status=was)
    assert derived(before, replace(before.copy(), finished=is_over)).finished is finished


def shares(**more: Any) -> Any:
    return wait(kind=WaitKind.SHARED, context={"shared": "key", "receipt": str(V)}, **more)


def test_what_is_shared_is_written_whether_it_is_performed_here_or_waited_for() -> None:
    before = run_of(step())
    own = run_of(step(), replace(receipt(), shared=True))
    (effect,) = derived(before, own).effects
    assert (effect.key, effect.receipt_id, effect.status) == ("k", receipt().receipt_id, "intended")
    (join,) = derived(before, run_of(step(), shares())).joins
    assert (join.key, join.receipt_id) == ("key", V)
    ended = replace(receipt(ReceiptStatus.FAILED), shared=True)
    assert derived(own, run_of(step(), ended)).ended == [("k", f"{ended.receipt_id}:None:failed")]


@pytest.mark.parametrize(
    ("steps", "after", "expected"),
    [
        ([step("a", READY)], [step("a", RUNNING)], {}),
        ([step("a", READY)], [step("a", StepState.WAITING)], {"unqueued": ["a"]}),
        ([step("a", RUNNING)], [step("a", READY, 4)], {"unqueued": ["a"]}),
        ([step("a", StepState.WAITING)], [step("a", READY, 4)], {}),
        ([step("a", StepState.WAITING)], [step("a", READY)], {"queued": ["a"]}),
        ([step("a", RUNNING)], [step("a", READY)], {"requeued": ["a"]}),
        ([step("a", RUNNING)], [step("a", StepState.FAILED_TERMINAL)], {"unqueued": ["a"]}),
        ([step("a", RUNNING)], [step("b", RUNNING)], {"handed": [("a", "b")]}),
        ([step("a", RUNNING)], [step("b", RUNNING), step("c", READY)], {"handed": [("a", "b")], "queued": ["c"]}),
    ],
)
def test_steps_come_into_line_leave_it_and_are_handed_on(steps: Any, after: Any, expected: Any) -> None:
    rows = derived(run_of(*steps), run_of(*after), requeued=["a", "z"], taken={"b": "a"})
    assert [row.key for row in rows.queued] == expected.get("queued", [])
    assert rows.requeued == [key for key in ("a",) if any(row.key == key and _in_line(row) for row in after)]
    assert ("a" in expected.get("requeued", [])) <= ("a" in rows.requeued)
    assert [(key, row.key) for key, row in rows.handed] == expected.get("handed", [])
    assert rows.unqueued == expected.get("unqueued", [])
    for row in rows.queued:
        assert (row.step_id, row.epoch, row.starts_run) == (step_id_of(RUN_ID, row.key), 2, False)


def _in_line(row: Any) -> bool:
    return row.status is RUNNING or (row.status is READY and row.superstep == 3)


def test_only_the_first_step_of_a_queued_run_is_in_line_and_starts_it() -> None:
    empty, run = run_of(status=RunState.QUEUED), run_of(step("b", READY), step("a", READY), status=RunState.QUEUED)
    assert [(row.key, row.starts_run) for row in derived(empty, run).queued] == [("b", True)]
    begun = run_of(step("b", RUNNING), step("a", READY))
    assert [(row.key, row.starts_run) for row in derived(run, begun).queued] == [("a", False)]
    over = run_of(step("b", RUNNING), step("a", READY), finished=True)
    assert (derived(begun, over).queued, derived(begun, over).unqueued) == ([], ["b", "a"])
    assert derived(begun, over, cancels_rest=True).unqueued == []


@pytest.mark.parametrize(
    ("width", "executing", "superstep", "finished", "crossed"),
    [
        (2, 0, 4, False, True),
        (2, 0, 3, True, True),
        (2, 0, 3, False, False),
        (2, 1, 4, False, False),
        (0, 0, 4, False, False),
        (1, 0, 4, False, True),
    ],
)
def test_the_row_of_a_due_barrier_goes_when_the_barrier_is_crossed(
    width: int, executing: int, superstep: int, finished: bool, crossed: bool
) -> None:
    before = replace(run_of(executing=executing), width=width)
    run = replace(before.copy(), superstep=superstep, finished=finished)
    assert derived(before, run).unqueued == ([BARRIER] if crossed else [])


# -- orders ------------------------------------------------------------------------------------------------------------


def test_orders_are_known_by_what_they_are_for_and_never_given_twice() -> None:
    def ordered(superstep: int = 3) -> Any:
        made = draft(replace(run_of(), superstep=superstep))
        made.message("card", A, "requested")
        made.order("bundle", "final", {"x": 1}, one_at_a_time="r")
        made.order("return", "final", {})
        return made.rows.commands

    def known(*command: Any) -> UUID:
        return derived_id(RUN_ID, digest(["w", str(RUN_ID), "", *command]))

    assert [to_builtins(row) for row in ordered()] == [
        {"command_id": str(known(3, f"card:{A}:requested")), "kind": "card", "status": "pending",
         "payload": {"approval": str(A)}, "ordering_key": f"approval:{A}"},
        {"command_id": str(known(3, "bundle:final")), "kind": "bundle", "status": "pending", "payload": {"x": 1},
         "ordering_key": "bundle:r"},
        {"command_id": str(known(3, "return:final")), "kind": "return", "status": "pending", "payload": {},
         "ordering_key": None},
    ]  # fmt: skip
    assert [row.command_id for row in ordered(4)][2] == known(4, "return:final")
    crossed = draft(run_of())
    crossed.run.superstep = 9  # a barrier was crossed in this same append
    crossed.order("return", "final", {})
    assert crossed.rows.commands[0].command_id == known(9, "return:final")


@pytest.mark.req("Q-15")
def test_the_end_of_each_shared_effect_is_ordered_to_be_told_once() -> None:
    one = replace(receipt(), shared=True)
    two = replace(one, receipt_id=UUID(int=44), idempotency_key="k2")
    made = draft(run_of(step(), one, two))
    made.run.receipts = {row.receipt_id: replace(row, status=ReceiptStatus.FAILED) for row in (one, two)}
    made.commit()
    wanted = draft(run_of())
    for row in (one, two):
        wanted.order("shared", f"{row.receipt_id}:None:failed", {"key": row.idempotency_key})
    assert made.rows.commands == wanted.rows.commands


def test_a_receipt_without_a_canonical_form_is_recorded_all_the_same() -> None:
    odd = replace(receipt(), attempt=2**60)
    made = draft(run_of(step(), odd))
    made.tell(e.ActionSucceeded(odd.receipt_id), step="a")
    (line,) = made.commit().lines
    assert "receipt_digest" not in orjson.loads(line)["data"]


@pytest.mark.parametrize("reason", ["", "Enough."])
@pytest.mark.parametrize(("executing", "ends"), [(0, True), (1, False)])
def test_a_run_is_sealed_with_its_reason_and_ends_if_all_its_steps_are_done(
    reason: str, executing: int, ends: bool
) -> None:
    status = RunState.RUNNING if executing else RunState.WAITING
    made = draft(run_of(*([step()] if executing else []), status=status, executing=executing, held_open=True))
    made.seal(ANN, reason)
    committed = commit_fields(KEY, "/sealed", {"reason": reason}) if reason else None
    assert (made._told[0].event, made._told[0].actor) == (e.RunSealed(bool(reason), committed, reason), ANN)
    assert (made.rows.sealed, made.run.finished) == (["run"], ends)


@pytest.mark.parametrize("approved", [None, str(A)])
def test_what_becomes_of_an_approved_action_is_said_on_its_card(approved: str | None) -> None:
    known = replace(receipt(ReceiptStatus.IN_DOUBT), action={"approval": approved}, attempt=2)
    made = draft(run_of(step(), known, step("b")))
    left = tell_of(made, known, e.ActionDoubtResolved(known.receipt_id, Resolution.FAILED, "gone"))
    assert (left, left.status) == (made.run.receipts[known.receipt_id], "failed")
    made.message("card", A, "failed:2")
    assert len(made.rows.commands) == (1 if approved is None else 2)
    assert len({row.command_id for row in made.rows.commands}) == 1
    assert b'"step":"a"' in made.commit().lines[0]


@pytest.mark.parametrize("lease", [timedelta(seconds=7), timedelta(minutes=5)])
def test_an_append_begins_as_its_view_says(lease: timedelta) -> None:
    run = replace(run_of(step(), status=RunState.WAITING), superstep=6, width=8)
    view = view_of(run, tenant_id="t", workspace_id="ws")
    made = Transition(view, NO_GRAPH, lease=lease, systems={"probe": "desk"})
    begun = Commit(
        run_id=RUN_ID, tenant_id="t", workspace_id="ws", expected_version=5, gate=2, status=RunState.WAITING,
        superstep=6, width=8, lease=lease,
    )  # fmt: skip
    assert made.rows == begun
    assert made.commit().lease == lease
    assert (made.view, made.graph, made.systems, made.traces) == (view, NO_GRAPH, {"probe": "desk"}, {})
    assert (made.run, made.run is view.run) == (run, False)
    assert made.ready("probe", "probe.effect.apply", {}) is None


# -- lines, guards and the view afterwards -----------------------------------------------------------------------------

OUTCOMES: list[e.Event] = [
    e.ActionSucceeded(receipt().receipt_id), e.ActionFailed(receipt().receipt_id),
    e.ActionInDoubt(receipt().receipt_id), e.ActionHeld(receipt().receipt_id),
    e.ActionDoubtResolved(receipt().receipt_id, Resolution.NOT_APPLIED), e.StepSucceeded([]), e.StepFailed(),
    e.StepRetryScheduled(W, 1, 5),
]  # fmt: skip
OTHERS: list[e.Event] = [
    e.StepCanceled(), e.StepParked(W, WaitKind.TIMER), e.LeaseExpired(2, "w"), e.StepSetBack(1),
    e.DecisionMade(V, "#", "o", "allow", [], [], []),
]  # fmt: skip


@pytest.mark.parametrize("event", [*OUTCOMES, *OTHERS])
def test_an_outcome_is_told_by_the_upper_bound_of_the_time(event: e.Event) -> None:
    made = draft(run_of(step(), receipt(), approval()))
    made.tell(event, step="a")
    at = NOW + SECOND if event in OUTCOMES else NOW
    assert (made.run.times["a"], made.commit().latest) == (at, at)


def test_the_times_of_a_step_never_run_back_and_those_of_others_do_not_matter() -> None:
    made = draft(run_of(step(), step("b"), times={"a": NOW + 5 * SECOND}))
    for key in ("a", "b"):
        made.tell(e.StepSucceeded([]), step=key)
    made.tell(e.RunSealed(False))
    assert made.run.times == {"a": NOW + 5 * SECOND, "b": NOW + SECOND}
    rows = made.commit()
    assert rows.latest == NOW + 5 * SECOND
    lines = [orjson.loads(line) for line in rows.lines]
    assert [(line["type"], line["step"], line["actor"]) for line in lines] == [
        ("step.succeeded", "a", {"kind": "engine", "id": "counterseal"}),
        ("step.succeeded", "b", {"kind": "engine", "id": "counterseal"}),
        ("run.sealed", None, {"kind": "engine", "id": "counterseal"}),
    ]
    assert draft(run_of()).commit().latest is None


BINDS = [*OUTCOMES[:5], e.ActionLate(receipt().receipt_id, 1, 1, "unanswered", "s")]  # type: ignore[arg-type]


@pytest.mark.parametrize("event", [*BINDS, e.ActionRecalled(receipt().receipt_id), e.StepSucceeded([])])
def test_a_line_about_an_action_binds_its_receipt_as_the_append_leaves_it(event: e.Event) -> None:
    made = draft(run_of(step(), receipt()))
    made.tell(event, step="a")
    made.run.receipts[receipt().receipt_id] = left = replace(receipt(), attempt=9)
    data = orjson.loads(made.commit().lines[0])["data"]
    assert data.get("receipt_digest") == (digest(left.to_evidence(KEY)) if event in BINDS else None)
    gone = draft(run_of(step(), receipt()))
    gone.tell(event, step="a")
    del gone.run.receipts[receipt().receipt_id]
    assert "receipt_digest" not in orjson.loads(gone.commit().lines[0])["data"]


def test_an_append_says_by_whom_votes_were_counted_and_by_which_name_the_run_goes() -> None:
    made = draft(run_of(step(), approval(), approval(number=V)))
    made.tell(e.ApprovalEscalated(V), step="a")
    assert (made.commit().people, made.commit().reference) == (None, None)
    made.tell(e.ApprovalConsumed(A), step="a")
    made.tell(e.RunReferenceSet([], "R2"))
    assert (made.commit().people, made.commit().reference) == ("dir", "R2")
    last = draft(run_of(step(), approval(), approval(number=V)))
    last.tell(e.ApprovalEscalated(A), step="a")
    last.tell(e.ApprovalConsumed(V), step="a")
    assert last.commit().people == "dir", "whichever of them was used"
    known = run_of(step(), approval(), reference="R2")
    known.answers[A] = ApprovalMove(A, "approved", consumed=True)
    same = draft(known)
    same.tell(e.RunReferenceSet([], "R2"))
    assert (same.commit().people, same.commit().reference) == (None, None)


MOVES: list[tuple[str, Any, bool]] = [
    ("status", RunState.WAITING, True), ("superstep", 9, True), ("canceling", {"by": "x"}, True),
    ("extensions", 9, True), ("reference", "other", True), ("finished", True, True), ("executing", 9, False),
    ("width", 9, False), ("writes", 9, False), ("paused", True, False), ("error", ERROR, False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "moves"), MOVES)
def test_an_append_moves_the_gate_if_it_changes_what_all_steps_share(name: str, value: Any, moves: bool) -> None:
    made = draft(run_of(step()))
    setattr(made.run, name, value)
    assert made.commit().moves_gate is moves
    assert made.after().gate == 2 + moves
    ends = draft(run_of(step()))
    ends.rows.cancels_rest = True
    assert ends.commit().moves_gate


@pytest.mark.parametrize(
    ("kept_at", "moved", "finished", "key", "stores"),
    [
        (5, True, False, KEY, False),
        (6 - EVERY, True, False, KEY, True),
        (7 - EVERY, True, False, KEY, False),
        (5 - EVERY, True, False, KEY, True),
        (6 - EVERY, False, False, KEY, False),
        (6 - EVERY, True, True, KEY, False),
        (6 - EVERY, True, False, b"", False),
    ],
)
def test_a_run_is_stored_beside_its_book_often_enough(
    kept_at: int, moved: bool, finished: bool, key: bytes, stores: bool
) -> None:
    asked = replace(approval(), card={"title": "t"}, action={"input": {}})
    known = run_of(step(), asked, replace(receipt(key="gone"), error=None), past={"gone": step("gone")})
    made = draft(replace(known, run_key=key), kept_at=kept_at)
    made.tell(e.StepSetBack(1), step="a")
    made.tell(e.RunSealed(True, reason="Enough."))
    if moved:
        made.run.width, made.run.canceling = 8, {"by": "x", "reason": ""}
    made.run.finished = finished
    rows = made.commit()
    assert (rows.state is not None) is stores
    first, data = (orjson.loads(line)["data"] for line in rows.lines)
    assert ("state" in data) is stores
    assert {"state", "stored"}.isdisjoint(first), "the last line of the append names what it stores"
    if rows.state is not None:
        run, head = unpack(rows.state, RUN_ID, key)
        assert (head, run.width, run.canceling) == (made.view.head, 8, {"by": "x", "reason": ""})
        assert (run.receipts, run.approvals) == ({}, {A: replace(asked, card={}, action=None)})
        assert made.run.past == {"gone": step("gone")}, "the run itself goes on with all that it has"
        assert data["state"] == digest_of(rows.state, key)
    assert ("stored" in data) is (rows.values is not None)
    after = made.after()
    assert (after.version, after.kept_at) == (6, 6 if stores else kept_at)
    assert after.head == made.view.head.after(rows.lines)
    silent = draft(run_of(step()), kept_at=kept_at)
    silent.run.canceling = {"by": "x"}
    assert silent.commit().state is None


# What the stored run leaves out, because the first line of the book has it.
NOT_KEPT = {"trigger", "opened_at"}


def test_the_view_afterwards_is_what_is_read_of_the_book() -> None:
    run = governed(EFFECT)
    transition = Transition(run.view(), run.workflow.graph)
    transition.started(replace(run.view().run.steps["a"], lease_owner="w", lease_epoch=1))
    run.claim("a", lambda key: run.apply(transition))
    assert replace(transition.after(), run=run.view().run) == run.view()
    after, read = (to_builtins(view.run, str_keys=True) for view in (transition.after(), run.view()))
    assert {name: value for name, value in after.items() if name not in NOT_KEPT} == {
        name: value for name, value in read.items() if name not in NOT_KEPT
    }


def test_the_view_afterwards_holds_what_is_open_and_no_rows_that_are_stored() -> None:
    run = run_of(step(), wait(due_in=SECOND), past={"gone": step("gone")}, ledger=[LedgerRow("c", 1, "a", 1)])
    made = draft(run)
    made.tell(e.StepSetBack(1), step="a")
    made.commit()
    after = made.after()
    assert (after.run.past, after.run.ledger, after.run.waits[W].due_in) == ({}, [], None)
    assert (after.version, after.gate, after.kept_at) == (6, 2, 3)


def test_a_draft_shows_its_steps_and_what_a_call_was_given() -> None:
    made = draft(run_of(step(), step("b"), past={"a": step("a", READY), "c": step("c")}))
    assert made.steps == {"a": step(), "b": step("b"), "c": step("c")}
    made.run.spoken = {"a/1/1": Spoken("a/1/1", "t", {"n": 1}), "a/1/2": Spoken("a/1/2", "t")}
    found = [seen_by(made.run, NO_GRAPH, {}, key) for key in ("a/1/1", "a/1/2", "a", "")]
    given: list[Any] = [dict(one).get("agent.given", "none") for one in found]
    assert given == [{"n": 1}, None, "none", "none"]
    assert {one["run.checkpoint"] for one in found} == {3}
    assert made.variables("a/1/1")["agent.given"] == {"n": 1}


# -- the end of a run --------------------------------------------------------------------------------------------------


def lines(made: Transition) -> list[tuple[str, Any]]:
    found = [orjson.loads(line) for line in made.commit().lines]
    return [(line["type"], line["step"] or line["data"].get("approval") or line["data"].get("wait")) for line in found]


def orders(made: Transition) -> list[tuple[str, Any, str | None]]:
    return [(row.kind, row.payload, row.ordering_key) for row in made.rows.commands]


BUNDLE: Any = ("bundle", {}, f"bundle:{RUN_ID}")


@pytest.mark.parametrize("parent", [None, PARENT])
def test_the_end_of_a_run_orders_its_evidence_and_tells_the_run_that_waits_for_it(parent: UUID | None) -> None:
    made = draft(run_of(), parent=parent)
    made.close(RunState.FAILED_TERMINAL, {**ERROR, "step": "a", "by": "x"}, result={"n": 1})
    back = [("return", {"run": str(RUN_ID)}, None)] if parent else []
    assert orders(made) == [BUNDLE, *back]
    assert (made.run.status, made.run.error, made.run.result) == (
        "failed_terminal",
        {**ERROR, "step": "a", "by": "x"},
        {"n": 1},
    )
    (line,) = made.commit().lines
    told = orjson.loads(line)["data"]
    assert (told["status"], told["error"]) == ("failed_terminal", {"class": "transport", "code": "x", "step": "a"})


def test_the_public_part_of_an_error_is_its_class_its_code_and_its_step() -> None:
    assert error_facts({**ERROR, "step": "a", "by": "x", "sent": True}) == {
        "class": "transport", "code": "x", "step": "a",
    }  # fmt: skip
    assert error_facts({"class": "expression", "message": "m"}) == {"class": "expression"}
    assert error_facts({"message": "m"}) == {}
    assert error_facts({"code": "", "step": "", "class": None}) == {"code": "", "step": "", "class": None}


@pytest.mark.parametrize(
    ("status", "parked", "open_", "cancels"),
    [
        (RunState.RUNNING, {}, [], False),
        (RunState.RUNNING, {"p": "wait:1"}, [], True),
        (RunState.RUNNING, {}, ["o"], True),
        (RunState.QUEUED, {}, [], True),
        (RunState.WAITING, {}, [], False),
    ],
)
def test_the_end_of_a_run_cancels_all_its_steps_that_are_open(
    status: RunState, parked: Any, open_: Any, cancels: bool
) -> None:
    rows = [
        step("d", StepState.SUCCEEDED),
        step("c", StepState.FAILED_TERMINAL),
        step("b", StepState.WAITING),
        step("a"),
    ]
    run = run_of(*rows, status=status)
    run.state.parked, run.state.open = parked, open_
    made = draft(run)
    made.close(RunState.CANCELED)
    canceled = [key for kind, key in lines(made) if kind == "step.canceled"]
    assert (canceled, made.rows.cancels_rest) == (["a", "b", *open_, *parked], cancels)
    assert lines(made)[-1] == ("run.closed", None)


def test_the_end_of_a_run_withdraws_its_questions_and_none_is_posted_that_was_put_in_its_last_append() -> None:
    known = run_of(step(), approval(), approval(number=V))
    known.answers[V] = ApprovalMove(V, "approved")
    made = draft(known)
    fresh = UUID(int=9)
    made.run.approvals[fresh], made.run.answers[fresh] = approval(number=fresh), ApprovalMove(fresh, "requested")
    for one in (A, fresh):
        made.message("card", one, "requested")
    made.close(RunState.CANCELED)
    assert [(kind, at) for kind, at in lines(made) if kind == "approval.decided"] == [
        ("approval.decided", str(A)), ("approval.decided", str(fresh)),
    ]  # fmt: skip
    cards = [("card", {"approval": str(A)}, f"approval:{A}")] * 2
    assert orders(made) == [*cards, BUNDLE]
    assert {one.status for one in made.run.answers.values()} == {"canceled", "approved"}


ELSEWHERE = (WaitKind.CHILD, WaitKind.EXTERNAL, WaitKind.TASK)


@pytest.mark.parametrize("kind", [*WaitKind])
@pytest.mark.parametrize("status", [WaitState.WAITING, WaitState.TIMED_OUT])
@pytest.mark.parametrize("context", [None, {"abandons": True}, {"abandons": "yes"}])
@pytest.mark.parametrize("fresh", [False, True])
def test_the_end_of_a_run_ends_what_it_has_begun_elsewhere(
    kind: WaitKind, status: WaitState, context: Any, fresh: bool
) -> None:
    begun = wait(kind=kind, status=status, context=context, key="z")
    made = draft(run_of(*([] if fresh else [begun])))
    made.run.waits[W] = begun
    made.order("task", str(W), {"task": str(W)})
    made.order("task", str(V), {"task": str(V)})
    made.close(RunState.CANCELED)
    posted, other = (("task", {"task": str(one)}, None) for one in (W, V))
    ends = kind in ELSEWHERE and status is WaitState.WAITING
    ends = ends and (context != {"abandons": True} or (fresh and kind is WaitKind.TASK))
    if not ends:
        assert orders(made) == [posted, other, BUNDLE]
    elif kind is not WaitKind.TASK:
        assert orders(made) == [posted, other, ("cancel", {"wait": str(W)}, None), BUNDLE]
    elif fresh:
        assert orders(made) == [other, BUNDLE]
    else:
        assert orders(made) == [posted, other, ("task", {"task": str(W)}, f"task:{W}"), BUNDLE]
    assert [at for told, at in lines(made) if told == "wait.canceled"] == (["z"] if ends else [])
    assert made.run.waits[W].status == (WaitState.CANCELED if ends else status)


@pytest.mark.parametrize("status", [RunState.SUCCEEDED, RunState.FAILED_TERMINAL, RunState.CANCELED])
def test_a_run_that_is_over_is_not_sealed(status: RunState) -> None:
    with pytest.raises(ConsistencyError, match=f"The run is {status}: it waits for no more steps."):
        draft(run_of(status=status, held_open=True)).seal(ANN)


@pytest.mark.parametrize(
    ("held", "canceling", "refused"), [(True, None, False), (False, None, True), (True, {"by": "x"}, True)]
)
def test_a_run_is_sealed_while_it_is_held_open_and_nobody_cancels_it(held: bool, canceling: Any, refused: bool) -> None:
    made = draft(run_of(step(), held_open=held, canceling=canceling))
    if refused:
        with pytest.raises(ConsistencyError, match=r"^The run waits for no more steps"):
            made.seal(ANN, "enough")
        assert made.rows.sealed == []
        return
    made.seal(ANN, "enough")
    (line,) = [orjson.loads(line) for line in made.commit().lines]
    assert (line["type"], line["actor"], line["data"]["reason_given"]) == (
        "run.sealed", {"kind": "person", "id": "ann"}, True,
    )  # fmt: skip
    assert (made.rows.sealed, made.run.held_open, made.run.finished) == (["run"], False, False)
    silent = draft(run_of(step(), held_open=True))
    silent.seal(Actor("person", "ben"))
    (line,) = [orjson.loads(line) for line in silent.commit().lines]
    assert (line["data"], line["actor"]["id"]) == ({"reason_given": False}, "ben")


@pytest.mark.parametrize(
    ("status", "executing", "parked", "ends"),
    [
        (RunState.WAITING, 0, {}, True),
        (RunState.WAITING, 1, {}, False),
        (RunState.WAITING, 0, {"a": "wait:1"}, False),
        (RunState.RUNNING, 0, {}, False),
    ],
)
def test_a_sealed_run_whose_steps_are_done_ends_at_once(
    status: RunState, executing: int, parked: Any, ends: bool
) -> None:
    made = draft(run_of(status=status, executing=executing, held_open=True, parked=parked))
    made.seal(ANN)
    assert [kind for kind, _ in lines(made)] == ["run.sealed", *(["run.closed"] if ends else [])]
    assert (made.run.status, made.run.finished) == ("succeeded" if ends else status, ends)


RESULTS: list[tuple[str, dict[str, Any], str, Any, Any]] = [
    ("", {}, "succeeded", None, None),
    ('result: {n: "${{ state.n }}"}\n', {"n": 5}, "succeeded", {"n": 5}, None),
    ('result: "${{ state.n }}"\n', {"n": None}, "succeeded", None, None),
    ('result: "${{ string(state.n) }}"\n', {"n": [1]}, "failed_terminal", None, "expression"),
    ('result: "${{ state.n }}"\n', {"n": 2**60}, "failed_terminal", None, "expression"),
]


@pytest.mark.parametrize(("declared", "channels", "status", "result", "kind"), RESULTS)
def test_a_run_whose_steps_are_done_has_its_result_or_fails_with_what_is_wrong_with_it(
    declared: str, channels: Any, status: str, result: Any, kind: str | None
) -> None:
    text = EFFECT.replace("steps:", f"channels: {{n: {{initial: 0}}}}\n{declared}steps:")
    made = Transition(view_of(run_of()), load_workflow(text, "test.yaml", CATALOG).graph)
    made.run.state.channels = channels
    made.conclude()
    assert (made.run.status, made.run.result, made.run.finished) == (status, result, True)
    error: Any = made.run.error
    assert (error and (error["class"], error["step"], "code" in error)) == (kind and (kind, "result", False))
    assert bool(error) is (kind is not None)


def test_ids_follow_from_the_run_the_step_and_its_lease() -> None:
    first, later = step(), replace(step(), lease_epoch=3)
    assert step_id_of(RUN_ID, "each[3].a") == derived_id(RUN_ID, "step:each[3].a")
    assert [wait_of(RUN_ID, row) for row in (first, later)] == [
        derived_id(RUN_ID, "wait:a:2"), derived_id(RUN_ID, "wait:a:3"),
    ]  # fmt: skip
    assert [expected_of(RUN_ID, row) for row in (first, later)] == [
        derived_id(RUN_ID, "expected:a:2"), derived_id(RUN_ID, "expected:a:3"),
    ]  # fmt: skip
    assert str(step_id_of(RUN_ID, "a")) == "01930000-0000-8294-9745-0f7e36f2a5de"


def test_a_run_that_is_held_open_waits_for_more_only_when_its_steps_are_done() -> None:
    run = held(open=3600, text=EFFECT + "  - {id: b, do: probe.effect.apply, with: {name: y}}\n")
    assert (run.drive("a").status, run.view().run.waits_for_more) == ("running", False)
    assert (run.drive("b").status, run.view().run.waits_for_more) == ("waiting", True)
    asks = held(open=3600, text=GATE).drive()
    assert (asks.status, asks.view().run.waits_for_more) == ("waiting_approval", False)
