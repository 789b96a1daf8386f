"""The barrier of a super-step, and the two ends of a run (P-1 to P-3, Q-7, X-20).

When no step of the super-step is executing any more, the writes of its steps are folded into the channels in step
order, checkpoint n+1 is written and the next super-step is planned. A step that parks leaves its super-step.
"""

from __future__ import annotations

import re
from dataclasses import replace
from uuid import UUID

from core.canonical import JsonObject, canonical_bytes
from core.errors import InputError
from core.ids import derived_id
from evidence.chain import Actor, EventType
from evidence.commitments import commit_fields
from runtime.kernel.channels import fold
from runtime.kernel.commit import ItemRow, LedgerRow, StepRow
from runtime.kernel.draft import PARKED, Draft, resume_command
from runtime.kernel.plan import NeedsItems, Plan, PlanError, plan, variables
from runtime.kernel.state import SUCCEEDED, Failure
from runtime.kernel.states import STEP, CommandState, RunEvent, RunState, StepEvent, StepState, WaitKind
from runtime.kernel.view import NeedsWholeView

# Among a step's writes, what names the run anew: no channel can have this name.
REFERENCE = "$reference"

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
        failed = next((row for row in current if self._fails_run(row)), None)
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

    def _fails_run(self, row: StepRow) -> bool:
        return row.status is StepState.FAILED_TERMINAL and self.graph.branch(row.key, row.last_error or {}) is None

    def _fold(self, current: list[StepRow]) -> None:
        for row in current:
            if row.status is StepState.SUCCEEDED and row.key not in self.state.status:
                self._fold_writes(row)
                self.state.status[row.key] = SUCCEEDED
                if row.key.rpartition(".")[2] in self.graph.read:
                    self.state.outputs[row.key] = row.output
            elif row.status is StepState.FAILED_TERMINAL and row.key not in self.state.failures:
                branch = self.graph.branch(row.key, row.last_error or {})
                if branch is not None:
                    self.state.failures[row.key] = Failure(branch, _seen(row))

    def _fold_writes(self, row: StepRow) -> None:
        writes = dict(row.writes or {})
        reference = writes.pop(REFERENCE, None)
        self.state.channels = fold(self.graph.channels, self.state.channels, writes)
        self.rows.ledger += [
            LedgerRow(name, self.rows.superstep, row.key, value)
            for name, value in writes.items()
            if self.graph.channels[name].ledger
        ]
        if isinstance(reference, str):
            self.state.reference = self.rows.reference = reference
            committed = commit_fields(self.view.run_key, row.key, {"reference": reference})
            self.record(EventType.RUN_REFERENCE_SET, {"committed": [*committed]}, step=row.key)

    def _plan(self) -> Plan:
        """Plan what follows; the items of loops that begin become rows."""
        try:
            planned = plan(self.graph, self.state, self.view.constants, {**self.view.windows, **self._begun()})
        except NeedsItems:
            if self.view.whole:
                raise
            raise NeedsWholeView from None
        self.rows.items += [
            ItemRow(key, index, item) for key, items in planned.items.items() for index, item in enumerate(items)
        ]
        return planned

    def _next(self, joined: list[StepRow]) -> None:
        """Plan the next super-step and write its checkpoint."""
        planned = self._plan()
        self.rows.superstep += 1
        for row in joined:
            self._settle_invocation(self.state.parked.pop(row.key, None), CommandState.PENDING)
            self.state.open.append(row.key)
        for item in planned.ready:
            self._add_step(item.key, item.leaf.index, item.leaf.operation)
        self.rows.executing = self.rows.width = len(self.state.open)
        self.checkpoint()
        if planned.finished and not self.state.parked:
            self.conclude()
            return
        for item in planned.ready:
            self.command("step", "run", step=self._new[item.key])
        if not self.state.open and self.rows.status is RunState.RUNNING:
            self._park_run()

    def _park_run(self) -> None:
        """Nothing can go on by itself: the run's status says what it waits for, people first."""
        kinds = {wait.partition(":")[0] for wait in self.state.parked.values()}
        for status, event in _PARKING:
            if PARKED[status] in kinds:
                self.move_run(event)
                return

    def conclude(self) -> None:
        """Everything is done: the run succeeds with its result (P-8), or fails because that cannot be made."""
        if self.graph.result is not None:
            try:
                self.rows.result = self.graph.result.render(variables(self.graph, self.state, self.view.constants, ""))
                canonical_bytes(self.rows.result)
            except InputError as error:
                self.rows.result = None
                self.close(RunEvent.FAIL, {"class": "expression", "step": "result", "message": str(error)})
                return
        self.close(RunEvent.SUCCEED)

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
            planned = self._plan()
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
        first = self.rows.superstep == 0 and step.lease_epoch == 1 and self.view.state.open[:1] == [step.key]
        if first:
            for key in self.view.state.open[1:]:
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
        self._end_elsewhere()
        facts: JsonObject = {"status": str(self.rows.status), "error": error_facts(error) if error else None}
        self.record(EventType.RUN_CLOSED, facts)
        self.command("bundle", "final")
        if self.view.parent is not None:
            self.order("return", "final", {"run": str(self.view.run_id)})

    def _end_elsewhere(self) -> None:
        """What this run has begun outside, in another run or with people is ended there too, if it can be (V-13)."""
        over = {wait.wait_id for wait in self.rows.waits if wait.status != "waiting"}
        for wait in self.view.open_elsewhere:
            if wait.wait_id in over or wait.context.get("abandons") is True:
                continue
            facts: JsonObject = {"wait": str(wait.wait_id), "kind": str(wait.kind)}
            self.record(EventType.WAIT_CANCELED, facts, step=wait.step_key)
            if wait.kind is WaitKind.TASK:
                task = str(wait.wait_id)
                self.order("task", f"{task}:canceled", {"task": task}, one_at_a_time=task)
            else:
                self.order("cancel", str(wait.wait_id), {"wait": str(wait.wait_id)})

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
        self.rows.commands = [
            row for row in self.rows.commands if not gone & {row.payload.get("approval"), row.payload.get("task")}
        ]
        self._events = [
            event
            for event in self._events
            if event.data.get("approval") not in gone and event.data.get("wait") not in gone
        ]


# People first: a run that waits for an approval and a timer waits for people.
_PARKING = (
    (StepState.WAITING_APPROVAL, RunEvent.PARK),
    (StepState.WAITING, RunEvent.WAIT),
    (StepState.FAILED_RETRYABLE, RunEvent.RETRY_LATER),
)


def _seen(row: StepRow) -> JsonObject:
    """A failure as the expressions of its branch see it."""
    error = row.last_error or {}
    return {"step": row.key, **{name: str(error.get(name, "")) for name in ("class", "code", "message")}}


def error_facts(error: JsonObject) -> JsonObject:
    """What the audit may say of an error: its class and code, never its message, which may hold values."""
    return {name: error[name] for name in ("class", "code", "step") if name in error}
