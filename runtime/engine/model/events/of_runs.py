"""The events of a run as a whole: its opening, its barriers and its end."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from msgspec import Struct

from core.canonical import Json, JsonObject
from evidence.events import EventType
from runtime.engine.model.events.private import Private
from runtime.engine.model.states import RunState


class RunOpened(Struct, frozen=True):
    """A trigger has started the run. ``workflow`` has the name, version and digest of its workflow.

    ``shaped`` are the marks of those who shaped its input, besides the requester (``book.contributors``). ``channels``
    are the first values that are not the declared ones; ``inherited`` names those that are copies of the parent's
    channels. ``origins`` are those of the input and of the copies, as the parent knows them. ``open`` says for how many
    seconds the run waits for more steps when its own are done. ``adder`` is the mark of whoever added the step that has
    started this run, or a run above it. ``requester`` is the id of the person that ``requested_by`` meant in the
    directory of that moment; None if it meant nobody. ``started_by`` is the account that was authenticated when this
    run, or the run that has started it, was started over HTTP. ``tenant`` is the run's tenant, so that no book can be
    moved to another; a book without it is of an earlier release. ``parent`` is the run that has started this one.
    """

    TYPE: ClassVar = EventType.RUN_OPENED
    workflow: JsonObject
    definition: str | None = None
    trigger: str | None = None
    workspace: str | None = None
    committed: list[Json] | None = None
    inputs: Private[JsonObject | None] = None
    reference: Private[str | None] = None
    requested_by: Private[str | None] = None
    shaped: Private[list[str] | None] = None
    inherited: list[Json] | None = None
    open: int | None = None
    channels: Private[JsonObject | None] = None
    origins: Private[JsonObject | None] = None
    adder: Private[str | None] = None
    requester: Private[str | None] = None
    started_by: Private[str | None] = None
    tenant: str | None = None
    parent: UUID | None = None


class RunStarted(Struct, frozen=True):
    """The run begins without a step, because no step of its graph can begin."""

    TYPE: ClassVar = EventType.RUN_STARTED


class RunReferenceSet(Struct, frozen=True):
    """A step has given the run a new reference."""

    TYPE: ClassVar = EventType.RUN_REFERENCE_SET
    committed: list[Json]
    reference: Private[str]


class RunExtended(Struct, frozen=True):
    """Steps were added to the graph. ``source`` is what was sent, ``operations`` the declarations it froze.

    ``adopted`` are outputs of finished steps that no expression had read before, by step key. ``gates`` are the steps
    of the root that are, or hold, a gate which the run had still to pass: the new steps come after them. ``early``
    names the policies that let new steps come before these gates.
    """

    TYPE: ClassVar = EventType.RUN_EXTENDED
    number: int
    steps: list[Json]
    committed: list[Json]
    source: Private[JsonObject]
    operations: Private[JsonObject]
    adopted: Private[JsonObject | None] = None
    gates: Private[list[str] | None] = None
    early: list[Json] | None = None


class RunMigrated(Struct, frozen=True):
    """A person moved the waiting run to another version of its workflow, which holds for all later events.

    ``workflow`` has the new version's name, number and digest, ``definition`` is the digest of its definition and
    ``before`` that of the old one. ``number`` counts migrations and extensions together. ``channels`` are the first
    values of the new channels, ``adopted`` the outputs of finished steps that no expression had read before, by step
    key.
    """

    TYPE: ClassVar = EventType.RUN_MIGRATED
    number: int
    workflow: JsonObject
    definition: str
    before: str
    reason_given: bool
    committed: list[Json] | None = None
    reason: Private[str] = ""
    channels: Private[JsonObject | None] = None
    adopted: Private[JsonObject | None] = None


class RunForked(Struct, frozen=True):
    """A person has begun this run from an earlier point of a run that is over. It is the second event of the book.

    ``origin`` is that run, ``checkpoint`` the point, ``line`` the number of its line and ``digest`` the SHA-256 of that
    line. ``steps`` are those that were done there, each with its operation and its end: they are not done again, and
    the origin has their evidence. ``receipts`` are those of their actions. ``again`` are receipts of actions that the
    origin did after that point, and that this run may do again. ``state`` is the origin's state at that point.
    """

    TYPE: ClassVar = EventType.RUN_FORKED
    origin: UUID
    line: int
    digest: str
    checkpoint: int
    steps: list[Json]
    receipts: list[Json]
    reason_given: bool
    again: list[Json] | None = None
    committed: list[Json] | None = None
    reason: Private[str] = ""
    state: Private[JsonObject] = {}


class RunContinued(Struct, frozen=True):
    """A step has started another run. ``shaped`` are the marks of those who shaped its result.

    ``origins`` are those of its result, if it is over already and knows them, and ``used`` is the usage of its models.
    """

    TYPE: ClassVar = EventType.RUN_CONTINUED
    run: UUID
    workflow: str
    shaped: Private[list[str] | None] = None
    origins: Private[list[Json] | None] = None
    used: Private[JsonObject | None] = None


class RunCanceled(Struct, frozen=True):
    """The run was canceled. It closes when nothing is under way any more."""

    TYPE: ClassVar = EventType.RUN_CANCELED
    reason_given: bool
    committed: list[Json] | None = None
    reason: Private[str] = ""


class RunPaused(Struct, frozen=True):
    """A person has paused the run: nothing more of it is intended until it is resumed (promise 11).

    ``stop`` is the tenant's stop number under which the pause was in force. An intent with the same number ignored it.
    """

    TYPE: ClassVar = EventType.RUN_PAUSED
    reason_given: bool
    committed: list[Json] | None = None
    reason: Private[str] = ""
    stop: int | None = None


class RunResumed(Struct, frozen=True):
    """The pause of the run is over."""

    TYPE: ClassVar = EventType.RUN_RESUMED
    reason_given: bool
    committed: list[Json] | None = None
    reason: Private[str] = ""


class RunClosed(Struct, frozen=True):
    """The run is over. ``error`` has the class, code and step of its error; ``detail`` is the whole error."""

    TYPE: ClassVar = EventType.RUN_CLOSED
    status: RunState
    error: JsonObject | None
    detail: Private[JsonObject | None] = None
    result: Private[Json] = None


class RunSealed(Struct, frozen=True):
    """An open run takes no more steps: somebody closed it, or its time is over. It ends when its steps are done."""

    TYPE: ClassVar = EventType.RUN_SEALED
    reason_given: bool
    committed: list[Json] | None = None
    reason: Private[str] = ""


class RunReopened(Struct, frozen=True):
    """A person retries a failed run. ``steps`` begin anew, each with the epoch of its last lease.

    ``bundle`` is the SHA-256 of the evidence of its earlier end.
    """

    TYPE: ClassVar = EventType.RUN_REOPENED
    bundle: str | None
    steps: list[Json]
    reason_given: bool
    committed: list[Json] | None = None
    reason: Private[str] = ""


class CheckpointCommitted(Struct, frozen=True):
    """The barrier of a super-step was crossed. ``digest`` is the blinded digest of the state after it.

    ``choices`` are the values of the conditions and collections of composites, in the order in which planning asked.
    ``halted`` says that the first plan failed, and so the run failed.
    """

    TYPE: ClassVar = EventType.CHECKPOINT_COMMITTED
    number: int
    digest: str
    halted: bool = False
    choices: Private[list[Json] | None] = None
