"""The terms of an approval, which policy sets and votes must meet: groups, quorum, tier, times. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, convert, json

from core.canonical import JsonObject
from core.identity import Role

FRESH_SECONDS = 24 * 3600
# The time for which a rejection binds, unless policy names another.
REJECTION_SECONDS = 24 * 3600
# The bounds of open questions and of calls that fail again, unless policy names others (``Terms``).
QUESTIONS = {"turn": 5, "run": 20, "requester": 100, "failures": 3}


class Tier(StrEnum):
    """The weight of a decision, as policy says."""

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
    ``fresh_seconds`` is void. A rejection binds for ``rejection_seconds``; ``questions`` bounds what is asked:
    open questions of an agent's ``turn``, of a ``run``, of a ``requester``, and how often a call that was approved may
    have ``failed`` before nobody is asked about it any more. ``channel`` is where the card goes, None for the usual
    place: it decides nothing, so no approval is void because of it.
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
    rejection_seconds: int | None = None
    questions: dict[str, int] | None = None
    channel: str | None = None

    def most(self, what: str) -> int:
        """The bound of this name."""
        return (self.questions or {}).get(what, QUESTIONS[what])

    def to_json(self) -> JsonObject:
        """A JSON object that ``from_json`` reads back to an equal value; it is stored with the approval."""
        stored: JsonObject = json.decode(json.encode(self, order="deterministic"))
        # Terms from before there were these have the same digest as ever.
        return {name: value for name, value in stored.items() if value is not None or name not in _LATER}

    def bound(self) -> JsonObject:
        """The terms that an approval binds to."""
        return {name: value for name, value in self.to_json().items() if name != "channel"}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Terms:
        """Read what ``to_json`` wrote; ``ValueError`` for anything else."""
        return convert(value, cls)


# Left out of the stored form while nobody has set them.
_LATER = frozenset({"rejection_seconds", "questions", "channel"})
