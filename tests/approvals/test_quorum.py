"""The votes that count, and the moment in which they decide (promises 1 and 12)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from approvals.model import APPROVAL, Approval, ApprovalEvent, ApprovalKind, ApprovalStatus, Choice, VoteChannel, Voter
from approvals.quorum import Counted, NotCounted, RefusalCode, consider
from approvals.tally import carried, progress, resolved
from core.identity import Contributor, Directory, Entry, Role
from core.terms import Escalation, GroupQuorum, GroupSource, Terms, Tier

NOW = datetime(2026, 8, 1, 12, 3, 4, 567_890, tzinfo=UTC)
LEADS, OWNERS = GroupQuorum("leads", 1), GroupQuorum("owners", 1)
OWNER = Contributor(Role.BEARER, "token:bot", "owner")


def voter_of(person: str, *groups: str, unresolvable: tuple[str, ...] = ()) -> Voter:
    keys = frozenset(group if ":" in group else f"group:{group}" for group in groups)
    return Voter(person, person.title(), keys, frozenset(f"group:{group}" for group in unresolvable))


def voted(
    approval: Approval, person: Voter, choice: Choice = Choice.APPROVE, reason: str = "because", **more: Any
) -> Any:
    """Vote, and return the outcome with the approval after it."""
    outcome = consider(approval, person, choice, reason, at=NOW, channel=VoteChannel.HTTP, **more)
    if isinstance(outcome, NotCounted):
        return outcome, approval
    after = replace(approval, votes=(*approval.votes, outcome.vote))
    if outcome.effect is not None:
        after = replace(after, status=APPROVAL.next[after.status, outcome.effect])
    return outcome, after


def with_terms(approval: Approval, *groups: GroupQuorum, **more: object) -> Approval:
    return replace(approval, terms=Terms(Tier.HIGH, groups, **more))


def code_of(outcome: Counted | NotCounted) -> RefusalCode:
    assert isinstance(outcome, NotCounted), outcome
    assert outcome.sentence.endswith(".")
    return outcome.code


@pytest.mark.req("Q-3")
def test_one_member_approves(approval: Approval) -> None:
    outcome, after = voted(approval, voter_of("ann", "leads"))
    assert isinstance(outcome, Counted)
    assert outcome.effect is ApprovalEvent.APPROVE
    assert outcome.decision is Choice.APPROVE
    assert outcome.vote.digest == approval.action_digest
    assert outcome.vote.groups == {"group:leads"}
    assert after.status is ApprovalStatus.APPROVED


def test_second_answer_hears_who_decided(approval: Approval) -> None:
    _, after = voted(approval, voter_of("ann", "leads"))
    outcome, _ = voted(after, voter_of("bob", "leads"), Choice.REJECT)
    assert code_of(outcome) is RefusalCode.ALREADY_DECIDED
    assert "approved by Ann" in outcome.sentence


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (ApprovalStatus.APPROVED, RefusalCode.ALREADY_DECIDED),
        (ApprovalStatus.REJECTED, RefusalCode.ALREADY_DECIDED),
        (ApprovalStatus.CANCELED, RefusalCode.ALREADY_DECIDED),
        (ApprovalStatus.EXPIRED, RefusalCode.EXPIRED),
        (ApprovalStatus.SUPERSEDED, RefusalCode.CHANGED),
    ],
)
def test_closed_takes_no_votes(approval: Approval, status: ApprovalStatus, code: RefusalCode) -> None:
    outcome, _ = voted(replace(approval, status=status), voter_of("ann", "leads"))
    assert code_of(outcome) is code


@pytest.mark.parametrize(("seconds", "counts"), [(1, True), (0, False), (-1, False)])
def test_time_is_up_before_the_sweeper_comes(approval: Approval, seconds: int, counts: bool) -> None:
    outcome, _ = voted(replace(approval, expires_at=NOW + timedelta(seconds=seconds)), voter_of("ann", "leads"))
    assert isinstance(outcome, Counted) is counts
    if not counts:
        assert code_of(outcome) is RefusalCode.EXPIRED


def test_nonce_and_digest_must_match(approval: Approval) -> None:
    ann = voter_of("ann", "leads")
    assert code_of(voted(approval, ann, nonce="old")[0]) is RefusalCode.STALE
    assert code_of(voted(approval, ann, digest="other")[0]) is RefusalCode.CHANGED
    assert isinstance(voted(approval, ann, nonce=approval.nonce, digest=approval.action_digest)[0], Counted)


def test_strangers_are_told_who_may(approval: Approval) -> None:
    outcome, _ = voted(approval, voter_of("zed", "interns"))
    assert code_of(outcome) is RefusalCode.NOT_ELIGIBLE
    assert "leads" in outcome.sentence


def test_groups_of_two_sources_are_different_groups(approval: Approval) -> None:
    slack = GroupQuorum("leads", 1, GroupSource.SLACK_GROUP)
    outcome, _ = voted(with_terms(approval, slack), voter_of("ann", "leads"))
    assert code_of(outcome) is RefusalCode.NOT_ELIGIBLE
    assert isinstance(voted(with_terms(approval, slack), voter_of("ann", "slack_group:leads"))[0], Counted)


def test_group_that_cannot_be_resolved_allows_nobody(approval: Approval) -> None:
    outcome, _ = voted(approval, voter_of("ann", "leads", unresolvable=("leads",)))
    assert code_of(outcome) is RefusalCode.UNRESOLVABLE


def test_vote_counts_anew_once_the_group_resolves(approval: Approval) -> None:
    approval = with_terms(approval, LEADS, OWNERS)
    outcome, approval = voted(approval, voter_of("ann", "leads", "owners", unresolvable=("owners",)))
    assert isinstance(outcome, Counted)
    assert outcome.effect is None
    outcome, _ = voted(approval, voter_of("ann", "leads", "owners"))
    assert isinstance(outcome, Counted)
    assert outcome.effect is ApprovalEvent.APPROVE


def test_nobody_named_means_nobody(approval: Approval) -> None:
    assert code_of(voted(with_terms(approval), voter_of("ann", "leads"))[0]) is RefusalCode.NOT_ELIGIBLE


@pytest.mark.parametrize("choice", [Choice.APPROVE, Choice.REJECT])
@pytest.mark.parametrize("person", ["rita", "owner"])
def test_separation_of_duties(approval: Approval, person: str, choice: Choice) -> None:
    approval = replace(approval, contributors=(*approval.contributors, OWNER))
    assert code_of(voted(approval, voter_of(person, "leads"), choice)[0]) is RefusalCode.SEPARATION
    waived = with_terms(approval, LEADS, allow=(Role.REQUESTER, Role.BEARER))
    outcome, _ = voted(waived, voter_of(person, "leads"), choice)
    assert isinstance(outcome, Counted)
    assert outcome.separation_waived


def test_who_had_another_part_too_is_kept_out_by_that(approval: Approval) -> None:
    both = replace(
        approval, contributors=(*approval.contributors, Contributor(Role.FORM_FILLER, "person:rita", "rita"))
    )
    waived = with_terms(both, LEADS, allow=(Role.REQUESTER,))
    outcome, _ = voted(waived, voter_of("rita", "leads"))
    assert isinstance(outcome, NotCounted)
    assert outcome.sentence == "You may not decide this: you filled in a form, and somebody else has to."


def test_votes_of_those_who_shaped_it_carry_nothing_before_the_intent(approval: Approval) -> None:
    voted_by_owner = voted(with_terms(approval, LEADS), voter_of("owner", "leads"))[1]
    counted = (voted_by_owner.terms, voted_by_owner.contributors), voted_by_owner.votes
    assert carried(*counted[0], counted[1], Choice.APPROVE, escalated=False)
    assert not carried(counted[0][0], (*counted[0][1], OWNER), counted[1], Choice.APPROVE, escalated=False)


def test_a_contributor_is_everybody_whom_the_directory_may_mean() -> None:
    directory = Directory.of("d", [Entry("ana", "Ana", principals=("servicenow:al",)), Entry("al", "Al")])
    unknown, both = (Contributor(Role.UPDATER, f"servicenow:{name}", None) for name in ("nobody", "al"))
    assert resolved([unknown], directory) == (unknown,)
    assert {one.person for one in resolved([both], directory)} == {"ana"}
    assert {one.person for one in resolved([replace(both, principal="al")], directory)} == {"ana", "al"}
    # Who it was when it was recorded stays, whatever the directory says now.
    assert {one.person for one in resolved([replace(both, person="ben")], directory)} == {"ana", "ben"}


def test_reasons(approval: Approval) -> None:
    ann = voter_of("ann", "leads")
    assert code_of(voted(approval, ann, Choice.REJECT, "  ")[0]) is RefusalCode.REASON_MISSING
    assert code_of(voted(approval, ann, Choice.REJECT, "x" * 2001)[0]) is RefusalCode.REASON_TOO_LONG
    assert isinstance(voted(approval, ann, Choice.APPROVE, "")[0], Counted)


def test_one_rejection_rejects_also_after_an_approval_of_ones_own(approval: Approval) -> None:
    approval = with_terms(approval, GroupQuorum("leads", 2))
    _, approval = voted(approval, voter_of("ann", "leads"))
    assert code_of(voted(approval, voter_of("ann", "leads"))[0]) is RefusalCode.ALREADY_COUNTED
    outcome, after = voted(approval, voter_of("ann", "leads"), Choice.REJECT)
    assert isinstance(outcome, Counted)
    assert after.status is ApprovalStatus.REJECTED


@pytest.mark.req("Q-3")
def test_two_person_needs_two_people_for_one_seat(approval: Approval) -> None:
    approval = with_terms(approval, LEADS, two_person=True)
    outcome, approval = voted(approval, voter_of("ann", "leads"))
    assert isinstance(outcome, Counted)
    assert outcome.effect is None
    assert code_of(voted(approval, voter_of("ann", "leads"))[0]) is RefusalCode.ALREADY_COUNTED
    assert voted(approval, voter_of("bob", "leads"))[1].status is ApprovalStatus.APPROVED


@pytest.mark.req("Q-3")
def test_two_person_fills_each_seat_with_somebody_else(approval: Approval) -> None:
    both = voter_of("ann", "leads", "owners")
    alone = with_terms(approval, LEADS, OWNERS)
    assert voted(alone, both)[1].status is ApprovalStatus.APPROVED
    strict = with_terms(approval, LEADS, OWNERS, two_person=True)
    _, strict = voted(strict, both)
    assert strict.status is ApprovalStatus.REQUESTED
    for second in ("leads", "owners"):
        assert voted(strict, voter_of("bob", second))[1].status is ApprovalStatus.APPROVED


def test_votes_on_another_action_do_not_count(approval: Approval) -> None:
    approval = with_terms(approval, GroupQuorum("leads", 2))
    _, approval = voted(approval, voter_of("ann", "leads"))
    drifted = replace(approval, action_digest="d2")
    outcome, _ = voted(drifted, voter_of("bob", "leads"))
    assert isinstance(outcome, Counted)
    assert outcome.effect is None


def test_escalation_stands_in_for_what_it_covers_only(approval: Approval) -> None:
    duty = GroupQuorum("duty", 1)
    chief = voter_of("chief", "duty")
    quiet = with_terms(approval, LEADS, OWNERS, escalate=Escalation(60, duty, frozenset({LEADS.key})))
    assert code_of(voted(quiet, chief)[0]) is RefusalCode.NOT_ELIGIBLE
    loud = replace(quiet, escalated=True)
    outcome, loud = voted(loud, chief)
    assert isinstance(outcome, Counted)
    assert outcome.effect is None
    assert voted(loud, voter_of("olga", "owners"))[1].status is ApprovalStatus.APPROVED
    everything = with_terms(approval, LEADS, OWNERS, escalate=Escalation(60, duty))
    assert voted(replace(everything, escalated=True), chief)[1].status is ApprovalStatus.APPROVED


@pytest.mark.parametrize(
    ("choice", "effect"),
    [
        (Choice.HAPPENED, ApprovalEvent.APPROVE),
        (Choice.AGAIN, ApprovalEvent.APPROVE),
        (Choice.FAIL, ApprovalEvent.REJECT),
    ],
)
def test_in_doubt_first_choice_to_reach_the_quorum(approval: Approval, choice: Choice, effect: ApprovalEvent) -> None:
    approval = with_terms(replace(approval, kind=ApprovalKind.IN_DOUBT), GroupQuorum("leads", 2))
    other = next(c for c in (Choice.HAPPENED, Choice.AGAIN, Choice.FAIL) if c is not choice)
    assert code_of(voted(approval, voter_of("ann", "leads"), choice, "")[0]) is RefusalCode.REASON_MISSING
    assert code_of(voted(approval, voter_of("ann", "leads"), Choice.APPROVE)[0]) is RefusalCode.WRONG_CHOICE
    _, approval = voted(approval, voter_of("ann", "leads"), other)
    _, approval = voted(approval, voter_of("bob", "leads"), choice)
    assert approval.status is ApprovalStatus.REQUESTED
    outcome, _ = voted(approval, voter_of("ann", "leads"), choice)
    assert isinstance(outcome, Counted)
    assert (outcome.effect, outcome.decision) == (effect, choice)


def test_action_takes_no_in_doubt_choices(approval: Approval) -> None:
    assert code_of(voted(approval, voter_of("ann", "leads"), Choice.HAPPENED)[0]) is RefusalCode.WRONG_CHOICE


def test_quorum_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        GroupQuorum("leads", 0)


GROUPS = ("a", "b", "c")
people_strategy = st.lists(st.sets(st.sampled_from(GROUPS)), max_size=6)
quorum_strategy = st.lists(
    st.builds(GroupQuorum, st.sampled_from(GROUPS), st.integers(1, 2)),
    min_size=1,
    max_size=3,
    unique_by=lambda g: g.group,
)


def seats_can_be_filled(quorum: list[GroupQuorum], people: list[set[str]]) -> bool:
    """The plain meaning of two_person: some order of the people fills the seats one by one."""
    seats = [group.group for group in quorum for _ in range(group.of)]
    return any(
        all(seat in person for seat, person in zip(seats, order, strict=False))
        for order in permutations(people, len(seats))
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=150)
@given(quorum=quorum_strategy, people=people_strategy, two_person=st.booleans(), order=st.randoms())
def test_approved_exactly_when_the_quorum_is_met(
    approval: Approval, quorum: list[GroupQuorum], people: list[set[str]], two_person: bool, order: Any
) -> None:
    current = with_terms(approval, *quorum, two_person=two_person)
    eligible = [groups for groups in people if groups & {group.group for group in quorum}]
    named = [voter_of(f"p{index}", *groups) for index, groups in enumerate(people)]
    order.shuffle(named)
    for person in named:
        _, current = voted(current, person)
        _, current = voted(current, person)
    if two_person:
        expected = len(eligible) >= 2 and seats_can_be_filled(quorum, eligible)
    else:
        expected = all(sum(group.group in groups for groups in people) >= group.of for group in quorum)
    assert (current.status is ApprovalStatus.APPROVED) is expected
    if current.status is ApprovalStatus.REQUESTED:
        for group in progress(current):
            assert len(group.names) == sum(group.group.group in groups for groups in people)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=100)
@given(
    votes=st.lists(
        st.tuples(
            st.sampled_from(["rita", "owner", "ann", "bob"]), st.sets(st.sampled_from(GROUPS)), st.sampled_from(Choice)
        ),
        max_size=8,
    ),
    two_person=st.booleans(),
)
def test_never_approved_without_enough_outsiders(approval: Approval, votes: list[Any], two_person: bool) -> None:
    shaped = replace(approval, contributors=(*approval.contributors, OWNER))
    current = with_terms(shaped, GroupQuorum("a", 1), two_person=two_person)
    supporters: set[str] = set()
    for person, groups, choice in votes:
        before = current.status
        _, current = voted(current, voter_of(person, *groups), choice)
        if before is ApprovalStatus.REQUESTED and "a" in groups and choice is Choice.APPROVE:
            supporters.add(person)
    if current.status is ApprovalStatus.APPROVED:
        assert len(supporters - {"rita", "owner"}) >= (2 if two_person else 1)
    assert not any(vote.voter in {"rita", "owner"} for vote in current.votes)
