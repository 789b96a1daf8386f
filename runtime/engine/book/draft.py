"""The draft of an append: collects events, applies each to the run, and builds the commit (promise 6).

``commit`` derives the rows of the append from the folded run. Only commands (work to be done outside) and expired
leases are noted separately. Ids and dedupe keys are derived, so that the same record gives the same appends (promise
5).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from operator import attrgetter
from types import MappingProxyType
from typing import TypeAlias
from uuid import UUID

from msgspec.structs import replace

from approvals.content import CardState
from connectors.port import Pace, Refused
from core.canonical import JsonObject, derived_id, digest
from evidence.chain import Actor, EventType, seal
from runtime.engine.book import ends, failures, notices, refusals, shared_effects
from runtime.engine.book.barrier import Crossing
from runtime.engine.book.fold import fold
from runtime.engine.book.plan import CHECKPOINT, Variables, variables
from runtime.engine.book.recorded import (
    CLOCK_BEHIND,
    KEPT,
    STORED,
    RecordedEvent,
    digest_of,
    line_of,
    pack_values,
)
from runtime.engine.book.snapshot import EVERY, pack
from runtime.engine.model import events as e
from runtime.engine.model.agent_state import GIVEN
from runtime.engine.model.graph import Graph, Leaf
from runtime.engine.model.rows import CommandRow, Commit, FamilyMove, QueueRow, ReceiptRow, StepRow
from runtime.engine.model.run import Run, RunView
from runtime.engine.model.states import RUN, CommandState, RunState, StepState
from runtime.engine.model.traces import Trace
from runtime.engine.model.workflow import Workflow

# The key of the queue row of a due barrier: its last step has left, and the worker that should cross it may be dead.
BARRIER = ""


def queued(steps: Mapping[str, StepRow], status: RunState, superstep: int, first: str | None) -> dict[str, StepRow]:
    """The steps that have a row in the queue: those that run, or are ready in the current super-step.

    Parked steps, and steps that join the next super-step, have none. Before a run has begun, only its ``first`` step
    has one, so that caps on starts count runs and not steps.
    """
    begun = status is not RunState.QUEUED
    return {
        key: step
        for key, step in steps.items()
        if step.status is StepState.RUNNING
        or (step.status is StepState.READY and step.superstep == superstep and (begun or key == first))
    }


def _derive(rows: Commit, before: Run, run: Run) -> None:
    """Fill the commit with the rows that differ from what was stored."""
    rows.status, rows.superstep, rows.width = run.status, run.superstep, run.width
    rows.executing, rows.writes = run.executing - before.executing, run.writes - before.writes
    if rows.counted:
        rows.writes_max = run.writes  # the count only grows, so a write in between would exceed it
    rows.canceling, rows.error, rows.result = run.canceling, run.error, run.result
    rows.finished = run.finished and before.status not in RUN.terminal  # an append after the end ends nothing again
    rows.new_waits = [wait for wait in run.waits.values() if wait.wait_id not in before.waits]
    rows.waits = [wait for wait in run.waits.values() if before.waits.get(wait.wait_id, wait) != wait]
    waits = [wait for wait in run.waits.values() if shared_effects.KEY in (wait.context or {})]
    shared = [row for row in run.receipts.values() if row.shared]
    if waits or shared:
        rows.effects, rows.shares = shared_effects.moved(before, run), shared_effects.taken_over(before, run)
        rows.joins = shared_effects.joined(before, run)
        rows.ended = [*shared_effects.ended(before, run, rows.effects, rows.shares)]
    rows.new_approvals = [
        replace(row, status=str(run.answers[row.approval_id].status))
        for row in run.approvals.values()
        if row.approval_id not in before.answers
    ]
    rows.approvals = [move for move in run.answers.values() if before.answers.get(move.approval_id, move) != move]
    rows.votes, rows.ledger = run.votes[len(before.votes) :], run.ledger
    rows.refusals = refusals.rejections(before, run) if rows.votes else []
    rows.extended = run.extensions - before.extensions
    # The steps that can be claimed from now on, and those that no longer can. A worker may carry its lease over.
    was = queued(before.steps, before.status, before.superstep, next(iter(before.state.open), None))
    now = {} if run.finished else queued(run.steps, run.status, run.superstep, next(iter(run.state.open), None))
    new = [step for key, step in now.items() if key not in was]
    rows.handed = [(rows.taken[step.key], step) for step in new if step.status is StepState.RUNNING]
    going_on, starts = {key for key, _ in rows.handed}, run.status is RunState.QUEUED
    over = [key for key in was if key not in now and key not in going_on]
    if before.width > 0 and before.executing == 0 and (run.superstep > before.superstep or run.finished):
        over.append(BARRIER)
    waiting = [step for step in new if step.status is not StepState.RUNNING]
    rows.queued = [QueueRow(row.key, row.step_id, row.lease_epoch, starts) for row in waiting]
    rows.requeued = [key for key in rows.requeued if key in now]
    rows.unqueued = [] if rows.cancels_rest else over


def _move_of(rows: Commit, view: RunView, run: Run) -> FamilyMove | None:
    """The change of the counters of the run's family; None if the append changes none of them and depends on none.

    The family's row is locked by the append, so only appends that count, or read counters, wait for each other.
    """
    family, before = view.family, view.run
    if family is None:
        return None
    same = {
        call: sorted({*family.same.get(call, ()), *(f"{view.run_id}:{key}" for key in keys)})
        for call, keys in run.same.items()
        if keys != before.same.get(call)
    }
    refused, asked, anew = run.refused - before.refused, run.asked - before.asked, run.begun_anew - before.begun_anew
    failed = failures.moved(family, view.run_id, before.failures, run.failures, family.anew + anew)
    moves = bool(rows.writes or refused or asked or anew or same or failed)
    rests = bool(rows.counted or rows.recounted or same or failed)
    if not moves and not rests:
        return None
    most = rows.family_max if rows.writes else None
    return FamilyMove(refused, asked, same, failed, anew, moves, most, family.number if rests else None)


# The facts that all steps of a super-step share. An append that changes one of them conflicts with every concurrent
# append, so it raises the gate.
_place = attrgetter("status", "superstep", "canceling", "extensions", "reference", "finished")

ENGINE = Actor("engine", "counterseal")

# An outcome is known before its append is built, so the upper bound of the database's time is never before it.
_OUTCOMES = frozenset({
    EventType.ACTION_SUCCEEDED, EventType.ACTION_FAILED, EventType.ACTION_IN_DOUBT, EventType.ACTION_HELD,
    EventType.ACTION_DOUBT_RESOLVED, EventType.STEP_SUCCEEDED, EventType.STEP_FAILED, EventType.STEP_RETRY_SCHEDULED,
    EventType.STEP_HELD,
})  # fmt: skip


# Maps the names of a connector and its operation, and the input, to the reason why it cannot be called, or None.
Ready: TypeAlias = Callable[[str, str, JsonObject], Refused | None]


def _unknown(connector: str, operation: str, inputs: JsonObject) -> Refused | None:
    """Report every connector as ready: used where no connector is known."""
    return None


Places: TypeAlias = Callable[[str, JsonObject], str]


def _itself(connector: str, inputs: JsonObject) -> str:
    """The connector alone: no call goes out here."""
    return connector


Paces: TypeAlias = Callable[[str, JsonObject], Pace | None]


def seen_by(run: Run, graph: Graph, constants: Mapping[str, object], key: str) -> Variables:
    """The variables that an expression of the step with this key sees in a run. The key "" is for the run's result."""
    found = variables(graph, run.state, constants, key)
    found[CHECKPOINT] = run.superstep
    if key in run.spoken:
        found[GIVEN] = run.spoken[key].input
    return found


