"""The facts that tests ask for, as frozen values; nobody but tests/support knows where they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID


@dataclass(frozen=True)
class Run:
    """A run as it stands now."""

    id: UUID
    tenant: str
    workspace: str
    workflow: str
    workflow_version: int
    trigger_type: str
    trigger_ref: str
    reference: str
    requested_by: str
    status: str
    version: int
    superstep: int
    executing: int
    audit_count: int
    error: Any
    result: Any
    parent: UUID | None
    depth: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    purge_at: datetime | None
    purged_at: datetime | None


@dataclass(frozen=True)
class Step:
    """A step of a run. ``lease_left`` and ``eligible_in`` are counted from the moment of the question."""

    id: UUID
    run: UUID
    tenant: str
    key: str
    operation: str
    superstep: int
    status: str
    attempt: int
    lease_owner: str | None
    lease_epoch: int
    lease_left: timedelta | None
    output: Any
    error: Any
    eligible_in: timedelta | None
    finished_at: datetime | None

    @property
    def over(self) -> bool:
        return self.status in ("succeeded", "failed_terminal", "canceled")


@dataclass(frozen=True)
class Event:
    """One line of an audit chain, with its bytes as they are hashed."""

    stream: UUID
    tenant: str
    seq: int
    type: str
    ts: str
    actor: Any
    step: str | None
    data: Any
    line: bytes


@dataclass(frozen=True)
class Decision:
    """A decision of the policy about one action."""

    run: UUID
    step: str
    operation: str
    action_digest: str
    outcome: str
    rules: Any
    errors: Any
    reasons: Any
    facts: Any
    policies: list[str]


@dataclass(frozen=True)
class Receipt:
    """The receipt of one action."""

    id: UUID
    run: UUID
    tenant: str
    step: str
    operation: str
    target: str
    key: str
    action_digest: str
    action: Any
    status: str
    attempt: int
    external_id: str | None
    output: Any
    resolution: str | None
    error: Any
    intended_at: datetime
    settled_at: datetime | None


@dataclass(frozen=True)
class Effect:
    """The holder of the last attempt at a shared effect."""

    tenant: str
    key: str
    run: UUID
    step: str
    receipt: UUID
    status: str


@dataclass(frozen=True)
class Vote:
    """A vote that counted."""

    approval: UUID
    person: str
    choice: str
    reason: str
    channel: str


@dataclass(frozen=True)
class Approval:
    """A question to people, with the votes on it."""

    id: UUID
    run: UUID
    tenant: str
    step: str
    kind: str
    status: str
    action_digest: str
    nonce: str
    terms: Any
    card: Any
    choice: str | None
    reason: str | None
    escalated: bool
    channel: str | None
    message_ts: str | None
    votes: tuple[Vote, ...] = ()

    @property
    def open(self) -> bool:
        return self.status == "requested"


@dataclass(frozen=True)
class Wait:
    """A wait of a step. ``due_in`` is counted from the moment of the question."""

    id: UUID
    run: UUID
    tenant: str
    step_id: UUID
    step: str
    kind: str
    status: str
    token: str
    correlation_key: str | None
    context: Any
    result: Any
    channel: str | None
    message_ts: str | None
    due_at: datetime | None
    due_in: timedelta | None
    created_at: datetime

    @property
    def open(self) -> bool:
        return self.status == "waiting"


@dataclass(frozen=True)
class Checkpoint:
    """The state at a barrier; ``size`` is its length in bytes as it is stored."""

    run: UUID
    superstep: int
    state: Any
    digest: str
    size: int


@dataclass(frozen=True)
class Bundle:
    """A stored evidence bundle."""

    run: UUID
    name: str
    uri: str
    sha256: str
    key_id: str


@dataclass(frozen=True)
class Command:
    """An order of the outbox: a message to somebody, or an errand."""

    id: UUID
    run: UUID
    tenant: str
    kind: str
    status: str
    payload: Any
    attempts: int
    last_error: str | None

    @property
    def over(self) -> bool:
        return self.status in ("dispatched", "rejected")


@dataclass(frozen=True)
class Notice:
    """An input from outside, kept once for each id."""

    tenant: str
    source: str
    id: str
    correlation_key: str | None
    payload: Any
    result: Any
    processed: bool


@dataclass(frozen=True)
class Entry:
    """A write to a channel that keeps a ledger."""

    run: UUID
    superstep: int
    step: str
    channel: str
    value: Any


@dataclass(frozen=True)
class Extension:
    """Steps that were added to a run while it ran."""

    run: UUID
    number: int
    actor: str
    source: Any
    operations: Any


@dataclass(frozen=True)
class Slots:
    """The steps that a tenant may have at work at once, under one cap, and those that are taken."""

    cap: str
    all: int
    taken: int


@dataclass(frozen=True)
class Place:
    """A step's place in the queue: claimable, sent, or leased by its owner."""

    run: UUID
    tenant: str
    step: str
    cap: str
    starts_run: bool
    status: str
    owner: str | None
    lease_id: UUID | None
    epoch: int


@dataclass(frozen=True)
class Question:
    """An open question, with the key of the receipt that it is about, if there is one."""

    id: UUID
    kind: str
    key: str | None


@dataclass(frozen=True)
class Held:
    """Steps at work, slots taken, those of steps that are on their way, and steps at work whose lease holds a slot."""

    running: int
    taken: int
    sent: int
    both: int


@dataclass(frozen=True)
class Book:
    """Everything on record about one run."""

    run: Run
    steps: dict[str, Step]
    events: tuple[Event, ...]
    decisions: tuple[Decision, ...]
    receipts: tuple[Receipt, ...]
    approvals: tuple[Approval, ...]
    waits: tuple[Wait, ...]
    checkpoints: tuple[Checkpoint, ...]
    bundles: tuple[Bundle, ...]
    commands: tuple[Command, ...]
    notices: tuple[Notice, ...]
