"""One transition of one run: the moves of its steps, recorded as events.

A ``Transition`` starts from a view of the run as stored and records any number of events. Nothing here knows a
database, a clock or a connector: time and ids come with the view or are derived, so the same record gives the same
appends (promise 5). ``Draft`` records and folds the events. When no step of the super-step is executing any more, the
writes of its steps are folded into the channels in step order, checkpoint n+1 is recorded and the next super-step is
planned (``runtime.engine.book.barrier``). A step that parks leaves its super-step.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from uuid import UUID

from msgspec.structs import replace

from core.budgets import most
from core.canonical import Json, JsonObject, canonical_bytes, clean, unfit
from core.errors import ConsistencyError, CountersealError, ExpressionError, InputError
from evidence.chain import Actor
from evidence.commitments import blind, commit_fields, path_of
from runtime.engine.book.barrier import REFERENCE, Crossing, begin, checkpoint_of, cross
from runtime.engine.book.instructions import is_out
from runtime.engine.book.plan import CHECKPOINT, Evaluated, PlanError, variables
from runtime.engine.life.agent_loop import conclude, record_answer, remembered
from runtime.engine.life.closing import HOLD, Closing
from runtime.engine.model import events as e
from runtime.engine.model.errors import UNUSABLE, WAITS, ErrorClass, StepError
from runtime.engine.model.graph import Graph, LeafNode
from runtime.engine.model.keys import StepKey
from runtime.engine.model.rows import StepRow, WaitRow, wait_of
from runtime.engine.model.run import State
from runtime.engine.model.states import RUN, RunState, StepState, WaitKind


class Transition(Closing):
    """Moves of steps and of the run; ``commit()`` gives what they write, ``after()`` the view as it will be stored."""

    # -- the barrier of a super-step --------------------------------------------------------------------

    def left(self) -> None:
        """Cross the barrier if no step of the super-step is executing any more. Called whenever a step leaves it."""
        if self.run.executing:
            return
        if self.run.state.agents:
            conclude(self)
        choices = Evaluated(self.graph, self.view.constants, self.run.superstep + 1)
        try:
            crossing = cross(self.run, self.graph, choices)
        except PlanError as problem:
            self.close(RunState.FAILED_TERMINAL, _plan_error(problem))
            return
        except InputError as problem:
            # A channel cannot take its write, or the state has no canonical form: the run keeps its last checkpoint.
            self.close(RunState.FAILED_TERMINAL, StepError(ErrorClass.EXPRESSION, None, str(problem)).to_json())
            return
        for key, reference in crossing.references:
            committed = commit_fields(self.view.run.run_key, key, {"reference": reference})
            self.tell(e.RunReferenceSet([*committed], reference), step=key)
        row = crossing.checkpoint
        shown = blind(self.view.run.run_key, row.digest)  # a plain digest would confirm a guess of the state
        self.tell(e.CheckpointCommitted(row.superstep, shown, False, choices.made or None), crossing=crossing)
        # The steps of the next super-step are queued from now on. If there are none, the run may be over.
        if crossing.ending and crossing.failed is not None:
            self.close(RunState.FAILED_TERMINAL, {**(crossing.failed.last_error or {}), "step": crossing.failed.key})
        elif crossing.ending:
            self.close(RunState.CANCELED)
        elif crossing.finished and not self.run.state.parked and not self.run.held_open:
            self.conclude()

    # -- the start of a run ------------------------------------------------------------------------------------------

    def open(self, opened: e.RunOpened, actor: Actor, forked: e.RunForked | None = None) -> JsonObject | None:
        """Start the run: its first checkpoint and its first steps. It is queued until the first of them is begun.

        ``forked`` is the event by which it takes over the state of another run.

        Returns the error with which the caller fails the run, if nothing could be planned.
        """
        self.tell(opened, actor=actor)
        if forked is not None:
            self.tell(forked, actor=actor)
        choices, halted = Evaluated(self.graph, self.view.constants, 0), None
        try:
            crossing = begin(self.run, self.graph, choices, self.run.state.copy(), 0)
        except PlanError as problem:
            # Steps planned before the fault never run.
            crossing, halted = Crossing(self.run.state, checkpoint_of(0, self.run.state), ending=True), problem
        shown = blind(self.view.run.run_key, crossing.checkpoint.digest)
        made = None if halted is not None else choices.made or None
        self.tell(e.CheckpointCommitted(0, shown, halted is not None, made), crossing=crossing)
        return None if halted is None else _plan_error(halted)

    # -- the moves of steps ------------------------------------------------------------------------------------------

    def started(self, step: StepRow) -> StepRow:
        """Record that a worker holds the step's lease."""
        event = e.StepStarted(step.operation, step.attempt, step.lease_epoch)
        self.tell(event, step=step.key, actor=Actor("worker", step.lease_owner or "?"))
        return self.run.steps[step.key]

    def succeed(
        self,
        step: StepRow,
        output: Json,
        writes: JsonObject,
        usage: JsonObject | None = None,
        shaped: list[str] | None = None,
    ) -> None:
        """Record that the step is done. The barrier will apply its writes. ``shaped`` marks who shaped what it read."""
        try:
            canonical_bytes([output, writes])  # a value that no line can commit to is never recorded
        except InputError as error:
            self.fail(step, StepError(ErrorClass.TRANSPORT, UNUSABLE, str(error)).to_json(), usage)
            return
        names: list[Json] = [*sorted(writes.keys() - {REFERENCE})]
        self.tell(e.StepSucceeded(names, usage, output, writes or None, shaped or None), step=step.key)
        if StepKey.of(step.key).is_turn:
            record_answer(self, step.key, output)
        self.left()

    def fail(
        self, step: StepRow, error: JsonObject, usage: JsonObject | None = None, shaped: list[str] | None = None
    ) -> None:
        """Fail the step for good. At the barrier its run fails too, unless a branch or an agent handles the failure.

        If the workflow names a group that decides about the failed step, and the group has members, the step is held
        instead, and everything else goes on. A crash after that append loses nothing: the message is part of the same
        append. ``usage`` is what the failed call cost, ``shaped`` are the marks of those who wrote the error message.
        Do not fail a waiting step whose failure is handled: end its wait with the error and resume it, so that it fails
        when it is claimed (``waits.end_badly``).
        """
        group = self.graph.held_by(step.key, error)
        if group and self.view.run.canceling is None and self.view.directory.members(group):
            wait, failed = wait_of(self.view.run_id, step), _failed(error, usage, shaped)
            self.tell(e.StepHeld(wait, group, failed.kind, failed.code, usage, error, shaped), step=step.key)
            self.order(HOLD, f"{wait}:held", {"wait": str(wait)}, one_at_a_time=str(wait))
        else:
            self.tell(_failed(error, usage, shaped), step=step.key)
        self.left()

    def release(self, step: StepRow, error: JsonObject) -> None:
        """Let the run go on without a held step. Its failure was recorded when it was held."""
        self.tell(replace(_failed(error, None, None), released=True), step=step.key)
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
        """Park the step on a new wait: it leaves its super-step and holds nothing (promise 10)."""
        wait = wait or wait_of(self.view.run_id, step)
        due = None if due_in is None else seconds(due_in)
        self.tell(e.StepParked(wait, kind, False, due, token, context or None, correlation, error), step=step.key)
        self.left()

    def park_on(self, step: StepRow, wait: UUID, kind: WaitKind) -> None:
        """Park the step on a wait that was opened before something outside was begun."""
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
        """Try the step again after ``delay``; record the failure that makes it wait, and the usage of the failed call.

        ``attempted`` says that an attempt is used up. Waiting out or probing a doubt uses up none. If the error's code
        is one of ``WAITS``, nothing has failed: the step merely waits.
        """
        due, facts = seconds(delay), (wait_of(self.view.run_id, step), step.attempt + attempted)
        code = error.get("code")
        waits = code if isinstance(code, str) and code in WAITS else None
        self.tell(e.StepRetryScheduled(*facts, int(due), usage, waits, due, error), step=step.key)
        self.left()

    def resume(self, step: StepRow, wait: WaitRow) -> None:
        """Make a step ready again because its wait is over: it joins the next super-step.

        The worker that claims the step next decides what follows from the wait's result, or from its timeout.
        """
        self.tell(e.StepResumed(f"resume:{wait.wait_id}"), step=step.key)
        self.left()

    def expire_lease(self, step: StepRow, error: JsonObject | None = None) -> None:
        """Make the step of a lost worker ready for another, which finds out what became of its action."""
        self.tell(e.LeaseExpired(step.lease_epoch, step.lease_owner or "?", error), step=step.key)
        self.rows.requeued.append(step.key)

    def cancel_step(self, step: StepRow) -> None:
        """Cancel a step that has nothing under way, because its run is being canceled."""
        self.tell(e.StepCanceled(), step=step.key)
        self.left()

    def take(self, owner: str, held: str) -> StepRow | None:
        """Start the first newly planned step under the lease of a finished one, without queueing it."""
        new = (row for row in self.run.steps.values() if row.key not in self.view.run.steps)
        planned = next((row for row in new if row.status is StepState.READY), None)
        if planned is None or self.run.finished:
            return None
        self.rows.taken[planned.key] = self.rows.taken.pop(held, held)
        return self.started(replace(planned, lease_owner=owner, lease_epoch=1))

    def cancel(self, actor: Actor, reason: str) -> None:
        """Cancel the run. It first waits for steps whose action may be under way, so that every outcome is recorded."""
        if self.run.status in RUN.terminal:
            raise ConsistencyError(f"The run is {self.run.status}; there is nothing left to cancel.")
        private = {"reason": reason} if reason and self.view.run.canceling is None else {}  # the first reason counts
        committed = commit_fields(self.view.run.run_key, path_of("cancel"), private) or None
        self.tell(e.RunCanceled(bool(reason), committed, reason if committed else ""), actor=actor)
        # Steps that have joined the next super-step are not executing; the run's end cancels them.
        here = [row for row in self.run.steps.values() if row.superstep == self.run.superstep]
        # A step that is ready again after an intent is under way: its next worker finds out what became of its action.
        under_way = [row for row in here if row.status is StepState.RUNNING or _left_behind(row)]
        under_way += [row for row in self.run.steps.values() if is_out(self.run, row.key)]  # its agent reports, or not
        if not under_way:
            self.close(RunState.CANCELED, StepError(ErrorClass.CANCELED, None, reason, {"by": actor.id}).to_json())
            return
        for row in [row for row in here if row.status is StepState.READY and not _left_behind(row)]:
            self.tell(e.StepCanceled(), step=row.key)

    def extend(self, event: e.RunExtended, actor: Actor) -> None:
        """Record that the graph was extended; ``self.graph`` has the new steps. Those that can begin, begin now."""
        if self.run.status in RUN.terminal or self.view.run.canceling is not None:
            raise ConsistencyError("The run is over, or being canceled; nothing can be added to it.")
        self.tell(event, actor=actor)
        if self.run.status is not RunState.QUEUED:
            self.left()

    def give_up(self, step: StepRow, error: JsonObject) -> None:
        """Fail a step for which nothing can be evaluated, folded or planned any more, and its run with it."""
        self.tell(_failed(error, None, None), step=step.key)
        if self.run.executing == 0:  # steps that still execute reach the barrier, or are given up as well
            self.close(RunState.FAILED_TERMINAL, {**error, "step": step.key})


