"""Helpers of tests/engine that several test files share: from conftest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
from msgspec.structs import replace

from evidence.chain import Actor, ChainHead, verify_lines
from runtime.engine.book.draft import BARRIER
from runtime.engine.book.plan import variables
from runtime.engine.book.recorded import read_line, unpack_values
from runtime.engine.book.snapshot import pack, unpack
from runtime.engine.life.transition import Transition
from runtime.engine.model.events import RunOpened
from runtime.engine.model.graph import Graph, OperationNode, Window
from runtime.engine.model.rows import CommandRow, Commit, LedgerRow, QueueRow, StepRow, WaitRow
from runtime.engine.model.run import RunView, State
from runtime.engine.model.states import (
    COMMAND,
    STEP,
    StepState,
    WaitKind,
)
from runtime.engine.replay.past import past_of
from runtime.engine.replay.replay import unopened

OPERATIONS = """
operations:
  - name: probe.value.read
    handler: probe:read
    side_effects: none
    risk: low
    summary: "Read {name}"
    target: "thing/{name}"
    input_schema: {type: object, properties: {name: {type: string}}, additionalProperties: true}
    output_schema: {type: object}
"""


KEY = b"k" * 32


RUN_ID = UUID("01930000-0000-8000-8000-000000000001")


NOW = datetime(2026, 1, 1, 2, 3, 4, 567_890, tzinfo=UTC)  # no part of it is zero: what cuts a time is seen


WORKER = "w"


@dataclass
class Simulation:
    """One run. ``view()`` is read back from what was stored, through JSON, as after a crash of everything."""

    workflow: Any
    trigger: dict[str, Any]
    rows: dict[str, StepRow] = field(default_factory=dict)
    waits: dict[str, WaitRow] = field(default_factory=dict)
    commands: dict[UUID, CommandRow] = field(default_factory=dict)
    line: dict[str, QueueRow] = field(default_factory=dict)
    leased: set[str] = field(default_factory=set)
    checkpoints: dict[int, tuple[bytes, str]] = field(default_factory=dict)
    items: dict[str, Window] = field(default_factory=dict)
    ledger: list[LedgerRow] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    head: ChainHead = field(default_factory=lambda: ChainHead.of(f"run:{RUN_ID}"))
    values: dict[int, Any] = field(default_factory=dict)
    error: Any = None
    executed: list[str] = field(default_factory=list)
    run: Commit | None = None
    version: int = 1
    gate: int = 0
    executing: int = 0
    finished: bool = False
    kept: bytes | None = None
    read: int = 0
    commits: list[Commit] = field(default_factory=list)
    before: list[Graph] = field(default_factory=list)  # the graph before each extension

    def view(self) -> RunView:
        graph = self.workflow.graph
        run = unopened(RUN_ID, KEY, graph) if self.kept is None else unpack(self.kept, RUN_ID, KEY)[0]
        told = [read_line(self.lines[n], self.values.get(n, {}), KEY) for n in range(self.read, len(self.lines))]
        past_of(run, told, [*self.before, graph])
        # Every item is in the windows, as in a process that has not died since: only the next ones are kept.
        self.items = {**run.windows, **self.items}
        run.windows = {**run.windows, **self.items}
        if told:
            self.kept, self.read = pack(run.rest(), self.head), len(self.lines)
        return RunView(
            run_id=RUN_ID,
            tenant_id="acme",
            workspace_id="main",
            workflow=self.workflow.name,
            workflow_version=1,
            workflow_digest=self.workflow.digest,
            trigger_type="test",
            version=self.version,
            gate=self.gate,
            head=self.head,
            run=run,
            constants={"trigger": self.trigger, "run.id": str(RUN_ID)},
            now=NOW,
            deadline_at=None,
            policies=(),
            writes_max=None,
        )

    def open(self) -> Simulation:
        transition = Transition(self.view(), self.workflow.graph)
        opened = RunOpened({"name": self.workflow.name}, inputs=self.trigger, reference="r", requested_by="someone")
        self.error = transition.open(opened, Actor("test", "t"))
        self.apply(transition)
        return self

    def apply(self, transition: Transition) -> Commit:
        """Apply a commit as the store does, as strict as the database."""
        commit = transition.commit()
        assert (commit.expected_version, commit.gate) == (self.version, self.gate)
        self.gate += commit.moves_gate
        self.executing += commit.executing
        self.version += self.run is not None
        self.run, self.finished = commit, self.finished or commit.finished
        for row in [*transition.run.past.values(), *transition.run.steps.values()]:
            known = self.rows.get(row.key)
            assert known is None or known.status == row.status or (known.status, row.status) in STEP.moves()
            assert known is not None or row.status in STEP.initial
            self.rows[row.key] = row
        for wait in commit.new_waits:
            assert wait.wait_id not in {known.wait_id for known in self.waits.values()}
            self.waits[wait.step_key] = wait
        for wait in commit.waits:
            self.waits[wait.step_key] = wait
        for command in commit.commands:
            assert command.status in COMMAND.initial
            self.commands.setdefault(command.command_id, command)
        self._queue(commit)
        for checkpoint in transition.run.checkpoints:
            assert checkpoint.superstep not in self.checkpoints, "a checkpoint is written once"
            self.checkpoints[checkpoint.superstep] = (orjson.dumps(checkpoint.state), checkpoint.digest)
        told = unpack_values(commit.values)
        self.values.update({len(self.lines) + number: each for number, each in told.items()})
        self.ledger += commit.ledger
        self.lines += commit.lines
        self.commits.append(commit)
        self.sizes += [len(commit.lines)] if commit.lines else []
        self.head = self.head.after(commit.lines)
        assert transition.after().head == self.head
        return commit

    def _queue(self, commit: Commit) -> None:
        """The queue, whose rows are there once and change under their own keys."""
        for row in commit.queued:
            assert row.key not in self.line
            self.line[row.key] = row
        for key in commit.requeued:
            self.leased.remove(key)
        for key in commit.unqueued:
            if key == BARRIER and key not in self.line:
                continue  # only the store of a wide run writes this row
            del self.line[key]
            self.leased.discard(key)
        for key, step in commit.handed:
            del self.line[key]
            self.leased.remove(key)
            self.line[step.key] = QueueRow(step.key, step.step_id, step.lease_epoch)
            self.leased.add(step.key)
        if commit.cancels_rest:
            self.line.clear()
            self.leased.clear()
        running = {key for key, step in self.rows.items() if step.status is StepState.RUNNING}
        assert running <= self.leased, "who works has a lease"
        if commit.finished:
            assert not self.line

    def ready(self) -> list[str]:
        """Steps that a worker could claim: ready, and in line."""
        return sorted(key for key in self.line if key not in self.leased)

    def claim(self, key: str, begin: Callable[[str], object] | None = None) -> StepRow:
        """Lease a step, and begin it: by ``begin``, or as a worker does."""
        row = self.rows[key]
        assert row.status is StepState.READY
        epoch = self.line[key].epoch + 1
        self.line[key] = replace(self.line[key], epoch=epoch)
        self.leased.add(key)
        # The step is not begun yet; whoever has claimed it knows its lease.
        self.rows[key] = replace(row, lease_owner=WORKER, lease_epoch=epoch)
        self.executed.append(key)
        if begin is not None:
            begin(key)
        else:
            self.attempt(key, lambda t, step: t.started(step))
        return self.rows[key]

    def attempt(self, key: str, move: Callable[[Transition, StepRow], object]) -> Transition:
        transition = Transition(self.view(), self.workflow.graph)
        move(transition, self.rows[key])
        self.apply(transition)
        return transition

    def succeed(self, key: str, output: Any = None) -> Transition:
        leaf = self.workflow.graph.leaf(key)
        assert isinstance(leaf, OperationNode)

        def move(transition: Transition, step: StepRow) -> None:
            values = variables(transition.graph, transition.run.state, transition.view.constants, key)
            result = leaf.inputs.render(values) if output is None else output
            values["output"] = result
            writes = {name: source.render(values) for name, source in leaf.sets.items()}
            transition.succeed(step, result, writes)

        return self.attempt(key, move)

    def fail(self, key: str) -> Transition:
        return self.attempt(key, lambda t, step: t.fail(step, {"class": "transport", "code": "x", "message": "no"}))

    def park(self, key: str, kind: WaitKind = WaitKind.APPROVAL) -> Transition:
        def move(transition: Transition, step: StepRow) -> None:
            if kind is WaitKind.RETRY:
                error = {"class": "transport", "code": "x", "message": "no"}
                transition.retry_later(step, timedelta(seconds=5), error)
            else:
                transition.park(step, kind, "t", timedelta(seconds=5))

        return self.attempt(key, move)

    def resume(self, key: str) -> Transition:
        return self.attempt(key, lambda t, step: t.resume(step, self.waits[key]))

    def settle_all(self, choose: Callable[[list[str]], str] = min) -> Simulation:
        """Claim and finish whatever is ready until nothing is, in the order that ``choose`` takes."""
        while not self.finished and (ready := self.ready()):
            key = choose(ready)
            self.claim(key)
            self.succeed(key)
        return self

    @property
    def status(self) -> str:
        assert self.run is not None
        return str(self.run.status)

    @property
    def state(self) -> State:
        return self.view().run.state

    @property
    def open_steps(self) -> dict[str, str]:
        return {key: str(row.status) for key, row in self.rows.items() if row.status not in STEP.terminal}

    def verified(self) -> bool:
        return verify_lines(self.head, self.lines, self.sizes).ok
