"""Calls of the database's functions, value by value under the names of their parameters. Without a database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from core.errors import ConsistencyError
from runtime.engine.commit import ApprovalMove, Claim, CommandRow, Commit, QueueRow, StepRow, VoteRow, WaitRow
from runtime.engine.shared_rows import EffectRow, JoinRow, RecordRow, ShareRow
from runtime.engine.states import CommandState, EffectState, RunState, StepState, WaitKind, WaitState
from runtime.engine.told import Diverged
from runtime.store import books, faces
from runtime.store.books import Book
from runtime.store.commits import ENGINES, SENT, can_go_together, rest, sent
from runtime.store.faces import OPENED, NewRun
from tests.support.rows import uid

pytestmark = pytest.mark.req("V-7")

AT = datetime(2026, 11, 1, 2, 3, 4, 567_890, tzinfo=UTC)
STEP = StepRow(uid(31), "next", 3, "x.y.z", 4, StepState.RUNNING, lease_epoch=32)
COMMIT = Commit(
    run_id=uid(1),
    tenant_id="acme",
    workspace_id="two",
    expected_version=2,
    gate=3,
    status=RunState.WAITING,
    superstep=4,
    width=5,
    executing=6,
    writes=7,
    writes_max=8,
    error={"n": 9},
    canceling={"n": 10},
    reference="eleven",
    result={"n": 12},
    extended=13,
    finished=True,
    stop=14,
    lease=timedelta(seconds=15),
    held=[Claim("a", uid(16), 17), Claim("b", uid(18), 19)],
    unqueued=["c"],
    handed=[("d", STEP)],
    lines=[b"one", b"two"],
    values=b"values",
    latest=AT,
    state=b"state",
)
WHOLE: dict[str, Any] = {
    "_run_id": uid(1), "_version": 2, "_status": "waiting", "_superstep": 4, "_executing": 6, "_width": 5,
    "_writes": 7, "_count": 2, "_error": {"n": 9}, "_canceling": {"n": 10}, "_finished": True, "_acts_for": "acme",
    "_stop": 14, "_reference": "eleven", "_result": {"n": 12}, "_extended": 13, "_gate": 3, "_writes_max": 8,
    "_moved": 0, "_latest": AT, "_lines": b"one\ntwo", "_vals": b"values", "_wakes_steps": False,
    "_wakes_messages": False, "_unqueued": ["c"], "_rest": None, "_held": ["a", "b"], "_leases": [uid(16), uid(18)],
    "_epochs": [17, 19], "_state": b"state", "_lease": timedelta(seconds=15), "_handed": ["d"], "_next": ["next"],
    "_next_ids": [uid(31)], "_next_epochs": [32],
}  # fmt: skip


def names(declared: str) -> list[str]:
    return [each.split()[0] for each in declared.split(",")]


def by_name(commit: Commit) -> dict[str, Any]:
    """The values of a commit as the engine sends them, by the parameters that they are for."""
    return dict(zip(names(f"{SENT}, {ENGINES}"), sent(commit, engine=True), strict=True))


def test_every_part_of_a_commit_is_sent_under_its_own_name() -> None:
    assert by_name(COMMIT) == WHOLE
    assert dict(zip(names(SENT), sent(COMMIT), strict=True)) == {name: WHOLE[name] for name in names(SENT)}


HANDED: Any = [
    SimpleNamespace(key=k, step_id=uid(n), lease_epoch=epoch) for k, n, epoch in (("b", 41, 0), ("a", 40, 7))
]


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({"strict": False}, {"_version": None}),
        ({"strict": False, "moves_gate": True}, {"_version": None, "_moved": 1}),
        ({"executing": 0}, {"_executing": 0}),
        (
            {"handed": [("e", HANDED[0]), ("d", HANDED[1])]},
            {"_handed": ["e", "d"], "_next": ["b", "a"], "_next_ids": [uid(41), uid(40)], "_next_epochs": [0, 7]},
        ),
        ({"stop": None}, {"_stop": None, "_acts_for": None}),
        ({"stop": 0}, {"_stop": 0}),
        ({"writes": 0}, {"_writes": 0, "_writes_max": None}),
        ({"writes": 0, "counted": True}, {"_writes": 0}),
        ({"writes_max": None}, {"_writes_max": None}),
        ({"moves_gate": True}, {"_moved": 1}),
        ({"lines": []}, {"_lines": None, "_count": 0}),
        ({"held": []}, {"_held": None, "_leases": None, "_epochs": None}),
        ({"handed": []}, {"_handed": None, "_next": None, "_next_ids": None, "_next_epochs": None}),
        ({"unqueued": []}, {"_unqueued": None}),
        ({"requeued": ["a"]}, {"_wakes_steps": True, "_rest": {"requeued": ["a"]}}),
        ({"cancels_rest": True}, {"_rest": {"cancels_rest": True}}),
        ({"sealed": ["run"]}, {"_rest": {"sealed": ["run"]}}),
        ({"people": "d1"}, {"_rest": {"people": "d1"}}),
        ({"executing": -1}, {"_executing": -1, "_rest": {"barrier": True}}),
        ({"executing": -1, "moves_gate": True}, {"_executing": -1, "_moved": 1}),
    ],
)
def test_a_part_that_a_commit_has_not_is_not_sent(changes: dict[str, Any], differs: dict[str, Any]) -> None:
    assert by_name(replace(COMMIT, **changes)) == {**WHOLE, **differs}


WAIT = WaitRow(
    uid(1), uid(2), "a", WaitKind.SIGNAL, WaitState.WAITING, "t", timedelta(seconds=1.5), {"n": 3}, "k", {"n": 4},
    False,
)  # fmt: skip
PARTS: list[tuple[str, Any, dict[str, Any]]] = [
    (
        "queued", QueueRow("a", uid(1), 2, True),
        {"key": "a", "step_id": uid(1), "epoch": 2, "starts_run": True},
    ),
    (
        "new_waits", WAIT,
        {"wait_id": uid(1), "step_id": uid(2), "step_key": "a", "kind": "signal", "status": "waiting", "token": "t",
         "context": {"n": 3}, "due_in": 1.5, "correlation_key": "k", "parked": False},
    ),
    (
        "waits", WAIT,
        {"wait_id": uid(1), "status": "waiting", "context": {"n": 3}, "result": {"n": 4}, "due_in": 1.5,
         "parked": False},
    ),
    (
        "commands", CommandRow(uid(1), "card", CommandState.PENDING, {"n": 1}, "k"),
        {"command_id": uid(1), "kind": "card", "status": "pending", "payload": {"n": 1}, "ordering_key": "k"},
    ),
    (
        "approvals", ApprovalMove(uid(1), "approved", "approve", "because", True, True, AT),
        {"approval_id": uid(1), "status": "approved", "choice": "approve", "reason": "because", "consumed": True,
         "escalated": True},
    ),
    (
        "votes", VoteRow(uid(1), "ann", "approve", "because", ["owners"], "slack"),
        {"approval_id": uid(1), "person_id": "ann", "choice": "approve", "reason": "because", "groups": ["owners"],
         "channel": "slack"},
    ),
    (
        "effects", EffectRow("k", "a", uid(1), EffectState.BEGUN, uid(2), uid(3)),
        {"key": "k", "step_key": "a", "receipt_id": uid(1), "status": "begun", "was": uid(2), "wait_id": uid(3)},
    ),
    (
        "shares", ShareRow("k", uid(1), EffectState.LEFT, uid(3)),
        {"key": "k", "receipt_id": uid(1), "status": "left", "wait_id": uid(3)},
    ),
    ("joins", JoinRow("k", uid(1)), {"key": "k", "receipt_id": uid(1)}),
    (
        "records", RecordRow("c", "k", {"n": 1}, True, 2, True),
        {"collection": "c", "key": "k", "value": {"n": 1}, "absent": True, "expects": 2, "removes": True},
    ),
]  # fmt: skip
ALONE = {"effects", "shares", "joins", "records"}


@pytest.mark.parametrize(("part", "row", "wanted"), PARTS, ids=[part for part, _, _ in PARTS])
def test_each_row_of_a_part_is_sent_with_all_of_its_columns(part: str, row: Any, wanted: dict[str, Any]) -> None:
    commit = replace(COMMIT, **{part: [row]})
    assert rest(commit) == {part: [wanted]}
    differs = {"_rest": {part: [wanted]}}
    differs |= {"_wakes_steps": True} if part == "queued" else {}
    differs |= {"_wakes_messages": True} if part == "commands" else {}
    assert by_name(commit) == {**WHOLE, **differs}
    assert can_go_together(commit) is (part not in ALONE)


def test_what_waits_for_other_locks_goes_alone() -> None:
    assert can_go_together(COMMIT)
    assert not can_go_together(replace(COMMIT, cancels_rest=True))
    assert not can_go_together(replace(COMMIT, requeued=["a"]))


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls that a face makes; each answers with the time."""
    made: list[Any] = []

    async def noted(at: Any, call: Any) -> Any:
        made.append((at, call))
        return AT

    monkeypatch.setattr(faces, "_called", noted)
    return made


