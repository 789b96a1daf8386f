"""One transition of one run: what can happen to its steps, told as events (P-1 to P-5, O-5, V-7).

A ``Transition`` starts from a view of the run as stored and tells any number of events of it. Nothing here knows a
database, a clock or a connector: time and ids come with the view or are derived, so the same record gives the same
appends (promise 5). ``Draft`` tells and folds. When no step of the super-step is executing any more, the
writes of its steps are folded into the channels in step order, checkpoint n+1 is told and the next super-step is
planned (``runtime.engine.crossing``). A step that parks leaves its super-step.
"""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from msgspec.structs import replace

from approvals.model import ApprovalStatus
from core.canonical import Json, JsonObject, canonical_bytes
from core.errors import ConsistencyError, InputError
from evidence.chain import Actor
from evidence.commitments import blind, commit_fields, path_of
from runtime.engine import events as e
from runtime.engine.commit import StepRow, WaitRow, wait_of
from runtime.engine.crossing import REFERENCE, Crossing, begin, checkpoint_of, cross
from runtime.engine.draft import Draft
from runtime.engine.errors import UNUSABLE, ErrorClass, StepError
from runtime.engine.plan import Evaluated, PlanError
from runtime.engine.states import RUN, STEP, RunState, StepState, WaitKind, WaitState


