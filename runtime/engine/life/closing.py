"""The closing of a run: its result, and the questions, tasks and outside work that it withdraws or ends. Pure."""

from __future__ import annotations

from uuid import UUID

from approvals.model import ApprovalStatus
from core.canonical import Json, JsonObject, canonical_bytes
from core.errors import ConsistencyError, InputError
from evidence.chain import Actor
from evidence.commitments import commit_fields, path_of
from runtime.engine.book.draft import Draft
from runtime.engine.model import events as e
from runtime.engine.model.errors import ErrorClass, StepError
from runtime.engine.model.rows import WaitRow
from runtime.engine.model.states import RUN, STEP, RunState, WaitKind, WaitState

# The messages to the person who requested a run, and to the operators.
TOLD, ALARM = "told", "alarm"
# The message to the people who decide about a held step.
HOLD = "hold"
_ELSEWHERE = frozenset({WaitKind.CHILD, WaitKind.EXTERNAL, WaitKind.TASK})


class Closing(Draft):
    """A draft that can close its run."""

    def conclude(self) -> None:
        """Close a run whose steps are done: it succeeds with its result, or fails if that cannot be evaluated."""
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

    def seal(self, actor: Actor, reason: str = "") -> None:
        """Wait for no more steps. A run whose steps are done ends now."""
        if self.run.status in RUN.terminal:
            raise ConsistencyError(f"The run is {self.run.status}: it waits for no more steps.", remedy="It has ended.")
        if self.view.run.canceling is not None or not self.run.held_open:
            remedy = "It was not started open, or is closed or canceled already. To end it sooner, cancel it."
            raise ConsistencyError("The run waits for no more steps.", remedy=remedy)
        waits, private = self.run.waits_for_more, {"reason": reason} if reason else {}
        committed = commit_fields(self.view.run.run_key, path_of("sealed"), private) or None
        self.tell(e.RunSealed(bool(reason), committed, reason), actor=actor)
        self.rows.sealed.append("run")
        if waits:
            self.conclude()

    def close(self, status: RunState, error: JsonObject | None = None, *, result: Json = None) -> None:
        """End the run: cancel everything that waits, and order the evidence."""
        state = self.run.state
        self.rows.cancels_rest = bool(self.view.run.status is RunState.QUEUED or state.parked or state.open)
        self._withdraw_questions()
        self._end_elsewhere()
        # Some open steps may not be in memory, but the state names them.
        held = {key for key, row in self.run.steps.items() if row.status not in STEP.terminal}
        for key in sorted(held | {*state.open} | {*state.parked}):
            self.tell(e.StepCanceled(), step=key)
        facts = error_facts(error) if error else None
        self.tell(e.RunClosed(status, facts, error, result))
        self.order("bundle", "final", {}, one_at_a_time=str(self.view.run_id))
        self._tell_people(status, error)
        if self.view.parent is not None:
            self.order("return", "final", {"run": str(self.view.run_id)})

    def _tell_people(self, status: RunState, error: JsonObject | None) -> None:
        """Order the messages about the end: to the person who requested the run, and to the operators if it failed.

        A run that another run has started sends no message to its requester. Both orders are part of the append that
        ends the run: a crash leaves all of it or nothing.
        """
        ended = f"ended:{self.run.reopened}"
        if self.run.requester is not None and self.view.parent is None:
            self.order(TOLD, ended, {"run": str(self.view.run_id)})
        if status is RunState.FAILED_TERMINAL:
            self.alarm(ended, f"failed:{self.view.workflow}:{(error or {}).get('code') or (error or {}).get('class')}")

    def alarm(self, name: str, topic: str, approval: UUID | None = None) -> None:
        """Order an alarm to the operators. Several alarms of one ``topic`` become one message."""
        about: JsonObject = {} if approval is None else {"approval": str(approval)}
        self.order(ALARM, name, {"run": str(self.view.run_id), "topic": topic, **about})

    def _withdraw_questions(self) -> None:
        """Cancel all open questions. A question of this same append is never posted."""
        asked = self.view.run.answers
        for approval, answer in [*self.run.answers.items()]:
            if answer.status == ApprovalStatus.REQUESTED:
                self.tell(e.ApprovalDecided(approval, ApprovalStatus.CANCELED))
                if approval in asked:
                    self.message("card", approval, ApprovalStatus.CANCELED)
        unseen = {str(approval) for approval in self.run.answers if approval not in asked}
        self.rows.commands = [row for row in self.rows.commands if row.payload.get("approval") not in unseen]

    def _end_elsewhere(self) -> None:
        """End the work that this run has begun outside, in other runs or with people, as far as possible.

        A task of this same append is never posted.
        """
        for wait in [*self.run.waits.values()]:
            if wait.kind is WaitKind.HOLD and wait.status is WaitState.WAITING:
                self._withdraw_hold(wait)
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

    def _withdraw_hold(self, wait: WaitRow) -> None:
        """Update the message about a held step: the run is over. A message of this same append is never posted."""
        key = str(wait.wait_id)
        if wait.wait_id in self.view.run.waits:
            self.order(HOLD, f"{key}:over", {"wait": key}, one_at_a_time=key)
        else:
            self.rows.commands = [row for row in self.rows.commands if row.payload.get("wait") != key]


def error_facts(error: JsonObject) -> JsonObject:
    """The public facts of an error: its class and code, never its message, which may hold values."""
    return {name: error[name] for name in ("class", "code", "step") if name in error}
