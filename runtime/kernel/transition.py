"""One transition of one run: moves through the state tables, collected into a ``Commit`` (P-1 to P-5, O-5, V-7).

A ``Transition`` starts from a view of the run as stored and applies any number of moves to it. Nothing here knows a
database, a clock or a connector: time and ids come with the view or are derived, so the same record gives the same
commits (promise 5). ``Draft`` notes rows and facts, ``Barrier`` ends super-steps and runs, this class moves steps.
"""

from __future__ import annotations

from dataclasses import replace

from core.canonical import Json, JsonObject
from core.errors import ConsistencyError
from evidence.chain import Actor, EventType
from evidence.commitments import commit_fields, path_of
from runtime.kernel.barrier import REFERENCE, Barrier, error_facts
from runtime.kernel.commit import MutationRow, StepRow, WaitRow
from runtime.kernel.draft import ENGINE, PARKED, expected_of, resume_command, wait_of
from runtime.kernel.states import RUN, STEP, CommandState, RunEvent, RunState, StepEvent, StepState, WaitEvent, WaitKind
from runtime.kernel.view import NeedsWholeView, OpenApproval, RunView

__all__ = [
    "ENGINE",
    "NeedsWholeView",
    "OpenApproval",
    "RunView",
    "Transition",
    "expected_of",
    "resume_command",
    "wait_of",
]


