"""A run as its events have made it: the state that ``fold`` changes, and nobody else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from core.canonical import Json, JsonObject
from runtime.engine.commit import (
    ApprovalMove,
    ApprovalRow,
    CheckpointRow,
    LedgerRow,
    MutationRow,
    ReceiptRow,
    StepRow,
    VoteRow,
    WaitRow,
)
from runtime.engine.plan import Window
from runtime.engine.state import State
from runtime.engine.states import RunState


@dataclass(slots=True)
class Run:
    """The state of one run. Whoever holds it changes it by ``fold`` only.

    ``executing`` counts the steps of the current super-step that have not left it; ``width`` is how many it had.
    ``steps`` are those that are open or belong to the current super-step, ``past`` those that a barrier has left
    behind. ``answers`` are the last moves of approvals, ``windows`` the items of loops that planning may ask for. The
    lists grow only. Who goes on with a run rests it after each append, so that it grows with what is open and not with
    what is done; who folds it for reading keeps everything.
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
    trigger: JsonObject = field(default_factory=dict)
    steps: dict[str, StepRow] = field(default_factory=dict)
    past: dict[str, StepRow] = field(default_factory=dict)
    waits: dict[UUID, WaitRow] = field(default_factory=dict)
    approvals: dict[UUID, ApprovalRow] = field(default_factory=dict)
    answers: dict[UUID, ApprovalMove] = field(default_factory=dict)
    receipts: dict[UUID, ReceiptRow] = field(default_factory=dict)
    windows: Mapping[str, Window] = field(default_factory=dict)
    votes: list[VoteRow] = field(default_factory=list)
    checkpoints: list[CheckpointRow] = field(default_factory=list)
    ledger: list[LedgerRow] = field(default_factory=list)
    mutations: list[MutationRow] = field(default_factory=list)

    def copy(self) -> Run:
        """An independent copy, as deep as the fold's changes go."""
        return replace(
            self,
            state=self.state.copy(),
            steps=dict(self.steps),
            past=dict(self.past),
            waits=dict(self.waits),
            approvals=dict(self.approvals),
            answers=dict(self.answers),
            receipts=dict(self.receipts),
            windows=dict(self.windows),
            votes=[*self.votes],
            checkpoints=[*self.checkpoints],
            ledger=[*self.ledger],
            mutations=[*self.mutations],
        )

    def rest(self) -> Run:
        """Let go of what no later append needs: steps that are left behind with all that was theirs, what was shown.

        What counts from an append, such as a due time, was said by that append. The run itself, for chaining.
        """
        steps = self.steps
        self.past = {}
        self.waits = {key: _at_rest(row) for key, row in self.waits.items() if row.step_key in steps}
        self.receipts = {key: row for key, row in self.receipts.items() if row.step_key in steps}
        self.approvals = {
            key: row if not row.card and row.action is None else replace(row, card={}, action=None)
            for key, row in self.approvals.items()
            if row.step_key in steps
        }
        self.answers = {key: row for key, row in self.answers.items() if key in self.approvals}
        for key, row in steps.items():
            if row.eligible_in is not None:
                steps[key] = replace(row, eligible_in=None)
        self.votes = [vote for vote in self.votes if vote.approval_id in self.approvals]
        self.checkpoints, self.ledger, self.mutations = [], [], []
        return self


def _at_rest(wait: WaitRow) -> WaitRow:
    return wait if wait.due_in is None else replace(wait, due_in=None)