class Transition(Draft):
    """Moves of steps and of the run; ``commit()`` gives what they write, ``after()`` the view as it will be stored."""

    # -- the barrier of a super-step (P-1 to P-3) --------------------------------------------------------------------

    def left(self) -> None:
        """A step is not executing any more; the last one to leave commits the barrier."""
        if self.run.executing:
            return
        choices = Evaluated(self.graph, self.view.constants)
        try:
            crossing = cross(self.run, self.graph, choices)
        except PlanError as problem:
            self.close(RunState.FAILED_TERMINAL, _plan_error(problem))
            return
        except InputError as problem:
            # A channel that cannot take its write, or a state without a canonical form: the last checkpoint stands.
            self.close(RunState.FAILED_TERMINAL, StepError(ErrorClass.EXPRESSION, None, str(problem)).to_json())
            return
        for key, reference in crossing.references:
            committed = commit_fields(self.view.run.run_key, key, {"reference": reference})
            self.tell(e.RunReferenceSet([*committed], reference), step=key)
        self._checkpoint(crossing, choices)
        # The steps of the next super-step stand in line from now on; where there are none the run may be over.
        if crossing.ending and crossing.failed is not None:
            self.close(RunState.FAILED_TERMINAL, {**(crossing.failed.last_error or {}), "step": crossing.failed.key})
        elif crossing.ending:
            self.close(RunState.CANCELED)
        elif crossing.finished and not self.run.state.parked:
            self.conclude()

    def _checkpoint(self, crossing: Crossing, choices: Evaluated, *, halted: bool = False) -> None:
        row = crossing.checkpoint
        shown = blind(self.view.run.run_key, row.digest)  # a state can be guessed, so its digest could be
        self.tell(e.CheckpointCommitted(row.superstep, shown, halted, choices.made or None), crossing=crossing)

    def conclude(self) -> None:
        """Everything is done: the run succeeds with its result (P-8), or fails because that cannot be made."""
        result = None
        if self.graph.result is not None:
            try:
                result = self.graph.result.render(self.variables(""))
                canonical_bytes(result)
            except InputError as error:
                problem = StepError(ErrorClass.EXPRESSION, None, str(error), {"step": "result"})
                self.close(RunState.FAILED_TERMINAL, problem.to_json())
                return
        self.close(RunState.SUCCEEDED, result=result)

    # -- the ends of a run -------------------------------------------------------------------------------------------

    def open(self, opened: e.RunOpened, actor: Actor) -> JsonObject | None:
        """Start: the first checkpoint and the first steps. The run is queued until the first of them is begun.

        Returns the error with which the run is to be failed, if nothing could be planned.
        """
        self.tell(opened, actor=actor)
        choices = Evaluated(self.graph, self.view.constants)
        try:
            crossing = begin(self.run, self.graph, choices, self.run.state.copy(), 0)
        except PlanError as problem:
            # What was planned before the fault never runs.
            halted = Crossing(self.run.state, checkpoint_of(0, self.run.state), ending=True)
            self._checkpoint(halted, Evaluated(self.graph, {}), halted=True)
            return _plan_error(problem)
        self._checkpoint(crossing, choices)
        return None

    def close(self, status: RunState, error: JsonObject | None = None, *, result: Json = None) -> None:
        """The run is over: whatever waits is canceled, the evidence is ordered (X-20, Q-21)."""
        state = self.run.state
        self.rows.cancels_rest = bool(self.view.run.status is RunState.QUEUED or state.parked or state.open)
        self._withdraw_questions()
        self._end_elsewhere()
        # A run may have more steps than are held here.
        held = {key for key, row in self.run.steps.items() if row.status not in STEP.terminal}
        for key in sorted(held | {*state.open} | {*state.parked}):
            self.tell(e.StepCanceled(), step=key)
        facts = error_facts(error) if error else None
        self.tell(e.RunClosed(status, facts, error, result))
        self.order("bundle", "final", {}, one_at_a_time=str(self.view.run_id))
        if self.view.parent is not None:
            self.order("return", "final", {"run": str(self.view.run_id)})

    def _withdraw_questions(self) -> None:
        """Cancel what people are asked. A question that was put in this very append is not posted after all."""
        asked = self.view.run.answers
        for approval, answer in [*self.run.answers.items()]:
            if answer.status == ApprovalStatus.REQUESTED:
                self.tell(e.ApprovalDecided(approval, ApprovalStatus.CANCELED))
                if approval in asked:
                    self.message("card", approval, ApprovalStatus.CANCELED)
        unseen = {str(approval) for approval in self.run.answers if approval not in asked}
        self.rows.commands = [row for row in self.rows.commands if row.payload.get("approval") not in unseen]

    def _end_elsewhere(self) -> None:
        """End what this run has begun outside, in another run or with people, if that is possible (V-13).

        A task of this very append is not posted after all.
        """
        for wait in [*self.run.waits.values()]:
            if wait.kind not in _ELSEWHERE or wait.status is not WaitState.WAITING:
                continue
            fresh, key = wait.wait_id not in self.view.run.waits, str(wait.wait_id)
            if not (fresh and wait.kind is WaitKind.TASK) and (wait.context or {}).get("abandons") is True:
                continue
            self.tell(e.WaitCanceled(wait.wait_id, wait.kind), step=wait.step_key)
            if wait.kind is not WaitKind.TASK:
                self.order("cancel", key, {"wait": key})
            elif fresh:
                self.rows.commands = [row for row in self.rows.commands if row.payload.get("task") != key]
            else:
                self.order("task", f"{key}:canceled", {"task": key}, one_at_a_time=key)

    # -- the moves of steps ------------------------------------------------------------------------------------------

    def started(self, step: StepRow) -> StepRow:
        """Tell that a worker holds the step's lease."""
        event = e.StepStarted(step.operation, step.attempt, step.lease_epoch)
        self.tell(event, step=step.key, actor=Actor("worker", step.lease_owner or "?"))
        return self.run.steps[step.key]

    def succeed(self, step: StepRow, output: Json, writes: JsonObject, usage: JsonObject | None = None) -> None:
        """The step is done; its writes wait for the barrier."""
        try:
            canonical_bytes([output, writes])  # a value without a commitment is never told
        except InputError as error:
            self.fail(step, StepError(ErrorClass.TRANSPORT, UNUSABLE, str(error)).to_json(), usage)
            return
        names = sorted(writes.keys() - {REFERENCE})
        self.tell(e.StepSucceeded([*names], usage, output, writes or None), step=step.key)
        self.left()

    def fail(self, step: StepRow, error: JsonObject, usage: JsonObject | None = None) -> None:
        """The step failed for good, and its run with it at the barrier, unless the graph says what is done about it.

        ``usage`` is what the failed call cost. A step that waits can fail only if nothing is done about it: otherwise
        it resumes, and fails where it can go on (``resume`` with a result).
        """
        self.tell(_failed(error, usage), step=step.key)
        self.left()

    def park(
        self,
        step: StepRow,
        kind: WaitKind,
        token: str,
        due_in: timedelta | None = None,
        context: JsonObject | None = None,
        correlation: str | None = None,
        *,
        wait: UUID | None = None,
        error: JsonObject | None = None,
    ) -> None:
        """The step waits; it leaves its super-step and holds nothing (promise 10)."""
        wait = wait or wait_of(self.view.run_id, step)
        due = None if due_in is None else seconds(due_in)
        self.tell(e.StepParked(wait, kind, False, due, token, context or None, correlation, error), step=step.key)
        self.left()

    def park_on(self, step: StepRow, wait: UUID, kind: WaitKind) -> None:
        """The step waits on what was opened before something outside was begun (V-9)."""
        self.tell(e.StepParked(wait, kind, known=True), step=step.key)
        self.left()

    def retry_later(
        self,
        step: StepRow,
        delay: timedelta,
        error: JsonObject,
        usage: JsonObject | None = None,
        *,
        attempted: bool = True,
    ) -> None:
        """The step waits until ``delay`` has passed, with the failure that made it wait and what that cost (X-19).

        ``attempted`` says that an attempt is over; a doubt that is waited out, or looked into, uses none up.
        """
        due, facts = seconds(delay), (wait_of(self.view.run_id, step), step.attempt + attempted)
        self.tell(e.StepRetryScheduled(*facts, int(due), usage, due, error), step=step.key)
        self.left()

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
        new = (row for row in self.run.steps.values() if row.key not in self.view.run.steps)
        planned = next((row for row in new if row.status is StepState.READY), None)
        if planned is None or self.run.finished:
            return None
        self.rows.taken[planned.key] = self.rows.taken.pop(held, held)
        return self.started(replace(planned, lease_owner=owner, lease_epoch=1))

    def cancel(self, actor: Actor, reason: str) -> None:
        """Cancel the run. A step whose action may be under way is waited for, so that no outcome stays unrecorded."""
        if self.run.status in RUN.terminal:
            raise ConsistencyError(f"The run is {self.run.status}; there is nothing left to cancel.")
        kept = {"reason": reason} if reason and self.view.run.canceling is None else {}  # nothing of a repeated one
        committed = commit_fields(self.view.run.run_key, path_of("cancel"), kept) or None
        self.tell(e.RunCanceled(bool(reason), committed, reason if committed else ""), actor=actor)
        # What has joined the next super-step is not counted among the executing; the run's end cancels it.
        here = [row for row in self.run.steps.values() if row.superstep == self.run.superstep]
        # A step that is ready again after an intent: whoever claims it next finds out what became of its action.
        under_way = [row for row in here if row.status is StepState.RUNNING or _left_behind(row)]
        if not under_way:
            self.close(RunState.CANCELED, StepError(ErrorClass.CANCELED, None, reason, {"by": actor.id}).to_json())
            return
        for row in [row for row in here if row.status is StepState.READY and not _left_behind(row)]:
            self.tell(e.StepCanceled(), step=row.key)

    def extend(self, event: e.RunExtended, actor: Actor) -> None:
        """The graph of this transition holds more than that of its view (V-6). What can begin now begins now."""
        if self.run.status in RUN.terminal or self.view.run.canceling is not None:
            raise ConsistencyError("The run is over, or being canceled; nothing can be added to it.")
        self.tell(event, actor=actor)
        if self.run.status is not RunState.QUEUED:
            self.left()

    def give_up(self, step: StepRow, error: JsonObject) -> None:
        """Nothing can be evaluated, folded or planned for this step any more: the run fails with what it has."""
        self.tell(_failed(error), step=step.key)
        if self.run.executing == 0:  # what still is comes to the barrier, or is given up as well
            self.close(RunState.FAILED_TERMINAL, {**error, "step": step.key})


# The errors with which a step is given up, each with the count beside it: what a connector says has none.
GIVEN_UP = {"unexpected": "setbacks", "lease_lost": "leases"}


def _failed(error: JsonObject, usage: JsonObject | None = None) -> e.StepFailed:
    kind, code = error.get("class"), error.get("code")
    return e.StepFailed(None if kind is None else str(kind), None if code is None else str(code), usage, error)


def seconds(span: timedelta) -> int | float:
    """A span as it is told: whole seconds are an integer."""
    exact = span.total_seconds()
    return int(exact) if exact.is_integer() else exact


def _left_behind(step: StepRow) -> bool:
    return step.status is StepState.READY and step.idempotency_key is not None


_ELSEWHERE = frozenset({WaitKind.CHILD, WaitKind.EXTERNAL, WaitKind.TASK})


def _plan_error(problem: PlanError) -> JsonObject:
    return StepError(ErrorClass.EXPRESSION, None, str(problem.error), {"step": problem.node}).to_json()


def error_facts(error: JsonObject) -> JsonObject:
    """The public facts of an error: its class and code, never its message, which may hold values."""
    return {name: error[name] for name in ("class", "code", "step") if name in error}
