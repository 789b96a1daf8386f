"""Counting, taken by itself: what a quorum is made of, and whose stored votes carry nothing (promises 1 and 12)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from approvals.model import Approval, Choice, Vote, VoteChannel, Voter
from approvals.quorum import Counted, NotCounted, consider
from approvals.tally import (
    carried,
    current_votes,
    plan_met,
    plans,
    quorum_met,
    shortfalls,
    stuck_requesters,
    valid_votes,
)
from core.identity import Contributor, Role, Standing
from core.quorum import plans_of
from core.terms import Escalation, GroupQuorum, GroupSource, Terms, Tier

NOW = datetime(2026, 8, 1, 12, 3, 4, 567_890, tzinfo=UTC)
HTTP, SAID = VoteChannel.HTTP, (Choice.APPROVE, "because")


def vote(person: str, *groups: str, choice: Choice = Choice.APPROVE, digest: str = "") -> Vote:
    keys = frozenset(f"group:{group}" for group in groups)
    return Vote(person, person.title(), choice, "", keys, VoteChannel.HTTP, "2026-08-01T12:00:00+00:00", digest)


def terms(*groups: GroupQuorum, **more: object) -> Terms:
    return Terms(Tier.HIGH, groups, **more)


def asked(approval: Approval, of: Terms, votes: Iterable[Vote] = (), **more: object) -> Approval:
    told = tuple(replace(each, digest=each.digest or approval.action_digest) for each in votes)
    return replace(approval, terms=of, votes=told, **more)


@pytest.mark.req("Q-3")
@pytest.mark.parametrize("quorums", [(1, 2), (2, 1)])
def test_a_group_that_is_named_twice_asks_for_its_larger_quorum(quorums: tuple[int, int]) -> None:
    """Both places count: approver, and target of the escalation."""
    kept, to = (GroupQuorum("leads", of) for of in quorums)
    covers = frozenset({"group:owners"})
    both = terms(kept, GroupQuorum("owners", 1), escalate=Escalation(60, to, covers))
    assert plans_of(both, escalated=True)[1] == (GroupQuorum("leads", 2),)
    assert plans_of(terms(kept, to), escalated=False) == ((GroupQuorum("leads", 2),),)


@pytest.mark.req("Q-3")
@pytest.mark.parametrize("two_person", [False, True])
def test_where_nobody_is_named_nobody_is_enough(approval: Approval, two_person: bool) -> None:
    nobody = asked(approval, terms(two_person=two_person), [vote("ann", "leads"), vote("bob", "owners")])
    assert plans(nobody) == ()
    assert not quorum_met(nobody, Choice.APPROVE)
    assert not carried(nobody.terms, (), nobody.votes, Choice.APPROVE, escalated=False)
    assert not carried(nobody.terms, (), (), Choice.APPROVE, escalated=False)


@pytest.mark.req("Q-3")
def test_the_second_of_two_persons_is_of_the_same_plan() -> None:
    """After an escalation votes of both plans are there; each plan counts its own people only."""
    plan = (GroupQuorum("managers", 1),)
    of = terms(GroupQuorum("leads", 2), two_person=True)
    assert not plan_met(of, plan, [vote("ann", "managers"), vote("bob", "leads")])
    assert plan_met(of, plan, [vote("ann", "managers"), vote("bob", "managers")])


@pytest.mark.parametrize("of", [1, 2])
def test_a_stored_vote_of_somebody_who_shaped_it_counts_for_nothing(approval: Approval, of: int) -> None:
    """Votes may have been taken when nobody knew yet who is behind a principal (promise 12)."""
    shaped = (Contributor(Role.BEARER, "token:bot", "ann"),)
    votes = [vote("ann", "leads"), *([vote("bob", "leads")] if of == 2 else [])]
    told = asked(approval, terms(GroupQuorum("leads", of)), votes, contributors=shaped)
    assert "ann" not in [each.voter for each in valid_votes(told)]
    assert not quorum_met(told, Choice.APPROVE)
    assert not carried(told.terms, shaped, told.votes, Choice.APPROVE, escalated=False)


@pytest.mark.req("Q-3")
def test_votes_for_something_else_carry_nothing() -> None:
    said = [vote("ann", "leads", choice=Choice.REJECT), vote("bob", "leads", choice=Choice.FAIL)]
    one = terms(GroupQuorum("leads", 1))
    assert not carried(one, (), said, Choice.APPROVE, escalated=False)
    assert carried(one, (), said, Choice.FAIL, escalated=False)


@pytest.mark.req("Q-17")
def test_of_several_votes_of_one_person_the_last_counts_in_its_place() -> None:
    first, other, last = vote("ann", "leads"), vote("bob", "leads"), vote("ann", "owners", choice=Choice.REJECT)
    assert current_votes([first, other, last]) == (other, last)
    two = terms(GroupQuorum("leads", 2))
    assert not carried(two, (), [first, first], Choice.APPROVE, escalated=False)
    assert not carried(two, (), [first, other, last], Choice.APPROVE, escalated=False)
    assert carried(two, (), [first, other], Choice.APPROVE, escalated=False)


@pytest.mark.req("P-12")
@pytest.mark.parametrize("standing", [each for each in Standing if each is not Standing.PERSON])
def test_only_a_person_votes(approval: Approval, standing: Standing) -> None:
    """Neither a service account nor who has left or is unknown, whatever groups they are in (promise 12)."""
    one = asked(approval, terms(GroupQuorum("leads", 1)))
    voter = Voter("bot", "Bot", frozenset({"group:leads"}), standing=standing)
    said = consider(one, voter, *SAID, at=NOW, channel=HTTP)
    assert isinstance(said, NotCounted)
    assert isinstance(consider(one, replace(voter, standing=Standing.PERSON), *SAID, at=NOW, channel=HTTP), Counted)


ANN, BOB, CAT, DAN = "ann", "bob", "cat", "dan"
GROUPS = {
    "leads": frozenset({ANN, BOB}),
    "owners": frozenset({ANN}),
    "many": frozenset({ANN, BOB, CAT, DAN}),
    "empty": frozenset[str](),
}
TWO = "two_person asks for"
SO_FAR = "Your approval is counted. So far: 1 of 2 of leads, 0 of 1 of owners"
TO_MANY = Escalation(60, GroupQuorum("many", 1))


@pytest.mark.req("Q-3")
@pytest.mark.parametrize(
    ("of", "said"),
    [
        (terms(GroupQuorum("leads", 2)), []),
        (terms(GroupQuorum("leads", 3)), [(False, "it asks for 3 of the group 'leads', which has 2.")]),
        (
            terms(GroupQuorum("empty", 1)),
            [(False, "the directory has nobody in a group 'empty', so nobody could decide.")],
        ),
        (
            terms(GroupQuorum("lead", 1)),
            [(False, "the directory has nobody in a group 'lead', so nobody could decide.")],
        ),
        (terms(GroupQuorum("S0IT", 9, GroupSource.SLACK_GROUP)), []),
        (
            terms(GroupQuorum("leads", 1), GroupQuorum("owners", 1), two_person=True),
            [],
        ),
        (
            terms(GroupQuorum("owners", 1), two_person=True),
            [(False, "two_person asks for 2 different people, a seat each, of 'owners', which have 1 between them.")],
        ),
        (
            terms(GroupQuorum("leads", 2), GroupQuorum("owners", 1), two_person=True),
            [
                (
                    False,
                    f"{TWO} 3 different people, a seat each, of 'leads' and 'owners', which have 2 between them.",
                )
            ],
        ),
        (
            terms(GroupQuorum("leads", 1), escalate=Escalation(60, GroupQuorum("empty", 1))),
            [(True, "the directory has nobody in a group 'empty', so nobody could decide.")],
        ),
        (
            terms(GroupQuorum("empty", 1), escalate=TO_MANY),
            [(False, "the directory has nobody in a group 'empty', so nobody could decide.")],
        ),
    ],
)
def test_what_stands_in_the_way_of_any_decision_is_said(of: Terms, said: list[tuple[bool, str]]) -> None:
    found = shortfalls(of, GROUPS)
    assert [(one.escalation, one.message) for one in found] == said
    assert all(one.remedy for one in found)


@pytest.mark.req("Q-3")
@pytest.mark.parametrize(
    ("of", "people"),
    [
        (terms(GroupQuorum("leads", 1)), []),
        (terms(GroupQuorum("leads", 2)), [ANN, BOB]),
        (terms(GroupQuorum("leads", 2), allow=(Role.REQUESTER,)), []),
        (terms(GroupQuorum("leads", 2), escalate=TO_MANY), []),
        (terms(GroupQuorum("leads", 1), GroupQuorum("owners", 1)), [ANN]),
        (terms(GroupQuorum("many", 3)), []),
        (terms(GroupQuorum("many", 4)), [ANN, BOB, CAT, DAN]),
        (terms(GroupQuorum("many", 1), GroupQuorum("owners", 1), two_person=True), [ANN]),
        (terms(GroupQuorum("leads", 1), two_person=True), [ANN, BOB]),
    ],
)
def test_on_whose_own_requests_nobody_could_decide(of: Terms, people: list[str]) -> None:
    assert stuck_requesters(of, GROUPS) == people


@pytest.mark.req("Q-3")
@pytest.mark.parametrize(
    ("two_person", "second", "words"),
    [
        (False, False, f"{SO_FAR}."),
        (
            True,
            False,
            f"{SO_FAR}; two people are needed, one seat each.",
        ),
        (False, True, "Your approval is counted, and decides it."),
    ],
)
def test_whoever_votes_is_told_how_far_it_is(approval: Approval, two_person: bool, second: bool, words: str) -> None:
    of = terms(GroupQuorum("leads", 2), GroupQuorum("owners", 1), two_person=two_person)
    before = [vote(BOB, "leads"), vote(CAT, "owners")] if second else []
    voter = Voter(ANN, "Ann", frozenset({"group:leads"}))
    answer = consider(asked(approval, of, before), voter, *SAID, at=NOW, channel=HTTP)
    assert isinstance(answer, Counted)
    assert answer.sentence == words
