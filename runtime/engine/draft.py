"""The draft of an append: events are told here, and folded at once; nothing is decided (promise 6).

What an append writes to tables is derived from the fold at the end. Only commands are noted beside it, as what follows
outside, and leases that have run out. Ids and dedupe keys are derived, so that the same record gives the same appends
(promise 5).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from core.canonical import JsonObject, digest
from core.ids import derived_id
from evidence.chain import Actor, Event, EventType, append
from runtime.engine.commit import CommandRow, Commit, StepRow
from runtime.engine.crossing import Crossing
from runtime.engine.events import Event as RunEvent
from runtime.engine.fold import fold
from runtime.engine.graph import Graph
from runtime.engine.keeping import EVERY, digest_of, pack
from runtime.engine.receipts import receipt_digest
from runtime.engine.rows import Before, derive
from runtime.engine.run import Run
from runtime.engine.state import State
from runtime.engine.states import CommandState
from runtime.engine.told import KEPT, RECEIPT, Told, line_of, pack_values
from runtime.engine.view import RunView

ENGINE = Actor("engine", "counterseal")

# What follows an intent: an outcome or a doubt comes before its run closes, so the intent itself need not bind.
_BINDING = (
    EventType.ACTION_SUCCEEDED,
    EventType.ACTION_FAILED,
    EventType.ACTION_IN_DOUBT,
    EventType.ACTION_HELD,
    EventType.ACTION_DOUBT_RESOLVED,
    EventType.ACTION_LATE,
)


class Draft:
    """Events told of a run; ``commit()`` gives what they write, ``after()`` the view as it will be stored."""

    def __init__(self, view: RunView, graph: Graph, *, lease: timedelta = timedelta(seconds=30)) -> None:
        self.view = view
        self.graph = graph
        self.run = view.run.copy()
        self.rows = Commit(
            run_id=view.run_id,
            tenant_id=view.tenant_id,
            workspace_id=view.workspace_id,
            expected_version=view.version,
            gate=view.gate,
            status=view.status,
            superstep=view.run.superstep,
            width=view.run.width,
            lease=lease,
        )
        self._before = Before.of(view.run)
        self._told: list[Told] = []

    @property
    def state(self) -> State:
        """The business state and the frontier, as they are after what was told."""
        return self.run.state

    @property
    def steps(self) -> dict[str, StepRow]:
        """The steps that are held, as they are after what was told."""
        return {**self.run.past, **self.run.steps}

    # -- the book ----------------------------------------------------------------------------------------------------

    def tell(
        self, event: RunEvent, *, step: str | None = None, actor: Actor = ENGINE, crossing: Crossing | None = None
    ) -> None:
        """Tell an event: it changes the run now, and the append records it."""
        told = Told(event, actor, self.view.now, step)
        fold(self.run, told, self.graph, crossing)
        self._told.append(told)

    # -- commands ----------------------------------------------------------------------------------------------------

    def message(self, kind: str, approval_id: UUID, name: str, payload: JsonObject | None = None) -> None:
        """Order a message about an approval, such as its card; what is sent is read when it is sent."""
        about: JsonObject = {"approval": str(approval_id), **(payload or {})}
        self._command(f"{kind}:{approval_id}:{name}", kind, about, f"approval:{approval_id}")

    def order(self, kind: str, name: str, payload: JsonObject, *, one_at_a_time: str | None = None) -> None:
        """Order something else that is to be done after the commit, such as the evidence."""
        self._command(f"{kind}:{name}", kind, payload, f"{kind}:{one_at_a_time}" if one_at_a_time else None)

    def _command(self, command: str, kind: str, payload: JsonObject, ordering_key: str | None) -> None:
        """Write a command under SHA-256(JCS([workflow, run, step, super-step, command])): never twice (O-2)."""
        key = digest([self.view.workflow, str(self.view.run_id), "", self.run.superstep, command])
        row = CommandRow(
            command_id=derived_id(self.view.run_id, key),
            kind=kind,
            dedupe_key=key,
            status=CommandState.PENDING,
            payload=payload,
            ordering_key=ordering_key,
        )
        self.rows.commands.append(row)

    # -- the result --------------------------------------------------------------------------------------------------

    def commit(self) -> Commit:
        """Everything that this append writes, with its lines."""
        rows = self.rows
        derive(rows, self._before, self.run)
        rows.reference = self.run.reference if self.run.reference != self.view.reference else None
        rows.moves_gate = rows.cancels_rest or self._place(self.run) != self._place(self.view.run)
        lines = [self._line(told) for told in self._told]
        if lines and self._keeps():
            rows.state = pack(self._rested(), self.view.head)
            last, values = lines[-1]
            data: JsonObject = {**last.data, KEPT: digest_of(rows.state, self.view.run_key)}
            lines[-1] = (replace(last, data=data), values)
        rows.lines, _ = append(self.view.head, [line for line, _ in lines])
        rows.values = pack_values([values for _, values in lines])
        return rows

    def _line(self, told: Told) -> tuple[Event, JsonObject]:
        """The line of an event. One about an action names the digest of its receipt as this append leaves it."""
        line, values = line_of(told, self.view.run_key)
        receipt = getattr(told.event, "receipt", None)
        row = self.run.receipts.get(receipt) if isinstance(receipt, UUID) else None
        if row is None or told.event.TYPE not in _BINDING:
            return line, values
        view = self.view
        bound = receipt_digest(row, view.tenant_id, view.run_id, view.run_key)
        if bound is not None:
            line = replace(line, data={**line.data, RECEIPT: bound})
        return line, values

    def _keeps(self) -> bool:
        """True if this append keeps the run beside its book: where much of the book would have to be read again."""
        behind = self.view.version + 1 - self.view.kept_at
        return self.rows.moves_gate and not self.run.finished and behind >= EVERY and bool(self.view.run_key)

    @staticmethod
    def _place(run: Run) -> tuple[object, ...]:
        """What all steps of a super-step see alike: whoever changes it commutes with none of them."""
        return run.status, run.superstep, run.canceling, run.extensions, run.reference, run.finished

    def _rested(self) -> Run:
        return self.run.copy().rest()

    def after(self) -> RunView:
        """The view as the append leaves it, if it was guarded by the version; call it once the append has been made."""
        version = self.rows.expected_version + 1
        return replace(
            self.view,
            version=version,
            gate=self.view.gate + self.rows.moves_gate,
            head=self.view.head.after(self.rows.lines),
            run=self._rested(),
            kept_at=version if self.rows.state is not None else self.view.kept_at,
        )
