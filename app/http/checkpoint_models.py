"""What HTTP returns of a run's past: what changed between two checkpoints, and the ledger."""

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
