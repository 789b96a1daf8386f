"""The fold: the only place where a run's state changes (promise 6). Pure.

``fold`` takes one event as it was told. It serves whoever tells the event, whoever comes after a crash, replay and the
oracle of the tests alike. Every status moves through its table in ``runtime.engine.states``, ``approvals.states`` and
``evidence.receipts``; a move that a table lacks is a ``ConsistencyError``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from runtime.engine import events as e
from runtime.engine.crossing import Crossing
from runtime.engine.fold import of_actions, of_runs, of_steps
from runtime.engine.graph import Graph
from runtime.engine.run import Run
from runtime.engine.told import Told


def fold(run: Run, told: Told, graph: Graph, crossing: Crossing | None = None) -> Run:
    """The run after this event. ``run`` is changed in place; copy it first if the old one is still needed.

    ``graph`` is the run's graph, with the extension if the event is one. ``crossing`` is what a barrier has just been
    found to make of the run; without it, the checkpoint's choices say so. ``ConsistencyError`` for a move that no table
    has; ``Diverged`` if a checkpoint is not the one that was recorded.
    """
    match told.event:
        case e.CheckpointCommitted() as event:
            of_runs.checkpoint(run, event, graph, crossing)
        case event:
            _FOLDS[type(event)](run, told, event)
    return run


def _nothing(run: Run, told: Told, event: Any) -> None:
    """The event changes nothing by itself: the events beside it do."""


_FOLDS: Mapping[type[e.Event], Callable[[Run, Told, Any], None]] = {
    e.RunOpened: of_runs.opened,
    e.RunStarted: of_runs.started,
    e.RunReferenceSet: of_runs.named,
    e.RunExtended: of_runs.extended,
    e.RunContinued: _nothing,
    e.RunCanceled: of_runs.canceled,
    e.RunClosed: of_runs.closed,
    e.StepStarted: of_steps.step_started,
    e.StepSucceeded: of_steps.step_succeeded,
    e.StepFailed: of_steps.step_failed,
    e.StepParked: of_steps.step_parked,
    e.StepRetryScheduled: of_steps.step_retry,
    e.StepResumed: of_steps.step_resumed,
    e.StepSetBack: of_steps.step_set_back,
    e.StepCanceled: of_steps.step_canceled,
    e.LeaseExpired: of_steps.lease_expired,
    e.WaitOpened: of_steps.wait_opened,
    e.WaitPostponed: of_steps.wait_postponed,
    e.WaitCompleted: of_steps.wait_completed,
    e.WaitTimedOut: of_steps.wait_timed_out,
    e.WaitCanceled: of_steps.wait_canceled,
    e.DecisionMade: _nothing,
    e.ApprovalRequested: of_actions.asked,
    e.ApprovalVoted: of_actions.voted,
    e.ApprovalVoteRefused: _nothing,
    e.ApprovalDecided: of_actions.answered,
    e.ApprovalConsumed: of_actions.consumed,
    e.ApprovalSuperseded: of_actions.superseded,
    e.ApprovalExpired: of_actions.expired,
    e.ApprovalReminded: of_actions.reminded,
    e.ApprovalEscalated: of_actions.reminded,
    e.ActionIntended: of_actions.intended,
    e.ActionSucceeded: of_actions.action_succeeded,
    e.ActionFailed: of_actions.action_failed,
    e.ActionInDoubt: of_actions.in_doubt,
    e.ActionHeld: of_actions.held,
    e.ActionDoubtResolved: of_actions.doubt_resolved,
    e.ActionRecalled: _nothing,
    e.ActionLate: of_actions.late,
}
