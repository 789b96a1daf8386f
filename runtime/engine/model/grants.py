"""A grant of a run: what its approvers have allowed in advance, and how much of that is used."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct

from core.canonical import JsonObject


class GrantRow(Struct, frozen=True):
    """A grant as its book tells it (``events.GrantGiven``), with the uses so far; ``ended`` says why it is over.

    ``ended_by`` is the actor who has taken it back, and ``ended_at`` is when that was.
    """

    grant_id: UUID
    approval: UUID
    digest: str
    uses: int
    until: str
    agent: str
    of: JsonObject
    terms: JsonObject
    contributors: list[JsonObject]
    votes: list[Any]
    escalated: bool
    at: datetime
    used: int = 0
    ended: str = ""
    ended_by: str = ""
    ended_at: datetime | None = None

    @property
    def left(self) -> bool:
        """True if it lets something out yet, as far as the book says: time is looked at when it is used."""
        return not self.ended and self.used < self.uses
