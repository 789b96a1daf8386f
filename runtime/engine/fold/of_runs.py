"""The fold of a run as a whole: its opening, its barriers and its end."""

from __future__ import annotations

from evidence.commitments import blind
from runtime.engine import events as e
from runtime.engine.commit import (
    MutationRow,
)
from runtime.engine.crossing import Crossing, begin, checkpoint_of, cross
from runtime.engine.graph import Graph
from runtime.engine.names import PARKED
from runtime.engine.plan import Recorded
from runtime.engine.run import Run
from runtime.engine.states import (
    RUN,
    STEP,
    RunEvent,
    RunState,
    StepState,
)
from runtime.engine.told import Diverged, Told


def opened(run: Run, told: Told, event: e.RunOpened) -> None:
    run.reference = event.reference or run.reference
    run.requested_by = event.requested_by or run.requested_by
    run.trigger = event.inputs or {}


def started(run: Run, told: Told, event: e.RunStarted) -> None:
    run.status = RUN.next(run.status, RunEvent.START)


def named(run: Run, told: Told, event: e.RunReferenceSet) -> None:
    run.reference = event.reference


def extended(run: Run, told: Told, event: e.RunExtended) -> None:
    run.extensions += 1
    run.mutations.append(MutationRow(event.number, told.actor.id, event.source, event.operations))
    run.state.outputs.update(event.adopted or {})
    if run.executing == 0 and run.status not in (RunState.QUEUED, RunState.RUNNING):
        run.status = RUN.next(run.status, RunEvent.RESUME)


def canceled(run: Run, told: Told, event: e.RunCanceled) -> None:
    run.canceling = run.canceling or {"by": told.actor.id, "reason": event.reason}


_CLOSING = {
    RunState.SUCCEEDED: RunEvent.SUCCEED,
    RunState.FAILED_TERMINAL: RunEvent.FAIL,
    RunState.CANCELED: RunEvent.CANCEL,
}


def closed(run: Run, told: Told, event: e.RunClosed) -> None:
    run.status = RUN.next(run.status, _CLOSING[event.status])
    run.error, run.result, run.finished, run.executing = event.detail, event.result, True, 0


def checkpoint(run: Run, event: e.CheckpointCommitted, graph: Graph, crossing: Crossing | None) -> None:
    """The barrier: the writes of the super-step are in the channels, and the next super-step is planned."""
    if crossing is None:
        crossing = _as_recorded(run, event, graph)
    if (crossing.checkpoint.superstep, blind(run.run_key, crossing.checkpoint.digest)) != (event.number, event.digest):
        raise Diverged(f"checkpoint {event.number} is not the one that was recorded")
    run.checkpointed, run.state, run.superstep = True, crossing.state, event.number
    run.checkpoints.append(crossing.checkpoint)
    run.ledger += crossing.ledger
    run.windows = {**run.windows, **crossing.windows}
    _leave_behind(run)
    run.steps.update((row.key, row) for row in crossing.begun)
    if crossing.ending:
        return
    run.executing = run.width = len(run.state.open)
    done = crossing.finished and not run.state.parked
    if not done and not run.state.open and run.status is RunState.RUNNING:
        _park_run(run)


def _as_recorded(run: Run, event: e.CheckpointCommitted, graph: Graph) -> Crossing:
    choices = Recorded(event.choices or [])
    if event.halted:
        return Crossing(run.state, checkpoint_of(0, run.state), ending=True)
    return cross(run, graph, choices) if run.checkpointed else begin(run, graph, choices, run.state.copy(), 0)


def _leave_behind(run: Run) -> None:
    over = [key for key, row in run.steps.items() if STEP.terminal(row.status)]
    run.past.update((key, run.steps.pop(key)) for key in over)


# People first: a run that waits for an approval and a timer waits for people.
_PARKING = (
    (StepState.WAITING_APPROVAL, RunEvent.PARK),
    (StepState.WAITING, RunEvent.WAIT),
    (StepState.FAILED_RETRYABLE, RunEvent.RETRY_LATER),
)


def _park_run(run: Run) -> None:
    """Nothing can go on by itself: the run's status says what it waits for."""
    kinds = {wait.partition(":")[0] for wait in run.state.parked.values()}
    for status, event in _PARKING:
        if PARKED[status] in kinds:
            run.status = RUN.next(run.status, event)
            return