NOTHING: Any = "the connection"


@pytest.mark.parametrize(
    ("answers", "moves_gate", "strict", "of"),
    [(None, False, True, None), (None, True, True, None), ("a", False, False, "a"), ("a", True, True, None)],
)
async def test_an_answer_commutes_with_other_steps_unless_it_moves_the_gate(
    called: list[Any], answers: str | None, moves_gate: bool, strict: bool, of: str | None
) -> None:
    commit = replace(COMMIT, moves_gate=moves_gate, handed=[], strict=not strict)
    assert await faces.append(NOTHING, commit, answers=answers)
    ((at, call),) = called
    assert (at, call.function) == (NOTHING, "append_to_run")
    values = dict(zip([*names(SENT), "_answers", "_expected", "_tenant"], call.parameters, strict=True))
    wanted = {name: WHOLE[name] for name in names(SENT)} | {
        "_moved": int(moves_gate),
        "_version": 2 if strict else None,
    }
    assert values == {**wanted, "_answers": of, "_expected": 2, "_tenant": "acme"}
    assert call.order == ("", str(uid(1)))


@pytest.mark.parametrize("part", [part for part, _, _ in PARTS])
async def test_a_face_sends_no_part_that_only_the_engine_may(called: list[Any], part: str) -> None:
    row = next(row for name, row, _ in PARTS if name == part)
    commit = replace(COMMIT, handed=[], **{part: [row]})
    if part in faces.PARTS:
        assert await faces.append(NOTHING, commit)
        assert (called[0][1].order is None) == (part in ALONE)
    else:
        with pytest.raises(ConsistencyError, match=f"No face may write this of a run: {part}"):
            await faces.append(NOTHING, commit)
        assert called == []


