"""The terms of an approval, which policy sets and votes must meet: groups, quorum, tier, times. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, convert, json

from core.canonical import JsonObject
from core.identity import Directory, Entry, Role

FRESH_SECONDS = 24 * 3600
# The time for which a rejection binds, unless policy names another.
REJECTION_SECONDS = 24 * 3600
# The bounds of open questions and of repeatedly failing calls, unless policy names others (``Terms``).
QUESTIONS = {"turn": 5, "run": 20, "requester": 100, "failures": 3}


class Tier(StrEnum):
    """The weight of a decision, as policy says."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Stopped(StrEnum):
    """The kinds of things that can be stopped. Only the installation's operator can suspend a tenant."""

    SUSPENDED = "suspended"
    TENANT = "tenant"
    WORKFLOW = "workflow"
    CONNECTOR = "connector"
    RUN = "run"
    AGENT = "agent"


class Unresolved(StrEnum):
    """The decision if the directory does not know somebody who shaped an action: deny it, or ask all the same.

    An unknown person cannot be kept from voting on what they shaped (promise 12).
    """

    DENY = "deny"
    ASK = "ask"


class GroupSource(StrEnum):
    """The source of a group's members: our directory, or Slack (user groups).

    The last two kinds ask one person: somebody's manager by the directory, or the person whom a field of the target
    names.
    """

    GROUP = "group"
    SLACK_GROUP = "slack_group"
    MANAGER_OF = "manager_of"
    PERSON = "person"


# The key of one person: `ana.lee/raj.quist` is Ana Lee as the manager of Raj Quist, `ana.lee/action.before.owner` is
# Ana Lee as named by that field. No id has a slash. `?` replaces the id of a person who was not found yet.
UNFOUND = "?"


class GroupQuorum(Struct, frozen=True):
    """A quorum: ``of`` distinct members of ``group`` must agree; at least 1.

    For one person ``group`` is their id, a slash, and the source of that id.
    """

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

    @property
    def person(self) -> str | None:
        """The id of the one person whom this asks, or ``UNFOUND`` before they are found; None for a group."""
        return self.group.partition("/")[0] if self.source in _ONE else None

    @property
    def comes_from(self) -> str:
        """The id of the person whose manager is asked, or the field that names the person; "" for a group."""
        return self.group.partition("/")[2] if self.source in _ONE else ""

    @property
    def words(self) -> str:
        """The name of the group; for one person, their id and its source."""
        if self.source not in _ONE:
            return self.group
        why = f"{'manager of' if self.source is GroupSource.MANAGER_OF else 'named by'} {self.comes_from}"
        return why if self.person == UNFOUND else f"{self.person} ({why})"


_ONE = (GroupSource.MANAGER_OF, GroupSource.PERSON)


# If the directory has a group of this name, a change of the policy in force, or of this group, takes two of its
# members. This right is never delegated.
POLICY_APPROVERS = "policy_approvers"


def may_be_delegated(key: str) -> bool:
    """True if a delegate may decide as a member of this group; never in Slack's groups or ``POLICY_APPROVERS``."""
    source, _, _ = key.partition(":")
    return source != GroupSource.SLACK_GROUP and key != f"{GroupSource.GROUP}:{POLICY_APPROVERS}"


def holds(entry: Entry, key: str, people: Directory) -> bool:
    """True if this entry is in the group with this key by the directory; never for Slack's own groups."""
    source, _, group = key.partition(":")
    person, _, comes_from = group.partition("/")
    match source:
        case GroupSource.GROUP:
            return group in entry.groups
        case GroupSource.PERSON:
            return entry.id == person
        case GroupSource.MANAGER_OF:
            managed = people.entries.get(comes_from)
            return entry.id == person and managed is not None and managed.manager == person
    return False


class Escalation(Struct, frozen=True):
    """An escalation: after ``after_seconds`` without a decision, ``to`` may decide in place of the covered groups.

    ``covers`` holds keys of ``Terms.approvers``; empty covers all of them. A group that is not covered stays required,
    so one rule's escalation never waives another rule's approvers.
    """

    after_seconds: int
    to: GroupQuorum
    covers: frozenset[str] = frozenset()


class Grant(Struct, frozen=True):
    """A voter's grant in advance: ``uses`` of the same within ``seconds``, for this run or (``agent``) for an agent."""

    uses: int
    seconds: int
    agent: bool = False

    def to_json(self) -> JsonObject:
        """A JSON object that ``from_json`` reads back to an equal value."""
        return {"uses": self.uses, "seconds": self.seconds, "agent": self.agent}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Grant:
        """Read what ``to_json`` wrote; ``ValueError`` for anything else."""
        return convert(value, cls)


class BreakGlass(Struct, frozen=True):
    """The terms of emergency access: who may approve alone, how long that lets the action out, and who reviews it."""

    by: tuple[str, ...]
    review: tuple[str, ...]
    seconds: int

    @property
    def keys(self) -> frozenset[str]:
        """The keys of the groups; a person must be in all of them to break the glass."""
        return frozenset(f"{GroupSource.GROUP}:{name}" for name in self.by)


class Terms(Struct, frozen=True):
    """The terms that policy sets for a question. No approvers means that nobody may approve.

    ``two_person`` asks for at least two people, each of whom fills one seat only. Nobody who shaped the action decides
    on it, except in a role that ``allow`` lists. ``expires_seconds`` None means that the question waits until it is
    decided or canceled. ``remind_seconds`` count from the request. An approval that is not used within
    ``fresh_seconds`` is void. A rejection binds for ``rejection_seconds``. ``questions`` bounds the open questions of
    an agent's ``turn``, of a ``run`` and of a ``requester``, and how often an approved call may have ``failed`` before
    nobody is asked about it any more. ``channel`` is where the card goes, None for the usual place; it does not bind,
    so a change of it voids no approval. ``grants`` bounds what an approver may allow in advance (``uses``,
    ``seconds``); None if nothing. With ``step_up_seconds`` an approval counts only for that time after its voter's new
    login for this question and action; None if any login is enough. ``break_glass`` says who may let the action out
    alone in an emergency; None if nobody may.
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
    grants: dict[str, int] | None = None
    step_up_seconds: int | None = None
    break_glass: BreakGlass | None = None

    def most(self, what: str) -> int:
        """The bound of this name."""
        return (self.questions or {}).get(what, QUESTIONS[what])

    def to_json(self) -> JsonObject:
        """A JSON object that ``from_json`` reads back to an equal value; it is stored with the approval."""
        stored: JsonObject = json.decode(json.encode(self, order="deterministic"))
        # Keys without a value are left out, so that terms of earlier releases keep their digests.
        return {name: value for name, value in stored.items() if value is not None or name not in _LATER}

    def bound(self) -> JsonObject:
        """The terms that an approval binds to."""
        return {name: value for name, value in self.to_json().items() if name != "channel"}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Terms:
        """Read what ``to_json`` wrote; ``ValueError`` for anything else."""
        return convert(value, cls)


# These are left out of the stored form if nobody has set them.
_LATER = frozenset({"rejection_seconds", "questions", "channel", "grants", "step_up_seconds", "break_glass"})
