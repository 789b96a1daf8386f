"""A commit: everything that one transition of one run changes, as values. The store applies it in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct, field

from approvals.model import ApprovalStatus
from core.canonical import Json, JsonObject, derived_id
from evidence.receipts import Receipt
from runtime.engine.shared_rows import EffectRow, JoinRow, RecordRow, ShareRow
from runtime.engine.states import CommandState, RunState, StepState, WaitKind, WaitState

# The status of a row of the queue whose step somebody holds.
HELD = "leased"
# What a parked step's entry in the checkpoint begins with; which kind of wait it is, the wait says.
PARKED = {StepState.WAITING_APPROVAL: "approval", StepState.WAITING: "wait", StepState.FAILED_RETRYABLE: "retry"}


class StepRow(Struct, frozen=True):
    """A step as it is after the commit. ``lease_epoch`` fences: a settle of an older epoch writes nothing (Q-9).

    ``eligible_in`` counts from the commit that schedules a retry (Q-19). ``again`` numbers the retry of its run.
    """

    step_id: UUID
    key: str
    index: int
    operation: str
    superstep: int
    status: StepState
    attempt: int = 0
    lease_epoch: int = 0
    lease_owner: str | None = None
    idempotency_key: str | None = None
    output: Json = None
    writes: JsonObject | None = None
    usage: JsonObject | None = None
    last_error: JsonObject | None = None
    eligible_in: timedelta | None = None
    again: int = 0


class WaitRow(Struct, frozen=True):
    """A new wait, or the end of one. ``due_in`` counts from the commit; ``context`` is what the resume needs (V-16).

    ``correlation_key`` is what a signal from outside names. ``result`` is what ended it, as the resume will see it.
    ``parked`` says that its step waits for it by now, ``left`` that its step has begun anew since it ended.
    """

    wait_id: UUID
    step_id: UUID
    step_key: str
    kind: WaitKind
    status: WaitState
    token: str
    due_in: timedelta | None = None
    context: JsonObject | None = None
    correlation_key: str | None = None
    result: JsonObject | None = None
    parked: bool = True
    left: bool = False


class LedgerRow(Struct, frozen=True):
    """One write to a channel whose full history is kept (P-7)."""

    channel: str
    superstep: int
    step_key: str
    value: Json


class MutationRow(Struct, frozen=True):
    """One extension of a run's graph (V-6): the steps as they were sent, and the declarations of their operations.

    ``gates`` are the steps with a gate that stood open, which the new ones wait for.
    """

    number: int
    actor: str
    source: JsonObject
    operations: JsonObject
    gates: tuple[str, ...] = ()


class QueueRow(Struct, frozen=True):
    """A step that may be claimed (O-1). ``epoch`` is that of its last lease: epochs of a step only grow (Q-9).

    ``starts_run`` counts against the cap on starts: the first step of a run stands in line for all.
    """

    key: str
    step_id: UUID
    epoch: int = 0
    starts_run: bool = False


class Claim(Struct, frozen=True):
    """The lease of a step: ``id`` is drawn anew for each, because the epoch of one that PostgreSQL lost comes again."""

    key: str
    id: UUID
    epoch: int


class CommandRow(Struct, frozen=True):
    """Something to be done outside after the commit (O-1). Its id is made of what it is for: never twice (O-2).

    Of the commands with one ``ordering_key`` only one is leased at a time: two dispatchers must not post a card twice.
    """

    command_id: UUID
    kind: str
    status: CommandState
    payload: JsonObject = field(default_factory=dict)
    ordering_key: str | None = None


class ReceiptRow(Receipt, frozen=True, kw_only=True):
    """A receipt as it is after the commit. ``shared`` says that other steps and runs may mean this effect by its key.

    ``action`` is what was intended, to perform or probe exactly it later. ``replaces`` is the failed receipt, maybe of
    another run, whose attempt this one follows under that key.
    """

    action: JsonObject
    output: Json = None
    usage: JsonObject | None = None
    shared: bool = False
    replaces: UUID | None = None


class ApprovalRow(Struct, frozen=True):
    """A new approval. ``contributors`` are those who shaped what is asked; None for the run's requester alone."""

    approval_id: UUID
    step_id: UUID
    step_key: str
    kind: str
    action_digest: str
    nonce: str
    tier: str
    terms: JsonObject
    requester: str
    card: JsonObject
    action: JsonObject | None
    expires_in: timedelta
    status: str = ApprovalStatus.REQUESTED
    contributors: list[JsonObject] | None = None


