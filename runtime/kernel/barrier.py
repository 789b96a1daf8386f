"""The barrier of a super-step, and the two ends of a run (P-1 to P-3, Q-7, X-20).

When no step of the super-step is executing any more, the writes of its steps are folded into the channels in step
order, checkpoint n+1 is written and the next super-step is planned. A step that parks leaves its super-step.
"""

from __future__ import annotations

import re
from dataclasses import replace
from uuid import UUID

from core.canonical import JsonObject
from core.errors import InputError
from core.ids import derived_id
from evidence.chain import Actor, EventType
from runtime.kernel.channels import fold
from runtime.kernel.commit import StepRow
from runtime.kernel.draft import Draft, resume_command
from runtime.kernel.plan import Plan, PlanError, plan
from runtime.kernel.state import SUCCEEDED
from runtime.kernel.states import STEP, CommandState, RunEvent, RunState, StepEvent, StepState, WaitKind
from runtime.kernel.view import NeedsWholeView

_ITERATION = re.compile(r"\[(\d+)\]")


def step_order(row: StepRow) -> tuple[int, list[int], str]:
    """Where a step stands among those of its super-step: by its place in the graph, then by its loops' iterations."""
    return row.index, [int(number) for number in _ITERATION.findall(row.key)], row.key


class Barrier(Draft):
    """Counts the steps that leave their super-step; the last one commits the barrier."""

    def _leave(self, step: StepRow) -> None:
        """The step is not executing any more; the last one to leave commits the barrier."""
        if step.key in self.state.open:
            self.state.open.remove(step.key)
        self.rows.executing -= 1
        self.rows.released.append(step.step_id)
        if self.rows.executing == 0:
            self._barrier()

    def _barrier(self) -> None:
        # Nobody can have joined a super-step of one step with nothing parked beside it: that step is all there is.
        if (self.rows.width > 1 or self.view.state.parked) and not self.view.whole:
            raise NeedsWholeView
        rows = sorted(self.steps.values(), key=step_order)
        current = [row for row in rows if row.superstep == self.rows.superstep]
        failed = next((row for row in current if row.status is StepState.FAILED_TERMINAL), None)
        try:
            self._fold(current)
            if failed is not None or self.view.canceling is not None:
                self._close_early(failed)
            else:
                self._next([row for row in rows if row.superstep == self.rows.superstep + 1])
        except PlanError as problem:
            self.close(RunEvent.FAIL, {"class": "expression", "step": problem.node, "message": str(problem.error)})
        except InputError as problem:
            # A channel that cannot take its write, or a state without a canonical form: the last checkpoint stands.
            kept = [row.superstep for row in self.rows.checkpoints]
            self.rows.superstep = kept[-1] if kept else self.view.superstep
            self.close(RunEvent.FAIL, {"class": "expression", "message": str(problem)})

    def _fold(self, current: list[StepRow]) -> None:
        for row in current:
            if row.status is StepState.SUCCEEDED and row.key not in self.state.status:
                self.state.channels = fold(self.graph.channels, self.state.channels, row.writes or {})
                self.state.status[row.key] = SUCCEEDED
                if row.key.rpartition(".")[2] in self.graph.read:
                    self.state.outputs[row.key] = row.output

    def _next(self, joined: list[StepRow]) -> None:
        """Plan the next super-step and write its checkpoint."""
        planned: Plan = plan(self.graph, self.state, self.view.constants)
        self.rows.superstep += 1
        for row in joined:
            self._settle_invocation(self.state.parked.pop(row.key, None), CommandState.PENDING)
            self.state.open.append(row.key)
        for item in planned.ready:
            self._add_step(item.key, item.leaf.index, item.leaf.operation)
        self.rows.executing = self.rows.width = len(self.state.open)
        self.checkpoint()
        if planned.finished and not self.state.parked:
            self.close(RunEvent.SUCCEED)
            return
        for item in planned.ready:
            self.command("step", "run", step=self._new[item.key])
        if not self.state.open and self.rows.status is RunState.RUNNING:
            waits_for_people = any(wait.startswith(WaitKind.APPROVAL) for wait in self.state.parked.values())
            self.move_run(RunEvent.PARK if waits_for_people else RunEvent.RETRY_LATER)

    def _settle_invocation(self, parked: str | None, status: CommandState) -> None:
        """Release (or reject) the invocation that was deferred when a step parked."""
        if parked is not None:
            wait_id = UUID(parked.partition(":")[2])
            self.rows.command_moves.append((resume_command(self.view.run_id, wait_id), status))

    def _add_step(self, key: str, index: int, operation: str) -> None:
        step_id = derived_id(self.view.run_id, f"step:{key}")
        row = StepRow(step_id, key, index, operation, self.rows.superstep, StepState.READY)
        self._new[key] = self.steps[key] = row

    # -- the ends of a run -------------------------------------------------------------------------------------------

    def open(self, facts: JsonObject, actor: Actor) -> None:
        """Start: the first checkpoint, the first steps and their commands. The run is queued until it is claimed.

        One command starts the run, so that caps on starts count runs and not steps; steps beside it wait for that.
        """
        self.record(EventType.RUN_OPENED, facts, actor=actor)
        try:
            planned = plan(self.graph, self.state, self.view.constants)
        except PlanError as problem:
            self.state = self.view.state.copy()  # what was planned before the fault never runs
            self.checkpoint()
            self.rows.error = {"class": "expression", "step": problem.node, "message": str(problem.error)}
            return
        for item in planned.ready:
            self._add_step(item.key, item.leaf.index, item.leaf.operation)
        self.rows.executing = self.rows.width = len(self.state.open)
        self.checkpoint()
        for number, row in enumerate(self._new.values()):
            first = number == 0
            status = CommandState.PENDING if first else CommandState.DEFERRED
            self.command("step", "run", step=row, starts_run=first, status=status)

    def _release_beside(self, step: StepRow) -> None:
        """The run starts with this step's first lease: what was planned beside it may run now as well."""
        first = self.rows.superstep == 0 and step.lease_epoch == 1 and self.state.open[:1] == [step.key]
        if first:
            for key in self.state.open[1:]:
                self._release(key, "step:run")

    def _close_early(self, failed: StepRow | None) -> None:
        self.rows.superstep += 1
        self.checkpoint()
        if failed is not None:
            error: JsonObject = {**(failed.last_error or {}), "step": failed.key}
            self.close(RunEvent.FAIL, error)
        else:
            self.close(RunEvent.CANCEL)

    def close(self, event: RunEvent, error: JsonObject | None = None) -> None:
        """The run is over: whatever waits is canceled, the evidence is ordered (X-20, Q-21)."""
        if self.state.parked and not self.view.whole:
            raise NeedsWholeView
        self.move_run(event)
        self.rows.error = error
        self.rows.finished = True
        self.rows.executing = 0
        self.rows.cancels_rest = bool(self.view.status is RunState.QUEUED or self.state.parked or self.state.open)
        self.rows.commands = [row for row in self.rows.commands if row.kind != "step"]
        # What this very transition has released is not to run after all.
        self.rows.command_moves = [(command, CommandState.REJECTED) for command, _ in self.rows.command_moves]
        self._withdraw()
        decided = {move.approval_id for move in self.rows.approvals if move.status != "requested"}
        for approval in self.view.open_approvals:
            if approval.approval_id not in decided:
                self.record(EventType.APPROVAL_DECIDED, {"approval": str(approval.approval_id), "outcome": "canceled"})
                self.message("card", approval.approval_id, "canceled")
        facts: JsonObject = {"status": str(self.rows.status), "error": error_facts(error) if error else None}
        self.record(EventType.RUN_CLOSED, facts)
        self.command("bundle", "final")

    def _withdraw(self) -> None:
        """End what this very transition has left open, which no statement over stored rows would find.

        A question that was put in it is not put after all: nobody has seen it, so it leaves no trace.
        """
        for row in [*self._new.values(), *self._changed.values()]:
            if not STEP.terminal(row.status):
                self.put_step(replace(row, status=STEP.next(row.status, StepEvent.CANCEL)))
        gone = {str(row.approval_id) for row in self.rows.new_approvals}
        gone |= {str(row.wait_id) for row in self.rows.new_waits}
        if not gone:
            return
        self.rows.new_approvals, self.rows.new_waits = [], []
        self.rows.commands = [row for row in self.rows.commands if row.payload.get("approval") not in gone]
        self._events = [
            event
            for event in self._events
            if event.data.get("approval") not in gone and event.data.get("wait") not in gone
        ]


def error_facts(error: JsonObject) -> JsonObject:
    """What the audit may say of an error: its class and code, never its message, which may hold values."""
    return {name: error[name] for name in ("class", "code", "step") if name in error}
