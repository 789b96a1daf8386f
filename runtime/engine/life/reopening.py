"""Retries a failed run from the steps that failed or were canceled with it. Pure.

Steps that are done stay done. All others begin anew in a new super-step: they are judged again, and people are asked
again unless an approval still binds.
"""

from __future__ import annotations

from core.canonical import Json
from core.errors import ConsistencyError, InputError
from evidence.chain import Actor
from evidence.commitments import blind, commit_fields, path_of
from evidence.receipts import ReceiptStatus
from runtime.engine.book.barrier import cross
from runtime.engine.book.plan import Evaluated, PlanError
from runtime.engine.life.transition import Transition
from runtime.engine.model.events import CheckpointCommitted, RunReferenceSet, RunReopened
from runtime.engine.model.run import Run
from runtime.engine.model.states import RUN, RunState, StepState

_OPEN = (ReceiptStatus.INTENDED, ReceiptStatus.IN_DOUBT)


def anew(run: Run) -> dict[str, int]:
    """The steps that would begin anew, each with the epoch of its last lease. ``run`` must be folded in full.

    Turns and calls of agents do not: their agent begins anew, and the numbers of its turns go on from the last one.
    """
    rows = {**run.past, **run.steps}
    over = (StepState.FAILED_TERMINAL, StepState.CANCELED)
    done = run.state.status.keys() | run.state.failures.keys()
    own = {key: row for key, row in rows.items() if "/" not in key}
    return {key: row.lease_epoch for key, row in own.items() if row.status in over and key not in done}


def refusal(run: Run) -> ConsistencyError | None:
    """The reason why a run cannot be retried, and the remedy; None if it can. ``run`` must be folded in full."""
    if run.status is not RunState.FAILED_TERMINAL:
        words = f"The run is {run.status}; only one that has failed can be retried."
        ended = run.status in RUN.terminal
        return ConsistencyError(words, remedy="Start another run." if ended else "Let it go on, or cancel it.")
    doubts = sorted({row.step_key for row in run.receipts.values() if row.status in _OPEN})
    if doubts:
        words = f"Nobody knows whether the action of {', '.join(doubts)} happened, so it may not be done again."
        return ConsistencyError(words, remedy="Look outside, then start another run for what is left.")
    return None


def reopen(transition: Transition, actor: Actor, reason: str, bundle: str | None) -> None:
    """Record that a person retries the run, and plan what begins anew. ``bundle`` is the digest of its evidence.

    ``ConsistencyError`` if nothing can begin, because the cause of the failure persists.
    """
    if (problem := refusal(transition.view.run)) is not None:
        raise problem
    run_key, number = transition.view.run.run_key, transition.run.reopened + 1
    private = {"reason": reason} if reason else {}
    committed = commit_fields(run_key, path_of("reopened", str(number)), private) or None
    steps: list[Json] = [[key, epoch] for key, epoch in sorted(anew(transition.view.run).items())]
    transition.tell(RunReopened(bundle, steps, bool(reason), committed, reason), actor=actor)
    choices = Evaluated(transition.graph, transition.view.constants, transition.run.superstep + 1)
    try:
        crossing = cross(transition.run, transition.graph, choices)
    except (PlanError, InputError) as error:
        words = f"The run would fail again at once: {error}"
        raise ConsistencyError(words, remedy="Mend the workflow or the input, and start another run.") from None
    if not crossing.begun:
        raise ConsistencyError("No step of this run can begin anew.", remedy="Start it again.")
    for key, reference in crossing.references:
        commitments = commit_fields(run_key, key, {"reference": reference})
        transition.tell(RunReferenceSet([*commitments], reference), step=key)
    shown = blind(run_key, crossing.checkpoint.digest)
    made = choices.made or None
    transition.tell(CheckpointCommitted(crossing.checkpoint.superstep, shown, False, made), crossing=crossing)
