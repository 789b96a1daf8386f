"""The events of questions to people, and of grants: what approvers have allowed in advance."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from msgspec import Struct

from core.canonical import Json, JsonObject
from evidence.events import EventType
from runtime.engine.model.events.private import Private


class ApprovalRequested(Struct, frozen=True):
    """A question was put to people. ``card`` commits to ``shown``; ``expires`` is in seconds from now.

    ``contributors`` are those who shaped what is asked, as the directory knew them then; None for the run's requester
    alone. ``key`` names the call or question that a rejection would bind, and ``askers`` are all who have asked for it,
    the latest first; ``refusals`` are the binding ones from the tenant's table, ``failed`` the earlier failures of the
    same call. ``directory`` is the digest of the directory in which the contributors were looked up. ``secret`` says
    that the card has secret values, so that its evidence withholds it.
    """

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
    contributors: Private[list[JsonObject] | None] = None
    key: Private[str] = ""
    askers: Private[list[str] | None] = None
    refusals: Private[list[JsonObject] | None] = None
    failed: Private[list[JsonObject] | None] = None
    directory: str | None = None
    secret: bool = False


class PreflightFailed(Struct, frozen=True):
    """A check before people are asked has failed, so nobody was asked. ``check`` names it.

    ``directory`` is the digest of the directory that was checked. ``refusals`` are the binding ones, ``failed`` the
    earlier failures of the same call.
    """

    TYPE: ClassVar = EventType.PREFLIGHT_FAILED
    check: str
    operation: str | None = None
    directory: str | None = None
    refusals: Private[list[JsonObject] | None] = None
    failed: Private[list[JsonObject] | None] = None


class ApprovalSaid(Struct, frozen=True):
    """A person has said something about an open question; the event's actor is that person.

    ``said`` is `asks` (for more information), `answers` or `comments`. Whoever answers is a contributor from then on.
    ``identity`` as in ``ApprovalVoted``.
    """

    TYPE: ClassVar = EventType.APPROVAL_SAID
    approval: UUID
    said: str
    channel: str
    directory: str | None = None
    identity: JsonObject | None = None
    text: Private[str] = ""


class ApprovalReassigned(Struct, frozen=True):
    """A person has handed the question on; the event's actor is that person.

    ``to`` is notified from now on: the id of a person, or the key of a group (``core.terms.GroupQuorum.key``). The
    terms still say who may decide.
    """

    TYPE: ClassVar = EventType.APPROVAL_REASSIGNED
    approval: UUID
    to: str
    channel: str
    directory: str | None = None
    identity: JsonObject | None = None
    text: Private[str] = ""


class ApprovalEdited(Struct, frozen=True):
    """A person has edited what would be done; the event's actor is that person. The question is void then.

    ``fields`` are the names of the edited values, ``edited`` what each was and is (``was``, ``now``).
    """

    TYPE: ClassVar = EventType.APPROVAL_EDITED
    approval: UUID
    fields: list[str]
    channel: str
    directory: str | None = None
    identity: JsonObject | None = None
    edited: Private[JsonObject | None] = None


class ApprovalVoted(Struct, frozen=True):
    """A person has voted; the event's actor is that person.

    ``groups`` are those that the vote counts for, by the ``directory`` with this digest or by Slack. ``identity`` says
    how the face knew the person: the Slack account and the message that was clicked, the token, the console's session.
    Books of earlier releases keep the groups among their values. ``grant`` is what the person allows in advance.
    ``on_behalf`` is the person who has delegated the vote to them (``groups`` are that person's); None for their own
    vote. ``glass`` says that they used emergency access (break glass), as a member of one of the ``groups`` that may.
    """

    TYPE: ClassVar = EventType.APPROVAL_VOTED
    approval: UUID
    choice: str
    channel: str
    reason_given: bool
    separation_waived: bool = False
    committed: list[Json] | None = None
    reason: Private[str] = ""
    grant: JsonObject | None = None
    groups: list[str] | None = None
    directory: str | None = None
    identity: JsonObject | None = None
    on_behalf: str | None = None
    glass: bool = False


class ApprovalVoteRefused(Struct, frozen=True):
    """A vote was refused. The same append acts on the reason for the refusal."""

    TYPE: ClassVar = EventType.APPROVAL_VOTE_REFUSED
    approval: UUID
    code: str
    channel: str


class ApprovalDecided(Struct, frozen=True):
    """The question is answered (approved, rejected; happened, again, fail), or canceled with its run."""

    TYPE: ClassVar = EventType.APPROVAL_DECIDED
    approval: UUID
    outcome: str
    choice: Private[str | None] = None
    reason: Private[str | None] = None


class ApprovalConsumed(Struct, frozen=True):
    """A gate or a doubt has used the people's answer. (For actions, ``ActionIntended`` names the used approval.)

    ``directory`` is the digest of the directory by which its votes were counted again.
    """

    TYPE: ClassVar = EventType.APPROVAL_CONSUMED
    approval: UUID
    directory: str | None = None


class ApprovalSuperseded(Struct, frozen=True):
    """The question is void: the action has changed since it was asked (promise 3), or ``why`` has another reason.

    ``directory`` as in ``ApprovalConsumed``. ``changed`` are the values that have changed: each names its ``field``,
    says if it is a value of the ``target`` or of the ``action`` (``of``), and has ``was`` and ``now``, unless it is
    secret.
    """

    TYPE: ClassVar = EventType.APPROVAL_SUPERSEDED
    approval: UUID
    why: str | None = None
    directory: str | None = None
    changed: Private[list[JsonObject] | None] = None


class ApprovalDelivered(Struct, frozen=True):
    """The question's card has reached a channel, where people can see it. The event has the card's place and time."""

    TYPE: ClassVar = EventType.APPROVAL_DELIVERED
    approval: UUID
    channel: str
    message: str


class ApprovalExpired(Struct, frozen=True):
    """The question ran out of time without a decision. ``undelivered``: no card of it ever reached anybody."""

    TYPE: ClassVar = EventType.APPROVAL_EXPIRED
    approval: UUID
    undelivered: bool = False


class ApprovalReminded(Struct, frozen=True):
    """The people who were asked are reminded. ``rung`` is the next stage (``ask.ladder``), due in ``due`` seconds."""

    TYPE: ClassVar = EventType.APPROVAL_REMINDED
    approval: UUID
    wait: UUID | None = None
    rung: int = 0
    due: int = 0


class ApprovalEscalated(Struct, frozen=True):
    """Further people are asked. ``rung`` and ``due`` as in ``ApprovalReminded``."""

    TYPE: ClassVar = EventType.APPROVAL_ESCALATED
    approval: UUID
    wait: UUID | None = None
    rung: int = 0
    due: int = 0


# -- grants: each use is the intent that names the grant --------------------------------------------------------------


class GrantGiven(Struct, frozen=True):
    """The voters of an approval allow the same action again: ``uses`` times, ``until`` a time (RFC 3339).

    ``digest`` is that of what the grant covers, ``covers`` its blinded form, and ``of`` describes it for people.
    ``agent`` is the key of the only agent that may use it, "" for the whole run. ``terms``, ``contributors``, ``votes``
    (person and groups) and ``escalated`` are those of the approval: each use counts the votes again by them.
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
    """The grant lets nothing out any more. ``why``: it has expired, is used up, or its voters may no longer vote.

    ``directory`` is the digest of the directory by which that was found.
    """

    TYPE: ClassVar = EventType.GRANT_ENDED
    grant: UUID
    why: str
    directory: str | None = None
