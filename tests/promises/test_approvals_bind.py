"""An approval lets out exactly what was approved, by people who may approve it when it goes out (promises 1 and 3)."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from msgspec.structs import replace

from approvals.model import ApprovalKind, Choice, Vote, VoteChannel
from connectors.port import InDoubt, Probe, ProbeVerdict
from core.identity import Contributor, Directory, Entry, Role
from core.terms import Escalation, GroupQuorum, Terms, Tier
from runtime.engine.book.instructions import GivenApproval
from tests.engine.governing import ASK, DEDUPES, EFFECT, MAIL, WRITE, governed
from tests.support.engine_stage import NOW

OWNERS, BOSSES = GroupQuorum("owners", 2), GroupQuorum("bosses")
TERMS = Terms(Tier.HIGH, (OWNERS,), escalate=Escalation(60, BOSSES), expires_seconds=999, fresh_seconds=600)


def vote(person: str, choice: Choice = Choice.APPROVE, group: str = "owners") -> Vote:
    return Vote(person, person, choice, "", frozenset({f"group:{group}"}), VoteChannel.CLI, "", "d")


def given(
    *votes: Vote, by: tuple[str, str | None] = ("someone", None), choice: Choice = Choice.APPROVE
) -> GivenApproval:
    """An approval on `TERMS` whose action the person ``by`` has asked for."""
    said = votes or (vote("ana", choice), vote("ben", choice))
    shaped = (Contributor(Role.REQUESTER, *by),)
    return GivenApproval(UUID(int=5), ApprovalKind.ACTION, "d", choice, "", TERMS, shaped, said, False, NOW)


def people(*names: str, active: bool = True, groups: tuple[str, ...] = ("owners", "bosses")) -> Directory:
    return Directory.of("d1", [Entry(one, one, groups=frozenset(groups), active=active) for one in names])


@pytest.mark.req("Q-14")
@pytest.mark.parametrize(
    ("approval", "today", "stands"),
    [
        (given(), people("ana", "ben"), True),
        (given(), people("ana"), False),
        (given(), people("ana", "ben", active=False), False),
        (given(), people("ana", "ben", groups=()), False),
        (given(vote("ana"), vote("ben"), vote("cy")), people("ben", "cy"), True),
        (given(by=("ana", None)), people("ana", "ben"), False),
        (given(by=("cy", None)), people("ana", "ben", "cy"), True),
        (given(vote("ana", group="bosses")), people("ana"), False),
        (replace(given(vote("ana", group="bosses")), escalated=True), people("ana"), True),
    ],
)
def test_an_approval_counts_the_votes_of_those_who_may_vote_today(
    approval: GivenApproval, today: Directory, stands: bool
) -> None:
    """Votes of people who left, or who shaped the action, do not count; those of an escalation count only after it."""
    assert approval.still_carried(today) is stands
    view = replace(governed(EFFECT).view(), directory=today)
    assert (approval.void(view) is None) is stands


@pytest.mark.parametrize(
    ("choice", "lets_out"),
    [
        (Choice.APPROVE, True), (Choice.HAPPENED, True), (Choice.AGAIN, True),
        (Choice.REJECT, False), (Choice.FAIL, False),
    ],
)  # fmt: skip
def test_no_answer_that_says_no_lets_anything_out(choice: Choice, lets_out: bool) -> None:
    assert given(choice=choice).carried is lets_out


@pytest.mark.req("Q-14")
@pytest.mark.parametrize(("hours", "sent"), [(1, 1), (3, 0)])
def test_an_approval_that_is_no_longer_fresh_is_asked_for_anew(hours: int, sent: int) -> None:
    """However long the question itself might have been answered."""
    policy = ASK.replace("because: Look.", "because: Look., expires: P2D, fresh_for: PT2H")
    run = governed(WRITE, policy).drive().answer("ana", "ben")
    run.later += timedelta(hours=hours)
    run.drive()
    assert (run.status, len(run.sent)) == ("succeeded" if sent else "waiting_approval", sent)


MAY = "  - {id: may, match: {connector: probe}, outcome: allow}\n"


@pytest.mark.req("Q-14")
@pytest.mark.parametrize(
    ("before", "after", "sent"),
    [
        (ASK, ASK + MAY, 1),
        (ASK + MAY, ASK, 1),
        (ASK, ASK.replace("because: Look.", "because: Look closely."), 1),
        (ASK, ASK.replace("id: acts", "id: other"), 0),
        (ASK, ASK.replace("of: 2", "of: 1"), 0),
    ],
)
def test_a_new_policy_voids_an_approval_only_if_other_rules_ask_or_on_other_terms(
    before: str, after: str, sent: int
) -> None:
    run = governed(WRITE, before).drive().answer("ana", "ben").rule_by(after).drive()
    assert (run.status, len(run.sent)) == ("succeeded" if sent else "waiting_approval", sent)


@pytest.mark.req("P-10")
def test_an_answer_about_a_doubt_is_no_approval_of_a_repeat() -> None:
    """Not even if it is of the same action, and on the terms on which policy asks now."""
    run = governed(MAIL, ASK).drive().answer("ana", "ben").drive(dies=True).dead().drive()
    run.answer("ana", "ben", choice="again").rule_by(ASK.replace("because: Look.", "because: Look., expires: P7D"))
    run.drive()
    assert (run.status, len(run.sent)) == ("waiting_approval", 1)
    _, about, second = run.book_of_questions()
    assert (about.kind, second.kind, second.terms, second.digest) == ("in_doubt", "action", about.terms, about.digest)


@pytest.mark.req("P-10")
def test_a_question_before_a_repeat_shows_what_was_there_before_the_first_attempt() -> None:
    run = governed(WRITE).drive(dies=True).dead().rule_by(ASK)
    run.said = [Probe(ProbeVerdict.NOT_APPLIED, "none")]
    (asked,) = run.drive().book_of_questions()
    assert asked.proposed is not None
    assert asked.proposed["before"] == {"values": {"priority": "3"}, "version": "7", "facts": {}}


@pytest.mark.req("P-10")
def test_people_read_that_no_attempt_of_a_target_that_dedupes_was_answered() -> None:
    run = governed(DEDUPES, said=(InDoubt("lost"), InDoubt("lost"))).drive().due().drive()
    while run.status != "waiting_approval":
        run.later += timedelta(hours=1)
        run.due().drive()
    (asked,) = run.book_of_questions()
    assert asked.shown is not None
    assert "answered" in str(asked.shown["evidence"])
