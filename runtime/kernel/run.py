"""A run as its events have made it: the state that ``fold`` changes, and nobody else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from core.canonical import Json, JsonObject
from runtime.kernel.commit import (
    ApprovalMove,
    ApprovalRow,
    CheckpointRow,
    DecisionRow,
    ItemRow,
    LedgerRow,
    MutationRow,
    ReceiptRow,
    StepRow,
    VoteRow,
    WaitRow,
)
from runtime.kernel.plan import Window
from runtime.kernel.state import State
from runtime.kernel.states import RunState


@dataclass(slots=True)
class Run:
    """The state of one run. Whoever holds it changes it by ``fold`` only.

    A run need not be held whole: a worker knows the step that it holds, a face the question that it answers. What is
    not known here is not looked at by the events that such a holder tells.

    ``executing`` counts the steps of the current super-step that have not left it; ``width`` is how many it had.
    ``steps`` are those that are open or belong to the current super-step, ``past`` those that a barrier has left
    behind. ``answers`` are the last moves of approvals, ``windows`` the items of loops that planning may ask for. The
    lists grow only: what a holder adds to them is what its append writes.
    """

    run_id: UUID
    run_key: bytes
    status: RunState
    superstep: int
    executing: int
    width: int
    writes: int
    reference: str
    requested_by: str
    state: State
    canceling: JsonObject | None = None
    error: JsonObject | None = None
    result: Json = None
    finished: bool = False
    checkpointed: bool = False
    extensions: int = 0
    steps: dict[str, StepRow] = field(default_factory=dict)
    past: dict[str, StepRow] = field(default_factory=dict)
    waits: dict[UUID, WaitRow] = field(default_factory=dict)
    approvals: dict[UUID, ApprovalRow] = field(default_factory=dict)
    answers: dict[UUID, ApprovalMove] = field(default_factory=dict)
    receipts: dict[UUID, ReceiptRow] = field(default_factory=dict)
    windows: Mapping[str, Window] = field(default_factory=dict)
    decisions: list[DecisionRow] = field(default_factory=list)
    votes: list[VoteRow] = field(default_factory=list)
    checkpoints: list[CheckpointRow] = field(default_factory=list)
    items: list[ItemRow] = field(default_factory=list)
    ledger: list[LedgerRow] = field(default_factory=list)
    mutations: list[MutationRow] = field(default_factory=list)
