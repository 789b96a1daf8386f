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
    and errors with their words. ``contributors`` are those who shaped the action, by role and principal; None for the
    run's requester alone. ``origins`` say where its values come from, and by which version of the matcher, if a rule
    has read origins. ``summary`` describes a denied action in the operation's words; no other event does.
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
    """The action may go out; this is written before it goes (promise 1). A retry of a receipt does not repeat values.

    ``decision`` let it out; ``approval`` is the approval that it consumes. ``replaces`` is the failed receipt of
    another action that held the key. ``shared`` says that other steps and runs may share the effect by its key.
    ``authority`` is the approval of a retry and its terms, if they are not the receipt's. ``directory`` is the digest
    of the people by whom the approval's votes were counted again. ``same`` is the digest of the call, if a rule counts
    equal calls. ``shaped`` are the marks of those who shaped a shared effect, for the steps that reuse its result.
    ``approved_version`` is the target's version that people saw. The version that is acted on is in ``proposed``, or in
    ``read`` for a retry that has read another one. ``stop`` is the tenant's number under which no pause held it back:
    each change of pauses, policies or people changes that number. ``grant`` is the grant that it uses in place of an
    approval, and ``covers`` the blinded digest of what the grant covers. ``reverses`` is the receipt that this one
    undoes. ``gate`` is the blinded digest of the call that an agent carries out itself, by its only permit.
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
    """The action has nothing to do: the target holds every value already, so nothing is sent and nobody is asked.

    ``decision`` did not deny it. ``proposed`` has the values that were read; ``output`` is what the write would have
    returned.
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

    ``altered`` names the fields whose values differ from those asked for; ``unusable`` then has both values. ``shaped``
    are the marks of those who wrote the output's values in the outside system. ``secrets`` are those that the call was
    given, each as ``name@version``, and never a value. ``ran`` is the blinded digest of the call that ran, as reported
    by the agent that carried it out.
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
    """The action stays in doubt, for now or for good, and is not sent again. ``why`` is the reason."""

    TYPE: ClassVar = EventType.ACTION_HELD
    receipt: UUID
    why: Private[str] = ""


class ActionDoubtResolved(Struct, frozen=True):
    """The doubt is over; ``how`` says why. After ``not_applied`` a new intent may follow.

    ``by`` says who ended it: a probe of the target (``probe``), a repeat that the target dedupes (``again``),
    ``people`` by their ``approval``, or nobody in time (``none``). ``altered`` and ``unusable`` are those of
    ``ActionSucceeded``.
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
    """The result of a recorded effect is reused; nothing is sent. ``run`` is the run that performed it, if another.

    ``ended`` says who reported its end, if the end came from outside. ``shaped`` are the marks of those who shaped the
    effect, if another step performed it.
    """

    TYPE: ClassVar = EventType.ACTION_RECALLED
    receipt: UUID
    run: UUID | None = None
    ended: Private[JsonObject | None] = None
    shaped: Private[list[str] | None] = None


class ActionLate(Struct, frozen=True):
    """A worker that had lost its lease reports on its call. This decides nothing, and may come after the run's end.

    ``epoch`` is that of the lost lease. ``sent`` and ``answered`` are times of the database in RFC 3339.
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
