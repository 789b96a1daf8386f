"""The people and groups of today: from our own directory, and from Slack's user groups if they are used.

Everybody who acts, or whom a question names, is resolved to a person here; persons are compared by id only (promise
12).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from msgspec import Struct
from msgspec.structs import replace

from approvals.model import Approval, Principal, Voter
from approvals.ports import Membership, Person, SlackGroups
from approvals.quorum import counted_again
from approvals.tally import eligible_keys, resolved
from core.canonical import JsonObject
from core.db import Connection, Database
from core.errors import AuthorizationError
from core.identity import Directory, Entry, Kind, Standing, principal
from core.terms import POLICY_APPROVERS, GroupQuorum, GroupSource, holds, may_be_delegated
from evidence.chain import Actor, EventType
from runtime.definition.catalog import Definitions
from runtime.store import audit, documents, tenants

NO_GROUPS = Membership(frozenset(), frozenset())


def as_people(approval: Approval, people: Directory) -> Approval:
    """The approval, with its contributors found in today's directory.

    A contributor's name stands for every person whom it may mean. Only votes that still count are kept.
    """
    votes = counted_again(approval.votes, people)
    return replace(approval, contributors=resolved(approval.contributors, people), votes=votes)


def voter_of(named: str, entry: Entry | None, slack: Membership, approval: Approval, people: Directory) -> Voter:
    """Build the voter whom a face has ``named``; ``entry`` is None if the directory does not know them."""
    if entry is None:
        return Voter(named, named, frozenset(), standing=Standing.UNKNOWN)
    own = frozenset(key for key in eligible_keys(approval) if holds(entry, key, people))
    whose = tuple(_principals(entry, approval, people)) if entry.standing is Standing.PERSON else ()
    return Voter(entry.person, entry.name, own | slack.groups, slack.unresolvable, entry.standing, whose)


def _principals(entry: Entry, approval: Approval, people: Directory) -> Iterator[Principal]:
    """Yield those who have delegated to this person, with the delegated groups. A delegation is not passed on."""
    keys = [key for key in eligible_keys(approval) if may_be_delegated(key)]
    for one in people.entries.values():
        if one.delegate is None or one.delegate.to != entry.id or one.standing is not Standing.PERSON or one == entry:
            continue
        if own := frozenset(key for key in keys if holds(one, key, people)):
            yield Principal(one.id, one.name, own, one.delegate)


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
        """The directory that was published last."""
        async with self.database.transaction(self.tenant) as connection:
            digest = await tenants.directory_digest(connection, self.tenant)
            return await self.definitions.directory(connection, self.tenant, digest)

    async def person_of_slack_user(self, team: str, user: str) -> Person | None:
        """The person whose entry names this Slack account; None if there is none.

        An entry names ``team/user``, or a user alone, who then belongs to the pinned team (the argument ``team``). If
        two entries name the same account in the two ways, it belongs to nobody.
        """
        accounts = (principal(Kind.SLACK, f"{team}/{user}"), principal(Kind.SLACK, user))
        entry = (await self.now()).entry(*accounts)
        return Person(entry.id, entry.name) if entry is not None else None

    async def membership(self, person_id: str, wanted: Collection[GroupQuorum]) -> Membership:
        """Resolve the wanted groups of both sources now, including those of people for whom this person decides.

        Without a Slack account, Slack's groups hold nobody.
        """
        async with self.database.transaction(self.tenant) as connection:
            at, digest, _ = await tenants.directory_now(connection, self.tenant)
            people = await self.definitions.directory(connection, self.tenant, digest)
        entry = people.entry(person_id)
        groups = frozenset(group.key for group in wanted if entry is not None and holds(entry, group.key, people))
        for one in people.entries.values() if entry is not None else ():
            if entry is not None and people.delegates(one.id, entry.id, at):
                theirs = (group.key for group in wanted if may_be_delegated(group.key))
                groups |= frozenset(key for key in theirs if holds(one, key, people))
        slack = [group for group in wanted if group.source is GroupSource.SLACK_GROUP]
        found = await self.slack_membership(entry, slack)
        return Membership(groups | found.groups, found.unresolvable)

    async def slack_membership(self, entry: Entry | None, wanted: Collection[GroupQuorum]) -> Membership:
        """Resolve Slack groups now. A group that cannot be looked up is unresolvable, and has no members."""
        accounts = entry.accounts(Kind.SLACK) if entry is not None else ()
        if not accounts or not wanted:
            return NO_GROUPS
        if self.slack_groups is None:
            return Membership(frozenset(), frozenset(group.key for group in wanted))
        found = [await self.slack_groups.membership(account, wanted) for account in accounts]
        groups = frozenset[str]().union(*(one.groups for one in found))
        return Membership(groups, frozenset[str]().union(*(one.unresolvable for one in found)) - groups)


_KINDS = {"person": Kind.PERSON, "token": Kind.BEARER, "service_account": Kind.PERSON}


def approvers(people: Directory) -> set[str]:
    """The ids of those who may change the policy, two at a time; none if one person may."""
    return {entry.id for entry in people.entries.values() if entry.active and POLICY_APPROVERS in entry.groups}


def identities(people: Directory, members: set[str]) -> frozenset[tuple[object, ...]]:
    """Everything that lets somebody act as one of these persons, and so as a member of their group.

    The set holds the entries of the persons and of the service accounts that they own, and every principal that only
    one of these entries claims, with its owner.
    """
    theirs = {entry.id for entry in people.entries.values() if entry.person in members}
    entries = {
        (one.id, one.active, one.owner, POLICY_APPROVERS in one.groups)
        for one in people.entries.values()
        if one.id in theirs
    }
    names = {(claim, owner) for claim, owner in people.claimed.items() if owner in theirs}
    return frozenset(entries | names)


def same_approvers(before: Directory, after: Directory) -> bool:
    """True if the same persons may change the policy, and no new account or name can act for any of them."""
    members = approvers(before) | approvers(after)
    return approvers(before) == approvers(after) and identities(before, members) == identities(after, members)


async def member(connection: Connection, tenant: str, actor: Actor) -> str | None:
    """The id of the acting member of ``POLICY_APPROVERS``; None without such a group: then one person is enough.

    ``AuthorizationError`` if the actor is not in the group; it rolls the caller's transaction back.
    """
    people = await tenants.directory(connection, tenant)
    members = approvers(people)
    if not members:
        return None
    kind = _KINDS.get(actor.kind)
    person = None if kind is None else people.resolve(principal(kind, actor.id))
    if person is None or person not in members:
        raise AuthorizationError(
            f"This takes two people of the group {POLICY_APPROVERS}, and {actor.id} is not one of them.",
            remedy="Let two of them do it, one after the other. To stop at once, see `counterseal pause`.",
        )
    return person


async def first_of_two(
    connection: Connection, tenant: str, events: tuple[EventType, ...], data: JsonObject, actor: Actor
) -> str | None:
    """The member of ``POLICY_APPROVERS`` who proposed this before; None if nobody did, "" if no proposal is needed.

    ``events`` are the type of the proposing event, and the types that end proposals of its kind. A proposal is an audit
    event, and is valid until something else of its kind is put in force. Errors as for ``member``.
    """
    person = await member(connection, tenant, actor)
    if person is None:
        return ""
    members = approvers(await tenants.directory(connection, tenant))
    before = await documents.proposers(connection, tenant, events[0], events[1:], str(data["digest"]))
    others = sorted(one for one in before if one in members and one != person)
    if not others and person not in before:
        await audit.record(connection, tenant, events[0], actor, {**data, "by": person})
    return others[0] if others else None
