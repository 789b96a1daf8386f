"""Quorums: whether the people who agree meet the terms of a question. Pure; faces, engine and verifier share it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from core.terms import GroupQuorum, Terms

# A set of groups that must all reach their quorum.
Plan: TypeAlias = tuple[GroupQuorum, ...]


def plans_of(terms: Terms, *, escalated: bool) -> tuple[Plan, ...]:
    """The plans of which one must be met: the terms' groups and, once it is in force, those of the escalation."""
    plans = [_merged(terms.approvers)]
    escalation = terms.escalate
    if escalated and escalation is not None:
        covered = escalation.covers or frozenset(group.key for group in terms.approvers)
        uncovered = [group for group in terms.approvers if group.key not in covered]
        plans.append(_merged([*uncovered, escalation.to]))
    return tuple(plan for plan in plans if plan)


def _merged(groups: Sequence[GroupQuorum]) -> Plan:
    """The groups without duplicates: a group that is named twice gets the larger quorum."""
    merged: dict[str, GroupQuorum] = {}
    for group in groups:
        known = merged.get(group.key)
        merged[group.key] = group if known is None or group.of > known.of else known
    return tuple(merged.values())


def plan_met(terms: Terms, plan: Sequence[GroupQuorum], people: Sequence[frozenset[str]]) -> bool:
    """True if these people, given with the keys of their groups, meet the plan."""
    if not terms.two_person:
        return all(sum(group.key in theirs for theirs in people) >= group.of for group in plan)
    keys = {group.key for group in plan}
    seated = [theirs for theirs in people if theirs & keys]
    return len(seated) >= 2 and _seated(plan, seated)


def _seated(plan: Sequence[GroupQuorum], people: Sequence[frozenset[str]]) -> bool:
    """True if each seat can have a different person: bipartite matching by augmenting paths (Kuhn)."""
    seats = [group.key for group in plan for _ in range(group.of)]
    if len(seats) > len(people):
        return False
    holder: dict[int, int] = {}

    def place(seat: int, tried: set[int]) -> bool:
        for person, theirs in enumerate(people):
            if seats[seat] not in theirs or person in tried:
                continue
            tried.add(person)
            if person not in holder or place(holder[person], tried):
                holder[person] = seat
                return True
        return False

    return all(place(seat, set()) for seat in range(len(seats)))
