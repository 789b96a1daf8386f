"""Calls those who may still vote on a question, so that their phones ring. Pure."""

from __future__ import annotations

from datetime import datetime

from approvals.electorate import members_of
from approvals.model import Approval, Call
from approvals.tally import excluded, plans, valid_votes
from core.identity import Directory, Entry, Kind
from core.terms import GroupSource


def call(approval: Approval, people: Directory, most: int, handed: str = "", at: datetime | None = None) -> Call:
    """Call everybody who may still vote, by name; if these are more than ``most``, their groups.

    The members of a Slack group are not looked up: it is called as a whole, which Slack tells its members. If the
    question was ``handed`` on, only the person or the group who got it is called.
    """
    every = {group.key: group for plan in plans(approval) for group in plan}
    groups = [group for key, group in every.items() if handed not in every or key == handed]
    ours = [group.words for group in groups if group.source is not GroupSource.SLACK_GROUP]
    ids = {one for group in groups if group.source is not GroupSource.SLACK_GROUP for one in members_of(group, people)}
    theirs = tuple(group.group for group in groups if group.source is GroupSource.SLACK_GROUP)
    out = excluded(approval.terms, approval.contributors).keys() | {vote.voter for vote in valid_votes(approval)}
    # Whoever stands in for one of these voters now is called, too.
    deputies = {people.entries[one].delegate for one in ids - out} - {None}
    ids |= {one.to for one in deputies if one is not None and at is not None and one.holds(at)} & people.entries.keys()
    left = ids - out
    if handed in left:
        left, theirs = {handed}, ()
    found = {one: _account(people.entries[one]) for one in sorted(left)}
    accounts = tuple(dict.fromkeys(account for account in found.values() if account))
    entry = people.entry(approval.requester)
    asker = entry.name if entry is not None else approval.requester
    if len(accounts) > most:
        return Call(asker, (), tuple(ours), theirs)
    return Call(asker, accounts, (), theirs)


def _account(entry: Entry) -> str:
    return next(iter(entry.accounts(Kind.SLACK)), "").rpartition("/")[2]
