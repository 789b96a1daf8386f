"""The events of steps and of what they wait for."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from msgspec import Struct, field

from core.canonical import Json, JsonObject
from evidence.events import EventType
from runtime.engine.model.events.private import Private
from runtime.engine.model.states import WaitKind


class StepStarted(Struct, frozen=True):
    """A worker holds the step's lease; the event's actor is that worker."""

    TYPE: ClassVar = EventType.STEP_STARTED
    operation: str
    attempt: int
    epoch: int


class StepSucceeded(Struct, frozen=True):
    """The step is done. ``values`` are its writes by channel, and under ``$reference`` the run's new reference.

    ``shaped`` are the marks of those who shaped the data it has read: a record, an effect of another run, outside data.
    """

    TYPE: ClassVar = EventType.STEP_SUCCEEDED
    writes: list[Json]
    usage: JsonObject | None = None
    output: Private[Json] = None
    values: Private[JsonObject | None] = None
    shaped: Private[list[str] | None] = None


class StepFailed(Struct, frozen=True):
    """The step failed for good. ``detail`` is the whole error; ``kind`` and ``code`` are its public part.

    ``shaped`` are the marks of those who wrote the error message outside. ``released`` says that it was held before,
    and people let the run go on without it.
    """

    TYPE: ClassVar = EventType.STEP_FAILED
    kind: str | None = field(default=None, name="class")
    code: str | None = None
    usage: JsonObject | None = None
    detail: Private[JsonObject | None] = None
    shaped: Private[list[str] | None] = None
    released: bool = False


class StepHeld(Struct, frozen=True):
    """The step failed for good and is held: members of ``group`` decide about it. All other steps go on.

    The other fields are those of ``StepFailed``.
    """

    TYPE: ClassVar = EventType.STEP_HELD
    wait: UUID
    group: str
    kind: str | None = field(default=None, name="class")
    code: str | None = None
    usage: JsonObject | None = None
    detail: Private[JsonObject | None] = None
    shaped: Private[list[str] | None] = None


class HoldAnswered(Struct, frozen=True):
    """A person has decided about a step that is held, or that waits for its retry (``kind``).

    ``choice`` is ``again``, ``without`` or ``cancel`` (``life.holding.Answer``), ``channel`` the face of the answer.
    """

    TYPE: ClassVar = EventType.HOLD_ANSWERED
    wait: UUID
    kind: WaitKind
    choice: str
    channel: str
    reason_given: bool = False
    reason: Private[str] = ""


class StepParked(Struct, frozen=True):
    """The step waits. The fields from ``due`` on describe a wait that opens here; ``due`` is in seconds.

    ``known`` says that the wait was opened by an earlier event (``WaitOpened``).
    """

    TYPE: ClassVar = EventType.STEP_PARKED
    wait: UUID
    kind: WaitKind
    known: bool = False
    due: Private[int | float | None] = None
    token: Private[str | None] = None
    context: Private[JsonObject | None] = None
    correlation: Private[str | None] = None
    detail: Private[JsonObject | None] = None


class StepRetryScheduled(Struct, frozen=True):
    """The step waits for its next attempt, because the last one failed; or, with ``waits``, it merely waits for that.

    ``waits`` is the code of what it waits for, such as the rate of its target: nothing of it has failed.
    """

    TYPE: ClassVar = EventType.STEP_RETRY_SCHEDULED
    wait: UUID
    attempt: int
    seconds: int
    usage: JsonObject | None = None
    waits: str | None = None
    due: Private[int | float | None] = None
    detail: Private[JsonObject | None] = None


class StepResumed(Struct, frozen=True):
    """The step's wait is over: the step is ready again and joins the next super-step."""

    TYPE: ClassVar = EventType.STEP_RESUMED
    invocation: str


class StepSetBack(Struct, frozen=True):
    """The step met an unexpected error in Counterseal. It is tried again when its lease has run out."""

    TYPE: ClassVar = EventType.STEP_SET_BACK
    setbacks: int
    detail: Private[JsonObject | None] = None


class StepCanceled(Struct, frozen=True):
    """The step is canceled, with its open wait."""

    TYPE: ClassVar = EventType.STEP_CANCELED


class LeaseExpired(Struct, frozen=True):
    """The lease of the step's worker ran out; the step is ready for another. ``detail`` counts such leases in a row."""

    TYPE: ClassVar = EventType.LEASE_EXPIRED
    epoch: int
    owner: str
    detail: Private[JsonObject | None] = None


class WaitOpened(Struct, frozen=True):
    """A wait is opened before its step parks on it, because work that is begun outside may end at once."""

    TYPE: ClassVar = EventType.WAIT_OPENED
    wait: UUID
    kind: WaitKind
    due: Private[int | float | None] = None
    token: Private[str] = ""
    context: Private[JsonObject | None] = None
    correlation: Private[str | None] = None


class WaitPostponed(Struct, frozen=True):
    """The deadline of a wait moves: ``due`` is in seconds from now. ``setbacks`` counts the errors so far.

    Either a due wait is handled again later, or the outside system has said that it takes longer.
    """

    TYPE: ClassVar = EventType.WAIT_POSTPONED
    wait: UUID
    kind: WaitKind
    due: int
    setbacks: int = 0


class WaitCompleted(Struct, frozen=True):
    """The wait has ended with a result or an error. ``result`` is what the resumed step sees."""

    TYPE: ClassVar = EventType.WAIT_COMPLETED
    wait: UUID
    kind: WaitKind
    committed: list[Json] | None = None
    result: Private[JsonObject | None] = None


class WaitTimedOut(Struct, frozen=True):
    """The wait has taken too long."""

    TYPE: ClassVar = EventType.WAIT_TIMED_OUT
    wait: UUID
    kind: WaitKind
    result: Private[JsonObject | None] = None


class WaitCanceled(Struct, frozen=True):
    """The wait was canceled. ``why`` is ``changed`` for a task that now asks something else."""

    TYPE: ClassVar = EventType.WAIT_CANCELED
    wait: UUID
    kind: WaitKind
    why: str | None = None


class AgentBegan(Struct, frozen=True):
    """An agent begins with ``messages``; its turns come next. ``tools`` are the sources of the tools of its model.

    ``fixed`` are the inputs that the author fixed, by the tool's name. ``sources`` say where the messages come from:
    each is an ``origin`` with its ``value``, or with the number of the whole ``message`` that has that origin.
    ``matching`` is the part of the tools' declarations by which origins are found. ``remembered`` are the turns of
    earlier agents that its model is shown first, each ``[run, step]``.
    """

    TYPE: ClassVar = EventType.AGENT_BEGAN
    model: str
    tools: list[Json]
    messages: Private[list[JsonObject] | None] = None
    fixed: Private[JsonObject | None] = None
    sources: Private[list[JsonObject] | None] = None
    matching: Private[JsonObject | None] = None
    remembered: Private[list[Json] | None] = None


class AgentAnswered(Struct, frozen=True):
    """The model's parsed answer in a turn: it calls tools, gives a result, or does not fit the wanted result.

    ``calls`` has one entry for each call, in its order: ``[source, ""]``, or ``[source, code]`` for one that is
    refused. ``said`` are the same calls with their values: id, tool, and input, or the reason of the refusal.
    ``problem`` says what is wrong with an answer, ``result`` is the agent's result.
    """

    TYPE: ClassVar = EventType.AGENT_ANSWERED
    came: str
    calls: list[Json]
    said: Private[list[JsonObject] | None] = None
    problem: Private[str | None] = None
    result: Private[Json] = None
