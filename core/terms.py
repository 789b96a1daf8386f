"""The terms of an approval, which policy sets and votes must meet: groups, quorum, tier, times. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, convert, json

from core.canonical import JsonObject
from core.identity import Role

FRESH_SECONDS = 24 * 3600


class Tier(StrEnum):
    """The weight of a decision, as policy says (Q-3)."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Stopped(StrEnum):
    """The kinds of things that can be paused."""

    TENANT = "tenant"
    WORKFLOW = "workflow"
    CONNECTOR = "connector"
    RUN = "run"


class Unresolved(StrEnum):
    """The decision if the directory does not know somebody who shaped an action: deny it, or ask all the same.

    We cannot stop an unknown person from voting on what they shaped (promise 12).
    """

    DENY = "deny"
    ASK = "ask"


class GroupSource(StrEnum):
    """The source of a group's members: our directory, or Slack (user groups)."""

    GROUP = "group"
    SLACK_GROUP = "slack_group"


class GroupQuorum(Struct, frozen=True):
    """A quorum: ``of`` distinct members of ``group`` must agree; at least 1."""

    group: str
    of: int = 1
    source: GroupSource = GroupSource.GROUP

    def __post_init__(self) -> None:
        """Refuse a quorum without seats: it would be met without any vote."""
        if self.of < 1:
            raise ValueError(f"the quorum of {self.group!r} is {self.of}; it is at least 1")

    @property
    def key(self) -> str:
        """The group with its source, as ``group:leads`` or ``slack_group:S0ITLEADS``: the two never collide."""
        return f"{self.source}:{self.group}"


class Escalation(Struct, frozen=True):
    """An escalation: after ``after_seconds`` without a decision, ``to`` may decide in place of the groups it covers.

    ``covers`` holds keys of ``Terms.approvers``; empty covers all of them. A group that is not covered stays required,
    so one rule's escalation never waives another rule's approvers.
    """

    after_seconds: int
    to: GroupQuorum
    covers: frozenset[str] = frozenset()


class Terms(Struct, frozen=True):
    """The terms that policy sets for a question. No approvers means that nobody may approve.

    ``two_person`` asks for at least two people, each of whom fills one seat only. Nobody who shaped the action decides
    on it, except in a role that ``allow`` lists. ``expires_seconds`` None means that the question waits until it is
    decided or canceled. ``remind_seconds`` count from the request. An approval that is not used within
    ``fresh_seconds`` is void.
    """

    tier: Tier
    approvers: tuple[GroupQuorum, ...]
    two_person: bool = False
    allow: tuple[Role, ...] = ()
    unresolved: Unresolved = Unresolved.ASK
    expires_seconds: int | None = None
    remind_seconds: tuple[int, ...] = ()
    escalate: Escalation | None = None
    fresh_seconds: int = FRESH_SECONDS

    def to_json(self) -> JsonObject:
        """A JSON object that ``from_json`` reads back to an equal value; it is stored with the approval."""
        stored: JsonObject = json.decode(json.encode(self, order="deterministic"))
        return stored

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Terms:
        """Read what ``to_json`` wrote; ``ValueError`` for anything else."""
        return convert(value, cls)
