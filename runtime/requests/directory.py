"""People and their groups as they are now: our own directory, and Slack's user groups if they are used.

All who act, or are named in a question, are resolved to persons here, who are compared by their ids alone (promise 12).
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct
from msgspec.structs import replace

from approvals.model import Approval, Voter
from approvals.ports import Membership, Person, SlackGroups
from approvals.quorum import counted_again
from approvals.tally import resolved
from core.db import Database
from core.identity import Directory, Entry, Kind, Standing, principal
from core.terms import GroupQuorum, GroupSource
from evidence.chain import Actor
from runtime.definition.catalog import Definitions
from runtime.store import tenants

NO_GROUPS = Membership(frozenset(), frozenset())


def as_people(approval: Approval, people: Directory) -> Approval:
    """The question by the directory as it is now; a contributor's name stands for everybody whom it may mean.

    The votes are those that still count.
    """
    votes = counted_again(approval.votes, people)
    return replace(approval, contributors=resolved(approval.contributors, people), votes=votes)


def voter_of(named: str, entry: Entry | None, slack: Membership) -> Voter:
    """Make the voter, ``named`` so by a face; an entry of None is unknown to the directory."""
    if entry is None:
        return Voter(named, named, frozenset(), standing=Standing.UNKNOWN)
    own = frozenset(f"{GroupSource.GROUP}:{name}" for name in entry.groups)
    return Voter(entry.person, entry.name, own | slack.groups, slack.unresolvable, entry.standing)


def actor_of(named: str, entry: Entry | None) -> Actor:
    """The actor, named as the audit names actors."""
    if entry is None:
        return Actor("unresolved", named)
    return Actor("person" if entry.owner is None else "service_account", entry.id)


class DatabaseDirectory(Struct, frozen=True):
    """The directory of one tenant."""

    database: Database
    definitions: Definitions
    tenant: str
    slack_groups: SlackGroups | None

    async def now(self) -> Directory:
        """The people as they were published last."""
        async with self.database.transaction(self.tenant) as connection:
            digest = await tenants.directory_digest(connection, self.tenant)
            return await self.definitions.directory(connection, self.tenant, digest)

    async def person_of_slack_user(self, team: str, user: str) -> Person | None:
        """The person whose directory entry names this Slack account; None if there is none.

        An entry names ``team/user``, or a user alone, who is then of the pinned team, which is the ``team`` given here.
        If two entries name the same account in the two ways, it belongs to nobody.
        """
        accounts = (principal(Kind.SLACK, f"{team}/{user}"), principal(Kind.SLACK, user))
        entry = (await self.now()).entry(*accounts)
        return Person(entry.id, entry.name) if entry is not None else None

    async def membership(self, person_id: str, wanted: Collection[GroupQuorum]) -> Membership:
        """Resolve the wanted groups of both sources now. Without a Slack account, Slack's groups hold nobody."""
        entry = (await self.now()).entry(person_id)
        own = {f"{GroupSource.GROUP}:{name}" for name in entry.groups} if entry is not None else set()
        groups = frozenset(group.key for group in wanted if group.key in own)
        slack = [group for group in wanted if group.source is GroupSource.SLACK_GROUP]
        found = await self.slack_membership(entry, slack)
        return Membership(groups | found.groups, found.unresolvable)

    async def slack_membership(self, entry: Entry | None, wanted: Collection[GroupQuorum]) -> Membership:
        """Resolve Slack groups now; what cannot be looked up is unresolvable and allows nobody."""
        accounts = entry.accounts(Kind.SLACK) if entry is not None else ()
        if not accounts or not wanted:
            return NO_GROUPS
        if self.slack_groups is None:
            return Membership(frozenset(), frozenset(group.key for group in wanted))
        found = [await self.slack_groups.membership(account, wanted) for account in accounts]
        groups = frozenset[str]().union(*(one.groups for one in found))
        return Membership(groups, frozenset[str]().union(*(one.unresolvable for one in found)) - groups)
