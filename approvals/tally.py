"""Counting votes against quorums, and checks if the people of a directory could decide a question at all. Pure.

The checks do not know the members of Slack user groups, so they take such a group as large enough. They do not know
either who will be excluded later because of a role in the action, such as its editor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from approvals.model import Approval, Choice, GroupProgress, Vote, VoteChannel
from core import quorum
from core.errors import nearest
from core.identity import Contributor, Directory, Role
from core.quorum import plans_of
from core.terms import GroupQuorum, GroupSource, Terms

# The members of each group of the directory, by the group's name.
Groups: TypeAlias = Mapping[str, frozenset[str]]


def progress(approval: Approval, choice: Choice = Choice.APPROVE) -> tuple[GroupProgress, ...]:
    """The progress of each group that may decide now: its members who have voted for ``choice``."""
    supporters = _supporters(approval, choice)
    groups = {group.key: group for plan in plans(approval) for group in plan}
    return tuple(
        GroupProgress(group, tuple(vote.name for vote in supporters if key in vote.groups))
        for key, group in groups.items()
    )


def current_votes(votes: Iterable[Vote]) -> tuple[Vote, ...]:
    """Each person's last vote, in the order of these votes; a vote for somebody else is the last vote of both."""
    last: list[Vote] = []
    for vote in votes:
        # A vote for somebody else speaks for both people: it replaces the earlier vote of either.
        last = [one for one in last if one.people.isdisjoint(vote.people)]
        last.append(vote)
    return tuple(last)


def plans(approval: Approval) -> tuple[tuple[GroupQuorum, ...], ...]:
    """The plans, of which one must be met: the groups of the terms and, once escalated, those of the escalation."""
    return plans_of(approval.terms, escalated=approval.escalated)


def eligible_keys(approval: Approval) -> frozenset[str]:
    return frozenset(group.key for plan in plans(approval) for group in plan)


def valid_votes(approval: Approval) -> tuple[Vote, ...]:
    """Votes on exactly this action, by people who are not excluded."""
    return tuple(
        vote
        for vote in current_votes(approval.votes)
        if vote.digest == approval.action_digest and not any(separated(approval, one) for one in vote.people)
    )


def _supporters(approval: Approval, choice: Choice) -> tuple[Vote, ...]:
    return tuple(vote for vote in valid_votes(approval) if vote.choice is choice)


def by_glass(terms: Terms, votes: Iterable[Vote], choice: Choice) -> bool:
    """True if somebody who may has used emergency access: that alone lets the action out, whoever shaped it."""
    if terms.break_glass is None or choice is not Choice.APPROVE:
        return False
    return any(vote.glass and vote.choice is choice and terms.break_glass.keys <= vote.groups for vote in votes)


def quorum_met(approval: Approval, choice: Choice) -> bool:
    if by_glass(approval.terms, current_votes(approval.votes), choice):
        return True
    supporters = _supporters(approval, choice)
    return any(plan_met(approval.terms, plan, supporters) for plan in plans(approval))


def carried(
    terms: Terms, contributors: Iterable[Contributor], votes: Iterable[Vote], choice: Choice, *, escalated: bool
) -> bool:
    """True if the last votes of people who are not excluded meet these terms for this choice (promises 1, 12)."""
    barred, last = excluded(terms, contributors), current_votes(votes)
    if by_glass(terms, last, choice):
        return True
    supporters = [vote for vote in last if vote.choice is choice and vote.people.isdisjoint(barred)]
    return any(plan_met(terms, plan, supporters) for plan in plans_of(terms, escalated=escalated))


def plan_met(terms: Terms, plan: Sequence[GroupQuorum], votes: Sequence[Vote]) -> bool:
    """True if these votes meet the plan."""
    return quorum.plan_met(terms, plan, [vote.groups for vote in votes])


def excluded(terms: Terms, contributors: Iterable[Contributor]) -> Mapping[str, Role]:
    """The people who may not decide because they shaped the action, each with the first role that excludes them."""
    barred = [one for one in contributors if one.role not in terms.allow]
    return {one.person: one.role for one in reversed(barred) if one.person is not None}


def separated(approval: Approval, person: str) -> Role | None:
    """The role in the action that bars this person from deciding; None if there is none (promise 12)."""
    return excluded(approval.terms, approval.contributors).get(person)


