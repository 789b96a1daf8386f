"""Replay: a run's checkpoints derived again from its record, by the same transitions that made them (promise 5). Pure.

The record is the run's audit, which has the order, and the values beside it: outputs, errors, what waits ended with.
What steps wrote is evaluated again, not copied. Where record and kernel do not agree, ``Divergence`` says where.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product
from uuid import UUID

from core.canonical import Json, JsonObject
from core.errors import CountersealError
from evidence.chain import EventType
from evidence.commitments import blind, commit_fields, path_of
from runtime.kernel.commit import StepRow, WaitRow
from runtime.kernel.graph import ChildNode
from runtime.kernel.plan import Window
from runtime.kernel.record import Derived, Divergence, Fact, Record
from runtime.kernel.state import State
from runtime.kernel.states import RUN, STEP, RunState, StepEvent, StepState, WaitKind, WaitState
from runtime.kernel.transition import GIVEN_UP, Transition, wait_of

# So many combinations are tried where the record does not say how steps ended with their run.
_ENDINGS_MAX = 4096
_PARKING = (WaitKind.APPROVAL, WaitKind.SIGNAL, WaitKind.RETRY)


def replay(record: Record) -> Iterator[Derived]:
    """Every checkpoint of the record, derived in its order. ``Divergence`` where the record cannot be followed."""
    return _Replay(record).checkpoints()


class _Replay:
    def __init__(self, record: Record) -> None:
        self._record = record
        self._view = record.first
        self._graph = record.graphs[0]
        self._rows: dict[str, StepRow] = {}
        self._windows: dict[str, Window] = {}
        self._derived: deque[tuple[int, JsonObject, str]] = deque()
        self._resumed: dict[str, UUID] = {}

    def checkpoints(self) -> Iterator[Derived]:
        for fact in self._record.facts:
            try:
                self._follow(fact)
            except (CountersealError, LookupError, ValueError) as error:
                raise Divergence(str(fact), f"does not follow from what was before: {error}") from error
            if fact.type is EventType.CHECKPOINT_COMMITTED:
                number, state, found = self._derived.popleft()
                if number != fact.data["number"]:
                    raise Divergence(str(fact), f"is number {fact.data['number']}; what was before leads to {number}")
                yield Derived(number, state, found, str(fact.data["digest"]))
        if self._derived:
            raise Divergence("the record's end", f"leads to checkpoint {self._derived[0][0]}, which is not recorded")

    def _follow(self, fact: Fact) -> None:
        match fact.type:
            case EventType.RUN_OPENED:
                self._open(fact)
            case EventType.RUN_EXTENDED:
                self._extend(fact)
            case EventType.RUN_CANCELED:
                self._cancel(fact)
            case EventType.RUN_CLOSED:
                self._close(fact)
            case EventType.STEP_STARTED:
                self._start(fact)
            case EventType.STEP_SUCCEEDED:
                self._succeed(fact)
            case EventType.STEP_FAILED:
                self._fail(fact)
            case EventType.STEP_PARKED | EventType.STEP_RETRY_SCHEDULED:
                self._park(fact)
            case EventType.STEP_RESUMED:
                self._resume(fact)
            case EventType.WAIT_COMPLETED:
                self._complete(fact)
            case EventType.LEASE_EXPIRED:
                self._expire(fact)
            case EventType.CHECKPOINT_COMMITTED:
                self._checkpoint(fact)

    # -- a transition ------------------------------------------------------------------------------------------------

    def _begin(self) -> Transition:
        current = {key: row for key, row in self._rows.items() if row.superstep >= self._view.superstep}
        view = replace(self._view, steps=current, windows=self._windows, whole=True)
        return Transition(view, self._graph)

    def _keep(self, transition: Transition) -> None:
        """What the database would have: rows, the newest checkpoint, the items of loops."""
        commit = transition.commit()
        for row in commit.new_steps:
            self._rows[row.key] = replace(row, idempotency_key=self._record.steps[row.key].idempotency_key)
        for row in commit.steps:
            self._rows[row.key] = row
        begun: dict[str, list[Json]] = {}
        for item in commit.items:
            begun.setdefault(item.loop_key, []).append(item.item)
        self._windows.update({key: Window(0, tuple(items)) for key, items in begun.items()})
        state = self._view.state
        for row_ in commit.checkpoints:
            self._derived.append((row_.superstep, row_.state, row_.digest))
            state = State.from_json(row_.state)
        self._view = replace(
            self._view,
            status=commit.status,
            superstep=commit.superstep,
            executing=commit.executing,
            width=commit.width,
            head=commit.head,
            state=state,
            canceling=commit.canceling,
        )
        if commit.checkpoints:
            self._forget()

    def _forget(self) -> None:
        """Like a commit, a replay holds what is active, not what is done."""
        now = self._view.superstep
        self._rows = {k: row for k, row in self._rows.items() if row.superstep >= now or not STEP.terminal(row.status)}
        self._windows = {key: items for key, items in self._windows.items() if key in self._view.state.loops}

    def _step(self, fact: Fact) -> StepRow:
        row = self._rows.get(fact.step or "")
        if row is None:
            raise Divergence(str(fact), "is about a step that was not to run then")
        return row

    # -- the run -----------------------------------------------------------------------------------------------------

    def _open(self, fact: Fact) -> None:
        trigger = self._view.constants["trigger"]
        assert isinstance(trigger, dict)
        self._check_committed(fact, path_of("trigger"), trigger, "The trigger")
        transition = self._begin()
        transition.open(dict(fact.data), fact.actor)
        self._keep(transition)

    def _check_committed(self, fact: Fact, prefix: str, values: Mapping[str, object], what: str) -> None:
        """The stored values must be those that the audit committed to."""
        committed = fact.data.get("committed") or []
        if any(pair not in committed for pair in commit_fields(self._view.run_key, prefix, values)):
            raise Divergence(str(fact), f"{what} that is stored is not what was recorded")

    def _extend(self, fact: Fact) -> None:
        number = int(fact.data["number"])
        mutation = self._record.mutations[number - 1]
        self._check_committed(fact, path_of("mutation", str(number)), mutation.source, "The extension")
        before, self._graph = self._graph, self._record.graphs[number]
        # No checkpoint has carried outputs so far that only the new steps read.
        state = self._view.state.copy()
        for key in self._graph.read - before.read:
            if key in state.status and key not in state.outputs and key in self._record.steps:
                state.outputs[key] = self._record.steps[key].output
        self._view = replace(self._view, state=state)
        transition = self._begin()
        transition.extend(mutation, dict(fact.data), fact.actor)
        self._keep(transition)

    def _cancel(self, fact: Fact) -> None:
        transition = self._begin()
        transition.cancel(fact.actor, "")
        self._keep(transition)

    def _close(self, fact: Fact) -> None:
        at_once = self._view.status is RunState.QUEUED and not self._rows
        if not at_once and not RUN.terminal(self._view.status):
            self._end_untold(None)
        if not at_once and str(self._view.status) != fact.data["status"]:
            raise Divergence(str(fact), f"closes the run as {fact.data['status']}; here it is {self._view.status}")

    def _checkpoint(self, fact: Fact) -> None:
        if not self._derived:
            self._end_untold(fact.data["digest"])
        if not self._derived:
            raise Divergence(str(fact), "is a checkpoint that nothing on record leads to")

    def _end_untold(self, wanted: str | None) -> None:
        """Where nothing on record led to the barrier, steps ended in it of which no line tells: all ways are tried.

        A step that is canceled with its run leaves no line, nor does a question that was withdrawn before it was put.
        """
        rows = [row for row in self._rows.values() if row.status is StepState.RUNNING]
        ways = (*((None,) if self._view.canceling is not None else ()), *_PARKING)
        first: Transition | None = None
        for chosen in islice(product(ways, repeat=len(rows)), _ENDINGS_MAX if rows else 0):
            transition = self._end(rows, chosen)
            first = first or transition
            if wanted in [blind(self._view.run_key, row.digest) for row in transition.rows.checkpoints]:
                first = transition
                break
            if wanted is None:
                break
        if first is not None:
            self._keep(first)

    def _end(self, rows: Sequence[StepRow], chosen: Sequence[WaitKind | None]) -> Transition:
        transition = self._begin()
        for row, kind in zip(rows, chosen, strict=True):
            if kind is None:
                transition.cancel_step(row)
            else:
                transition.park(row, self._wait(row, kind))
        return transition

    # -- steps -------------------------------------------------------------------------------------------------------

    def _start(self, fact: Fact) -> None:
        """As a claim does; the first one starts the run."""
        step = self._step(fact)
        self._rows[step.key] = replace(
            step,
            status=STEP.next(step.status, StepEvent.CLAIM),
            attempt=int(fact.data["attempt"]),
            lease_epoch=int(fact.data["epoch"]),
            lease_owner=fact.actor.id,
        )
        if self._view.status is RunState.QUEUED:
            self._view = replace(self._view, status=RunState.RUNNING)

    def _succeed(self, fact: Fact) -> None:
        step, known = self._step(fact), self._record.steps[fact.step or ""]
        leaf, signal = self._graph.leaf(step.key), None
        wait = self._record.waits.get(self._resumed.get(step.key, UUID(int=0)))
        if wait is not None and wait.kind not in (WaitKind.APPROVAL, WaitKind.RETRY):
            result = wait.result or {}
            if result.get("output") != known.output:
                raise Divergence(str(fact), "has another output than what its wait ended with")
            signal = {"payload": known.output, "by": result.get("by"), "kind": str(wait.kind)}
        elif isinstance(leaf, ChildNode):
            signal = {"payload": known.output, "by": None, "kind": "child"}
        transition = self._begin()
        self._record.settle(transition, step, leaf, known.output, signal)
        ended = transition.steps[step.key]
        if ended.status is not StepState.SUCCEEDED:
            message = (ended.last_error or {}).get("message")
            raise Divergence(str(fact), f"succeeded on record; from what is stored it fails: {message}")
        self._keep(transition)

    def _fail(self, fact: Fact) -> None:
        step, error = self._step(fact), self._record.steps[fact.step or ""].last_error or {}
        if any(fact.data.get(name) != error.get(name) for name in ("class", "code")):
            raise Divergence(str(fact), "has another error than the one that is stored")
        transition = self._begin()
        if GIVEN_UP.get(str(error.get("code"))) in error:
            transition.give_up(step, error)
        else:
            transition.fail(step, error)
        self._keep(transition)

    def _park(self, fact: Fact) -> None:
        step = self._step(fact)
        retry = fact.type is EventType.STEP_RETRY_SCHEDULED
        transition = self._begin()
        transition.park(step, self._wait(step, WaitKind.RETRY if retry else WaitKind(fact.data["kind"])))
        self._keep(transition)

    def _wait(self, step: StepRow, kind: WaitKind) -> WaitRow:
        return WaitRow(wait_of(self._view.run_id, step), step.step_id, step.key, kind, WaitState.WAITING, "")

    def _resume(self, fact: Fact) -> None:
        step = self._step(fact)
        self._resumed[step.key] = UUID(str(fact.data["invocation"]).removeprefix("resume:"))
        transition = self._begin()
        transition.resume(step, self._wait(step, WaitKind.SIGNAL))
        self._keep(transition)

    def _complete(self, fact: Fact) -> None:
        wait_id = UUID(str(fact.data["wait"]))
        result = {name: value for name, value in (self._record.waits[wait_id].result or {}).items() if name != "by"}
        self._check_committed(fact, path_of("wait", str(wait_id)), result, "The result of a wait")

    def _expire(self, fact: Fact) -> None:
        transition = self._begin()
        transition.expire_lease(self._step(fact))
        self._keep(transition)
