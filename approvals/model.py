"""Approvals and votes as frozen values. Who stores them is the runtime's business."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from approvals.content import CardContent, CardState, InputField, RuleReason
from approvals.states import ApprovalStatus
from core.canonical import Json, JsonObject

__all__ = [
    "Approval",
    "ApprovalKind",
    "CardContent",
    "CardState",
    "CardView",
    "Choice",
    "Escalation",
    "GroupProgress",
    "GroupQuorum",
    "GroupSource",
    "InputField",
    "RuleReason",
    "Terms",
    "Tier",
    "Vote",
    "VoteChannel",
    "Voter",
    "choices_of",
]


class Tier(StrEnum):
    """How weighty the decision is, as policy says (Q-3)."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class ApprovalKind(StrEnum):
    """What is asked: may this action be done, may the workflow go on, what became of an action in doubt."""

    ACTION = "action"
    GATE = "gate"
    IN_DOUBT = "in_doubt"


class Choice(StrEnum):
    """One person's answer. The last three answer an in-doubt approval only, the first two everything else."""

    APPROVE = "approve"
    REJECT = "reject"
    HAPPENED = "happened"
    AGAIN = "again"
    FAIL = "fail"


def choices_of(kind: ApprovalKind) -> tuple[Choice, ...]:
    """The answers that a question of this kind takes, in the order in which they are offered."""
    if kind is ApprovalKind.IN_DOUBT:
        return (Choice.HAPPENED, Choice.AGAIN, Choice.FAIL)
    return (Choice.APPROVE, Choice.REJECT)


class GroupSource(StrEnum):
    """Who knows the members of a group: our directory, or Slack (user groups)."""

    GROUP = "group"
    SLACK_GROUP = "slack_group"


class VoteChannel(StrEnum):
    """Through which face a vote came."""

    SLACK = "slack"
    HTTP = "http"
    CLI = "cli"
    CONSOLE = "console"


@dataclass(frozen=True, slots=True)
class GroupQuorum:
    """``of`` distinct members of ``group`` must agree; at least 1."""

    group: str
    of: int = 1
    source: GroupSource = GroupSource.GROUP

    def __post_init__(self) -> None:
        """A seatless quorum would be met by nobody's vote."""
        if self.of < 1:
            raise ValueError(f"the quorum of {self.group!r} is {self.of}; it is at least 1")

    @property
    def key(self) -> str:
        """``group:leads``, ``slack_group:S0ITLEADS``: names of the two sources never mean each other."""
        return f"{self.source}:{self.group}"

    def to_json(self) -> JsonObject:
        """As it is stored."""
        return {"group": self.group, "of": self.of, "source": str(self.source)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> GroupQuorum:
        """Read what ``to_json`` wrote."""
        return cls(value["group"], value["of"], GroupSource(value["source"]))


@dataclass(frozen=True, slots=True)
class Escalation:
    """After so many seconds without a decision, ``to`` may decide in place of the groups that it covers.

    ``covers`` holds keys of ``Terms.approvers``; empty covers all of them. A group that is not covered stays required,
    so that one rule's escalation never waives another rule's approvers.
    """

    after_seconds: int
    to: GroupQuorum
    covers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Terms:
    """What policy asks of people. No approvers means that nobody may approve.

    ``two_person`` asks for at least two people, each of whom fills one seat only. ``allow_requester`` lifts the
    separation of duties. ``expires_seconds`` None means that it waits until it is decided or canceled.
    ``remind_seconds`` count from the request.
    """

    tier: Tier
    approvers: tuple[GroupQuorum, ...]
    two_person: bool = False
    allow_requester: bool = False
    expires_seconds: int | None = None
    remind_seconds: tuple[int, ...] = ()
    escalate: Escalation | None = None

    def to_json(self) -> JsonObject:
        """A JSON object that ``from_json`` reads back to an equal value: as it is stored with the approval."""
        escalate: JsonObject | None = None
        if self.escalate is not None:
            covers: list[Json] = [*sorted(self.escalate.covers)]
            to = self.escalate.to.to_json()
            escalate = {"after_seconds": self.escalate.after_seconds, "to": to, "covers": covers}
        return {
            "tier": str(self.tier),
            "approvers": [group.to_json() for group in self.approvers],
            "two_person": self.two_person,
            "allow_requester": self.allow_requester,
            "expires_seconds": self.expires_seconds,
            "remind_seconds": [*self.remind_seconds],
            "escalate": escalate,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Terms:
        """Read what ``to_json`` wrote."""
        escalate = value["escalate"]
        return cls(
            tier=Tier(value["tier"]),
            approvers=tuple(GroupQuorum.from_json(group) for group in value["approvers"]),
            two_person=value["two_person"],
            allow_requester=value["allow_requester"],
            expires_seconds=value["expires_seconds"],
            remind_seconds=tuple(value["remind_seconds"]),
            escalate=None
            if escalate is None
            else Escalation(
                escalate["after_seconds"], GroupQuorum.from_json(escalate["to"]), frozenset(escalate["covers"])
            ),
        )


@dataclass(frozen=True, slots=True)
class Voter:
    """A person at the moment of voting. Groups are ``GroupQuorum.key`` values, resolved now.

    ``unresolvable`` holds the groups whose members could not be looked up: they allow nobody.
    """

    person_id: str
    name: str
    groups: frozenset[str]
    unresolvable: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Vote:
    """One recorded answer. ``groups`` are the voter's, as resolved then; ``digest`` is what was voted on.

    ``at`` is ISO 8601, the database's time. Of several votes of one person the last counts.
    """

    voter: str
    name: str
    choice: Choice
    reason: str
    groups: frozenset[str]
    channel: VoteChannel
    at: str
    digest: str


@dataclass(frozen=True, slots=True)
class Approval:
    """One question. ``excluded`` are people who never decide it (agent owner, editor), besides the requester.

    ``escalated`` says that the escalation is in force. ``nonce`` is what the buttons carry. ``revision`` counts changes
    of the card that were rendered, for the reconciler; it takes no part in decisions.
    """

    id: UUID
    tenant_id: str
    run_id: UUID
    step_key: str
    kind: ApprovalKind
    status: ApprovalStatus
    action_digest: str
    nonce: str
    terms: Terms
    requester: str | None
    card: CardContent
    excluded: frozenset[str] = frozenset()
    votes: tuple[Vote, ...] = ()
    expires_at: datetime | None = None
    escalated: bool = False
    revision: int = 1


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """How far one group is: ``names`` of those who count for it, out of ``of``."""

    group: GroupQuorum
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CardView:
    """All that a face needs to draw one approval. ``detail`` says what became of it (result, error, by whom).

    ``late`` says what a worker that had lost its lease told of it afterwards.
    """

    approval_id: UUID
    nonce: str
    kind: ApprovalKind
    content: CardContent
    state: CardState
    votes: tuple[Vote, ...] = ()
    progress: tuple[GroupProgress, ...] = ()
    two_person: bool = False
    detail: str = ""
    link: str = ""
    late: str = ""
