"""The rows that a run's book asks for: which are compared at all, under which check, and which columns of each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from runtime.engine import lives
from runtime.engine.commit import StepRow
from runtime.engine.draft import BARRIER
from runtime.engine.states import EffectState, RunState, StepState
from runtime.engine.told import Diverged
from runtime.store import books, rows
from tests.support.asked import Asked, Row
from tests.support.rows import uid

pytestmark = pytest.mark.req("Q-21")

NOTHING: Any = None


def step(key: str, status: StepState, superstep: int = 2) -> StepRow:
    number = ord(key[0])
    return StepRow(uid(number), key, 0, "o", superstep, status, lease_epoch=number, lease_owner=f"owner of {key}")


def run(**more: Any) -> Any:
    values: dict[str, Any] = {
        "finished": False, "canceling": None, "waits": {}, "approvals": {}, "answers": {}, "votes": [], "ledger": [],
        "width": 2, "executing": 2, "status": RunState.RUNNING, "superstep": 2, "steps": {}, "receipts": {},
        "state": SimpleNamespace(open=[]),
    }  # fmt: skip
    return SimpleNamespace(**{**values, **more})


NAMES = [
    ("queue", "place in the queue", rows._QUEUE), ("waits", "wait", rows._WAITS),
    ("approvals", "approval", rows._APPROVALS), ("approvals", "vote", rows._VOTES),
    ("effects", "effect", rows._EFFECTS), ("ledger", "entry of the ledger", rows._LEDGER),
]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "compared"),
    [({}, 6), ({"finished": True}, 5), ({"canceling": {"by": "ann"}}, 5), ({"finished": True, "canceling": {}}, 5)],
)
def test_each_table_is_compared_under_its_own_name(more: Any, compared: int) -> None:
    """A cancel leaves the places that somebody has locked to their leases, and an end leaves none."""
    found = [(check, what, statement) for check, what, statement, _ in rows._tables(run(**more))]
    assert found == NAMES[-compared:]


@pytest.mark.parametrize("life", [*EffectState])
def test_an_effect_that_failed_or_was_left_may_be_another_s_by_now(
    monkeypatch: pytest.MonkeyPatch, life: EffectState
) -> None:
    receipt = SimpleNamespace(step_key="a", receipt_id=uid(1), idempotency_key="k")
    monkeypatch.setattr(lives, "performed", lambda _: {uid(1): (receipt, life, NOTHING)})
    held = {"k": {"step_key": "a", "receipt_id": str(uid(1)), "status": life}}
    assert rows._effects(run()) == ({} if life in ("failed", "left") else held)


STEPS = {
    each.key: each
    for each in (
        step("begun", StepState.RUNNING), step("line", StepState.READY), step("next", StepState.READY, 3),
        step("waits", StepState.WAITING), step("over", StepState.SUCCEEDED), step("early", StepState.RUNNING, 3),
    )
}  # fmt: skip


def place(key: str, *, held: bool) -> dict[str, Any]:
    number = ord(key[0])
    leased = {"status": "leased", "owner": f"owner of {key}", "epoch": number}
    return {"step_id": str(uid(number)), **(leased if held else {})}


def test_whoever_is_in_line_or_at_work_has_a_place_and_nobody_else() -> None:
    found = rows._places(run(steps=STEPS, state=SimpleNamespace(open=["line", "begun"])))
    assert found == {
        "begun": place("begun", held=True), "line": place("line", held=False), "early": place("early", held=True),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("first", "there"), [(["line", "mine"], {"line"}), (["mine", "line"], {"mine"}), ([], set())]
)  # fmt: skip
def test_of_a_run_that_has_not_begun_only_the_first_step_is_in_line(first: list[str], there: set[str]) -> None:
    steps = {key: step(key, StepState.READY) for key in ("line", "mine")}
    found = rows._places(run(steps=steps, status=RunState.QUEUED, state=SimpleNamespace(open=first)))
    assert {*found} == there


@pytest.mark.parametrize(
    ("width", "executing", "barrier"), [(2, 0, True), (1, 0, True), (0, 0, False), (2, 1, False), (1, 1, False)]
)
def test_a_barrier_that_is_due_has_the_only_place(width: int, executing: int, barrier: bool) -> None:
    found = rows._places(run(steps=STEPS, width=width, executing=executing, state=SimpleNamespace(open=["line"])))
    assert (found == {BARRIER: {}}) is barrier
    assert (BARRIER in found) is barrier


def test_every_column_of_a_row_is_that_of_its_book() -> None:
    names = {
        "waits": "wait_id step_key kind status token correlation_key context result",
        "votes": "approval_id person_id choice reason groups channel",
        "ledger": "superstep step_key channel value",
    }
    told = {
        table: SimpleNamespace(**{name: f"{table} {name}" for name in each.split()}) for table, each in names.items()
    }
    said = ("status", "choice", "reason", "escalated", "consumed")
    answer = SimpleNamespace(**{name: f"answer {name}" for name in said})
    asked = SimpleNamespace(step_key="asked by", status="of the question", approval_id=uid(1))
    found = run(
        waits={1: told["waits"]}, votes=[told["votes"]], ledger=[told["ledger"]], approvals={uid(1): asked},
        answers={uid(1): answer},
    )  # fmt: skip
    expected = [what for *_, what in rows._tables(found)][1:]
    waits, votes = names["waits"].split()[1:], names["votes"].split()[2:]
    assert expected == [
        {"waits wait_id": {name: f"waits {name}" for name in waits}},
        {str(uid(1)): {"step_key": "asked by", **vars(answer)}},
        {"votes approval_id votes person_id": {name: f"votes {name}" for name in votes}},
        {},
        {"ledger superstep ledger step_key ledger channel": {"value": "ledger value"}},
    ]


def test_a_column_without_a_value_is_compared_as_well_and_names_keep_their_case() -> None:
    nothing = {"correlation_key": None, "context": None, "result": None, "token": ""}
    names = ("wait_id", "step_key", "kind", "status")
    waits = {n: SimpleNamespace(**{name: f"{name} {n}" for name in names}, **nothing) for n in ("B", "a")}
    answer = SimpleNamespace(status="requested", choice=None, reason=None, escalated=False, consumed=False)
    asked = SimpleNamespace(step_key="s", approval_id=uid(1))
    votes = [
        SimpleNamespace(approval_id=uid(1), person_id=person, choice="approve", reason=None, groups=[], channel="cli")
        for person in ("Bob", "bob")
    ]
    entry = SimpleNamespace(superstep=0, step_key="s", channel="C", value=None)
    found = run(
        waits=waits, votes=votes, ledger=[entry], approvals={uid(1): asked, uid(2): asked},
        answers={uid(1): answer, uid(2): answer},
    )  # fmt: skip
    expected = [what for *_, what in rows._tables(found)][1:]
    vote: dict[str, Any] = {"choice": "approve", "reason": None, "groups": [], "channel": "cli"}
    assert expected == [
        {f"wait_id {n}": {**{name: f"{name} {n}" for name in names[1:]}, **nothing} for n in ("B", "a")},
        {str(uid(n)): {"step_key": "s", **vars(answer)} for n in (1, 2)},
        {f"{uid(1)} {person}": vote for person in ("Bob", "bob")},
        {},
        {"0 s C": {"value": None}},
    ]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_book_of_which_nothing_is_left_is_a_broken_one(count: int) -> None:
    row: Any = {
        "run_id": uid(1), "firsts": None, "every_lines": None, "every_vals": None, "audit_count": count,
        "audit_head": "0" * 64,
    }  # fmt: skip
    with pytest.raises(Diverged) as caught:
        books._unbroken(row)
    assert (caught.value.check, str(caught.value).startswith("The audit chain is broken: ")) == ("chain", True)


HERE = Row(id="w", step_key="a", status="waiting")


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ([], "The wait w is not stored."),
        (
            [Row(id="w", step_key="a", status="waiting"), Row(id="v", step_key="a")],
            "The wait v is stored, and in no line.",
        ),
        ([Row(id="w", step_key="a", status="over")], "The status of the wait w of a is not what its lines tell."),
        ([HERE], None),
        ([Row(id="w", step_key="b", status="waiting")], "The step_key of the wait w of a is not what its lines tell."),
        ([HERE, Row(id="z"), Row(id="x")], "The wait x is stored, and in no line."),
        ([Row(id="x")], "The wait w is not stored."),
        ([Row(id="x"), Row(id="w", step_key="a", status="over")], "The status of the wait w of a is not"),
    ],
)
async def test_the_first_row_that_differs_is_named(stored: list[Row], said: str | None) -> None:
    connection: Any = Asked(stored)
    expected = {"w": {"step_key": "a", "status": "waiting"}}
    holding = rows.hold(connection, uid(1), ("waits", "wait"), "the statement", expected)
    if said is None:
        await holding
    else:
        with pytest.raises(Diverged) as caught:
            await holding
        assert (caught.value.check, str(caught.value).startswith(said)) == ("waits", True)
    assert connection.told == [("the statement", uid(1))]


async def test_a_row_without_a_step_is_named_by_itself() -> None:
    connection: Any = Asked([Row(id="v", choice="reject")])
    with pytest.raises(Diverged, match=r"The choice of the vote v is not what its lines tell\."):
        await rows.hold(connection, uid(1), ("approvals", "vote"), "the statement", {"v": {"choice": "approve"}})


@pytest.mark.parametrize("differs", [None, 0, 3, 5])
async def test_every_table_is_compared_until_one_differs(monkeypatch: pytest.MonkeyPatch, differs: int | None) -> None:
    held: list[Any] = []

    async def hold(connection: Any, run_id: Any, called: Any, statement: str, expected: Any) -> None:
        assert (connection, run_id, expected) == (NOTHING, uid(1), {})
        held.append((*called, statement))
        if len(held) - 1 == differs:
            raise Diverged("It differs.")

    monkeypatch.setattr(rows, "hold", hold)
    checking = rows.check_rows(NOTHING, run(run_id=uid(1)))
    if differs is None:
        await checking
    else:
        with pytest.raises(Diverged):
            await checking
    assert held == (NAMES if differs is None else NAMES[: differs + 1])
