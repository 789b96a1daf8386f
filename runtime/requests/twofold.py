"""Changes that take two people: the second does the same as the first. Each step is an audit event of the tenant."""

from __future__ import annotations

from core.canonical import JsonObject
from core.db import Connection
from core.errors import AuthorizationError
from core.identity import Directory, Kind, principal
from evidence.chain import Actor, EventType
from runtime.definition.reserved import POLICY_APPROVERS
from runtime.store import audit, documents, tenants

_KINDS = {"person": Kind.PERSON, "token": Kind.BEARER, "service_account": Kind.PERSON}


def approvers(people: Directory) -> set[str]:
    """The ids of those who may change the policy, two at a time; none if one person may."""
    return {entry.id for entry in people.entries.values() if entry.active and POLICY_APPROVERS in entry.groups}


def identities(people: Directory, members: set[str]) -> frozenset[tuple[object, ...]]:
    """Everything by which somebody acts as one of these persons, and counts as one of the group.

    These are the entries of the persons and of the service accounts that they own, with what each claims; and for every
    name that is claimed, whose it is: a name that another entry claims too belongs to nobody.
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
    """True if the same persons may change the policy, and nothing speaks for any of them that did not before."""
    members = approvers(before) | approvers(after)
    return approvers(before) == approvers(after) and identities(before, members) == identities(after, members)


async def member(connection: Connection, tenant: str, actor: Actor) -> str | None:
    """The person of ``POLICY_APPROVERS`` who acts; None if the directory has no such group, so that one person may.

    ``AuthorizationError`` for somebody who is not of the group: it rolls the caller's transaction back.
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
    """The person of ``POLICY_APPROVERS`` who proposed this before; "" if nobody has to. None if this is the first.

    ``events`` are the one that proposes, and those that put an end to proposals of its kind. A proposal is an audit
    event, and is good until something else of its kind is put in force. Errors as ``member``.
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
