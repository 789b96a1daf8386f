"""A commit: the rows that one transition of one run changes. The store applies all of them in one statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias
from uuid import UUID

from msgspec import Struct, field

from approvals.model import ApprovalStatus
from core.canonical import Json, JsonObject, derived_id
from evidence.receipts import Receipt
from runtime.engine.model.states import CommandState, EffectState, RunState, StepState, WaitKind, WaitState

# The status of a queue row whose step is leased.
HELD = "leased"
# The beginning of a parked step's entry in the checkpoint. Only the wait's own row has its kind. A step that merely
# waits for its next attempt is parked as ``LATER``: it is ``waiting``, and proposed anew afterwards.
LATER = "later"
PARKED = {StepState.WAITING_APPROVAL: "approval", StepState.WAITING: "wait", StepState.FAILED_RETRYABLE: "retry"}


class StepRow(Struct, frozen=True):
    """A step after the commit. ``lease_epoch`` fences: a settle with an older epoch writes nothing.

    ``eligible_in`` counts from the commit that schedules a retry. ``again`` is the number of the retry that began it.
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
    """A new wait, or the end of one. ``due_in`` counts from the commit; ``context`` is what the resume needs.

    A signal from outside names the ``correlation_key``. ``result`` is what ended the wait, as the resumed step will see
    it. ``parked`` says that the step is parked on it, ``left`` that the step has begun anew since then.
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
    """One write to a channel whose full history is kept."""

    channel: str
    superstep: int
    step_key: str
    value: Json


class MutationRow(Struct, frozen=True):
    """One extension of a run's graph: the steps as sent, and the declarations of their operations.

    ``gates`` are the steps with gates that the run had still to pass: the new steps come after them.
    """

    number: int
    actor: str
    source: JsonObject
    operations: JsonObject
    gates: tuple[str, ...] = ()


class QueueRow(Struct, frozen=True):
    """A step that may be claimed. ``epoch`` is that of its last lease; ``starts_run``: its claim starts the run."""

    key: str
    step_id: UUID
    epoch: int = 0
    starts_run: bool = False


class Claim(Struct, frozen=True):
    """The lease of a step. Its ``id`` is random, because the epoch of a lease that PostgreSQL lost is used again."""

    key: str
    id: UUID
    epoch: int


class CommandRow(Struct, frozen=True):
    """Work to be done outside after the commit. Its id is derived from its purpose, so it is never ordered twice.

    Only one command of an ``ordering_key`` is leased at a time, so that two dispatchers cannot post a card twice.
    """

    command_id: UUID
    kind: str
    status: CommandState
    payload: JsonObject = field(default_factory=dict)
    ordering_key: str | None = None


class ReceiptRow(Receipt, frozen=True, kw_only=True):
    """A receipt after the commit. ``shared`` says that other steps and runs may share this effect by its key.

    ``action`` is the intended action, so that exactly this one can be performed or probed later. ``replaces`` is the
    failed receipt, maybe of another run, that held the key before. ``shaped`` are the marks of those who shaped a
    shared effect (None if its book does not say), ``written`` the marks of those who wrote the output's values outside.
    """

    action: JsonObject
    output: Json = None
    usage: JsonObject | None = None
    shared: bool = False
    replaces: UUID | None = None
    shaped: tuple[str, ...] | None = None
    written: tuple[str, ...] = ()


class ApprovalRow(Struct, frozen=True):
    """A new approval. ``contributors`` are those who shaped what is asked; None if only the run's requester did.

    ``key`` names the call or question that a rejection would bind, "" for none. ``asker`` asks now, ``askers`` are all
    who have asked. ``listed`` is the list that it belongs to (``runtime.engine.book.questions``).
    """

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
    key: str = ""
    asker: str = ""
    askers: list[str] | None = None
    listed: str | None = None


class AskRow(Struct, frozen=True):
    """The guard of a question: only ``known`` refusals of ``key`` bind; ``asker`` has fewer than ``most`` open."""

    key: str
    asker: str
    most: int
    known: list[str]


class RefusalRow(Struct, frozen=True):
    """A rejection that binds in the tenant for the time ``holds``, for the ``groups`` asked and for those who asked."""

    approval_id: UUID
    key: str
    groups: list[str]
    askers: list[str]
    by: str
    reason: str
    holds: timedelta


class ApprovalMove(Struct, frozen=True):
    """An approval's change of status: ``consumed`` once its action is about to be performed, ``at`` its decision.

    ``why`` says why it is void, ``changed`` which values have changed. ``outcome`` is what has become of an approved
    action (``book.ends``), and ``why`` then its code; both are columns of the approval's row, for lists. ``delivered``
    says that its card has reached a channel.
    """

    approval_id: UUID
    status: str
    choice: str | None = None
    reason: str | None = None
    consumed: bool = False
    escalated: bool = False
    at: datetime | None = None
    why: str | None = None
    outcome: str | None = None
    changed: list[JsonObject] | None = None
    delivered: bool = False


class SaidRow(Struct, frozen=True):
    """A person's remark about a question. If the question was handed on, ``to`` is notified from then on."""

    approval_id: UUID
    person_id: str
    said: str
    text: str
    at: datetime
    to: str = ""


