"""A step's past: its last receipt, the approval that it may use, the wait that counts (promise 1)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from approvals.model import ApprovalKind, Choice, Vote, VoteChannel
from core.identity import Contributor, Directory, Entry, Role
from core.terms import Escalation, GroupQuorum, Terms, Tier
from runtime.engine.commit import ApprovalMove, VoteRow
from runtime.engine.instructions import (
    LEFT,
    STALE,
    Given,
    Known,
    given_of,
    known_of,
    last_receipt,
    open_wait,
    still_approved,
)
from runtime.engine.run import Run
from tests.engine.conftest import NOW
from tests.engine.governing import EFFECT, PEOPLE, governed
from tests.engine.test_copies import full_run
from tests.engine.test_lives import receipt, run_of, wait

pytestmark = pytest.mark.req("Q-14")

OWNERS, BOSSES = GroupQuorum("owners", 2), GroupQuorum("bosses")
TERMS = Terms(Tier.HIGH, (OWNERS,), escalate=Escalation(60, BOSSES), expires_seconds=999, fresh_seconds=600)
ASKED = Contributor(Role.REQUESTER, "someone", None)


def vote(person: str, choice: Choice = Choice.APPROVE, *groups: str) -> Vote:
    own = frozenset(f"group:{name}" for name in groups or ("owners",))
    return Vote(person, person, choice, "", own, VoteChannel.CLI, "", "d")


BOTH = (vote("ana"), vote("ben"))


def given(*votes: Vote, **more: Any) -> Given:
    approval = Given(
        UUID(int=5), ApprovalKind.ACTION, "d", Choice.APPROVE, "", TERMS, (ASKED,), votes or BOTH, False, NOW
    )
    return replace(approval, **more)


def directory(*people: str, **more: Any) -> Directory:
    return Directory.of("d1", [Entry(name, name, groups=frozenset({"owners", "bosses"}), **more) for name in people])


@pytest.mark.parametrize(
    ("approval", "carried"),
    [
        (given(), True),
        (given(vote("ana")), False),
        (given(vote("ana"), vote("ana")), False),
        (given(vote("ana"), vote("ben", Choice.REJECT)), False),
        (given(vote("ana"), vote("ben"), vote("ben", Choice.REJECT)), False),
        (given(vote("ana"), vote("ben", Choice.APPROVE, "bosses")), False),
        (given(vote("ana", Choice.APPROVE, "bosses")), False),
        (given(vote("ana", Choice.APPROVE, "bosses"), escalated=True), True),
        (given(contributors=(Contributor(Role.REQUESTER, "x", "ana"),)), False),
        (given(contributors=(Contributor(Role.REQUESTER, "x", "cy"),)), True),
        *(
            (given(*(vote(name, choice) for name in ("ana", "ben")), choice=choice), approves)
            for choice, approves in (
                (Choice.APPROVE, True),
                (Choice.REJECT, False),
                (Choice.HAPPENED, True),
                (Choice.AGAIN, True),
                (Choice.FAIL, False),
            )
        ),
        (given(choice=Choice.AGAIN), False),
    ],
)
def test_an_approval_is_carried_by_its_votes_whatever_was_recorded(approval: Given, carried: bool) -> None:
    assert approval.carried is carried


@pytest.mark.req("Q-14")
@pytest.mark.parametrize(
    ("approval", "people", "stands"),
    [
        (given(), directory("ana", "ben"), True),
        (given(), directory("ana"), False),
        (given(), directory("ana", "ben", active=False), False),
        (given(), Directory.of("d1", [Entry("ana", "ana"), Entry("ben", "ben")]), False),
        (given(vote("ana"), vote("ben"), vote("cy")), directory("ben", "cy"), True),
        (given(vote("ana", Choice.APPROVE, "bosses")), directory("ana"), False),
        (given(vote("ana", Choice.APPROVE, "bosses"), escalated=True), directory("ana"), True),
        (given(contributors=(Contributor(Role.REQUESTER, "ana", None),)), directory("ana", "ben"), False),
        (given(contributors=(Contributor(Role.REQUESTER, "x", "ana"),)), directory("ana", "ben"), False),
        (given(contributors=(Contributor(Role.REQUESTER, "cy", None),)), directory("ana", "ben", "cy"), True),
    ],
)
def test_an_approval_stands_by_the_people_of_today(approval: Given, people: Directory, stands: bool) -> None:
    assert approval.stands(people) is stands
    view = replace(governed(EFFECT).view(), directory=people)
    assert approval.void(view) == (None if stands else LEFT)


@pytest.mark.req("Q-14")
@pytest.mark.parametrize(
    ("age", "void"), [(0, None), (599, None), (600, None), (600.5, STALE), (601, STALE), (999, STALE)]
)
def test_an_approval_is_used_while_it_is_fresh(age: float, void: str | None) -> None:
    view = replace(governed(EFFECT).view(), now=NOW + timedelta(seconds=age))
    assert given().void(view) == void
    nobody = replace(view, directory=directory())
    assert given().void(nobody) == (STALE if void else LEFT)


def run_with(**moves: Any) -> Run:
    """A run with three approvals of two steps, and the votes on each."""
    run = full_run()
    (asked,) = run.approvals.values()
    asked = replace(asked, kind="action", terms=TERMS.to_json(), contributors=None, requester="someone")
    ids = {name: UUID(int=number) for number, name in enumerate(("first", "second", "other"), 5)}
    run.approvals = {
        key: replace(asked, approval_id=key, step_key="b" if name == "other" else "a", action_digest=f"d-{name}")
        for name, key in ids.items()
    }
    run.answers = {
        key: replace(ApprovalMove(key, "approved", "approve", f"because-{name}", at=NOW), **moves.get(name, {}))
        for name, key in ids.items()
    }
    run.votes = [
        VoteRow(key, person, "approve", f"{name}-{person}", ["group:owners"], "slack")
        for name, key in ids.items()
        for person in ("ana", "ben")
    ]
    return run


def used(run: Run, key: str = "a") -> str | None:
    found = known_of(run, key).given
    return None if found is None else found.reason.removeprefix("because-")


@pytest.mark.parametrize(
    ("moves", "reason"),
    [
        ({}, "second"),
        ({"second": {"consumed": True}}, "first"),
        ({"second": {"status": "rejected"}}, "first"),
        ({"second": {"status": "requested"}}, "first"),
        ({"second": {"status": "superseded"}}, "first"),
        ({"first": {"consumed": True}}, "second"),
        ({"first": {"consumed": True}, "second": {"consumed": True}}, None),
        ({"first": {"status": "expired"}, "second": {"status": "canceled"}}, None),
    ],
)
def test_the_last_approval_of_the_step_that_was_given_and_not_used_counts(moves: Any, reason: str | None) -> None:
    run = run_with(**moves)
    assert (used(run), used(run, "b"), used(run, "c")) == (reason, "other", None)


def test_an_approval_holds_all_that_was_decided_with_its_own_votes_alone() -> None:
    run = run_with(second={"escalated": True, "choice": "again", "at": NOW + timedelta(hours=1)})
    votes = tuple(
        Vote(
            name, name, Choice.APPROVE, f"second-{name}", frozenset({"group:owners"}), VoteChannel.SLACK, "", "d-second"
        )
        for name in ("ana", "ben")
    )
    assert given_of(run, UUID(int=6)) == Given(
        UUID(int=6), ApprovalKind.ACTION, "d-second", Choice.AGAIN, "because-second", TERMS,
        (Contributor(Role.REQUESTER, "someone", "someone"),), votes, True, NOW + timedelta(hours=1),
    )  # fmt: skip
    del run.approvals[UUID(int=6)]
    assert given_of(run, UUID(int=6)) is None
    assert given_of(run, UUID(int=99)) is None


@pytest.mark.parametrize(
    ("action", "people", "found"),
    [
        ({"approval": str(UUID(int=5))}, PEOPLE, UUID(int=5)),
        ({"approval": str(UUID(int=6))}, PEOPLE, UUID(int=6)),
        ({"approval": str(UUID(int=99))}, PEOPLE, None),
        ({"approval": None}, PEOPLE, None),
        ({}, PEOPLE, None),
        ({"approval": str(UUID(int=5))}, directory("ana"), None),
    ],
)
def test_an_action_goes_out_once_more_by_the_approval_that_stands(action: Any, people: Any, found: UUID | None) -> None:
    assert still_approved(run_with(), people, receipt(1, action=action)) == found


def test_a_step_knows_its_answer_its_receipt_and_its_wait_beside_one_another() -> None:
    run = run_with()
    run.receipts = {row.receipt_id: row for row in (receipt(1), receipt(2, step="b"))}
    open_ = wait(3, kind="external")
    run.waits = {open_.wait_id: open_}
    known = known_of(run, "a")
    assert known.given == given_of(run, UUID(int=6))
    assert (known.receipt, known.wait) == (run.receipts[UUID(int=1)], open_)
    assert (known_of(run, "b").receipt, known_of(run, "b").wait) == (run.receipts[UUID(int=2)], None)


def test_the_last_receipt_of_a_call_is_its_own_and_of_no_other_call_of_its_agent() -> None:
    run = run_with()
    rows = [receipt(number, step=key) for number, key in enumerate(("bot/1/1", "bot/1/2", "bot/2/1", "bot"), 1)]
    run.receipts = {row.receipt_id: row for row in rows}
    assert [last_receipt(run, row.step_key) for row in rows] == rows


def test_the_last_receipt_is_the_one_that_was_intended_last() -> None:
    rows = receipt(2), receipt(3), receipt(1), receipt(9, step="b")
    run = run_of(*rows)
    assert (last_receipt(run, "a"), last_receipt(run, "b"), last_receipt(run, "c")) == (rows[1], rows[3], None)


WAITS: list[tuple[tuple[Any, ...], int | None]] = [
    ((), None),
    ((wait(1),), 1),
    ((wait(1), wait(2, "completed")), 2),
    ((wait(2, "completed"), wait(1)), 1),
    ((wait(1), wait(2, step="b")), 1),
    ((wait(1), wait(2, "canceled")), 1),
    ((wait(1), wait(2, "timed_out")), 2),
    ((wait(1), wait(2, "completed", "retry")), 1),
    ((wait(1), wait(2, "completed", "pause")), 1),
    ((wait(1), wait(2, left=True)), 1),
    ((wait(1), wait(2, "completed", "shared")), 1),
    ((wait(1), wait(2, "waiting", "shared")), 2),
    ((wait(1), wait(2, "timed_out", "shared")), 2),
    ((wait(1), wait(2, "completed", "approval")), 1),
    ((wait(1), wait(2, "completed", "approval", result={"error": {}})), 2),
    ((wait(1), wait(2, "waiting", "approval")), 1),
    *(((wait(1), wait(2, "completed", kind)), 2) for kind in ("task", "timer", "signal", "child", "external", "agent")),
]


@pytest.mark.parametrize(("waits", "last"), WAITS)
def test_the_wait_that_counts_is_the_last_that_ended_or_goes_on_for_the_step(waits: Any, last: int | None) -> None:
    run = run_of(*waits)
    found = known_of(run, "a").wait
    assert (None if found is None else found.wait_id) == (None if last is None else UUID(int=last))
    assert known_of(run, "a") == Known(wait=found)


@pytest.mark.parametrize(
    ("waits", "found"),
    [
        ((), None),
        ((wait(1),), 1),
        ((wait(1, parked=False),), 1),
        ((wait(1, "completed"), wait(2)), 2),
        ((wait(1, "canceled"), wait(2, "timed_out")), None),
        ((wait(1, step="b"),), None),
        ((wait(1, step="b"), wait(2, kind="pause")), 2),
    ],
)
def test_a_step_waits_on_its_one_open_wait(waits: Any, found: int | None) -> None:
    wait_ = open_wait(run_of(*waits), "a")
    assert (None if wait_ is None else wait_.wait_id) == (None if found is None else UUID(int=found))
