"""The events of actions: how policy judges them, and what becomes of them outside."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from msgspec import Struct, field

from core.canonical import Json, JsonObject
from evidence.events import EventType
from evidence.receipts import LateAnswer, Resolution
from runtime.engine.model.events.private import Private


class DecisionMade(Struct, frozen=True):
    """Policy has judged an action. ``action`` is its blinded digest, ``digest`` the digest itself.

    ``policies`` are all that were evaluated. ``rules`` and ``errors`` are ids; ``fired`` and ``faults`` are the rules
    and errors with their words.
    ``contributors`` are those who shaped the action, by role and principal; None for the run's requester alone.
    ``origins`` say where its values come from, by which version of the matcher, if a rule has read that. ``summary`` is
    what was denied, in the operation's words; nothing else tells it.
    """

    TYPE: ClassVar = EventType.DECISION_MADE
    decision: UUID
    action: str
    operation: str
    outcome: str
    policies: list[JsonObject]
    rules: list[Json]
    errors: list[Json]
    digest: Private[str] = ""
    fired: Private[list[JsonObject] | None] = None
    faults: Private[list[JsonObject] | None] = None
    reasons: Private[list[str] | None] = None
    facts: Private[JsonObject | None] = None
    contributors: Private[list[str] | None] = None
    origins: Private[JsonObject | None] = None
    summary: Private[str] = ""


class ActionIntended(Struct, frozen=True):
    """The action may go out (promise 1): written before it goes. A retry of the same receipt tells no values again.

    ``decision`` let it out; ``approval`` is the approval that it consumes. ``replaces`` is the failed receipt of
    another action that held the key. ``shared`` says that other steps and runs may share the effect by its key.
    ``authority`` is the approval of a retry and its terms, if they are not the receipt's. ``directory`` is the digest
    of the people by whom the approval's votes were counted again. ``same`` is the digest of the call, if a rule counts
    equal calls. ``shaped`` are the marks of those who shaped a shared effect, for the steps that reuse its result.
    ``approved_version`` is the target's version that people saw; the one that is acted on stands in ``proposed``, or
    for a retry that has read another one, in ``read``. ``stop`` is the tenant's number under which no pause held it
    back: each change of pauses, policies or people moves it. ``grant`` is the one that it uses in place of an approval,
    and ``covers`` the blinded digest of what that covers. ``reverses`` is the receipt that this one undoes. ``gate`` is
    the blinded digest of the call that an agent carries out itself, by its only permit.
    """

    TYPE: ClassVar = EventType.ACTION_INTENDED
    receipt: UUID
    action: str
    operation: str
    attempt: int
    decision: str
    approval: UUID | None
    replaces: UUID | None = None
    shared: bool = False
    directory: str | None = None
    key: Private[str | None] = None
    digest: Private[str | None] = None
    target: Private[str | None] = None
    proposed: Private[JsonObject | None] = None
    reversible: Private[bool] = False
    reverse: Private[JsonObject | None] = None
    resolution: Private[str | None] = None
    authority: Private[JsonObject | None] = None
    same: Private[str] = ""
    shaped: Private[list[str] | None] = None
    approved_version: Private[str | None] = None
    read: Private[JsonObject | None] = None
    grant: UUID | None = None
    covers: str | None = None
    reverses: str | None = None
    stop: int | None = None
    gate: str | None = None


class ActionUnneeded(Struct, frozen=True):
    """There is nothing to do: the target holds every value already, so nothing is sent and nobody is asked.

    ``decision`` did not deny it. ``proposed`` has what was read; ``output`` is what the write would have given.
    """

    TYPE: ClassVar = EventType.ACTION_UNNEEDED
    receipt: UUID
    action: str
    operation: str
    decision: str
    key: Private[str] = ""
    digest: Private[str] = ""
    target: Private[str] = ""
    proposed: Private[JsonObject | None] = None
    output: Private[Json] = None


class ActionSucceeded(Struct, frozen=True):
    """The effect happened. ``unusable`` says why its output cannot be used, for the steps that share the effect.

    ``altered`` names the fields that read back otherwise than asked; ``unusable`` then has what was asked and found.
    ``shaped`` are the marks of those who wrote outside what the output holds. ``secrets`` are those that the call was
    given, each as ``name@version``, and never a value. ``ran`` is the blinded digest of the call that ran, as the agent
    reports it that has carried it out.
    """

    TYPE: ClassVar = EventType.ACTION_SUCCEEDED
    receipt: UUID
    output: Private[Json] = None
    external_id: Private[str | None] = None
    usage: Private[JsonObject | None] = None
    unusable: Private[JsonObject | None] = None
    altered: list[Json] | None = None
    shaped: Private[list[str] | None] = None
    secrets: list[Json] | None = None
    ran: str | None = None


class ActionFailed(Struct, frozen=True):
    """The action certainly had no effect. ``secrets`` are as for ``ActionSucceeded``."""

    TYPE: ClassVar = EventType.ACTION_FAILED
    receipt: UUID
    kind: str | None = field(default=None, name="class")
    code: str | None = None
    detail: Private[JsonObject | None] = None
    secrets: list[Json] | None = None


class ActionInDoubt(Struct, frozen=True):
    """The effect of the action is unknown. ``secrets`` are as for ``ActionSucceeded``."""

    TYPE: ClassVar = EventType.ACTION_IN_DOUBT
    receipt: UUID
    why: Private[str] = ""
    secrets: list[Json] | None = None


class ActionHeld(Struct, frozen=True):
    """The action stays in doubt for now, or for good: it is not sent again. ``why`` is the reason."""

    TYPE: ClassVar = EventType.ACTION_HELD
    receipt: UUID
    why: Private[str] = ""


class ActionDoubtResolved(Struct, frozen=True):
    """The doubt is over; ``how`` says by what. ``not_applied`` is followed by a new intent.

    ``by`` says who ended it: the target was asked (``probe``), it takes the same call twice for one (``again``),
    ``people`` said so, by ``approval``, or nobody did in time (``none``).
    ``altered`` and ``unusable`` are those of ``ActionSucceeded``.
    """

    TYPE: ClassVar = EventType.ACTION_DOUBT_RESOLVED
    receipt: UUID
    resolution: Resolution
    how: Private[str] = ""
    output: Private[Json] = None
    unusable: Private[JsonObject | None] = None
    altered: list[Json] | None = None
    by: str | None = None
    approval: UUID | None = None


class ActionRecalled(Struct, frozen=True):
    """The result of a recorded effect is reused; nothing is sent. ``run`` performed it, if not this run.

    ``ended`` says who told its end, if that came from outside. ``shaped`` are the marks of those who shaped the effect,
    if another step performed it.
    """

    TYPE: ClassVar = EventType.ACTION_RECALLED
    receipt: UUID
    run: UUID | None = None
    ended: Private[JsonObject | None] = None
    shaped: Private[list[str] | None] = None


class ActionLate(Struct, frozen=True):
    """A worker that had lost its lease tells what it knows of its call. It decides nothing, even after the run's end.

    ``epoch`` is that of the lost lease. ``sent`` and ``answered`` are RFC 3339, of the database's time.
    """

    TYPE: ClassVar = EventType.ACTION_LATE
    receipt: UUID
    attempt: int
    epoch: int
    known: LateAnswer
    sent: str
    answered: str | None = None
    code: str | None = None
    output: Private[Json] = None
    external_id: Private[str | None] = None
    detail: Private[JsonObject | None] = None
    secrets: list[Json] | None = None