@pytest.mark.req("Q-1")
async def test_a_run_is_opened_with_every_part_of_its_order(called: list[Any]) -> None:
    run = NewRun(
        workflow="w", workflow_version=41, workflow_digest="d42", trigger_type="http", trigger_ref="r43",
        reference="r44", requested_by="ann", sla=timedelta(45), run_key=b"k46", retention=timedelta(47), parent=uid(48),
        depth=49, cap="c50", pinned=False, inherits=True, open_for=timedelta(51),
    )  # fmt: skip
    assert await faces.open_run(NOTHING, replace(COMMIT, ledger=[]), run) == AT
    ((_, call),) = called
    assert call.function == "open_run"
    assert dict(zip(names(OPENED), call.parameters, strict=True)) == {
        "_run_id": uid(1), "_tenant_id": "acme", "_workspace_id": "two", "_workflow": "w", "_workflow_version": 41,
        "_workflow_digest": "d42", "_trigger_type": "http", "_trigger_ref": "r43", "_reference": "r44",
        "_requested_by": "ann", "_superstep": 4, "_executing": 6, "_width": 5, "_sla": timedelta(45),
        "_retention": timedelta(47), "_parent": uid(48), "_depth": 49, "_run_key": b"k46", "_cap": "c50",
        "_pinned": False, "_inherits": True, "_open": timedelta(51), "_count": 2, "_lines": b"one\ntwo",
        "_vals": b"values", "_rest": None,
    }  # fmt: skip
    assert call.order == ("acme", "two", "w", "http", "r43")