class VoteRow(Struct, frozen=True):
    """One person's vote at the time ``at``, maybe ``on_behalf`` of another person. A later vote replaces it."""

    approval_id: UUID
    person_id: str
    choice: str
    reason: str
    groups: list[str]
    channel: str
    grant: JsonObject | None = None
    on_behalf: str | None = None
    at: datetime | None = None
    glass: bool | None = None


class CheckpointRow(Struct, frozen=True):
    """An immutable snapshot of the run's state."""

    superstep: int
    state: JsonObject
    digest: str


class FamilyMove(Struct, frozen=True):
    """The change that an append makes to the counters of the run's family.

    With ``number``, nobody may have changed them since; ``writes_max`` bounds their writes, including the append's.
    """

    refused: int
    asked: int
    same: Mapping[str, list[str]]
    failed: Mapping[str, list[JsonObject]]
    anew: int
    moves: bool
    writes_max: int | None = None
    number: int | None = None


# A line of this process's log: its level (info or warning), its words, and its facts, which hold no values.
Notice: TypeAlias = tuple[str, str, JsonObject]


class Commit(Struct):
    """All rows of one transition. ``gate`` guards it: only appends that commute with it may have come in since.

    More guards: with ``strict`` no append at all may have come in since: the run must be at ``expected_version``.
    ``writes_max`` bounds the run's writes. With ``counted`` a rule has read their number, so no other write may have
    come in since. With ``recounted`` a rule has read the number of refusals or questions, so no append may have.
    ``held`` are leases that must still be the newest of their steps. ``stop`` is the number that the tenant's policy
    and pauses must still have: the decisions in the commit follow them. ``people`` is the digest that the tenant's
    directory must still have: the commit's approvals were counted by it. ``agent`` must still have a valid token.

    ``family`` changes the counters of all runs that the outermost run has led to, ``family_max`` bounds their writes.

    ``moves_gate`` says that this append does not commute: later ones must be based on it. ``executing`` and ``writes``
    are differences. ``queued`` are the steps that may be claimed now, ``requeued`` those whose lease has run out,
    ``unqueued`` those that leave the queue. ``taken`` maps a step to the one whose lease it takes over, ``handed`` are
    the steps that now hold one, for ``lease``. ``effects`` are shared effects that begin or change, ``shares`` those of
    others that are taken over, ``joins`` those that steps wait for, ``ended`` those whose sharers are to be woken. With
    ``sealed`` the run takes no more steps. ``cancels_rest`` ends all of the run's rows that are still open (set-based:
    a run may have thousands of steps). ``reference`` is the run's new business reference, ``result`` what it hands to
    its parent. ``records`` are changes of the tenant's records, ``extended`` counts new extensions. ``refusals`` are
    rejections that bind from now on, ``asks`` the guards of new questions. ``clock_behind`` is how far the database's
    clock is behind the book, ``latest`` the latest time of its lines. ``state`` is the folded run, if this append
    stores it beside the book. ``notices`` are lines for the log. ``asked_at`` is the time of the request.
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
    family_max: int | None = None
    family: FamilyMove | None = None
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
    agent: str | None = None
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
    refusals: list[RefusalRow] = field(default_factory=list)
    asks: list[AskRow] = field(default_factory=list)
    ledger: list[LedgerRow] = field(default_factory=list)
    records: list[RecordRow] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    values: bytes | None = None
    latest: datetime | None = None
    clock_behind: timedelta = timedelta(0)
    state: bytes | None = None
    notices: list[Notice] = field(default_factory=list)
    asked_at: datetime | None = None


def step_id_of(run_id: UUID, key: str) -> UUID:
    """The id of a step."""
    return derived_id(run_id, f"step:{key}")


def wait_of(run_id: UUID, step: StepRow) -> UUID:
    """The id of the wait that a step parks on. A lease parks its step only once, so its epoch is enough."""
    return derived_id(run_id, f"wait:{step.key}:{step.lease_epoch}")


def expected_of(run_id: UUID, step: StepRow) -> UUID:
    """The id of the wait for work that this lease begins outside. It is written before the step parks anywhere."""
    return derived_id(run_id, f"expected:{step.key}:{step.lease_epoch}")


class RecordRow(Struct, frozen=True):
    """A change of a tenant's record. ``absent``: the record must not exist yet. ``expects``: the version it must have.

    ``shaped`` are the marks of its writers, which every step that reads the record gets.
    """

    collection: str
    key: str
    value: JsonObject | None
    absent: bool = False
    expects: int | None = None
    removes: bool = False
    shaped: tuple[str, ...] = ()


class EffectRow(Struct, frozen=True):
    """A shared effect that this run performs. The receipt ``was`` held its key; the wait ``wait_id`` is for its end."""

    key: str
    step_key: str
    receipt_id: UUID
    status: EffectState
    was: UUID | None
    wait_id: UUID | None = None


class ShareRow(Struct, frozen=True):
    """An effect that another step performed and this run took over. ``wait_id`` is this run's wait for its end."""

    key: str
    receipt_id: UUID
    status: EffectState
    wait_id: UUID


class JoinRow(Struct, frozen=True):
    """An effect under way whose end a step waits for from now on. The append is refused if it has ended since."""

    key: str
    receipt_id: UUID