class ApprovalMove(Struct, frozen=True):
    """An approval's change of status; ``consumed`` when its action is about to be performed, ``at`` when decided."""

    approval_id: UUID
    status: str
    choice: str | None = None
    reason: str | None = None
    consumed: bool = False
    escalated: bool = False
    at: datetime | None = None


class VoteRow(Struct, frozen=True):
    """One person's vote; a later one of the same person replaces it (both are in the audit)."""

    approval_id: UUID
    person_id: str
    choice: str
    reason: str
    groups: list[str]
    channel: str


class CheckpointRow(Struct, frozen=True):
    """An immutable snapshot (P-3)."""

    superstep: int
    state: JsonObject
    digest: str


class Commit(Struct):
    """All rows of one transition, guarded by ``gate``: what commutes with it may have come in between, nothing else.

    ``strict`` says that it must have seen everything, so that the run must be at ``expected_version`` too.
    ``moves_gate`` says that later appends must have seen this one. ``executing`` and ``writes`` are differences;
    ``writes_max`` bounds the run's writes; where a rule has ``counted`` them no other may have come in between. Nothing
    at all may where a rule has counted what was refused or asked (``recounted``).
    ``held`` guards that these leases are still the newest of their steps, and ``stop`` that the tenant's policy and
    pauses are still those of that number, by which the decisions in here were made; ``people`` that its directory still
    has this digest, by which the votes of the approvals that are used in here were counted.

    ``queued`` are the steps that may be claimed now, ``requeued`` those whose lease has run out, ``unqueued`` those
    that stand in line or are held no more. ``taken`` says under which step's lease each other was taken; ``handed`` are
    those that are held by it now. ``effects`` are the shared effects that begin or move, ``shares`` those of others
    that are taken over, ``joins`` those that are waited for, ``ended`` those whose end is to be told. ``sealed`` runs
    wait for no more steps. ``cancels_rest`` ends whatever of the run is still open (set-based: a run may have thousands
    of steps). ``lease`` is how long a lease that is handed on holds. ``reference`` is the run's new business reference,
    ``result`` what it hands to whoever waits for it. ``records`` are changes of the tenant's records, ``extended``
    counts new extensions. ``latest`` is the latest time of its lines. ``state`` is the run as it is kept beside its
    book from now on, if it is by this append.
    """

    run_id: UUID
    tenant_id: str
    workspace_id: str
    expected_version: int
    gate: int
    status: RunState
    superstep: int
    width: int
    executing: int = 0
    writes: int = 0
    writes_max: int | None = None
    strict: bool = True
    counted: bool = False
    recounted: bool = False
    moves_gate: bool = False
    error: JsonObject | None = None
    canceling: JsonObject | None = None
    reference: str | None = None
    result: Json = None
    extended: int = 0
    finished: bool = False
    cancels_rest: bool = False
    stop: int | None = None
    people: str | None = None
    lease: timedelta = timedelta(seconds=30)
    held: Sequence[Claim] = ()
    queued: list[QueueRow] = field(default_factory=list)
    requeued: list[str] = field(default_factory=list)
    unqueued: list[str] = field(default_factory=list)
    taken: dict[str, str] = field(default_factory=dict)
    handed: list[tuple[str, StepRow]] = field(default_factory=list)
    new_waits: list[WaitRow] = field(default_factory=list)
    waits: list[WaitRow] = field(default_factory=list)
    commands: list[CommandRow] = field(default_factory=list)
    effects: list[EffectRow] = field(default_factory=list)
    shares: list[ShareRow] = field(default_factory=list)
    joins: list[JoinRow] = field(default_factory=list)
    ended: list[tuple[str, str]] = field(default_factory=list)
    sealed: list[str] = field(default_factory=list)
    new_approvals: list[ApprovalRow] = field(default_factory=list)
    approvals: list[ApprovalMove] = field(default_factory=list)
    votes: list[VoteRow] = field(default_factory=list)
    ledger: list[LedgerRow] = field(default_factory=list)
    records: list[RecordRow] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    values: bytes | None = None
    latest: datetime | None = None
    state: bytes | None = None


def step_id_of(run_id: UUID, key: str) -> UUID:
    """The id of a step."""
    return derived_id(run_id, f"step:{key}")


def wait_of(run_id: UUID, step: StepRow) -> UUID:
    """The id of the wait that a step parks on: a lease parks its step once."""
    return derived_id(run_id, f"wait:{step.key}:{step.lease_epoch}")


def expected_of(run_id: UUID, step: StepRow) -> UUID:
    """The id of the wait for what this lease begins outside, which is written before the step parks (V-9).

    It may be canceled, and the step park on another.
    """
    return derived_id(run_id, f"expected:{step.key}:{step.lease_epoch}")
