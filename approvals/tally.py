"""Counting votes against quorums. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from approvals.model import Approval, Choice, GroupProgress, GroupQuorum, Terms, Vote


def progress(approval: Approval, choice: Choice = Choice.APPROVE) -> tuple[GroupProgress, ...]:
    """For each group that may decide now, who has voted for ``choice`` in it."""
    supporters = _supporters(approval, choice)
    groups = {group.key: group for plan in plans(approval) for group in plan}
    return tuple(
        GroupProgress(group, tuple(vote.name for vote in supporters if key in vote.groups))
        for key, group in groups.items()
    )


def current_votes(votes: Iterable[Vote]) -> tuple[Vote, ...]:
    """Each person's last vote, in the order in which those were given."""
    last: dict[str, Vote] = {}
    for vote in votes:
        last.pop(vote.voter, None)
        last[vote.voter] = vote
    return tuple(last.values())


def plans(approval: Approval) -> tuple[tuple[GroupQuorum, ...], ...]:
    """The sets of groups of which one has to agree entirely: the terms', and the escalation's once it is in force."""
    return plans_of(approval.terms, escalated=approval.escalated)


def plans_of(terms: Terms, *, escalated: bool) -> tuple[tuple[GroupQuorum, ...], ...]:
    """The same, of terms before there is a question."""
    plans = [_merged(terms.approvers)]
    escalation = terms.escalate
    if escalated and escalation is not None:
        covered = escalation.covers or frozenset(group.key for group in terms.approvers)
        kept = [group for group in terms.approvers if group.key not in covered]
        plans.append(_merged([*kept, escalation.to]))
    return tuple(plan for plan in plans if plan)


def _merged(groups: Sequence[GroupQuorum]) -> tuple[GroupQuorum, ...]:
    """A group that is named twice asks for its larger quorum once."""
    merged: dict[str, GroupQuorum] = {}
    for group in groups:
        known = merged.get(group.key)
        merged[group.key] = group if known is None or group.of > known.of else known
    return tuple(merged.values())


def eligible_keys(approval: Approval) -> frozenset[str]:
    return frozenset(group.key for plan in plans(approval) for group in plan)


def valid_votes(approval: Approval) -> tuple[Vote, ...]:
    """Votes on exactly this action, of people who may vote."""
    return tuple(
        vote
        for vote in current_votes(approval.votes)
        if vote.digest == approval.action_digest
        and (approval.terms.allow_requester or not separated(approval, vote.voter))
    )


def _supporters(approval: Approval, choice: Choice) -> tuple[Vote, ...]:
    return tuple(vote for vote in valid_votes(approval) if vote.choice is choice)


def quorum_met(approval: Approval, choice: Choice) -> bool:
    supporters = _supporters(approval, choice)
    return any(plan_met(approval.terms, plan, supporters) for plan in plans(approval))


def carried(terms: Terms, requester: str | None, votes: Iterable[Vote], choice: Choice, *, escalated: bool) -> bool:
    """True if the last votes of the people who may decide carry this choice by these terms (promise 1)."""
    valid = [vote for vote in current_votes(votes) if terms.allow_requester or vote.voter != requester]
    supporters = [vote for vote in valid if vote.choice is choice]
    return any(plan_met(terms, plan, supporters) for plan in plans_of(terms, escalated=escalated))


def plan_met(terms: Terms, plan: Sequence[GroupQuorum], votes: Sequence[Vote]) -> bool:
    """True if these votes are what a plan asks for."""
    if not terms.two_person:
        return all(sum(group.key in vote.groups for vote in votes) >= group.of for group in plan)
    keys = {group.key for group in plan}
    people = [vote for vote in votes if vote.groups & keys]
    return len(people) >= 2 and _seated(plan, people)


def _seated(plan: Sequence[GroupQuorum], votes: Sequence[Vote]) -> bool:
    """Whether every seat can be given to another person: augmenting paths (Kuhn) over seats and people."""
    seats = [group.key for group in plan for _ in range(group.of)]
    if len(seats) > len(votes):
        return False
    holder: dict[int, int] = {}

    def place(seat: int, tried: set[int]) -> bool:
        for person, vote in enumerate(votes):
            if seats[seat] not in vote.groups or person in tried:
                continue
            tried.add(person)
            if person not in holder or place(holder[person], tried):
                holder[person] = seat
                return True
        return False

    return all(place(seat, set()) for seat in range(len(seats)))


def separated(approval: Approval, person: str) -> bool:
    return person == approval.requester or person in approval.excluded