# Keys in a step's last error: how often its doubt was probed, and that its action may not be sent again blindly.
LOOKS, OPEN = "looks", "open"
# The error codes of steps that are given up, each with the name of its counter. A connector's error has no counter.
GIVEN_UP = {"unexpected": "setbacks", "lease_lost": "leases", "too_costly": "ended"}


def counts(step: StepRow) -> JsonObject:
    """The counters in the step's last error, to be carried over: a wait is no outcome, so counting goes on."""
    return {name: count for name, count in (step.last_error or {}).items() if name in (LOOKS, *GIVEN_UP.values())}


def _failed(error: JsonObject, usage: JsonObject | None, shaped: list[str] | None) -> e.StepFailed:
    kind, code = error.get("class"), error.get("code")
    return e.StepFailed(None if kind is None else str(kind), None if code is None else str(code), usage, error, shaped)


def seconds(span: timedelta) -> int | float:
    """A span in seconds, as events have it: an integer if it is whole."""
    exact = span.total_seconds()
    return int(exact) if exact.is_integer() else exact


def _left_behind(step: StepRow) -> bool:
    return step.status is StepState.READY and step.idempotency_key is not None


def _plan_error(problem: PlanError) -> JsonObject:
    return StepError(ErrorClass.EXPRESSION, None, str(problem.error), {"step": problem.node}).to_json()