class Transition(Barrier):
    """Moves applied to a view; ``commit()`` gives the rows, ``after()`` the view as it will be stored."""

    def started(self, step: StepRow) -> StepRow:
        """Record that a worker holds the step's lease."""
        data: JsonObject = {"operation": step.operation, "attempt": step.attempt, "epoch": step.lease_epoch}
        self.record(EventType.STEP_STARTED, data, step=step.key, actor=Actor("worker", step.lease_owner or "?"))
        self.steps[step.key] = step
        self._release_beside(step)
        return step

    def succeed(self, step: StepRow, output: Json, writes: JsonObject, usage: JsonObject | None = None) -> None:
        """The step is done; its writes wait for the barrier."""
        done = self.move_step(step, StepEvent.SUCCEED, output=output, writes=writes, usage=usage, last_error=None)
        names: list[Json] = [*sorted(writes.keys() - {REFERENCE})]
        facts: JsonObject = {"writes": names}
        if usage is not None:
            facts["usage"] = usage
        self.record(EventType.STEP_SUCCEEDED, facts, step=step.key)
        self._leave(done)

    def fail(self, step: StepRow, error: JsonObject, usage: JsonObject | None = None) -> None:
        """The step failed for good, and its run with it at the barrier, unless the graph says what is done about it.

        ``usage`` is what the failed call cost. A step that waits can fail only if nothing is done about it: otherwise
        it resumes, and fails where it can go on (``resume`` with a result).
        """
        waiting = step.status in PARKED
        failed = self.move_step(step, StepEvent.FAIL, last_error=error, superstep=self.rows.superstep, eligible_in=None)
        facts = error_facts(error)
        if usage is not None:
            facts["usage"] = usage
        self.record(EventType.STEP_FAILED, facts, step=step.key)
        if not waiting:
            self._leave(failed)
            return
        self._settle_invocation(self.state.parked.pop(step.key, None), CommandState.REJECTED)
        if self.rows.executing == 0:
            self._barrier()

    def park(
        self,
        step: StepRow,
        wait: WaitRow,
        error: JsonObject | None = None,
        *,
        known: bool = False,
        attempt: int | None = None,
    ) -> StepRow:
        """The step waits on ``wait_of`` it; it leaves its super-step and holds nothing (promise 10).

        ``known`` says that the wait's row is there: it was written before something outside was begun (V-9).
        ``attempt`` is the number of the next one, where it is another.
        """
        retry = wait.kind is WaitKind.RETRY
        parked = self.move_step(
            step,
            _PARKING.get(wait.kind, StepEvent.WAIT),
            last_error=error,
            attempt=step.attempt if attempt is None else attempt,
            eligible_in=wait.due_in if retry else None,
        )
        if not known:
            self.rows.new_waits.append(wait)
        self._note_parked(parked)
        self._defer(parked)
        self._leave(parked)
        return parked

    def resume(self, step: StepRow, wait: WaitRow, event: WaitEvent = WaitEvent.COMPLETE) -> StepRow:
        """A wait is over and its step is ready again: it joins the next super-step (P-5).

        What the step makes of it, also of a wait that has timed out, is decided by whoever claims it next.
        """
        self.end_wait(wait, event)
        ready = self.move_step(step, StepEvent.RESUME, superstep=self.rows.superstep + 1, eligible_in=None)
        self.record(EventType.STEP_RESUMED, {"invocation": f"resume:{wait.wait_id}"}, step=step.key)
        if self.rows.executing == 0:
            self.move_run(RunEvent.RESUME)
            self._barrier()
        return ready

    def expire_lease(self, step: StepRow) -> None:
        """The worker is gone: the step is ready for another, who will find out what became of its action (Q-8)."""
        ready = self.move_step(step, StepEvent.LEASE_EXPIRE, lease_owner=None)
        facts: JsonObject = {"epoch": step.lease_epoch, "owner": step.lease_owner or "?"}
        self.record(EventType.LEASE_EXPIRED, facts, step=step.key)
        self.rows.released.append(step.step_id)
        self.command("step", f"lease:{step.lease_epoch}", step=ready)

    def cancel_step(self, step: StepRow) -> None:
        """The run is being canceled and this step has nothing under way: it ends here."""
        self._leave(self.move_step(step, StepEvent.CANCEL))

    def take(self, owner: str) -> StepRow | None:
        """Go on with the first newly planned step under the lease of the same worker, without a hop (section 4)."""
        planned = next((row for row in self._new.values() if row.status is StepState.READY), None)
        if planned is None or self.rows.finished:
            return None
        held = replace(planned, status=STEP.next(planned.status, StepEvent.CLAIM), lease_owner=owner, lease_epoch=1)
        self._new[planned.key] = held
        self.rows.commands = [row for row in self.rows.commands if row.step_id != planned.step_id]
        self.taken = held
        return self.started(held)

    def cancel(self, actor: Actor, reason: str) -> None:
        """Cancel the run. A step whose action may be under way is waited for, so that no outcome stays unrecorded."""
        if RUN.terminal(self.rows.status):
            raise ConsistencyError(f"The run is {self.rows.status}; there is nothing left to cancel.")
        facts: JsonObject = {"reason_given": bool(reason)}
        if reason and self.view.canceling is None:  # of one that is repeated, nothing is kept
            facts["committed"] = [*commit_fields(self.view.run_key, path_of("cancel"), {"reason": reason})]
        self.record(EventType.RUN_CANCELED, facts, actor=actor)
        # What has joined the next super-step is not counted among the executing; the run's end cancels it.
        here = [row for row in self.steps.values() if row.superstep == self.rows.superstep]
        # A step that is ready again after an intent: whoever claims it next finds out what became of its action.
        under_way = [row for row in here if row.status is StepState.RUNNING or _left_behind(row)]
        if not under_way:
            self.close(RunEvent.CANCEL, {"class": "canceled", "by": actor.id, "message": reason})
            return
        self.rows.canceling = self.view.canceling or {"by": actor.id, "reason": reason}
        for row in [row for row in here if row.status is StepState.READY and not _left_behind(row)]:
            self.move_step(row, StepEvent.CANCEL)
            self.state.open = [key for key in self.state.open if key != row.key]
            self.rows.executing -= 1
            self.rows.released.append(row.step_id)

    def extend(self, mutation: MutationRow, facts: JsonObject, actor: Actor) -> None:
        """The graph of this transition holds more than that of its view (V-6). What can begin now begins now."""
        if RUN.terminal(self.rows.status) or self.view.canceling is not None:
            raise ConsistencyError("The run is over, or being canceled; nothing can be added to it.")
        self.rows.mutations.append(mutation)
        self.record(EventType.RUN_EXTENDED, facts, actor=actor)
        if self.rows.executing == 0 and self.rows.status is not RunState.QUEUED:
            self.move_run(RunEvent.RESUME)
            self._barrier()

    def give_up(self, step: StepRow, error: JsonObject) -> None:
        """Nothing can be evaluated, folded or planned for this step any more: the run fails with what it has."""
        self.move_step(step, StepEvent.FAIL, last_error=error, superstep=self.rows.superstep, eligible_in=None)
        self.record(EventType.STEP_FAILED, error_facts(error), step=step.key)
        self._settle_invocation(self.state.parked.pop(step.key, None), CommandState.REJECTED)
        if step.status is StepState.RUNNING:
            self.state.open = [key for key in self.state.open if key != step.key]
            self.rows.executing -= 1
            self.rows.released.append(step.step_id)
        # What is still executing comes to the barrier, or is given up as well.
        if self.rows.executing == 0:
            self.close(RunEvent.FAIL, {**error, "step": step.key})


# The errors with which a step is given up, each with the count beside it: what a connector says has none.
GIVEN_UP = {"unexpected": "setbacks", "lease_lost": "leases"}

_PARKING = {WaitKind.APPROVAL: StepEvent.PARK, WaitKind.RETRY: StepEvent.RETRY_LATER}


def _left_behind(step: StepRow) -> bool:
    return step.status is StepState.READY and step.idempotency_key is not None
