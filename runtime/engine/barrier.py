"""The barrier of a super-step, and the two ends of a run (P-1 to P-3, Q-7, X-20).

When no step of the super-step is executing any more, the writes of its steps are folded into the channels in step
order, checkpoint n+1 is told and the next super-step is planned (``runtime.engine.crossing``). A step that parks leaves
its super-step.
"""

from __future__ import annotations

from uuid import UUID

from approvals.states import ApprovalStatus
from core.canonical import Json, JsonObject, canonical_bytes
from core.errors import InputError
from evidence.chain import Actor
from evidence.commitments import blind, commit_fields
from runtime.engine import events as e
from runtime.engine.commit import WaitRow
from runtime.engine.crossing import Crossing, begin, checkpoint_of, cross
from runtime.engine.draft import Draft
from runtime.engine.plan import Evaluated, PlanError, variables
from runtime.engine.states import STEP, RunState, WaitKind, WaitState


class Barrier(Draft):
    """Counts the steps that leave their super-step; the last one commits the barrier."""

    def left(self) -> None:
        """A step is not executing any more; the last one to leave commits the barrier."""
        if self.run.executing == 0:
            self._barrier()

    def _barrier(self) -> None:
        choices = Evaluated(self.graph, self.view.constants)
        try:
            crossing = cross(self.run, self.graph, choices)
        except PlanError as problem:
            self.close(RunState.FAILED_TERMINAL, _plan_error(problem))
        except InputError as problem:
            # A channel that cannot take its write, or a state without a canonical form: the last checkpoint stands.
            self.close(RunState.FAILED_TERMINAL, {"class": "expression", "message": str(problem)})
        else:
            self._name(crossing)
            self._checkpoint(crossing, choices)
            self._go_on(crossing)

    def _name(self, crossing: Crossing) -> None:
        for key, reference in crossing.references:
            committed = commit_fields(self.view.run_key, key, {"reference": reference})
            self.tell(e.RunReferenceSet([*committed], reference), step=key)

    def _checkpoint(self, crossing: Crossing, choices: Evaluated, *, halted: bool = False) -> None:
        row = crossing.checkpoint
        shown = blind(self.view.run_key, row.digest)  # a state can be guessed, so its digest could be
        event = e.CheckpointCommitted(row.superstep, shown, halted, choices.made or None)
        self.tell(event, crossing=crossing)

    def _go_on(self, crossing: Crossing) -> None:
        """The steps of the next super-step stand in line from now on; where there are none the run may be over."""
        if crossing.ending and crossing.failed is not None:
            self.close(RunState.FAILED_TERMINAL, {**(crossing.failed.last_error or {}), "step": crossing.failed.key})
        elif crossing.ending:
            self.close(RunState.CANCELED)
        elif crossing.finished and not self.run.state.parked:
            self.conclude()

    def conclude(self) -> None:
        """Everything is done: the run succeeds with its result (P-8), or fails because that cannot be made."""
        result = None
        if self.graph.result is not None:
            try:
                result = self.graph.result.render(variables(self.graph, self.state, self.view.constants, ""))
                canonical_bytes(result)
            except InputError as error:
                self.close(RunState.FAILED_TERMINAL, {"class": "expression", "step": "result", "message": str(error)})
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
        self.rows.cancels_rest = bool(self.view.status is RunState.QUEUED or self.state.parked or self.state.open)
        self._withdraw_questions()
        self._end_elsewhere()
        for key in self._unfinished():
            self.tell(e.StepCanceled(), step=key)
        facts = error_facts(error) if error else None
        self.tell(e.RunClosed(status, facts, error, result))
        self.order("bundle", "final", {}, one_at_a_time=str(self.view.run_id))
        if self.view.parent is not None:
            self.order("return", "final", {"run": str(self.view.run_id)})

    def _unfinished(self) -> list[str]:
        """The steps that end with the run; a run may have more than are held here."""
        held = {key for key, row in self.run.steps.items() if not STEP.terminal(row.status)}
        return sorted(held | {*self.state.open} | {*self.state.parked})

    def _withdraw_questions(self) -> None:
        """Cancel what people are asked. A question that was put in this very append is not posted after all."""
        asked = self._before.answers
        for approval, answer in [*self.run.answers.items()]:
            if answer.status == ApprovalStatus.REQUESTED:
                self.tell(e.ApprovalDecided(approval, "canceled"))
                if approval in asked:
                    self.message("card", approval, "canceled")
        unseen = {str(approval) for approval in self.run.answers if approval not in asked}
        self.rows.commands = [row for row in self.rows.commands if row.payload.get("approval") not in unseen]

    def _end_elsewhere(self) -> None:
        """What this run has begun outside, in another run or with people is ended there too, if it can be (V-13)."""
        for wait in [*self.run.waits.values()]:
            if wait.kind not in _ELSEWHERE or wait.status is not WaitState.WAITING:
                continue
            if wait.wait_id not in self._before.waits:
                self._end_fresh(wait)
            elif (wait.context or {}).get("abandons") is not True:
                self._end_one(wait.wait_id, wait.step_key, wait.kind)

    def _end_one(self, wait_id: UUID, step_key: str, kind: WaitKind) -> None:
        self.tell(e.WaitCanceled(wait_id, kind), step=step_key)
        if kind is WaitKind.TASK:
            self.order("task", f"{wait_id}:canceled", {"task": str(wait_id)}, one_at_a_time=str(wait_id))
        else:
            self.order("cancel", str(wait_id), {"wait": str(wait_id)})

    def _end_fresh(self, wait: WaitRow) -> None:
        """A wait of this very append: a task is not posted after all, what was begun outside is ended there."""
        if wait.kind is WaitKind.TASK:
            task = str(wait.wait_id)
            self.rows.commands = [row for row in self.rows.commands if row.payload.get("task") != task]
            self.tell(e.WaitCanceled(wait.wait_id, wait.kind), step=wait.step_key)
        elif (wait.context or {}).get("abandons") is not True:
            self._end_one(wait.wait_id, wait.step_key, wait.kind)


_ELSEWHERE = frozenset({WaitKind.CHILD, WaitKind.EXTERNAL, WaitKind.TASK})


def _plan_error(problem: PlanError) -> JsonObject:
    return {"class": "expression", "step": problem.node, "message": str(problem.error)}


def error_facts(error: JsonObject) -> JsonObject:
    """What the audit may say of an error: its class and code, never its message, which may hold values."""
    return {name: error[name] for name in ("class", "code", "step") if name in error}
