"""The fold of a run whose graph or values cannot be read any more: enough of it to end the run, and no more. Pure.

Nothing is planned or evaluated on such a run. Its steps are known from the lines about them; one that has not begun is
not known. What cannot be folded is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from core.errors import ConsistencyError
from runtime.engine import events as e
from runtime.engine.commit import StepRow
from runtime.engine.fold import fold
from runtime.engine.graph import NO_GRAPH
from runtime.engine.names import step_id_of
from runtime.engine.run import Run
from runtime.engine.states import STEP, StepState
from runtime.engine.told import Told


def blindly(run: Run, told: Iterable[Told]) -> Run:
    """The run after these events, as far as they can be followed without its graph."""
    for each in told:
        match each.event:
            case e.CheckpointCommitted(number=number):
                run.superstep, run.checkpointed = number, True
                run.past.update((key, row) for key, row in run.steps.items() if STEP.terminal(row.status))
                run.steps = {key: row for key, row in run.steps.items() if key not in run.past}
                continue
            case e.StepStarted(operation=operation) if each.step and each.step not in run.steps:
                run.steps[each.step] = StepRow(
                    step_id=step_id_of(run.run_id, each.step),
                    key=each.step,
                    index=0,
                    operation=operation,
                    superstep=run.superstep,
                    status=StepState.READY,
                )
        with suppress(ConsistencyError, LookupError):
            fold(run, each, NO_GRAPH)
    return run
