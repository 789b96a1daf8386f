"""Requests and responses of HTTP, as OpenAPI shows them. Times are ISO 8601 with a zone; ids are UUIDs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from core.changes import ChangeKind
from core.terms import Stopped
from runtime.engine.life.holding import Answer
from runtime.engine.model.states import RunState

Item = TypeVar("Item")

PRINTABLE = r"^[\x20-\x7e]+$"
# A business reference. The outside system chooses it: any characters but control characters, which may not be storable.
REFERENCE = r"^[^\x00-\x1f\x7f]+$"


class In(BaseModel):
    """A request body; unknown members are refused."""

    model_config = ConfigDict(extra="forbid")


class Page(BaseModel, Generic[Item]):
    """One page; ``next`` is the cursor of the following one, null on the last."""

    items: list[Item]
    next: str | None = None


class StartRun(In):
    """Start a run. One ``idempotency_key`` starts at most one run of a workflow, ever.

    An ``open`` run waits for more steps after its own are done, at most ``until`` (the workflow's SLA, or 7 days).
    """

    workflow: Annotated[str, Field(min_length=1, max_length=100, pattern=PRINTABLE)]
    version: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    input: dict[str, Any] = Field(default_factory=dict)
    workspace: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")] | None = None
    idempotency_key: Annotated[str, Field(min_length=1, max_length=200, pattern=PRINTABLE)] | None = None
    open: bool = False
    until: datetime | None = None


class Cancel(In):
    """The reason for canceling a run; kept in the audit."""

    reason: Annotated[str, Field(max_length=2000)] = ""


class Close(In):
    """The reason for closing an open run, which then waits for no more steps; kept in the audit."""

    reason: Annotated[str, Field(max_length=2000)] = ""


class Retry(In):
    """The reason for retrying a failed run; kept in the audit."""

    reason: Annotated[str, Field(min_length=1, max_length=2000)]


class Fork(In):
    """The point from which a new run begins: a line of the run's timeline, or a step before which it begins.

    ``again`` lets it do again what the run has done after that point. ``preview`` only tells what would be.
    """

    at: Annotated[str, Field(min_length=1, max_length=400, pattern=PRINTABLE)]
    reason: Annotated[str, Field(min_length=1, max_length=2000)]
    again: bool = False
    preview: bool = False


class HoldIn(In):
    """The answer to a step that is held, or whose retry waits for its time, and its reason; kept in the audit."""

    answer: Answer
    reason: Annotated[str, Field(min_length=1, max_length=2000)]


class HoldAnswer(BaseModel):
    """The answer that was recorded, and the run's status then."""

    accepted: bool
    code: str
    sentence: str
    run_id: UUID
    status: RunState


class Reversal(BaseModel):
    """The run that undoes what a receipt records."""

    receipt_id: UUID
    run_id: UUID


class ForkStep(BaseModel):
    """A step, and its operation."""

    step: str
    operation: str


class ForkAnswer(BaseModel):
    """The fork, null if it was only a preview: the line that it goes on from, and what was done there.

    ``again`` is what the origin did after that, and what the fork may do again.
    """

    run_id: UUID | None
    origin: UUID
    line: int
    checkpoint: int
    done: list[ForkStep]
    again: list[ForkStep]


class RunAnswer(BaseModel):
    """The run's status after it was closed or retried."""

    run_id: UUID
    status: RunState


class DoneEffect(BaseModel):
    """One effect that a canceled run has had; `reversible` says if `POST /v1/receipts/{id}/reverse` can undo it."""

    receipt_id: UUID
    step_key: str
    operation: str
    summary: str
    reversible: bool


class CancelAnswer(BaseModel):
    """The run's status now; not yet ``canceled`` while an action is under way. ``done`` lists what it has done; null if
    that cannot be read any more.
    """

    run_id: UUID
    status: RunState
    done: list[DoneEffect] | None


class Run(BaseModel):
    """One run, as a list shows it."""

    run_id: UUID
    workspace_id: str
    workflow: str
    workflow_version: int
    trigger_type: str
    trigger_ref: str
    reference: str
    requested_by: str
    requester: str | None
    status: RunState
    version: int
    superstep: int
    writes: int
    error: dict[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    purged_at: datetime | None
    deadline_at: datetime | None


class BundleInfo(BaseModel):
    """The address of the evidence, and its SHA-256."""

    name: str
    uri: str
    sha256: str
    bytes: int


class PauseOut(BaseModel):
    """A pause in force: of a tenant, a workflow, a connector, an agent or a run."""

    what: Stopped
    name: str
    by: str
    reason: str
    at: datetime


class RunDetail(Run):
    """One run with the state of its audit chain and its evidence, null until the bundle is written.

    ``evidence_problem`` says why the bundle was not signed or stored, once the keepers have given up.

    ``result`` is the run's result after it has succeeded. ``parent_run_id`` is the run that started this one as a
    child; ``forked_from`` is the run from a point of which it goes on, ``fork`` the one that goes on from it.
    ``children`` are the oldest hundred of its own ``children_count`` children. ``extensions`` counts the
    additions to its graph. ``editions`` lists its bundles, oldest first: a late answer after the run's end makes a
    longer one. ``bundle`` is the newest. ``late`` holds what workers told after they had lost their leases. ``paused``
    lists the pauses that hold the run now. ``channels`` is its business state at its newest ``checkpoint``. A run may
    succeed although steps failed: ``failures_handled`` counts the failures that a branch has handled.
    """

    audit_count: int
    audit_head: str
    result: Any
    parent_run_id: UUID | None
    forked_from: UUID | None
    fork: UUID | None
    children_count: int
    children: list[UUID]
    extensions: int
    open_until: datetime | None
    waiting_for: str | None
    bundle: BundleInfo | None
    editions: list[str]
    late: list[str]
    evidence_problem: str | None
    channels: dict[str, Any]
    checkpoint: int
    failures_handled: int
    paused: list[PauseOut]


class Step(BaseModel):
    """One step of a run. `held_by` is the group whose members say what becomes of it, if it has failed and is held."""

    step_id: UUID
    step_key: str
    step_index: int
    operation: str
    superstep: int
    status: str
    attempt: int
    output: Any
    usage: Any
    last_error: Any
    held_by: str | None = None
    next_eligible_at: datetime | None
    created_at: datetime
    finished_at: datetime | None


class CheckpointWrite(BaseModel):
    """One write of a step to a channel, before its reducer."""

    step: str
    channel: str
    value: Any


class Checkpoint(BaseModel):
    """One immutable snapshot: ``state`` holds channel values and what is to run next.

    ``source`` says what made it: ``input`` (the start), ``loop`` (a super-step), ``extension`` or ``retry``. ``writes``
    are what its steps wrote, in the order in which that was folded; ``versions_seen`` maps each channel to the number
    of the checkpoint that last wrote it. Neither is stored, nor part of the digest: the book says them.
    """

    superstep: int
    digest: str
    state: Any
    source: str
    writes: list[CheckpointWrite]
    versions_seen: dict[str, int]
    created_at: datetime


class TimelineEvent(BaseModel):
    """One fact of a run in its order."""

    seq: int
    at: str
    type: str
    actor: dict[str, str]
    step: str | None
    data: dict[str, Any]


class AuditLine(BaseModel):
    """One line of the chain: ``line`` is the text that is hashed, together with the others of the same ``append``."""

    seq: int
    append: int
    type: str
    line: str


class CheckpointChange(BaseModel):
    """One operation of a JSON Patch (RFC 6902): ``path`` is a JSON Pointer; ``before`` is null for an addition."""

    op: ChangeKind
    path: str
    before: Any
    after: Any


class CheckpointDiff(BaseModel):
    """The changes that turn the state of one checkpoint into that of another; none if they are equal."""

    run_id: UUID
    from_superstep: int
    to_superstep: int
    changes: list[CheckpointChange]


class LedgerEntry(BaseModel):
    """One write to a channel that keeps a ledger, whatever the channel itself still holds."""

    superstep: int
    step_key: str
    channel: str
    value: Any
    written_at: datetime


class LateAnswer(BaseModel):
    """A worker's knowledge of its call after it had lost its lease; ``says`` compares it with the receipt of now."""

    attempt: int
    epoch: int
    known: str
    sent: str
    answered: str | None = None
    code: str | None = None
    external_id: str | None = None
    output: Any = None
    detail: dict[str, Any] | None = None
    says: str


class Attempted(BaseModel):
    """The request of an action: its summary, the names of its inputs, and what let it out."""

    summary: str
    inputs: list[str]
    decision: str | None
    approval: str | None
    grant: str | None = None


class Receipt(BaseModel):
    """One side effect: the attempt, its result, and how to reverse it. ``request`` says what was attempted."""

    receipt_id: UUID
    step_key: str
    operation: str
    target: str
    idempotency_key: str
    action_digest: str
    status: str
    attempt: int
    request: Attempted
    reversible: bool
    reverse: Any
    external_id: str | None
    output: Any
    usage: Any
    resolution: str | None
    error: Any
    intended_at: datetime
    settled_at: datetime | None
    reverses: str | None = None
    late: list[LateAnswer]
