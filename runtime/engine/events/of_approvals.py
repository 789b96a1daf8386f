"""The events of questions to people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from core.canonical import Json, JsonObject
from evidence.events import EventType
from runtime.engine.events.private import Private


@dataclass(frozen=True, slots=True)
class ApprovalRequested:
    """A question was put to people. ``card`` commits to ``shown``; ``expires`` is in seconds from now."""

    TYPE: ClassVar = EventType.APPROVAL_REQUESTED
    approval: UUID
    action: str | None
    card: str
    kind: str
    tier: str
    committed: list[Json] | None = None
    digest: Private[str] = ""
    nonce: Private[str] = ""
    terms: Private[JsonObject | None] = None
    requester: Private[str] = ""
    shown: Private[JsonObject | None] = None
    proposed: Private[JsonObject | None] = None
    expires: Private[int | float] = 0


@dataclass(frozen=True, slots=True)
class ApprovalVoted:
    """A person has voted; the event's actor is that person."""

    TYPE: ClassVar = EventType.APPROVAL_VOTED
    approval: UUID
    choice: str
    channel: str
    reason_given: bool
    separation_waived: bool = False
    committed: list[Json] | None = None
    reason: Private[str] = ""
    groups: Private[list[str] | None] = None


@dataclass(frozen=True, slots=True)
class ApprovalVoteRefused:
    """A vote was refused in the append that did something about its reason."""

    TYPE: ClassVar = EventType.APPROVAL_VOTE_REFUSED
    approval: UUID
    code: str
    channel: str


@dataclass(frozen=True, slots=True)
class ApprovalDecided:
    """The question is answered (approved, rejected; happened, again, fail), or canceled with its run."""

    TYPE: ClassVar = EventType.APPROVAL_DECIDED
    approval: UUID
    outcome: str
    choice: Private[str | None] = None
    reason: Private[str | None] = None


@dataclass(frozen=True, slots=True)
class ApprovalConsumed:
    """A given answer was used by something else than an action's intent: a gate, or a doubt."""

    TYPE: ClassVar = EventType.APPROVAL_CONSUMED
    approval: UUID


@dataclass(frozen=True, slots=True)
class ApprovalSuperseded:
    """The question is void: what would be done is not what was asked about any more (promise 3)."""

    TYPE: ClassVar = EventType.APPROVAL_SUPERSEDED
    approval: UUID


@dataclass(frozen=True, slots=True)
class ApprovalExpired:
    """Nobody decided in time."""

    TYPE: ClassVar = EventType.APPROVAL_EXPIRED
    approval: UUID


@dataclass(frozen=True, slots=True)
class ApprovalReminded:
    """The people who were asked are reminded. ``rung`` is the next rung of the ladder, due in ``due`` seconds."""

    TYPE: ClassVar = EventType.APPROVAL_REMINDED
    approval: UUID
    wait: UUID | None = None
    rung: int = 0
    due: int = 0


@dataclass(frozen=True, slots=True)
class ApprovalEscalated:
    """Others are asked as well. ``rung`` and ``due`` as in ``ApprovalReminded``."""

    TYPE: ClassVar = EventType.APPROVAL_ESCALATED
    approval: UUID
    wait: UUID | None = None
    rung: int = 0
    due: int = 0
