"""The draft of a commit: rows are noted and facts are recorded here, and nothing is decided.

Every move goes through the tables of ``runtime.kernel.states``. Ids and dedupe keys are derived, so that the same
record gives the same commits (promise 5).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TypedDict, Unpack
from uuid import UUID

from core.canonical import Json, JsonObject, canonical_bytes, digest, sha256_hex
from core.errors import InputError
from core.ids import derived_id
from evidence.chain import Actor, Event, EventType, append
from evidence.commitments import blind
from runtime.kernel.commit import CheckpointRow, CommandRow, Commit, StepRow, WaitRow
from runtime.kernel.graph import Graph
from runtime.kernel.plan import WINDOW, Window
from runtime.kernel.receipts import receipt_digest
from runtime.kernel.states import RUN, STEP, WAIT, CommandState, RunEvent, StepEvent, StepState, WaitEvent
from runtime.kernel.view import RunView

ENGINE = Actor("engine", "counterseal")

# Every checkpoint holds the whole state, so this bounds what a commit writes.
STATE_BYTES_MAX = 1024 * 1024

# What follows an intent: an outcome or a doubt comes before its run closes, so the intent itself need not bind.
_ABOUT_RECEIPTS = (
    EventType.ACTION_SUCCEEDED,
    EventType.ACTION_FAILED,
    EventType.ACTION_IN_DOUBT,
    EventType.ACTION_HELD,
    EventType.ACTION_DOUBT_RESOLVED,
)

# What a parked step's entry in the checkpoint begins with; which kind of wait it is, the wait's row says.
PARKED = {
    StepState.WAITING_APPROVAL: "approval",
    StepState.WAITING: "wait",
    StepState.FAILED_RETRYABLE: "retry",
}


class StepChanges(TypedDict, total=False):
    """What may change of a step besides its status; see ``StepRow``."""

    superstep: int
    attempt: int
    lease_owner: str | None
    output: Json
    writes: JsonObject | None
    usage: JsonObject | None
    last_error: JsonObject | None
    eligible_in: timedelta | None


class Draft:
    """Rows and facts noted on a view; ``commit()`` gives them, ``after()`` the view as it will be stored."""

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
        if view.whole:
            self._catch_up()

    def _catch_up(self) -> None:
        """A checkpoint is of the beginning of its super-step: what has left that since is known from the rows."""
        for row in self.view.steps.values():
            executing = row.superstep == self.view.superstep and row.status in (StepState.READY, StepState.RUNNING)
            if row.key in self.state.open and not executing:
                self.state.open.remove(row.key)
                if not STEP.terminal(row.status):
                    self._note_parked(row)
            elif row.status is StepState.FAILED_TERMINAL:
                self.state.parked.pop(row.key, None)

    def _note_parked(self, step: StepRow) -> None:
        # A step that has resumed meanwhile is noted as well: the barrier that it joins settles what was deferred.
        self.state.parked[step.key] = f"{PARKED.get(step.status, 'wait')}:{wait_of(self.view.run_id, step)}"

    # -- facts and rows ----------------------------------------------------------------------------------------------

    def record(self, kind: EventType, data: JsonObject, *, step: str | None = None, actor: Actor = ENGINE) -> None:
        """Append a fact to the run's audit, in the transaction of what it records (promise 6)."""
        self._events.append(Event(kind, actor, self.view.now, data, step))

    @property
    def next_line(self) -> int:
        """The number of the next line of the run's audit, for paths of which each may be used once."""
        return self.view.head.count + len(self._events)

    def put_step(self, step: StepRow) -> StepRow:
        """Note a step's row as it will be after the commit."""
        self.steps[step.key] = step
        (self._new if step.key in self._new else self._changed)[step.key] = step
        return step

    def move_step(self, step: StepRow, event: StepEvent, **changes: Unpack[StepChanges]) -> StepRow:
        """Move a step along its table."""
        return self.put_step(replace(step, status=STEP.next(step.status, event), **changes))

    def move_run(self, event: RunEvent) -> None:
        """Move the run along its table."""
        self.rows.status = RUN.next(self.rows.status, event)

    def end_wait(self, wait: WaitRow, event: WaitEvent) -> None:
        """Complete, time out or cancel a wait."""
        self.rows.waits.append(replace(wait, status=WAIT.next(wait.status, event)))

    def checkpoint(self) -> None:
        """Write the snapshot of this super-step. The audit shows its digest blinded: a state can be guessed.

        ``InputError`` for a state that is too large or has no canonical form.
        """
        content = self.state.to_json()
        data = canonical_bytes(content)
        if len(data) > STATE_BYTES_MAX:
            message = f"the run's state is {len(data)} bytes long; at most {STATE_BYTES_MAX} are kept"
            raise InputError(message, where="state", remedy="Keep references in channels, or bound a list by `keep`.")
        row = CheckpointRow(self.rows.superstep, content, sha256_hex(data))
        self.rows.checkpoints.append(row)
        facts: JsonObject = {"number": row.superstep, "digest": blind(self.view.run_key, row.digest)}
        self.record(EventType.CHECKPOINT_COMMITTED, facts)

    # -- commands ----------------------------------------------------------------------------------------------------

    def command(
        self,
        kind: str,
        name: str,
        *,
        step: StepRow | None = None,
        starts_run: bool = False,
        status: CommandState = CommandState.PENDING,
    ) -> None:
        """Order the running of a step, or of the evidence: under its deterministic dedupe key (O-2)."""
        key = self._dedupe_key(step.key if step else "", f"{kind}:{name}")
        row = CommandRow(
            command_id=derived_id(self.view.run_id, key),
            kind=kind,
            dedupe_key=key,
            status=status,
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

    def order(self, kind: str, name: str, payload: JsonObject, *, one_at_a_time: str | None = None) -> None:
        """Order something else that is to be done after the commit, such as canceling what goes on outside."""
        key = self._dedupe_key("", f"{kind}:{name}")
        row = CommandRow(
            command_id=derived_id(self.view.run_id, key),
            kind=kind,
            dedupe_key=key,
            status=CommandState.PENDING,
            payload=payload,
            ordering_key=f"{kind}:{one_at_a_time}" if one_at_a_time else None,
        )
        self.rows.commands.append(row)

    def _defer(self, step: StepRow) -> None:
        """The invocation that the wait's completion will cause, written when the step parks (O-4, O-6)."""
        parking = wait_of(self.view.run_id, step)
        key = self._dedupe_key(step.key, f"resume:{parking}")
        command_id = resume_command(self.view.run_id, parking)
        self.rows.commands.append(CommandRow(command_id, "step", key, CommandState.DEFERRED, step.step_id))

    def _release(self, step_key: str, command: str) -> None:
        """Let a deferred command go that was written in this super-step."""
        command_id = derived_id(self.view.run_id, self._dedupe_key(step_key, command))
        self.rows.command_moves.append((command_id, CommandState.PENDING))

    def _dedupe_key(self, step_key: str, command: str) -> str:
        """SHA-256(JCS([workflow, run, step, super-step, command])): the same command is never written twice."""
        return digest([self.view.workflow, str(self.view.run_id), step_key, self.rows.superstep, command])

    # -- the result --------------------------------------------------------------------------------------------------

    def _bind_receipts(self) -> None:
        """Let every line about an action's outcome name the digest of its receipt as this commit leaves it."""
        view = self.view
        left = {str(row.receipt_id): row for row in (*self.rows.new_receipts, *self.rows.receipts)}
        for number, event in enumerate(self._events):
            row = left.get(str(event.data.get("receipt"))) if event.type in _ABOUT_RECEIPTS else None
            bound = None if row is None else receipt_digest(row, view.tenant_id, view.run_id, view.run_key)
            if bound is not None:
                self._events[number] = replace(event, data={**event.data, "receipt_digest": bound})

    def commit(self) -> Commit:
        """The rows of everything that was done, with the audit lines chained."""
        rows = self.rows
        self._bind_receipts()
        rows.new_steps = list(self._new.values())
        rows.steps = [row for key, row in self._changed.items() if key not in self._new]
        rows.writes = self.writes
        # Only a step that was there before can hold a slot; one that began and ended in here never had its own.
        born = {row.step_id for row in rows.new_steps}
        rows.released = [step_id for step_id in rows.released if step_id not in born]
        if self.taken is not None and self.taken.key in self.state.open and rows.released:
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
            reference=rows.reference or self.view.reference,
            whole=False,
            steps=steps,
            extensions=self.view.extensions + len(rows.mutations),
            windows={**self.view.windows, **self._begun()},
        )

    def _begun(self) -> dict[str, Window]:
        """The first items of the loops that began here: the next plan may need them."""
        found: dict[str, list[Json]] = {}
        for row in self.rows.items:
            known = found.setdefault(row.loop_key, [])
            if row.index < WINDOW:
                known.append(row.item)
        return {key: Window(0, tuple(items)) for key, items in found.items()}


def wait_of(run_id: UUID, step: StepRow) -> UUID:
    """The id of the wait that a step parks on: a lease parks its step once.

    A wait for something outside is written before the step parks (V-9), and has an id of its own (``expected_of``).
    """
    return derived_id(run_id, f"wait:{step.key}:{step.lease_epoch}")


def expected_of(run_id: UUID, step: StepRow) -> UUID:
    """The id of the wait for what this lease begins outside: it may be canceled, and the step park on another."""
    return derived_id(run_id, f"expected:{step.key}:{step.lease_epoch}")


def resume_command(run_id: UUID, wait_id: UUID) -> UUID:
    """The id of the command that a wait's completion releases."""
    return derived_id(run_id, f"resume:{wait_id}")