def has_role(approval: Approval, person: str) -> bool:
    """True if the person has any role in the action, also one that the terms allow."""
    return any(one.person == person for one in approval.contributors)


def resolved(contributors: Iterable[Contributor], directory: Directory) -> tuple[Contributor, ...]:
    """The contributors, one for each person who stands for the principal in this directory or was found before.

    A principal without any such person stays, unresolved.
    """
    return tuple(
        Contributor(one.role, one.principal, person)
        for one in contributors
        for person in sorted({*directory.people(one.principal), *([one.person] if one.person else ())}) or [None]
    )


class Shortfall(Struct, frozen=True):
    """The reason why a plan cannot be met, and a remedy, in words. ``escalation``: the plan is the escalation's."""

    escalation: bool
    message: str
    remedy: str


def shortfalls(terms: Terms, groups: Groups) -> list[Shortfall]:
    """The reasons why a plan could never be met, no matter who requested; empty if every plan could."""
    found = []
    for number, plan in enumerate(plans_of(terms, escalated=True)):
        missing = [*_too_small(plan, groups)]
        if not missing and not plan_met(terms, plan, _votes(plan, groups)):
            missing.append(_two_people(plan, groups))
        found += [Shortfall(number > 0, message, remedy) for message, remedy in missing]
    return found


def stuck_requesters(terms: Terms, groups: Groups) -> list[str]:
    """People whose own requests nobody could decide: the requester is excluded, and too few others are left."""
    if Role.REQUESTER in terms.allow:
        return []
    plans = plans_of(terms, escalated=True)
    # Skip large groups: a group that could fill every seat and has one member more can spare any one person.
    enough = sum(group.of for group in terms.approvers) + 2
    small = [groups.get(group.group, frozenset()) for plan in plans for group in plan if _ours(group)]
    people = {person for members in small if len(members) <= enough for person in members}
    return sorted(
        person
        for person in people
        if not any(plan_met(terms, plan, _votes(plan, groups, without=person)) for plan in plans)
    )


def _ours(group: GroupQuorum) -> bool:
    return group.source is GroupSource.GROUP


def _too_small(plan: Sequence[GroupQuorum], groups: Groups) -> Iterator[tuple[str, str]]:
    """A message and remedy for each group of the plan that is empty or has fewer people than its quorum."""
    ours = {group.group: (group.of, len(groups.get(group.group, ()))) for group in plan if _ours(group)}
    for name in sorted(name for name, (_, there) in ours.items() if not there):
        remedy = nearest(name, groups.keys() - {name}) or "Publish a directory with that group."
        yield f"the directory has nobody in a group {name!r}, so nobody could decide.", remedy
    for name, (of, there) in ours.items():
        if 0 < there < of:
            remedy = f"Ask for {there} at most, or publish a directory with more people in the group."
            yield f"it asks for {of} of the group {name!r}, which has {there}.", remedy


def _two_people(plan: Sequence[GroupQuorum], groups: Groups) -> tuple[str, str]:
    seats = max(2, sum(group.of for group in plan))
    names = sorted(group.words for group in plan)
    there = len({person for name in names for person in groups.get(name, ())})
    there += sum(group.person is not None for group in plan)
    among = " and ".join(map(repr, names))
    message = f"two_person asks for {seats} different people, a seat each, of {among}, which have {there} between them."
    return message, "Leave two_person out, or publish a directory with more people in them."


def _votes(plan: Sequence[GroupQuorum], groups: Groups, without: str = "") -> list[Vote]:
    """Hypothetical approvals by at most as many members of each group as can matter, without the person ``without``."""
    enough = sum(group.of for group in plan) + 2
    keys: dict[str, set[str]] = {}
    for group in plan:
        # These ids cannot clash with a person's: a real id begins with a letter or a digit.
        # A person who is not found yet fills one seat; a group that only Slack knows may fill all its seats.
        most = 1 if group.person is not None else max(2, group.of)
        strangers = {f"?{group.key}?{number}" for number in range(most)}
        members = groups.get(group.group, frozenset()) - {without} if _ours(group) else strangers
        for person in sorted(members)[:enough]:
            keys.setdefault(person, set()).add(group.key)
    return [
        Vote(person, person, Choice.APPROVE, "", frozenset(theirs), VoteChannel.CLI, "", "")
        for person, theirs in keys.items()
    ]
