"""One transition of one run: what can happen to its steps, told as events (P-1 to P-5, O-5, V-7).

A ``Transition`` starts from a view of the run as stored and tells any number of events of it. Nothing here knows a
database, a clock or a connector: time and ids come with the view or are derived, so the same record gives the same
appends (promise 5). ``Draft`` tells and folds, ``Barrier`` ends super-steps and runs, this class moves steps.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from core.canonical import Json, JsonObject, canonical_bytes
from core.errors import ConsistencyError, InputError
from evidence.chain import Actor
from evidence.commitments import commit_fields, path_of
from runtime.engine import events as e
from runtime.engine.barrier import Barrier
from runtime.engine.commit import StepRow, WaitRow
from runtime.engine.crossing import REFERENCE
from runtime.engine.draft import ENGINE
from runtime.engine.names import expected_of, wait_of
from runtime.engine.states import RUN, RunState, StepState
from runtime.engine.view import RunView

__all__ = [
    "ENGINE",
    "RunView",
    "Transition",
    "expected_of",
    "wait_of",
]


class Transition(Barrier):
    """Moves of steps; ``commit()`` gives what they write, ``after()`` the view as it will be stored."""

    def started(self, step: StepRow) -> StepRow:
        """Tell that a worker holds the step's lease."""
        event = e.StepStarted(step.operation, step.attempt, step.lease_epoch)
        self.tell(event, step=step.key, actor=Actor("worker", step.lease_owner or "?"))
        return self.run.steps[step.key]

    def succeed(self, step: StepRow, output: Json, writes: JsonObject, usage: JsonObject | None = None) -> None:
        """The step is done; its writes wait for the barrier."""
        if problem := _unrecordable(output, writes):
            self.fail(step, {"class": "transport", "code": "unusable_output", "message": problem}, usage)
            return
        names: list[Json] = [*sorted(writes.keys() - {REFERENCE})]
        self.tell(e.StepSucceeded(names, usage, output, writes or None), step=step.key)
        self.left()

    def fail(self, step: StepRow, error: JsonObject, usage: JsonObject | None = None) -> None:
        """The step failed for good, and its run with it at the barrier, unless the graph says what is done about it.

        ``usage`` is what the failed call cost. A step that waits can fail only if nothing is done about it: otherwise
        it resumes, and fails where it can go on (``resume`` with a result).
        """
        self.tell(_failed(error, usage), step=step.key)
        self.left()

    def park(self, step: StepRow, wait: WaitRow, error: JsonObject | None = None, *, known: bool = False) -> StepRow:
        """The step waits on ``wait_of`` it; it leaves its super-step and holds nothing (promise 10).

        ``known`` says that the wait is there: it was opened before something outside was begun (V-9).
        """
        if known:
            event = e.StepParked(wait.wait_id, wait.kind, known=True, detail=error)
        else:
            due = None if wait.due_in is None else seconds(wait.due_in)
            told = (due, wait.token, wait.context or None, wait.correlation_key, error)
            event = e.StepParked(wait.wait_id, wait.kind, False, *told)
        self.tell(event, step=step.key)
        return self._parked(step)

    def retry_later(
        self, step: StepRow, delay: timedelta, error: JsonObject, usage: JsonObject | None = None, *, attempt: int
    ) -> StepRow:
        """The step waits until ``delay`` has passed, with the failure that made it wait (X-19).

        ``attempt`` is the number of the attempt that comes then.
        """
        due, wait_id = seconds(delay), wait_of(self.view.run_id, step)
        event = e.StepRetryScheduled(wait_id, attempt, int(due), usage, due, error)
        self.tell(event, step=step.key)
        return self._parked(step)

    def _parked(self, step: StepRow) -> StepRow:
        parked = self.run.steps[step.key]
        self.left()
        return parked

    def resume(self, step: StepRow, wait: WaitRow) -> None:
        """A wait is over and its step is ready again: it joins the next super-step (P-5).

        What the step makes of it, also of a wait that has timed out, is decided by whoever claims it next.
        """
        self.tell(e.StepResumed(f"resume:{wait.wait_id}"), step=step.key)
        self.left()

    def expire_lease(self, step: StepRow, error: JsonObject | None = None) -> None:
        """The worker is gone: the step is ready for another, who will find out what became of its action (Q-8)."""
        self.tell(e.LeaseExpired(step.lease_epoch, step.lease_owner or "?", error), step=step.key)
        self.rows.requeued.append(step.key)

    def cancel_step(self, step: StepRow) -> None:
        """The run is being canceled and this step has nothing under way: it ends here."""
        self.tell(e.StepCanceled(), step=step.key)
        self.left()

    def take(self, owner: str, held: str) -> StepRow | None:
        """Go on with the first newly planned step under the lease of one that is over, without a hop (section 4)."""
        new = (row for row in self.run.steps.values() if row.key not in self.view.steps)
        planned = next((row for row in new if row.status is StepState.READY), None)
        if planned is None or self.run.finished:
            return None
        self.rows.taken[planned.key] = self.rows.taken.pop(held, held)
        return self.started(replace(planned, lease_owner=owner, lease_epoch=1))

    def cancel(self, actor: Actor, reason: str) -> None:
        """Cancel the run. A step whose action may be under way is waited for, so that no outcome stays unrecorded."""
        if RUN.terminal(self.run.status):
            raise ConsistencyError(f"The run is {self.run.status}; there is nothing left to cancel.")
        committed: list[Json] | None = None
        if reason and self.view.canceling is None:  # of one that is repeated, nothing is kept
            committed = commit_fields(self.view.run_key, path_of("cancel"), {"reason": reason})
        self.tell(e.RunCanceled(bool(reason), committed, reason if committed else ""), actor=actor)
        # What has joined the next super-step is not counted among the executing; the run's end cancels it.
        here = [row for row in self.run.steps.values() if row.superstep == self.run.superstep]
        # A step that is ready again after an intent: whoever claims it next finds out what became of its action.
        under_way = [row for row in here if row.status is StepState.RUNNING or _left_behind(row)]
        if not under_way:
            self.close(RunState.CANCELED, {"class": "canceled", "by": actor.id, "message": reason})
            return
        for row in [row for row in here if row.status is StepState.READY and not _left_behind(row)]:
            self.tell(e.StepCanceled(), step=row.key)

    def extend(self, event: e.RunExtended, actor: Actor) -> None:
        """The graph of this transition holds more than that of its view (V-6). What can begin now begins now."""
        if RUN.terminal(self.run.status) or self.view.canceling is not None:
            raise ConsistencyError("The run is over, or being canceled; nothing can be added to it.")
        self.tell(event, actor=actor)
        if self.run.status is not RunState.QUEUED:
            self.left()

    def give_up(self, step: StepRow, error: JsonObject) -> None:
        """Nothing can be evaluated, folded or planned for this step any more: the run fails with what it has."""
        self.tell(_failed(error), step=step.key)
        # What is still executing comes to the barrier, or is given up as well.
        if self.run.executing == 0:
            self.close(RunState.FAILED_TERMINAL, {**error, "step": step.key})


# The errors with which a step is given up, each with the count beside it: what a connector says has none.
GIVEN_UP = {"unexpected": "setbacks", "lease_lost": "leases"}


def _unrecordable(output: Json, writes: JsonObject) -> str | None:
    """Why what a step gives cannot be committed to; None if it can. A value without a commitment is never told."""
    try:
        canonical_bytes([output, writes])
    except InputError as error:
        return str(error)
    return None


def _failed(error: JsonObject, usage: JsonObject | None = None) -> e.StepFailed:
    kind, code = error.get("class"), error.get("code")
    return e.StepFailed(None if kind is None else str(kind), None if code is None else str(code), usage, error)


def seconds(span: timedelta) -> int | float:
    """A span as it is told: whole seconds are an integer."""
    exact = span.total_seconds()
    return int(exact) if exact.is_integer() else exact


def _left_behind(step: StepRow) -> bool:
    return step.status is StepState.READY and step.idempotency_key is not None
