"""The electorate: can the people of a directory decide a question at all? Pure.

Who belongs to a Slack user group is not known here, so such a group counts as large enough. People who are excluded
later, because they own or edited what is to be done, are not known either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from approvals.model import Choice, GroupQuorum, GroupSource, Terms, Vote, VoteChannel
from approvals.tally import plan_met, plans_of
from core.cel_messages import nearest

# The members of each group of the directory, by the group's name.
Groups: TypeAlias = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Why nobody could decide, in words, and what to do about it. ``escalation``: when the escalation is in force."""

    escalation: bool
    message: str
    remedy: str


def shortfalls(terms: Terms, groups: Groups) -> list[Shortfall]:
    """List what stands in the way of any decision, whoever requested it; nothing if there is a way."""
    found = []
    for number, plan in enumerate(plans_of(terms, escalated=True)):
        missing = [*_unknown(plan, groups), *_too_small(plan, groups)]
        if not missing and not plan_met(terms, plan, _votes(plan, groups)):
            missing.append(_two_people(plan, groups))
        found += [Shortfall(number > 0, message, remedy) for message, remedy in missing]
    return found


def stuck_requesters(terms: Terms, groups: Groups) -> list[str]:
    """The people on whose own requests nobody could decide: they may not, and too few are left. By name."""
    if terms.allow_requester:
        return []
    plans = plans_of(terms, escalated=True)
    # In a larger group, one person less makes no difference to any seat.
    small = [groups.get(group.group, frozenset()) for plan in plans for group in plan if _ours(group)]
    people = {person for members in small if len(members) <= _enough(terms) for person in members}
    return sorted(
        person
        for person in people
        if not any(plan_met(terms, plan, _votes(plan, groups, without=person)) for plan in plans)
    )


def _ours(group: GroupQuorum) -> bool:
    return group.source is GroupSource.GROUP


def _enough(terms: Terms) -> int:
    """So many members fill every seat of every plan, and one who may not vote besides."""
    return sum(group.of for group in terms.approvers) + 2


def _unknown(plan: Sequence[GroupQuorum], groups: Groups) -> list[tuple[str, str]]:
    names = sorted({group.group for group in plan if _ours(group)} - {name for name in groups if groups[name]})
    return [
        (
            f"the directory has nobody in a group {name!r}, so nobody could decide.",
            nearest(name, groups.keys() - {name}) or "Publish a directory with that group.",
        )
        for name in names
    ]


def _too_small(plan: Sequence[GroupQuorum], groups: Groups) -> list[tuple[str, str]]:
    return [
        (
            f"it asks for {group.of} of the group {group.group!r}, which has {len(groups[group.group])}.",
            f"Ask for {len(groups[group.group])} at most, or publish a directory with more people in the group.",
        )
        for group in plan
        if _ours(group) and 0 < len(groups.get(group.group, ())) < group.of
    ]


def _two_people(plan: Sequence[GroupQuorum], groups: Groups) -> tuple[str, str]:
    seats = max(2, sum(group.of for group in plan))
    names = sorted(group.group for group in plan)
    there = len({person for name in names for person in groups.get(name, ())})
    among = " and ".join(map(repr, names))
    message = f"two_person asks for {seats} different people, a seat each, of {among}, which have {there} between them."
    return message, "Leave two_person out, or publish a directory with more people in them."


def _votes(plan: Sequence[GroupQuorum], groups: Groups, without: str = "") -> list[Vote]:
    """As if everybody had approved whom the plan needs at most, but the one ``without`` whom it has to go."""
    enough = sum(group.of for group in plan) + 2
    keys: dict[str, set[str]] = {}
    for group in plan:
        # Nobody is called like this: an id begins with a letter or a digit.
        strangers = {f"?{group.key}?{number}" for number in range(max(2, group.of))}
        members = groups.get(group.group, frozenset()) - {without} if _ours(group) else strangers
        for person in sorted(members)[:enough]:
            keys.setdefault(person, set()).add(group.key)
    return [
        Vote(person, person, Choice.APPROVE, "", frozenset(theirs), VoteChannel.CLI, "", "")
        for person, theirs in keys.items()
    ]
