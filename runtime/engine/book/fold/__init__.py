"""The fold: the only place where a run's state changes (promise 6). Pure.

``fold`` applies one event. The transition that records the event, a reader after a crash, replay and the oracle of the
tests all use it. Every status moves through its table in ``runtime.engine.model.states``, ``approvals.model`` and
``evidence.receipts``; a move that a table lacks is a ``ConsistencyError``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from core.errors import ConsistencyError
from core.identity import Role
from evidence.commitments import blind
from runtime.engine.book import contributors
from runtime.engine.book.barrier import Crossing, begin, checkpoint_of, cross
from runtime.engine.book.channels import first_entries
from runtime.engine.book.fold import of_agents, of_grants, of_holds, of_steps, of_waits
from runtime.engine.book.gates import gates_passed
from runtime.engine.book.plan import Recorded
from runtime.engine.book.recorded import Diverged, RecordedEvent
from runtime.engine.model import events as e
from runtime.engine.model.graph import Graph
from runtime.engine.model.rows import LATER, PARKED, MutationRow
from runtime.engine.model.run import Run, State
from runtime.engine.model.states import RUN, STEP, RunEvent, RunState, StepState


def fold(run: Run, recorded: RecordedEvent, graph: Graph, crossing: Crossing | None = None) -> Run:
    """The run after this event. ``run`` is changed in place; copy it first if the old one is still needed.

    ``graph`` is the run's graph, with the extension if the event is one. ``crossing`` is the crossing that a transition
    has just computed; without it, it is computed by the checkpoint's choices. ``ConsistencyError`` for a move that no
    table has, or a time before that of the step's last line; ``Diverged`` if a checkpoint is not the recorded one.
    """
    # A late answer is exempt: its worker has lost its lease, and does not know the step's later times.
    if recorded.step in run.steps and not isinstance(recorded.event, e.ActionLate):
        if recorded.at < run.times.get(recorded.step, recorded.at):
            raise ConsistencyError(f"the time of {recorded.step} runs back")
        run.times[recorded.step] = recorded.at
    match recorded.event:
        case e.CheckpointCommitted() as event:
            _checkpoint(run, event, graph, crossing)
        case e.RunOpened() as event:
            run.opened_at = recorded.at
            _opened(run, event, graph)
        case event:
            change = _FOLDS[type(event)]
            if change is not None:
                change(run, recorded, event)
            elif isinstance(event, e.RunMigrated):
                _migrated(run, recorded, event, graph)
            elif isinstance(event, e.RunForked):
                _forked(run, recorded, event, graph)
    return run


def _opened(run: Run, event: e.RunOpened, graph: Graph) -> None:
    run.reference = event.reference or run.reference
    run.requested_by = event.requested_by or run.requested_by
    run.requester, run.started_by = event.requester, event.started_by
    run.trigger = event.inputs or {}
    contributors.opened(run.state, event.shaped or (), event.adder)
    run.state.channels.update(event.channels or {})
    run.held_open = event.open is not None
    run.origins, run.copied = event.origins, [str(name) for name in event.inherited or ()]
    run.ledger += first_entries(graph.channels, event.channels or {})


def _started(run: Run, recorded: RecordedEvent, event: e.RunStarted) -> None:
    run.status = RUN.next[run.status, RunEvent.START]
    if run.held_open:
        run.status = RUN.next[run.status, RunEvent.WAIT]


def _sealed(run: Run, recorded: RecordedEvent, event: e.RunSealed) -> None:
    run.held_open = False


def _named(run: Run, recorded: RecordedEvent, event: e.RunReferenceSet) -> None:
    run.reference = event.reference


def _extended(run: Run, recorded: RecordedEvent, event: e.RunExtended) -> None:
    run.extensions += 1
    row = MutationRow(event.number, recorded.actor.id, event.source, event.operations, tuple(event.gates or ()))
    run.mutations.append(row)
    run.state.outputs.update(event.adopted or {})
    adder = contributors.added(run.state, event.steps, recorded.actor.kind, recorded.actor.id)
    run.adders.update(dict.fromkeys(map(str, event.steps), adder))
    if run.executing == 0 and run.status not in (RunState.QUEUED, RunState.RUNNING):
        run.status = RUN.next[run.status, RunEvent.RESUME]


def _migrated(run: Run, recorded: RecordedEvent, event: e.RunMigrated, graph: Graph) -> None:
    run.extensions += 1
    contributors.reopened(run.state, recorded.actor.kind, recorded.actor.id, Role.EDITOR)
    first = event.channels or {}
    run.ledger += first_entries({name: graph.channels[name] for name in first}, first)
    run.state.channels.update(first)
    run.state.outputs.update(event.adopted or {})
    if run.executing == 0 and run.status not in (RunState.QUEUED, RunState.RUNNING):
        run.status = RUN.next[run.status, RunEvent.RESUME]


def _forked(run: Run, recorded: RecordedEvent, event: e.RunForked, graph: Graph) -> None:
    """Begin with the state of another run: its done steps are done. Answers at gates are never taken over."""
    state = State.from_json(event.state)
    if run.checkpointed or any(gates_passed(graph, state)):
        raise ConsistencyError("a run takes over a state only before its first checkpoint, and never behind a gate")
    first = {name: value for name, value in state.channels.items() if value != run.state.channels.get(name)}
    run.ledger += first_entries({name: graph.channels[name] for name in first}, first)
    run.state, run.reference = state, state.reference or run.reference
    run.retried_by = contributors.reopened(run.state, recorded.actor.kind, recorded.actor.id)


def _continued(run: Run, recorded: RecordedEvent, event: e.RunContinued) -> None:
    contributors.within(run.state, recorded.step or "", event.shaped or ())
    if event.origins is not None:
        run.state.origins[recorded.step or ""] = event.origins
    of_agents.called(run, recorded.step or "", event.used)


def _canceled(run: Run, recorded: RecordedEvent, event: e.RunCanceled) -> None:
    run.canceling = run.canceling or {"by": recorded.actor.id, "reason": event.reason}


_CLOSING = {
    RunState.SUCCEEDED: RunEvent.SUCCEED,
    RunState.FAILED_TERMINAL: RunEvent.FAIL,
    RunState.CANCELED: RunEvent.CANCEL,
}


def _paused(run: Run, recorded: RecordedEvent, event: e.RunPaused | e.RunResumed) -> None:
    run.paused = isinstance(event, e.RunPaused)


def _closed(run: Run, recorded: RecordedEvent, event: e.RunClosed) -> None:
    run.status = RUN.next[run.status, _CLOSING[event.status]]
    run.error, run.result, run.finished, run.executing = event.detail, event.result, True, 0


def _reopened(run: Run, recorded: RecordedEvent, event: e.RunReopened) -> None:
    run.status = RUN.next[run.status, RunEvent.REOPEN]
    run.error, run.result, run.finished, run.reopened = None, None, False, run.reopened + 1
    stated: Any = event.steps
    for key, epoch in stated:
        run.past.pop(key, None)
        run.steps.pop(key, None)
        run.state.parked.pop(key, None)
        run.anew[key] = epoch
    run.state.open = [key for key in run.state.open if key not in run.anew]
    for wait in [wait for wait in run.waits.values() if wait.step_key in run.anew]:
        run.waits[wait.wait_id] = replace(wait, left=True)
    run.retried_by = contributors.reopened(run.state, recorded.actor.kind, recorded.actor.id)
    run.adders, run.tried_by = {}, {}  # whoever goes on with the run asks for all of it


def _checkpoint(run: Run, event: e.CheckpointCommitted, graph: Graph, crossing: Crossing | None) -> None:
    """Cross the barrier: put the writes of the super-step into the channels, and begin the next super-step."""
    if crossing is None:
        crossing = _as_recorded(run, event, graph)
    if (crossing.checkpoint.superstep, blind(run.run_key, crossing.checkpoint.digest)) != (event.number, event.digest):
        raise Diverged(f"checkpoint {event.number} is not the one that was recorded")
    run.checkpointed, run.state, run.superstep = True, crossing.state, event.number
    run.checkpoints.append(crossing.checkpoint)
    run.ledger += crossing.ledger
    run.windows = {**run.windows, **crossing.windows}
    for key in [key for key, row in run.steps.items() if row.status in STEP.terminal]:
        run.past[key] = run.steps.pop(key)
    run.steps.update((row.key, row) for row in crossing.begun)
    run.anew = {}
    if run.spoken:
        of_agents.forget(run)
    if crossing.ending:
        return
    run.executing = run.width = len(run.state.open)
    done = crossing.finished and not run.state.parked
    if not done and not run.state.open and run.status is RunState.RUNNING:
        _park_run(run)
    elif done and run.held_open and run.status is RunState.RUNNING:
        run.status = RUN.next[run.status, RunEvent.WAIT]


def _as_recorded(run: Run, event: e.CheckpointCommitted, graph: Graph) -> Crossing:
    choices = Recorded(event.choices or [])
    if event.halted:
        return Crossing(run.state, checkpoint_of(0, run.state), ending=True)
    return cross(run, graph, choices) if run.checkpointed else begin(run, graph, choices, run.state.copy(), 0)


# Approvals come first: the status of a run that waits for people and for a timer says that it waits for people.
_PARKING = (
    (StepState.WAITING_APPROVAL, RunEvent.PARK),
    (StepState.WAITING, RunEvent.WAIT),
    (StepState.FAILED_RETRYABLE, RunEvent.RETRY_LATER),
)


def _park_run(run: Run) -> None:
    """Set the status that says what the run waits for, because none of its steps can go on by itself."""
    kinds = {wait.partition(":")[0] for wait in run.state.parked.values()}
    if LATER in kinds:
        kinds.add(PARKED[StepState.WAITING])
    for status, event in _PARKING:
        if PARKED[status] in kinds:
            run.status = RUN.next[run.status, event]
            return


# None: the event itself changes nothing; other events of the same append do.
_FOLDS: Mapping[type[e.Event], Callable[[Run, RecordedEvent, Any], None] | None] = {
    e.RunOpened: None,
    e.RunStarted: _started,
    e.RunReferenceSet: _named,
    e.RunExtended: _extended,
    e.RunMigrated: None,
    e.RunForked: None,
    e.RunContinued: _continued,
    e.RunCanceled: _canceled,
    e.RunPaused: _paused,
    e.RunResumed: _paused,
    e.RunReopened: _reopened,
    e.RunSealed: _sealed,
    e.RunClosed: _closed,
    e.StepStarted: of_steps.step_started,
    e.StepSucceeded: of_steps.step_succeeded,
    e.StepFailed: of_steps.step_failed,
    e.StepParked: of_steps.step_parked,
    e.StepRetryScheduled: of_steps.step_retry,
    e.StepResumed: of_steps.step_resumed,
    e.StepSetBack: of_steps.step_set_back,
    e.StepCanceled: of_steps.step_canceled,
    e.StepHeld: of_holds.step_held,
    e.HoldAnswered: of_holds.answered,
    e.LeaseExpired: of_steps.lease_expired,
    e.WaitOpened: of_waits.wait_opened,
    e.WaitPostponed: of_waits.wait_postponed,
    e.WaitCompleted: of_waits.wait_completed,
    e.WaitTimedOut: of_waits.wait_timed_out,
    e.WaitCanceled: of_waits.wait_canceled,
    e.AgentBegan: of_agents.began,
    e.AgentAnswered: of_agents.answered,
    e.DecisionMade: None,
    e.PreflightFailed: None,
    e.ApprovalRequested: of_waits.asked,
    e.ApprovalSaid: of_waits.approval_said,
    e.ApprovalReassigned: of_waits.reassigned,
    e.ApprovalEdited: of_waits.edited,
    e.ApprovalVoted: of_waits.voted,
    e.ApprovalVoteRefused: None,
    e.ApprovalDecided: of_waits.answered,
    e.ApprovalConsumed: of_waits.consumed,
    e.ApprovalSuperseded: of_waits.superseded,
    e.ApprovalDelivered: of_waits.delivered,
    e.ApprovalExpired: of_waits.expired,
    e.ApprovalReminded: of_waits.reminded,
    e.ApprovalEscalated: of_waits.reminded,
    e.GrantGiven: of_grants.grant_given,
    e.GrantRevoked: of_grants.revoked,
    e.GrantEnded: of_grants.ended,
    e.ActionIntended: of_steps.intended,
    e.ActionSucceeded: of_steps.action_succeeded,
    e.ActionFailed: of_steps.action_failed,
    e.ActionInDoubt: of_steps.in_doubt,
    e.ActionHeld: of_steps.action_held,
    e.ActionDoubtResolved: of_steps.doubt_resolved,
    e.ActionRecalled: of_steps.recalled,
    e.ActionLate: of_steps.late,
    e.ActionUnneeded: of_steps.unneeded,
}
