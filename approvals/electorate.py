"""The people who could decide a question now. They are counted before anybody is asked. Pure; fails closed.

The active people of a directory's group count, and the members of a Slack group whom the directory knows. A group
that could not be looked up counts as empty. People who shaped the action do not count, unless the terms allow their
role.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from approvals.content import PARTS
from approvals.model import Approval, Choice, GroupProgress, Vote, VoteChannel
from approvals.tally import excluded, plan_met, valid_votes
from core.identity import Contributor, Directory, Entry, Kind, Role, Standing, principal
from core.quorum import plans_of
from core.terms import GroupQuorum, GroupSource, Terms, holds

# The accounts in each Slack group, by the group's key. Groups that could not be looked up are missing.
SlackMembers = Mapping[str, frozenset[str]]
_NAMED_MAX = 5


class Unanswerable(Struct, frozen=True):
    """The reason why nobody could decide, and a remedy, in words."""

    message: str
    remedy: str


def slack_groups(terms: Terms) -> tuple[GroupQuorum, ...]:
    """The Slack groups in any plan of these terms, each once."""
    every = {group.key: group for plan in plans_of(terms, escalated=True) for group in plan}
    return tuple(group for group in every.values() if group.source is GroupSource.SLACK_GROUP)


def unanswerable(
    terms: Terms, contributors: Iterable[Contributor], people: Directory, slack: SlackMembers
) -> Unanswerable | None:
    """The reason why the people who may decide now can meet no plan of these terms; None if they can meet one."""
    plans, barred = plans_of(terms, escalated=True), excluded(terms, contributors)
    if not plans:
        return Unanswerable("Nobody may decide this: its terms name no approvers.", "Name some in the policy's rule.")
    members = {group.key: _members(group, people, slack) for plan in plans for group in plan}
    votes = _votes(members, barred)
    if any(plan_met(terms, plan, votes) for plan in plans):
        return None
    lacks = [_short(group, members[group.key], barred, people, slack) for group in plans[0]]
    short = [one for one in lacks if one] or [_two_people(plans[0], votes)]
    kept_out = _excluded({person for each in members.values() for person in each}, barred, people)
    remedy = "Publish a directory with more people in the group, or let the policy or the workflow ask others."
    return Unanswerable(f"{' '.join(short)}{kept_out}", remedy)


def reason_of(group: GroupQuorum, people: Directory) -> str:
    """The reason why one person is asked: `manager of Raj Quist`, `named by assigned_to`; the name of a group."""
    if group.source is GroupSource.MANAGER_OF:
        managed = people.entries.get(group.comes_from)
        return f"manager of {managed.name if managed else group.comes_from}"
    return f"named by {group.comes_from.rpartition('.')[2]}" if group.source is GroupSource.PERSON else group.group


def members_of(group: GroupQuorum, people: Directory) -> frozenset[str]:
    """The ids of the people in the directory who may vote for a group; the members of a Slack group are not known."""
    return _members(group, people, {})


def _members(group: GroupQuorum, people: Directory, slack: SlackMembers) -> frozenset[str]:
    voting = (entry for entry in people.entries.values() if entry.standing is Standing.PERSON)
    if group.person is not None:
        entry = people.entries.get(group.person)
        one = entry is not None and entry.standing is Standing.PERSON and holds(entry, group.key, people)
        return frozenset([group.person] if one else ())
    if group.source is GroupSource.GROUP:
        return frozenset(entry.id for entry in voting if group.group in entry.groups)
    accounts = {principal(Kind.SLACK, account) for account in slack.get(group.key, ())}
    return frozenset(entry.id for entry in voting if accounts & _slack_accounts(entry))


def _slack_accounts(entry: Entry) -> set[str]:
    return {principal(Kind.SLACK, account) for account in entry.accounts(Kind.SLACK)}


def _votes(members: Mapping[str, frozenset[str]], barred: Mapping[str, Role]) -> list[Vote]:
    """Hypothetical approvals by everybody who may decide."""
    keys: dict[str, set[str]] = {}
    for key, those in members.items():
        for person in sorted(those - barred.keys()):
            keys.setdefault(person, set()).add(key)
    return [
        Vote(person, person, Choice.APPROVE, "", frozenset(theirs), VoteChannel.CLI, "", "")
        for person, theirs in keys.items()
    ]


def _short(
    group: GroupQuorum,
    members: frozenset[str],
    barred: Mapping[str, Role],
    people: Directory,
    slack: SlackMembers,
) -> str:
    """A sentence about the people that a group lacks; "" if it has enough."""
    left = len(members - barred.keys())
    if left >= group.of:
        return ""
    if group.source is GroupSource.SLACK_GROUP and group.key not in slack:
        return f"It asks for {group.of} of the Slack group {group.group}, whose members cannot be looked up."
    if group.person is not None:
        return f"It asks {group.words}, who may not decide this now."
    which = "Slack group" if group.source is GroupSource.SLACK_GROUP else "group"
    there = f"{len(members)} {'person' if len(members) == 1 else 'people'}"
    has = f"has nobody in the directory{'' if people.digest else ', for none is published'}"
    if members:
        has = f"has {there} in the directory, of whom {left} may decide this"
    return f"It asks for {group.of} of the {which} {group.group!r}, which {has}."


def _two_people(plan: Sequence[GroupQuorum], votes: Sequence[Vote]) -> str:
    seats = max(2, sum(group.of for group in plan))
    return f"It asks for {seats} different people, a seat each, and {len(votes)} of its groups may decide this."


def _excluded(members: set[str], barred: Mapping[str, Role], people: Directory) -> str:
    """A sentence that names members who may not decide because they shaped the action; "" if there are none."""
    named = [f"{people.entries[one].name} {PARTS[barred[one]]}" for one in sorted(members & barred.keys())]
    more = " and others" if len(named) > _NAMED_MAX else ""
    return f" Whoever shaped it does not decide it: {', '.join(named[:_NAMED_MAX])}{more}." if named else ""


def with_people(approval: Approval, progress: Sequence[GroupProgress], people: Directory) -> tuple[GroupProgress, ...]:
    """The progress of each group with the names of those who may still decide. Members of Slack groups are unknown."""
    barred = excluded(approval.terms, approval.contributors)
    done = barred.keys() | {vote.voter for vote in valid_votes(approval) if vote.choice is Choice.APPROVE}
    may = {one.group.key: sorted(_members(one.group, people, {}) - done) for one in progress}
    return tuple(
        replace(one, may=tuple(people.entries[person].name for person in may[one.group.key])) for one in progress
    )
