"""Crossing a barrier: the writes of a super-step become state, and the next super-step is planned. Pure.

Planning needs the values of conditions and collections. A transition evaluates them, and records them as the
``choices`` of the checkpoint; the fold reads them back. So the fold evaluates nothing, and comes to the same state.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from core.budgets import most
from core.canonical import Json, JsonObject, canonical_bytes, derived_id
from core.errors import ExpressionError, InputError
from runtime.engine.book import contributors
from runtime.engine.book.instructions import is_reported
from runtime.engine.book.plan import Choices, Planned, Planner
from runtime.engine.model.graph import Channel, Graph, Reducer, Window
from runtime.engine.model.keys import StepKey
from runtime.engine.model.rows import CheckpointRow, LedgerRow, StepRow
from runtime.engine.model.run import SUCCEEDED, Failed, Run, State
from runtime.engine.model.states import STEP, StepState

# The key of the run's new reference among the writes of a step. No channel can have this name.
REFERENCE = "$reference"

# The largest state in bytes. Every checkpoint holds the whole state, so this bounds the work of a barrier.
STATE_BYTES_MAX = most("state_bytes")

_ITERATION = re.compile(r"[\[/](\d+)")


class Crossing(Struct, frozen=True):
    """The result of crossing a barrier: the checkpoint with its state, and what the super-step leaves behind.

    ``finished`` says that the graph is done; ``ending`` that the run ends here, because the step ``failed`` or because
    of a cancel. ``references`` are the run's new references, each with the key of the step that gave it.
    """

    state: State
    checkpoint: CheckpointRow
    finished: bool = False
    ending: bool = False
    failed: StepRow | None = None
    joined: tuple[StepRow, ...] = ()
    begun: tuple[StepRow, ...] = ()
    windows: Mapping[str, Window] = field(default_factory=dict)
    ledger: tuple[LedgerRow, ...] = ()
    references: tuple[tuple[str, str], ...] = ()


def step_order(row: StepRow) -> tuple[int, list[int], str]:
    """The order of a super-step's steps: by place in the graph, then by the iterations of their loops."""
    return row.index, [int(number) for number in _ITERATION.findall(row.key)], row.key


def cross(run: Run, graph: Graph, choices: Choices) -> Crossing:
    """Fold the writes of this super-step in step order, and plan the next one.

    ``PlanError`` if an expression of a composite fails, ``InputError`` for a channel that cannot take its write or a
    state without a canonical form. The run is left as it was.
    """
    state = run.state.copy()
    for key in run.anew:
        state.parked.pop(key, None)
    rows = [*run.steps.values()]
    if len(rows) > 1:
        rows.sort(key=step_order)
    current = [row for row in rows if row.superstep == run.superstep]
    if state.shaped or run.waits or run.votes:
        contributors.settled(run, state, current, graph)
    ledger: list[LedgerRow] = []
    references: list[tuple[str, str]] = []
    distinct: dict[str, Distinct] = {}
    for row in current:
        _take_in(state, row, graph, ledger, references, distinct)
    number = run.superstep + 1
    ended_badly = (row for row in current if row.status is StepState.FAILED_TERMINAL)
    failed = next((row for row in ended_badly if graph.fails_run(row.key, row.last_error or {})), None)
    if failed is not None or (run.canceling is not None and not _reports(run, rows, number)):
        checkpoint = checkpoint_of(number, state)
        return Crossing(state, checkpoint, ending=True, failed=failed, ledger=(*ledger,), references=(*references,))
    # A call that was resumed and then canceled in one super-step is over: it does not join the next one.
    joined = tuple(row for row in rows if row.superstep == number and row.status not in STEP.terminal)
    crossing = begin(run, graph, choices, state, number, joined)
    return replace(crossing, ledger=(*ledger,), references=(*references,))


def _reports(run: Run, rows: Iterable[StepRow], number: int) -> bool:
    """True if an agent has just reported on its action to a step: even a canceled run settles that step."""
    return any(row.superstep == number and row.status is StepState.READY and is_reported(run, row.key) for row in rows)


def begin(
    run: Run, graph: Graph, choices: Choices, state: State, number: int, joined: tuple[StepRow, ...] = ()
) -> Crossing:
    """Plan the super-step with this number on ``state``, which is changed in place."""
    planner = Planner(state, choices, run.windows)
    finished = planner.advance(graph.root, "")
    for row in joined:
        state.parked.pop(row.key, None)
        state.open.append(row.key)
    begun = tuple(
        StepRow(
            step_id=derived_id(run.run_id, f"step:{item.key}"),
            key=item.key,
            index=item.leaf.index,
            operation=item.leaf.operation if "/" not in item.key else _operation(run, graph, item),
            superstep=number,
            status=StepState.READY,
            lease_epoch=run.anew.get(item.key, 0),
            again=run.begun_anew if item.key in run.anew else 0,
        )
        for item in planner.ready
    )
    windows = {key: Window(0, tuple(many)) for key, many in planner.items.items()}
    return Crossing(
        state=state,
        checkpoint=checkpoint_of(number, state),
        finished=finished and not state.open,  # a call in doubt may outlive its agent
        joined=joined,
        begun=begun,
        windows=windows,
    )


def _operation(run: Run, graph: Graph, item: Planned) -> str:
    """The operation of a planned step; for a call of an agent, its tool's operation."""
    values = run.spoken.get(item.key)
    return item.leaf.operation if values is None else graph.leaf(item.key, values.tool).operation