# -- the end of a step that has its result ---------------------------------------------------------------

REFERENCE_CHARACTERS_MAX = most("reference_characters")


def finish(
    transition: Transition,
    step: StepRow,
    output: Json,
    usage: JsonObject | None = None,
    *,
    signal: JsonObject | None = None,
    shaped: list[str] | None = None,
) -> None:
    """Evaluate the step's writes, and end it as succeeded. An error of an expression fails the step.

    ``signal`` is what ended the step's wait, for its expressions: the payload, and who sent it. ``shaped`` are the
    marks of those who shaped what the step has read.
    """
    values: dict[str, Json] = {"output": output, CHECKPOINT: transition.run.superstep}
    if signal is not None:
        values["signal"] = signal
    try:
        writes = writes_of(transition.graph, transition.run.state, transition.view.constants, step.key, values)
    except ExpressionError as error:
        fail_expression(transition, step, error)
        return
    transition.succeed(step, output, writes, usage, shaped)


def writes_of(
    graph: Graph, state: State, constants: Mapping[str, object], key: str, more: Mapping[str, Json]
) -> JsonObject:
    """Evaluate what a step writes and how it names the run. ``more`` are variables besides those of the run.

    ``ExpressionError`` if an expression has no value.
    """
    parsed = StepKey.of(key)
    if parsed.is_inner:
        return {}  # a turn or a call of an agent writes nothing
    leaf: LeafNode = graph.leaves[parsed.node]
    values = variables(graph, state, constants, key)
    values.update(more)
    writes: JsonObject = {name: source.render(values) for name, source in leaf.sets.items()}
    writes |= remembered(leaf, state, constants, key) if state.agents else {}
    if problem := unfit(writes, "What `set` gives") if writes else None:
        raise ExpressionError(problem)
    if leaf.reference is not None:
        writes[REFERENCE] = checked_reference(leaf.reference.render(values))
    return writes


def checked_reference(value: Json) -> str:
    """The value as a business reference; ``ExpressionError`` if it cannot be stored as one."""
    text = str(value)
    if not text or len(text) > REFERENCE_CHARACTERS_MAX or clean(text) != text:
        what = f"is empty, longer than {REFERENCE_CHARACTERS_MAX} characters, or holds what no text can"
        raise ExpressionError(what, where="reference")
    return text


def fail_expression(transition: Transition, step: StepRow, error: CountersealError) -> None:
    """Fail the step because an expression failed or its action could not be built. Nothing was sent."""
    kind = ErrorClass.EXPRESSION if isinstance(error, ExpressionError) else ErrorClass.DEFINITION
    transition.fail(step, StepError(kind, error.code, str(error)).to_json())