@pytest.mark.req("Q-1")
async def test_a_run_is_opened_with_nothing_and_with_zero_as_they_are(called: list[Any]) -> None:
    """A term that nobody gave is none, not that of something else."""
    for more in ({}, {"sla": timedelta(1)}, {"retention": timedelta(0)}, {"open_for": timedelta(0)}, {"pinned": False}):
        given: dict[str, Any] = {"sla": None, "reference": "", "requested_by": "", **more}
        run = NewRun(workflow="w", workflow_version=1, workflow_digest="d", trigger_type="t", trigger_ref="ref",
                     run_key=b"", **given)  # fmt: skip
        await faces.open_run(NOTHING, replace(COMMIT, ledger=[]), run)
        values = dict(zip(names(OPENED), called[-1][1].parameters, strict=True))
        wanted = {
            "_sla": given["sla"], "_retention": given.get("retention"), "_reference": "", "_requested_by": "",
            "_parent": None, "_depth": 0, "_run_key": b"", "_cap": "", "_pinned": given.get("pinned", True),
            "_inherits": False, "_open": given.get("open_for"),
        }  # fmt: skip
        assert {name: values[name] for name in wanted} == wanted


async def test_everything_that_a_face_may_not_write_is_named(called: list[Any]) -> None:
    every = {name: row for name, row, _ in PARTS if name not in faces.PARTS}
    commit = replace(COMMIT, **{name: [row] for name, row in every.items()})
    with pytest.raises(ConsistencyError) as caught:
        await faces.append(NOTHING, commit)
    words, _, listed = str(caught.value).rstrip(".").partition(": ")
    assert (words, {*listed.split(", ")}) == ("No face may write this of a run", {"handed", *every})
    with pytest.raises(ConsistencyError, match="this of a run: handed"):
        await faces.append(NOTHING, COMMIT)
    assert called == []


FOLDED = {
    "superstep": 4, "writes": 2, "reference": "r", "extensions": 1, "error": {"n": 1}, "canceling": {"by": "ann"},
    "result": {"n": 2}, "status": "succeeded",
}  # fmt: skip


@pytest.mark.req("Q-21")
@pytest.mark.parametrize("name", FOLDED)
@pytest.mark.parametrize("finished", [True, False])
def test_each_column_of_a_run_s_row_is_compared_with_its_book(name: str, finished: bool) -> None:
    """The status only once the run is over: before that others may be moving it."""
    run: Any = SimpleNamespace(**FOLDED, finished=finished, run_id=uid(1))
    stored: Any = {**FOLDED, name: None if name in ("error", "canceling", "result") else 9}
    books.check_row(Book(FOLDED, (), ()), run)  # a mapping is all that is read of a row
    if name == "status" and not finished:
        books.check_row(Book(stored, (), ()), run)
        return
    with pytest.raises(Diverged, match=f"The {name} of the run {uid(1)} is not what its lines tell") as raised:
        books.check_row(Book(stored, (), ()), run)
    assert raised.value.check == "run"
