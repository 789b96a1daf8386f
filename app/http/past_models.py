"""What HTTP returns of a run's past: what changed between two checkpoints, the ledger, receipts."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from core.changes import ChangeKind


class CheckpointChange(BaseModel):
    """One operation of a JSON Patch (RFC 6902): ``path`` is a JSON Pointer; ``before`` is null for an addition."""

    op: ChangeKind
    path: str
    before: Any
    after: Any


class CheckpointDiff(BaseModel):
    """What turns the state of one checkpoint into that of another; no changes where they are equal."""

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
    """What a worker knew of its call when it had lost its lease; ``says`` puts it beside what the receipt says now."""

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


class Receipt(BaseModel):
    """What was attempted, what happened, and how to reverse it."""

    receipt_id: UUID
    step_key: str
    operation: str
    target: str
    idempotency_key: str
    action_digest: str
    status: str
    attempt: int
    reversible: bool
    reverse: Any
    external_id: str | None
    output: Any
    usage: Any
    resolution: str | None
    error: Any
    intended_at: datetime
    settled_at: datetime | None
    late: list[LateAnswer]
