"""One transition of one run: moves through the state tables, collected into a ``Commit`` (P-1 to P-5, O-5, V-7).

A ``Transition`` starts from a view of the run as stored and applies any number of moves to it; every move goes through
the tables of ``runtime.kernel.states``. Nothing here knows a database, a clock or a connector: time and ids come with
the view or are derived, so the same record gives the same commits (promise 5).

The barrier: when no step of the super-step is executing any more, the writes of its steps are folded into the channels
in step order, checkpoint n+1 is written and the next super-step is planned. A step that parks leaves its super-step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from core.canonical import Json, JsonObject, digest
from core.errors import ConsistencyError, ExpressionError
from core.ids import derived_id
from evidence.chain import Actor, ChainHead, Event, EventType, append
from runtime.kernel.channels import fold
from runtime.kernel.commit import CheckpointRow, CommandRow, Commit, StepRow, WaitRow
from runtime.kernel.graph import Graph
from runtime.kernel.plan import Plan, PlanError, plan
from runtime.kernel.state import SUCCEEDED, State
from runtime.kernel.states import (
    RUN,
    STEP,
    WAIT,
    CommandState,
    RunEvent,
    RunState,
    StepEvent,
    StepState,
    WaitEvent,
    WaitKind,
)

ENGINE = Actor("engine", "counterseal")


class NeedsWholeView(Exception):
    """This move touches steps that the view does not hold; read the whole view and start again."""


@dataclass(frozen=True, slots=True)
class OpenApproval:
    """An approval that a closing run has to cancel."""

    approval_id: UUID
    action_digest: str


@dataclass(frozen=True, slots=True)
class RunView:
    """A run as stored. ``whole`` says that ``steps`` and ``open_approvals`` hold all that a barrier could need.

    ``steps`` are the rows of the current super-step and those that joined the next one. ``constants`` are the variables
    that never change during a run (``trigger``, ``run.id``, ...). ``now`` is the database's time.
    """

    run_id: UUID
    tenant_id: str
    workspace_id: str
    workflow: str
    workflow_version: int
    workflow_digest: str
    reference: str
    requested_by: str
    trigger_type: str
    status: RunState
    version: int
    superstep: int
    executing: int
    width: int
    writes: int
    head: ChainHead
    state: State
    constants: Mapping[str, object]
    run_key: bytes
    now: datetime
    deadline_at: datetime | None
    canceling: JsonObject | None
    policy_digest: str | None
    writes_max: int | None
    whole: bool = False
    steps: Mapping[str, StepRow] = field(default_factory=dict)
    open_approvals: tuple[OpenApproval, ...] = ()


class Transition:
    """Moves applied to a view; ``commit()`` gives the rows, ``after()`` the view as it will be stored."""

    def __init__(self, view: RunView, graph: Graph, *, lease: timedelta = timedelta(seconds=30)) -> None:
        self.view = view
        self.graph = graph
        self.state = view.state.copy()
        self.steps: dict[str, StepRow] = dict(view.steps)
        self.taken: StepRow | None = None
        self.writes = view.writes
        self.rows = Commit(
            run_id=view.run_id,
            tenant_id=view.tenant_id,
            workspace_id=view.workspace_id,
            expected_version=view.version,
            status=view.status,
            superstep=view.superstep,
            executing=view.executing,
            width=view.width,
            writes=view.writes,
            head=view.head,
            canceling=view.canceling,
            lease=lease,
        )
        self._events: list[Event] = []
        self._new: dict[str, StepRow] = {}
        self._changed: dict[str, StepRow] = {}

    # -- recording ---------------------------------------------------------------------------------------------------

    def record(self, kind: EventType, data: JsonObject, *, step: str | None = None, actor: Actor = ENGINE) -> None:
        """Append a fact to the run's audit, in the transaction of what it records (promise 6)."""
        self._events.append(Event(kind, actor, self.view.now, data, step))

    def put_step(self, step: StepRow) -> StepRow:
        """Note a step's row as it will be after the commit."""
        self.steps[step.key] = step
        (self._new if step.key in self._new else self._changed)[step.key] = step
        return step

    def move_step(self, step: StepRow, event: StepEvent, **changes: object) -> StepRow:
        """Move a step along its table."""
        moved = replace(step, status=STEP.next(step.status, event), **changes)  # type: ignore[arg-type]
        return self.put_step(moved)

    def move_run(self, event: RunEvent) -> None:
        """Move the run along its table."""
        self.rows.status = RUN.next(self.rows.status, event)

    def command(self, kind: str, name: str, *, step: StepRow | None = None, starts_run: bool = False) -> None:
        """Order the running of a step, or of the evidence: under its deterministic dedupe key (O-2)."""
        key = self._dedupe_key(step.key if step else "", f"{kind}:{name}")
        row = CommandRow(
            command_id=derived_id(self.view.run_id, key),
            kind=kind,
            dedupe_key=key,
            status=CommandState.PENDING,
            step_id=step.step_id if step else None,
            starts_run=starts_run,
            ordering_key=None if step else f"run:{self.view.run_id}",
        )
        self.rows.commands.append(row)

    def message(self, kind: str, approval_id: UUID, name: str, payload: JsonObject | None = None) -> None:
        """Order a message about an approval, such as its card; what is sent is read when it is sent."""
        key = self._dedupe_key("", f"{kind}:{approval_id}:{name}")
        row = CommandRow(
            command_id=derived_id(self.view.run_id, key),
            kind=kind,
            dedupe_key=key,
            status=CommandState.PENDING,
            payload={"approval": str(approval_id), **(payload or {})},
            ordering_key=f"approval:{approval_id}",
        )
        self.rows.commands.append(row)

    def _defer(self, step: StepRow, wait: WaitRow) -> None:
        """The invocation that the wait's completion will cause, written with the wait (O-4, O-6)."""
        key = self._dedupe_key(step.key, f"resume:{wait.wait_id}")
        command_id = resume_command(self.view.run_id, wait.wait_id)
        self.rows.commands.append(CommandRow(command_id, "step", key, CommandState.DEFERRED, step.step_id))

    def _dedupe_key(self, step_key: str, command: str) -> str:
        """SHA-256(JCS([workflow, run, step, super-step, command])): the same command is never written twice."""
        return digest([self.view.workflow, str(self.view.run_id), step_key, self.rows.superstep, command])

    # -- moves of steps ----------------------------------------------------------------------------------------------

    def started(self, step: StepRow) -> StepRow:
        """Record that a worker holds the step's lease."""
        data: JsonObject = {"operation": step.operation, "attempt": step.attempt, "epoch": step.lease_epoch}
        self.record(EventType.STEP_STARTED, data, step=step.key, actor=Actor("worker", step.lease_owner or "?"))
        self.steps[step.key] = step
        return step

    def succeed(self, step: StepRow, output: Json, writes: JsonObject, usage: JsonObject | None = None) -> None:
        """The step is done; its writes wait for the barrier."""
        done = self.move_step(step, StepEvent.SUCCEED, output=output, writes=writes, usage=usage, last_error=None)
        names: list[Json] = [*sorted(writes)]
        facts: JsonObject = {"writes": names}
        if usage is not None:
            facts["usage"] = usage
        self.record(EventType.STEP_SUCCEEDED, facts, step=step.key)
        self._leave(done)

    def fail(self, step: StepRow, error: JsonObject) -> None:
        """The step failed for good; the run fails at the barrier."""
        waiting = step.status in (StepState.WAITING_APPROVAL, StepState.FAILED_RETRYABLE)
        failed = self.move_step(step, StepEvent.FAIL, last_error=error, superstep=self.rows.superstep)
        self.record(EventType.STEP_FAILED, _error_facts(error), step=step.key)
        if not waiting:
            self._leave(failed)
            return
        self._settle_invocation(self.state.parked.pop(step.key, None), CommandState.REJECTED)
        if self.rows.executing == 0:
            self._barrier()

    def park(self, step: StepRow, kind: WaitKind, wait: WaitRow, error: JsonObject | None = None) -> StepRow:
        """The step waits; it leaves its super-step and holds nothing (promise 10)."""
        event = StepEvent.RETRY_LATER if kind is WaitKind.RETRY else StepEvent.PARK
        attempt = step.attempt + 1 if kind is WaitKind.RETRY else step.attempt
        parked = self.move_step(step, event, last_error=error, attempt=attempt)
        self.rows.new_waits.append(wait)
        self.state.parked[step.key] = f"{kind}:{wait.wait_id}"
        self._defer(parked, wait)
        self._leave(parked)
        return parked

    def resume(self, step: StepRow, wait: WaitRow, event: WaitEvent = WaitEvent.COMPLETE) -> StepRow:
        """A wait is over and its step is ready again: it joins the next super-step (P-5)."""
        self.end_wait(wait, event)
        ready = self.move_step(step, StepEvent.RESUME, superstep=self.rows.superstep + 1)
        self.record(EventType.STEP_RESUMED, {"invocation": f"resume:{wait.wait_id}"}, step=step.key)
        if self.rows.executing == 0:
            self.move_run(RunEvent.RESUME)
            self._barrier()
        return ready

    def end_wait(self, wait: WaitRow, event: WaitEvent) -> None:
        """Complete, time out or cancel a wait."""
        self.rows.waits.append(replace(wait, status=WAIT.next(wait.status, event)))

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

    # -- the barrier -------------------------------------------------------------------------------------------------

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
        rows = sorted(self.steps.values(), key=lambda row: (row.index, row.key))
        current = [row for row in rows if row.superstep == self.rows.superstep]
        failed = next((row for row in current if row.status is StepState.FAILED_TERMINAL), None)
        try:
            self._fold(current)
            if failed is not None or self.view.canceling is not None:
                self._close_early(failed)
                return
            self._next([row for row in rows if row.superstep == self.rows.superstep + 1])
        except PlanError as problem:
            self.close(RunEvent.FAIL, {"class": "expression", "step": problem.node, "message": str(problem.error)})
        except ExpressionError as problem:
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

    def checkpoint(self) -> None:
        """Write the snapshot of this super-step."""
        content = self.state.to_json()
        row = CheckpointRow(self.rows.superstep, content, digest(content))
        self.rows.checkpoints.append(row)
        self.record(EventType.CHECKPOINT_COMMITTED, {"number": row.superstep, "digest": row.digest})

    # -- the ends of a run -------------------------------------------------------------------------------------------

    def open(self, facts: JsonObject, actor: Actor) -> None:
        """Start: the first checkpoint, the first steps and their commands. The run is queued until it is claimed."""
        self.record(EventType.RUN_OPENED, facts, actor=actor)
        try:
            planned = plan(self.graph, self.state, self.view.constants)
        except PlanError as problem:
            self.checkpoint()
            self.rows.error = {"class": "expression", "step": problem.node, "message": str(problem.error)}
            return
        for item in planned.ready:
            self._add_step(item.key, item.leaf.index, item.leaf.operation)
        self.rows.executing = self.rows.width = len(self.state.open)
        self.checkpoint()
        for row in self._new.values():
            self.command("step", "run", step=row, starts_run=True)

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
        decided = {move.approval_id for move in self.rows.approvals if move.status != "requested"}
        for approval in self.view.open_approvals:
            if approval.approval_id not in decided:
                self.record(EventType.APPROVAL_DECIDED, {"approval": str(approval.approval_id), "outcome": "canceled"})
                self.message("card", approval.approval_id, "canceled")
        facts: JsonObject = {"status": str(self.rows.status), "error": _error_facts(error) if error else None}
        self.record(EventType.RUN_CLOSED, facts)
        self.command("bundle", "final")

    def cancel(self, actor: Actor, reason: str) -> None:
        """Cancel the run. A step whose action may be under way is waited for, so that no outcome stays unrecorded."""
        if RUN.terminal(self.rows.status):
            raise ConsistencyError(f"The run is {self.rows.status}; there is nothing left to cancel.")
        self.record(EventType.RUN_CANCELED, {"reason_given": bool(reason)}, actor=actor)
        running = [row for row in self.steps.values() if row.status is StepState.RUNNING]
        if running:
            self.rows.canceling = {"by": actor.id, "reason": reason}
            for row in [row for row in self.steps.values() if row.status is StepState.READY]:
                self.move_step(row, StepEvent.CANCEL)
                self.rows.executing -= 1
            return
        self.close(RunEvent.CANCEL, {"class": "canceled", "by": actor.id, "message": reason})

    def commit(self) -> Commit:
        """The rows of everything that was done, with the audit lines chained."""
        rows = self.rows
        rows.new_steps = list(self._new.values())
        rows.steps = [row for key, row in self._changed.items() if key not in self._new]
        rows.writes = self.writes
        if self.taken is not None and self.taken.step_id not in rows.released and rows.released:
            # The slot goes on with the worker: one step's end is the next one's start.
            rows.handed = [(rows.released.pop(), self.taken.step_id)]
        rows.lines, rows.head = append(self.view.head, self._events)
        return rows

    def after(self) -> RunView:
        """The view as the commit leaves it; call it once the commit has been applied."""
        rows = self.rows
        steps = {key: row for key, row in self.steps.items() if row.superstep >= rows.superstep}
        return replace(
            self.view,
            status=rows.status,
            version=rows.expected_version + 1,
            superstep=rows.superstep,
            executing=rows.executing,
            width=rows.width,
            writes=rows.writes,
            head=rows.head,
            state=self.state,
            canceling=rows.canceling,
            whole=False,
            steps=steps,
        )


def resume_command(run_id: UUID, wait_id: UUID) -> UUID:
    """The id of the command that a wait's completion releases."""
    return derived_id(run_id, f"resume:{wait_id}")


def _error_facts(error: JsonObject) -> JsonObject:
    """What the audit may say of an error: its class and code, never its message, which may hold values."""
    return {name: error[name] for name in ("class", "code", "step") if name in error}
