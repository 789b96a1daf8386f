"""The events of grants: what approvers have allowed in advance. Each use is the intent that names the grant."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from msgspec import Struct

from core.canonical import Json, JsonObject
from evidence.events import EventType
from runtime.engine.model.events.private import Private


class GrantGiven(Struct, frozen=True):
    """The voters of an approval allow the same again: ``uses`` times, ``until`` a time (RFC 3339).

    ``covers`` blinds ``digest``, of what it covers; ``of`` says that for people. ``agent`` is the key of the agent for
    which alone it holds, "" for the whole run. ``terms``, ``contributors``, ``votes`` (person and groups) and
    ``escalated`` are those of the approval: by them the votes are counted again at each use.
    """

    TYPE: ClassVar = EventType.GRANT_GIVEN
    grant: UUID
    approval: UUID
    covers: str
    uses: int
    until: str
    digest: Private[str] = ""
    agent: Private[str] = ""
    of: Private[JsonObject | None] = None
    terms: Private[JsonObject | None] = None
    contributors: Private[list[JsonObject] | None] = None
    votes: Private[list[Json] | None] = None
    escalated: Private[bool] = False


class GrantRevoked(Struct, frozen=True):
    """A person has taken the grant back; the event's actor is that person."""

    TYPE: ClassVar = EventType.GRANT_REVOKED
    grant: UUID
    committed: list[Json] | None = None
    reason: Private[str] = ""


class GrantEnded(Struct, frozen=True):
    """The grant lets nothing out any more. ``why``: it has expired, is used up, or its voters may not vote any more.

    ``directory`` is the digest of the people by whom that was found.
    """

    TYPE: ClassVar = EventType.GRANT_ENDED
    grant: UUID
    why: str
    directory: str | None = None
