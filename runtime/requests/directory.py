"""People and their groups as they are now: our own directory, and Slack's user groups if they are used."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from approvals.ports import Membership, Person, SlackGroups
from core.db import Database
from core.terms import GroupQuorum, GroupSource
from runtime.store import tenants


class DatabaseDirectory(Struct, frozen=True):
    """The directory of one tenant."""

    database: Database
    tenant: str
    slack_groups: SlackGroups | None

    async def person_of_slack_user(self, team: str, user: str) -> Person | None:
        """The person whose directory entry names this Slack account; None if there is none.

        An entry names ``team/user``, or a user alone, who is then of the pinned team, which is the ``team`` given here.
        Where two entries name the same account in the two ways, it belongs to nobody.
        """
        async with self.database.transaction(self.tenant) as connection:
            rows = await tenants.people_of_slack(connection, self.tenant, [user, f"{team}/{user}"])
        return Person(rows[0]["person_id"], rows[0]["name"]) if len(rows) == 1 else None

    async def membership(self, person_id: str, wanted: Collection[GroupQuorum]) -> Membership:
        """Resolve the wanted groups of both sources now. Without a Slack account, Slack's groups hold nobody."""
        async with self.database.transaction(self.tenant) as connection:
            row = await tenants.person(connection, self.tenant, person_id)
        own = {f"{GroupSource.GROUP}:{name}" for name in (row["groups"] or ())} if row else set()
        groups = frozenset(group.key for group in wanted if group.key in own)
        slack = [group for group in wanted if group.source is GroupSource.SLACK_GROUP]
        if not slack:
            return Membership(groups, frozenset())
        found = await self.slack_membership(row["slack_user_id"] if row else None, slack)
        return Membership(groups | found.groups, found.unresolvable)

    async def slack_membership(self, slack_user: str | None, wanted: Collection[GroupQuorum]) -> Membership:
        """Resolve Slack groups now; what cannot be looked up is unresolvable and allows nobody."""
        if slack_user is None:
            return Membership(frozenset(), frozenset())
        if self.slack_groups is None:
            return Membership(frozenset(), frozenset(group.key for group in wanted))
        return await self.slack_groups.membership(slack_user, wanted)