class Draft:
    """Events recorded for a run; ``commit()`` gives what they write, ``after()`` the view as it will be stored.

    ``systems`` are the outside systems that would be called now, by connector (``connectors.port.Connector.target``).
    ``traces`` are the origins of what steps would do, worked out on demand; ``workflow`` declares their operations.
    ``ready`` says why the settings of this process rule a call out (``connectors.port.Connectors.ready``).
    ``pace`` tells the rate of a call's target; None if no target has one. ``place`` names the system of a call.
    """

    def __init__(
        self,
        view: RunView,
        graph: Graph,
        *,
        lease: timedelta = timedelta(seconds=30),
        systems: Mapping[str, str] = MappingProxyType({}),
        ready: Ready = _unknown,
        pace: Paces | None = None,
        place: Places = _itself,
    ) -> None:
        self.view = view
        self.graph = graph
        self.systems = systems
        self.ready = ready
        self.pace = pace
        self.place = place
        self.run = view.run.copy()
        self.rows = Commit(
            run_id=view.run_id,
            tenant_id=view.tenant_id,
            workspace_id=view.workspace_id,
            expected_version=view.version,
            gate=view.gate,
            status=view.run.status,
            superstep=view.run.superstep,
            width=view.run.width,
            lease=lease,
        )
        self.traces: dict[str, Trace] = {}
        self.workflow: Workflow | None = None
        self._recorded: list[RecordedEvent] = []
        self._head = view.head
        # The time of a line that is recorded now, and the latest time that it can have.
        self.at = view.at
        self._behind = view.behind
        self._latest = self.at if self._behind else view.now + view.error

    @property
    def steps(self) -> dict[str, StepRow]:
        """The steps held in memory, with all recorded events applied."""
        return {**self.run.past, **self.run.steps}

    def variables(self, key: str) -> Variables:
        """The variables that an expression of the step with this key sees now. The key "" is for the run's result."""
        return seen_by(self.run, self.graph, self.view.constants, key)

    def leaf(self, key: str) -> Leaf:
        """The leaf of a step key, which may be that of an agent's turn or call."""
        values = self.run.spoken.get(key)
        return self.graph.leaf(key, None if values is None else values.tool or None)

    # -- the book ----------------------------------------------------------------------------------------------------

    def tell(
        self, event: e.Event, *, step: str | None = None, actor: Actor = ENGINE, crossing: Crossing | None = None
    ) -> None:
        """Tell an event: it changes the run now, and the append records it.

        Its time is a bound of the database's time: the upper bound for an outcome, the lower bound for all else. Times
        of one step never run backwards, even if the database's clock does. If the clock is behind the book's latest
        time, the line keeps that time, and says by how much the clock is behind.
        """
        at = self.not_before(self._latest if event.TYPE in _OUTCOMES else self.at, step)
        if event.TYPE is EventType.RUN_CLOSED:  # an outcome above it has the latest time at which it can have been
            at = max([at, *(one.at for one in self._recorded), *filter(None, [self.view.last_at])])
        recorded = RecordedEvent(event, actor, at, step)
        fold(self.run, recorded, self.graph, crossing)
        self._recorded.append(recorded)
        if event.TYPE in notices.OF_RUNS and (notice := notices.of_run(recorded, self.run, self.graph)) is not None:
            self.rows.notices.append(notice)

    def not_before(self, at: datetime, step: str | None) -> datetime:
        """The time for a new line about a step: this time, but never before that of the step's last line."""
        last = None if step is None else self.run.times.get(step)
        return at if last is None or last < at else last

    # -- commands ----------------------------------------------------------------------------------------------------

    def message(self, kind: str, approval_id: UUID, name: str) -> None:
        """Order a message about an approval, such as its card. The content is read when the message is sent.

        The questions of a list have one card, so their messages are sent one at a time.
        """
        asked = self.run.approvals.get(approval_id)
        listed = asked.listed if asked is not None else None
        about = f"list:{self.view.run_id}:{listed}" if listed else f"approval:{approval_id}"
        self._command(f"{kind}:{approval_id}:{name}", kind, {"approval": str(approval_id)}, about)

    def order(self, kind: str, name: str, payload: JsonObject, *, one_at_a_time: str | None = None) -> None:
        """Order other work to be done after the commit, such as making the evidence."""
        self._command(f"{kind}:{name}", kind, payload, f"{kind}:{one_at_a_time}" if one_at_a_time else None)

    def _command(self, command: str, kind: str, payload: JsonObject, ordering_key: str | None) -> None:
        """Order a command under SHA-256(JCS([workflow, run, step, super-step, command])): never twice."""
        key = digest([self.view.workflow, str(self.view.run_id), "", self.run.superstep, command])
        command_id = derived_id(self.view.run_id, key)
        self.rows.commands.append(CommandRow(command_id, kind, CommandState.PENDING, payload, ordering_key))

    # -- the result --------------------------------------------------------------------------------------------------

    def commit(self) -> Commit:
        """Build the commit: everything that this append writes, with its lines."""
        rows, run_key = self.rows, self.view.run.run_key
        _derive(rows, self.view.run, self.run)
        rows.family = _move_of(rows, self.view, self.run)
        for key, name in rows.ended:
            self.order("shared", name, {"key": key})
        was = self.view.run.answers
        if any(move.consumed and not getattr(was.get(move.approval_id), "consumed", False) for move in rows.approvals):
            rows.people = self.view.directory.digest
        if self.run.answers:
            self._tell_ends()
        if self.view.run.grants:
            self._tell_grants()
        rows.reference = self.run.reference if self.run.reference != self.view.run.reference else None
        rows.moves_gate = rows.cancels_rest or _place(self.run) != _place(self.view.run)
        lines = [line_of(recorded, run_key) for recorded in self._recorded]
        contents, rows.values = [line for line, _ in lines], pack_values([values for _, values in lines])
        if self._behind:
            for content in contents:
                content["data"][CLOCK_BEHIND] = math.ceil(self._behind.total_seconds())
        behind = self.view.version + 1 - self.view.kept_at
        # The append stores the folded run beside the book, so that no reader has to fold a long book.
        if rows.moves_gate and not self.run.finished and behind >= EVERY and run_key and lines:
            rows.state = pack(self.run.copy().rest(), self.view.head)
        for name, stored in ((STORED, rows.values), (KEPT, rows.state)):
            if stored is not None:
                contents[-1]["data"][name] = digest_of(stored, run_key)
        rows.lines, self._head = seal(self.view.head, contents)
        rows.latest = max((recorded.at for recorded in self._recorded), default=None)
        rows.clock_behind = self._behind
        return rows

    def _tell_ends(self) -> None:
        """Store the ends of approved actions that this append has changed, and order their cards.

        Row and card are part of the append that ends the action: a crash leaves all of them or nothing.
        """
        steps = {recorded.step for recorded in self._recorded if recorded.step is not None}
        moves = {move.approval_id: move for move in self.rows.approvals}
        drawn = {row.payload.get("approval") for row in self.rows.commands if row.kind == "card"}
        for approval, end in ends.changed(self.view.run, self.run, steps).items():
            recorded = replace(
                moves.get(approval) or self.run.answers[approval], outcome=str(end.state), why=end.code or None
            )
            moves[approval] = recorded
            # An action that is being carried out gets no card: most are over at once, and the outcome has a card.
            if str(approval) not in drawn and not (end.state is CardState.EXECUTING and recorded.consumed):
                self.message("card", approval, f"{end.state}:{end.code}:{self.view.version}")
        self.rows.approvals = [*moves.values()]

    def _tell_grants(self) -> None:
        """Order the cards whose grant can no longer be taken back, or can be again.

        The order is part of the append that changes the grant: a crash leaves both or neither. A grant that is given in
        this append is shown with the outcome of its action.
        """
        drawn = {row.payload.get("approval") for row in self.rows.commands if row.kind == "card"}
        for grant_id, was in self.view.run.grants.items():
            now = self.run.grants[grant_id]
            open_ = (was.left and not self.view.run.finished, now.left and not self.run.finished)
            if open_[0] != open_[1] and str(now.approval) not in drawn:
                self.message("card", now.approval, f"grant:{self.view.version}")

    def after(self) -> RunView:
        """The view after the append. Call it only when the append was made and was guarded by the version."""
        version, family, move = self.rows.expected_version + 1, self.view.family, self.rows.family
        if family is not None and move is not None and move.moves:
            family = replace(
                family,
                writes=family.writes + self.rows.writes,
                refused=family.refused + move.refused,
                asked=family.asked + move.asked,
                number=family.number + 1,
                same={**family.same, **move.same},
                failed={**family.failed, **move.failed},
                anew=family.anew + move.anew,
            )
        return replace(
            self.view,
            family=family,
            version=version,
            gate=self.view.gate + self.rows.moves_gate,
            head=self._head,
            run=self.run.rest(),
            last_at=max((at for at in (self.view.last_at, self.rows.latest) if at is not None), default=None),
            kept_at=version if self.rows.state is not None else self.view.kept_at,
            refusals={},
            open_by={},
        )


Ending: TypeAlias = e.ActionSucceeded | e.ActionFailed | e.ActionInDoubt | e.ActionHeld | e.ActionDoubtResolved


def tell_of(transition: Draft, receipt: ReceiptRow, event: Ending) -> ReceiptRow:
    """Record what became of an action, and order its approval's card anew. Returns the receipt after that event."""
    transition.tell(event, step=receipt.step_key)
    left = transition.run.receipts[receipt.receipt_id]
    approval = left.action.get("approval")
    if isinstance(approval, str):
        transition.message("card", UUID(approval), f"{left.status}:{left.attempt}")
    return left
