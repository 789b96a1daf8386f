"""Finds the policies in force and the directory in use at a past moment, with the members of each group then.

The tenant's audit records the digest and time of each publication; the texts are stored apart from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from core.canonical import sha256_hex
from core.db import Connection
from core.errors import InputError, NotFoundError
from evidence.events import EventType
from runtime.definition.people import load_directory
from runtime.engine.book.recorded import Diverged
from runtime.store import documents, streams
from runtime.store.streams import TenantEvent


class Membership(Struct, frozen=True):
    """A member of a group; ``since`` and ``by`` are of the publication that made the person a member.

    Both are None if an older release, which kept no texts, published the directory: the person may have been in the
    group before.
    """

    group: str
    person: str
    since: datetime | None
    by: str | None


class PastDirectory(Struct, frozen=True):
    """A publication of a directory; ``until`` is the time of the next one, None if it is in use.

    ``source`` and ``members`` are None if the text was not kept (an older release published it).
    """

    name: str
    version: int
    digest: str
    since: datetime
    until: datetime | None
    by: str
    source: str | None
    members: Sequence[Membership] | None


class PastPolicy(Struct, frozen=True):
    """A policy that was in force at a moment, with the time since then, its proposer, and the person who agreed.

    ``until`` is the time at which it was replaced or retired; None if it is in force now.
    """

    name: str
    version: int
    digest: str
    since: datetime
    until: datetime | None
    author: str
    approver: str


async def policies_at(connection: Connection, tenant: str, at: datetime | None = None) -> list[PastPolicy]:
    """The policies in force at a moment, or now. ``Diverged`` if the tenant's stream is not what was written."""
    if at is not None and at.tzinfo is None:
        raise InputError("has no time zone.", where="at", remedy="Such as 2026-11-01T00:00:00Z.")
    stream = await streams.read(connection, tenant)
    found: dict[str, PastPolicy] = {}
    for event in stream.events:
        data, moment = event["data"], _at(event)
        if event["type"] not in (EventType.POLICY_ACTIVATED, EventType.POLICY_RETIRED):
            continue
        if at is not None and moment > at:
            if data["name"] in found and found[data["name"]].until is None:
                found[data["name"]] = replace(found[data["name"]], until=moment)
        elif event["type"] == EventType.POLICY_RETIRED:
            found.pop(data["name"], None)
        else:
            facts = {name: data[name] for name in ("name", "version", "digest", "author", "approver")}
            found[data["name"]] = PastPolicy(**facts, since=moment, until=None)
    return [found[name] for name in sorted(found)]


async def directory_at(
    connection: Connection, tenant: str, at: datetime | None = None, digest: str | None = None
) -> PastDirectory:
    """The directory in use at a moment; otherwise the last use of the one with this digest; otherwise the present one.

    ``digest`` may be its beginning. ``NotFoundError`` if there was none, ``Diverged`` if the tenant's stream or a text
    is not what was written.
    """
    if at is not None and at.tzinfo is None:
        raise InputError("has no time zone.", where="at", remedy="Such as 2026-11-01T00:00:00Z.")
    if at is not None and digest is not None:
        raise InputError("are one too many: give a moment or a digest.", where="at, digest")
    stream = await streams.read(connection, tenant)
    published = [event for event in stream.events if event["type"] == EventType.DIRECTORY_PUBLISHED]
    fits = [
        number
        for number, event in enumerate(published)
        if (at is None or _at(event) <= at) and event["data"]["digest"].startswith(digest or "")
    ]
    if not fits:
        remedy = "See `counterseal audit tenant --type directory.published`."
        raise NotFoundError("There was no such directory.", remedy=remedy)
    if digest and len({published[number]["data"]["digest"] for number in fits}) > 1:
        raise InputError("begins more than one digest.", where="digest", remedy="Give more of it.")
    last = fits[-1]
    texts = await documents.directory_texts(connection, tenant)
    for sha256, text in texts.items():
        if sha256_hex(text.encode()) != sha256:
            raise Diverged(f"The text of the directory {sha256} is not the one that was published", "directories")
    event, following = published[last], published[last + 1 : last + 2]
    facts = {name: event["data"][name] for name in ("name", "version", "digest")}
    return PastDirectory(
        **facts,
        since=_at(event),
        until=_at(following[0]) if following else None,
        by=event["actor"]["id"],
        source=texts.get(facts["digest"]),
        members=_members(published[: last + 1], texts),
    )


def _members(published: Sequence[TenantEvent], texts: Mapping[str, str]) -> Sequence[Membership] | None:
    """The members at the last of these publications; None if its text was not kept."""
    groups = {digest: _groups(text, digest) for digest, text in texts.items()}
    members: dict[tuple[str, str], Membership] | None = None
    for number, event in enumerate(published):
        found = groups.get(event["data"]["digest"])
        if found is None:
            members = None
            continue
        # If the previous text was not kept, nobody knows who was in a group before.
        known = members is not None or number == 0
        when, who = (_at(event), event["actor"]["id"]) if known else (None, None)
        members = {place: (members or {}).get(place) or Membership(*place, when, who) for place in found}
    return None if members is None else [members[place] for place in sorted(members)]


def _groups(text: str, digest: str) -> set[tuple[str, str]]:
    content = load_directory(text, f"directory {digest[:12]}")
    return {(group, person) for group, persons in content.deciders.items() for person in persons}


def _at(event: TenantEvent) -> datetime:
    return datetime.fromisoformat(event["ts"])
