"""Forks a finished run: begins a new run from one of its points. Says what is taken over, and what is redone. Pure.

A point is a checkpoint. Everything that was done at that point stays done, with its values. Everything else begins
anew: it is judged anew, and people are asked anew. An answer at a gate let only its own run go on, so no point lies
behind a gate.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from hashlib import sha256

from msgspec import Struct

from core.canonical import Json
from core.errors import ConsistencyError, NotFoundError
from evidence.commitments import commit_fields, path_of
from evidence.receipts import ReceiptStatus
from runtime.engine.book.fold import fold
from runtime.engine.book.gates import gates_passed
from runtime.engine.book.recorded import RecordedEvent
from runtime.engine.model.events import CheckpointCommitted, RunContinued, RunExtended, RunForked, RunMigrated
from runtime.engine.model.graph import Graph
from runtime.engine.model.keys import StepKey
from runtime.engine.model.rows import ReceiptRow
from runtime.engine.model.run import SKIPPED, Run, State
from runtime.engine.model.states import RUN
from runtime.engine.model.workflow import Workflow

OPEN = (ReceiptStatus.INTENDED, ReceiptStatus.IN_DOUBT)
ELSEWHERE = "Name another line or step: `counterseal run show RUN` lists them."


class Point(Struct, frozen=True):
    """A checkpoint of a run: the number of its line, its own number, and its state."""

    line: int
    number: int
    state: State


class Preview(Struct, frozen=True):
    """A preview of a fork: what it would take over, and what it may do again; each step with its operation."""

    line: int
    checkpoint: int
    done: Sequence[tuple[str, str]]
    again: Sequence[tuple[str, str]]


class Fork(Struct, frozen=True):
    """A fork that can be made. ``again`` are receipts of actions that happened after the point, and may happen again.

    ``continued`` are steps that have started other runs after the point.
    """

    origin: Run
    point: Point
    digest: str
    done: tuple[tuple[str, str, str], ...]
    again: tuple[ReceiptRow, ...]
    continued: tuple[str, ...]

    def preview(self) -> Preview:
        """The preview of this fork, for people."""
        again = [*((row.step_key, row.operation) for row in self.again), *((key, "workflow") for key in self.continued)]
        return Preview(self.point.line, self.point.number, [(key, what) for key, what, _ in self.done], again)

    def event(self, run_key: bytes, reason: str) -> RunForked:
        """Make the event that begins the new run."""
        done = {key for key, _, _ in self.done}
        rows, state = self.origin.receipts.values(), self.point.state
        ids = sorted(str(one.receipt_id) for one in rows if _is_done(one.step_key, done, state))
        steps: list[Json] = [[*one] for one in self.done]
        committed = commit_fields(run_key, path_of("forked"), {"reason": reason})
        again: list[Json] = [str(one.receipt_id) for one in self.again]
        return RunForked(
            self.origin.run_id, self.point.line, self.digest, self.point.number, steps, [*ids], True, again or None,
            committed, reason, self.point.state.to_json(),
        )  # fmt: skip


def point_of(at: str, run: Run, events: Sequence[RecordedEvent], graph: Graph) -> Point:
    """Find the point at ``at``: the last checkpoint up to that line, or the first one that begins that step.

    ``run`` has no event yet; this folds all events into it. ``ConsistencyError`` if its graph changes on the way.
    """
    found: Point | None = None
    for recorded in events:
        if isinstance(recorded.event, RunExtended | RunMigrated):
            words = "Steps were added to the run, or it was moved to another version: its points are of several graphs."
            raise ConsistencyError(words, remedy="Start another run.")
        fold(run, recorded, graph)
        if isinstance(recorded.event, CheckpointCommitted):
            run.checkpoints.clear()
            here, line = run.state.open, recorded.seq or 0
            if line <= int(at) if at.isdecimal() else found is None and at in here:
                found = Point(line, recorded.event.number, run.state.copy())
    if found is None or (at.isdecimal() and int(at) >= len(events)):
        words = "The run has no such line behind a checkpoint, and has begun no step of this name."
        raise NotFoundError(words, remedy=ELSEWHERE)
    return found


def fork_of(run: Run, workflow: Workflow, point: Point, line: bytes, events: Sequence[RecordedEvent]) -> Fork:
    """Fork a run at this point. ``ConsistencyError`` says why that is not possible. ``run`` is folded in full."""
    if run.status not in RUN.terminal:
        raise ConsistencyError(f"The run is {run.status}: both would do the same.", remedy="Cancel it, then fork it.")
    state, graph = _without_begun(point.state), workflow.graph
    for problem in _unclear(state, graph):
        raise ConsistencyError(f"At line {point.line} {problem}.", remedy=ELSEWHERE)
    done = tuple(_done(state, graph))
    keys = {key for key, _, _ in done}
    after = [one for one in run.receipts.values() if not _is_done(one.step_key, keys, state)]
    if doubts := sorted({one.step_key for one in after if one.status in OPEN}):
        words = f"Nobody knows whether the action of {', '.join(doubts)} happened, so it may not be done again."
        raise ConsistencyError(words, remedy="Look outside, then start another run for what is left.")
    happened = (one for one in after if one.status is ReceiptStatus.SUCCEEDED and one.attempt)
    again = tuple(one for one in happened if one.operation not in workflow.operations or _acts(workflow, one))
    started = (one.step or "" for one in events if isinstance(one.event, RunContinued))
    continued = tuple(sorted({key for key in started if not _is_done(key, keys, state)}))
    return Fork(run, Point(point.line, point.number, state), sha256(line).hexdigest(), done, again, continued)


def _is_done(key: str, done: Container[str], state: State) -> bool:
    """True if the step is among ``done``, belongs to an agent among them, or to a loop that is over."""
    parsed = StepKey.of(key)
    return parsed.agent in done or any(scope[:-1].rpartition("[")[0] in state.status for scope in parsed.scopes[1:])


def _acts(workflow: Workflow, receipt: ReceiptRow) -> bool:
    return workflow.operations[receipt.operation].has_effect


def _done(state: State, graph: Graph) -> Iterator[tuple[str, str, str]]:
    for key, status in sorted(state.status.items()):
        node = StepKey.of(key).node
        if status != SKIPPED and node in graph.leaves:
            yield key, graph.leaves[node].operation, status


def _without_begun(state: State) -> State:
    """The state without what planning had just begun: open steps, waits, and loops without a result so far."""
    left = state.copy()
    left.open, left.parked = [], {}
    for key, loop in [*left.loops.items()]:
        within = f"{key}["
        held = (left.status, left.outputs, left.failures)
        if loop.next == len(loop.active) and not any(one.startswith(within) for names in held for one in names):
            del left.loops[key]
            left.branches = {one: value for one, value in left.branches.items() if not one.startswith(within)}
    return left


def _unclear(state: State, graph: Graph) -> Iterator[str]:
    """Yield the reasons why no run can begin from this state."""
    for key in state.loops:
        yield f"the loop {key} is under way, and has done a part of its rounds"
    for key in state.agents:
        yield f"the agent {key} is in the middle of its talk"
    for key in state.failures:
        yield f"the failure of {key} is being handled"
    for key in gates_passed(graph, state):
        yield f"{key} is over, where people may have let this run go on, and no other"
