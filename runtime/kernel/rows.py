"""The rows of an append, derived from the fold: what the events of one transition changed in a run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from runtime.kernel.commit import ApprovalMove, Commit, ReceiptRow, StepRow, WaitRow
from runtime.kernel.run import Run
from runtime.kernel.states import StepState

_HELD = (StepState.READY, StepState.RUNNING)


@dataclass(slots=True)
class Before:
    """A run before its events: what is not in here is new."""

    steps: dict[str, StepRow]
    waits: Mapping[UUID, WaitRow]
    receipts: dict[UUID, ReceiptRow]
    answers: Mapping[UUID, ApprovalMove]

    @classmethod
    def of(cls, run: Run) -> Before:
        """The rows that this run has already."""
        return cls(dict(run.steps), run.waits, dict(run.receipts), run.answers)


def derive(rows: Commit, before: Before, run: Run) -> None:
    """Fill the commit with the rows that differ from what was stored."""
    rows.status, rows.superstep, rows.executing, rows.width = run.status, run.superstep, run.executing, run.width
    rows.writes, rows.canceling, rows.error, rows.result = run.writes, run.canceling, run.error, run.result
    rows.finished = run.finished
    _steps(rows, before, [*run.past.values(), *run.steps.values()])
    rows.new_waits = [wait for wait in run.waits.values() if wait.wait_id not in before.waits]
    rows.waits = [wait for wait in run.waits.values() if before.waits.get(wait.wait_id, wait) != wait]
    _receipts(rows, before, run)
    rows.new_approvals = [
        replace(row, status=str(run.answers[row.approval_id].status))
        for row in run.approvals.values()
        if row.approval_id not in before.answers
    ]
    rows.approvals = [move for move in run.answers.values() if before.answers.get(move.approval_id, move) != move]
    rows.votes, rows.checkpoints, rows.ledger = run.votes, run.checkpoints, run.ledger
    rows.extended = len(run.mutations)


def _steps(rows: Commit, before: Before, steps: Iterable[StepRow]) -> None:
    """A step that leaves its lease, or that will not run any more, gives its slot back."""
    rows.new_steps, rows.steps, rows.released = [], [], []
    for step in steps:
        known = before.steps.get(step.key)
        if known is None:
            rows.new_steps.append(step)
        elif known != step:
            rows.steps.append(step)
            ran_out = known.status is StepState.RUNNING and step.status is StepState.READY
            if known.status in _HELD and (step.status not in _HELD or ran_out):
                rows.released.append(step.step_id)


def _receipts(rows: Commit, before: Before, run: Run) -> None:
    rows.new_receipts = [row for row in run.receipts.values() if row.receipt_id not in before.receipts]
    changed = [row for row in run.receipts.values() if before.receipts.get(row.receipt_id, row) != row]
    keys = {row.receipt_id: row.idempotency_key for row in before.receipts.values()}
    rows.freed_receipts = [row.receipt_id for row in changed if row.idempotency_key != keys[row.receipt_id]]
    rows.receipts = [row for row in changed if row.receipt_id not in rows.freed_receipts]