def checkpoint_of(number: int, state: State) -> CheckpointRow:
    """The snapshot of a state. ``InputError`` for a state that is too large or has no canonical form."""
    content = state.to_json()
    data = canonical_bytes(content)
    if len(data) > STATE_BYTES_MAX:
        message = f"the run's state is {len(data)} bytes long; at most {STATE_BYTES_MAX} are kept"
        raise InputError(message, where="state", remedy="Keep references in channels, or bound a list by `keep`.")
    return CheckpointRow(number, content, sha256(data).hexdigest())


def _take_in(
    state: State,
    row: StepRow,
    graph: Graph,
    ledger: list[LedgerRow],
    references: list[tuple[str, str]],
    distinct: dict[str, Distinct],
) -> None:
    """Apply one step of the super-step to the state: its writes and output, or its failure."""
    key = StepKey.of(row.key)
    if key.is_inner:
        return  # the agent takes in what its turns and calls leave
    if row.status is StepState.SUCCEEDED and row.key not in state.status:
        state.agents.pop(row.key, None)
        writes = dict(row.writes or {})
        reference = writes.pop(REFERENCE, None)
        state.channels = fold_writes(graph.channels, state.channels, writes, distinct)
        ledger += [
            LedgerRow(name, row.superstep, row.key, value)
            for name, value in writes.items()
            if graph.channels[name].ledger
        ]
        if isinstance(reference, str):
            state.reference = reference
            references.append((row.key, reference))
        state.status[row.key] = SUCCEEDED
        if key.node in graph.read:
            state.outputs[row.key] = row.output
    elif row.status is StepState.FAILED_TERMINAL and row.key not in state.failures:
        branch = graph.branch(row.key, row.last_error or {})
        if branch is not None:
            state.agents.pop(row.key, None)
            # The part of the failure that the expressions of the branch can see.
            error = row.last_error or {}
            seen: dict[str, Json] = {name: str(error.get(name, "")) for name in ("class", "code", "message")}
            state.failures[row.key] = Failed(branch, {"step": row.key, **seen})


# -- the reducers of channels ------------------------------------------------------------------------


class Distinct(Struct):
    """The items of a list without duplicates, kept between the writes of one barrier."""

    items: list[Json]
    marks: set[bytes]

    @classmethod
    def of(cls, items: list[Json]) -> Distinct:
        """The distinct items of a list."""
        made = cls([], set())
        made.add(items)
        return made

    def add(self, items: list[Json]) -> None:
        """Add the items that are not there yet, in order."""
        added: list[Json] = []
        for item in items:
            if (mark := canonical_bytes(item)) not in self.marks:
                self.marks.add(mark)
                added.append(item)
        self.items = [*self.items, *added]


def fold_writes(
    channels: Mapping[str, Channel],
    values: JsonObject,
    writes: JsonObject,
    distinct: dict[str, Distinct] | None = None,
) -> JsonObject:
    """The channel values after one step's writes. ``ExpressionError`` names a channel that cannot take its write.

    ``distinct`` are the lists without duplicates of the same barrier, so that they are not compared again item by item.
    """
    result = dict(values)
    for name, value in writes.items():
        channel = channels[name]
        if channel.reducer is Reducer.UNION:
            new = _union(name, result.get(name), value, {} if distinct is None else distinct)
        else:
            new = _REDUCERS[channel.reducer](name, result.get(name), value)
        result[name] = new[-channel.keep :] if channel.keep is not None and isinstance(new, list) else new
    return result


def initial_values(channels: Mapping[str, Channel]) -> JsonObject:
    """The first values of all channels, as declared."""
    return {channel.name: channel.initial for channel in channels.values()}


def _merge(name: str, value: Json, write: Json) -> Json:
    if not isinstance(write, dict) or not (value is None or isinstance(value, dict)):
        raise ExpressionError("merges objects only", where=f"state.{name}")
    return {**(value or {}), **write}


def _union(name: str, value: Json, write: Json, distinct: dict[str, Distinct]) -> Json:
    """Add a value, or each item of a list, unless it is there already. The order is that of first appearance."""
    items, known = _list_of(name, value), distinct.get(name)
    if known is None or known.items is not items:
        known = distinct[name] = Distinct.of(items)
    known.add(write if isinstance(write, list) else [write])
    return known.items


def _number(choose: Callable[[Any, Any], Any]) -> Callable[[str, Json, Json], Json]:
    def reduce(name: str, value: Json, write: Json) -> Json:
        if not _is_number(write) or not (value is None or _is_number(value)):
            raise ExpressionError("takes numbers only", where=f"state.{name}")
        result: Json = write if value is None else choose(value, write)
        return result

    return reduce


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _list_of(name: str, value: Json) -> list[Json]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ExpressionError("holds no list to add to", where=f"state.{name}")
    return value


_REDUCERS: Mapping[Reducer, Callable[[str, Json, Json], Json]] = {
    Reducer.REPLACE: lambda name, value, write: write,
    Reducer.APPEND: lambda name, value, write: [*_list_of(name, value), write],
    Reducer.MERGE: _merge,
    Reducer.SUM: _number(lambda a, b: a + b),
    Reducer.MAX: _number(max),
    Reducer.MIN: _number(min),
}
