"""The rows of an append, derived from the fold: what the events of one transition changed in a run. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from runtime.engine.commit import ApprovalMove, Commit, EffectRow, QueueRow, ReceiptRow, StepRow, WaitRow
from runtime.engine.run import Run
from runtime.engine.states import RUN, RunState, StepState


@dataclass(slots=True)
class Before:
    """A run before its events: what is not in here is new. ``open`` are the steps that had not left the super-step."""

    steps: dict[str, StepRow]
    status: RunState
    superstep: int
    executing: int
    width: int
    writes: int
    open: tuple[str, ...]
    waits: Mapping[UUID, WaitRow]
    receipts: Mapping[UUID, ReceiptRow]
    answers: Mapping[UUID, ApprovalMove]
    votes: int

    @classmethod
    def of(cls, run: Run) -> Before:
        """The rows that this run has already."""
        place = (run.status, run.superstep, run.executing, run.width, run.writes, tuple(run.state.open))
        return cls(dict(run.steps), *place, run.waits, run.receipts, run.answers, len(run.votes))


# The key of the row that stands for a barrier: the last step has left, and whoever was to commit it may have died.
BARRIER = ""


def derive(rows: Commit, before: Before, run: Run) -> None:
    """Fill the commit with the rows that differ from what was stored."""
    rows.status, rows.superstep, rows.width = run.status, run.superstep, run.width
    rows.executing, rows.writes = run.executing - before.executing, run.writes - before.writes
    if rows.counted:
        rows.writes_max = run.writes  # they only grow
    rows.canceling, rows.error, rows.result = run.canceling, run.error, run.result
    rows.finished = run.finished and not RUN.terminal(before.status)  # what comes after the end ends nothing again
    _queue(rows, before, run)
    rows.new_waits = [wait for wait in run.waits.values() if wait.wait_id not in before.waits]
    rows.waits = [wait for wait in run.waits.values() if before.waits.get(wait.wait_id, wait) != wait]
    rows.effects = _effects(before, run)
    rows.new_approvals = [
        replace(row, status=str(run.answers[row.approval_id].status))
        for row in run.approvals.values()
        if row.approval_id not in before.answers
    ]
    rows.approvals = [move for move in run.answers.values() if before.answers.get(move.approval_id, move) != move]
    rows.votes, rows.ledger = run.votes[before.votes :], run.ledger
    rows.extended = len(run.mutations)


def queued(steps: Mapping[str, StepRow], status: RunState, superstep: int, first: str | None) -> dict[str, StepRow]:
    """The steps that have a row in the queue: whoever is ready or runs in the current super-step.

    What is parked has none, nor what joins the next super-step. Of a run that has not begun only the ``first`` step
    has one, so that caps on starts count runs and not steps.
    """
    begun = status is not RunState.QUEUED
    return {
        key: step
        for key, step in steps.items()
        if step.status is StepState.RUNNING
        or (step.status is StepState.READY and step.superstep == superstep and (begun or key == first))
    }


def _queue(rows: Commit, before: Before, run: Run) -> None:
    """Say what may be claimed from now on, and what not any more. A lease goes on with its worker to the next step."""
    was = queued(before.steps, before.status, before.superstep, next(iter(before.open), None))
    now = {} if run.finished else queued(run.steps, run.status, run.superstep, next(iter(run.state.open), None))
    over = [key for key in was if key not in now]
    new = [step for key, step in now.items() if key not in was]
    running = [step for step in new if step.status is StepState.RUNNING]
    rows.handed = [(rows.taken[step.key], step) for step in running]
    going_on = {key for key, _ in rows.handed}
    over = [key for key in over if key not in going_on]
    due = before.width > 0 and before.executing == 0
    if due and (run.superstep > before.superstep or run.finished):
        over.append(BARRIER)
    starts = run.status is RunState.QUEUED
    rows.queued = [QueueRow(row.key, row.step_id, row.lease_epoch, starts) for row in new if row not in running]
    rows.requeued = [key for key in rows.requeued if key in now]
    rows.unqueued = [] if rows.cancels_rest else over


def _effects(before: Before, run: Run) -> list[EffectRow]:
    """The shared receipts whose status is another one, in the order in which their rows are locked."""
    moved = []
    for row in run.receipts.values():
        known = before.receipts.get(row.receipt_id)
        if row.shared and (known is None or known.status != row.status):
            was = row.replaces if known is None else known.receipt_id
            moved.append(EffectRow(row.idempotency_key, row.step_key, row.receipt_id, row.status, was))
    return sorted(moved, key=lambda row: row.key)
