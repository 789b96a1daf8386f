"""Decides if a waiting run can go on with another version of its workflow, and what people are asked anew. Pure.

A step is identified by its id: the other version must have every begun step under its id, in the same place, and of the
same kind. So nothing is done a second time, and no gate is left out. In any doubt the move is refused, and the run
stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from core.canonical import Json, JsonObject
from core.documents import load_document
from core.errors import ConsistencyError, InputError
from core.validation import validate
from evidence.receipts import ReceiptStatus
from runtime.definition.model import StepDocument, WorkflowDocument
from runtime.engine.model.graph import (
    AgentLeaf,
    ChildNode,
    ContinueNode,
    GateNode,
    Graph,
    LeafNode,
    Node,
    OperationNode,
    Scope,
    scopes_of,
)
from runtime.engine.model.keys import StepKey
from runtime.engine.model.rows import LATER
from runtime.engine.model.run import SKIPPED, Run
from runtime.engine.model.states import RUN, RunState, StepState, WaitKind
from runtime.engine.model.workflow import Workflow

# The keys for the steps inside a step and for its place; the other keys describe the step itself.
_PLACE = frozenset({"id", "needs", "on_failure", "on_timeout", "on_rejected", "then", "else", "steps"})
# The keys for a step's writes, its place, and the steps inside it; the others are its work and the texts of its cards.
_BESIDES = _PLACE | {"set", "reference"}
_INSIDE = (
    ("then", "then"), ("else_", "else"), ("steps", "steps"), ("on_failure", "on_failure"),
    ("on_timeout", "on_timeout"), ("on_rejected", "on_rejected"),
)  # fmt: skip
_OPEN = (ReceiptStatus.INTENDED, ReceiptStatus.IN_DOUBT)
# The waits after which a step is proposed and judged anew, so that it then does what the new version says.
_PROPOSED_ANEW = (WaitKind.APPROVAL, WaitKind.RETRY, WaitKind.PAUSE, WaitKind.HOLD, LATER)


class Placed(Struct, frozen=True):
    """A step as its author wrote it: its whole text, its work, its place, and a flag if it has an id of its own."""

    written: JsonObject
    does: JsonObject
    around: tuple[tuple[str, str], ...]
    named: bool


class Version(Struct, frozen=True):
    """A version, with its steps as they were written, its nodes, and the gates that come before each."""

    workflow: Workflow
    placed: Mapping[str, Placed]
    nodes: Mapping[str, Node]
    gates_before: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, workflow: Workflow) -> Version:
        """Read a version."""
        content = validate(load_document(workflow.text, workflow.name), WorkflowDocument)
        nodes = {node.id: node for node in workflow.graph.root.walk()}
        before = dict(_gates_before(workflow.graph.root, frozenset()))
        return cls(workflow, dict(_placed(content.steps, ("steps",), ())), nodes, before)

    def does(self, name: str) -> JsonObject | None:
        """The work of the step with this id; None if the step is not known."""
        placed = self.placed.get(name)
        return None if placed is None else placed.does

    def written(self, name: str) -> Json:
        """Everything that decides if, how often and with which values the step is done, also in the steps around it."""
        placed = self.placed.get(name)
        if placed is None:
            return None
        holders = [self.placed[holder].written for holder, _ in placed.around]
        return [placed.written, *holders, *(part for _, part in placed.around)]

    def sets(self, name: str) -> bool:
        """True if the step writes channels, which others may read."""
        return name in self.placed and "set" in self.placed[name].written

    def has_effect(self, name: str) -> bool:
        """True if the step may change something outside."""
        node = self.nodes[name]
        if isinstance(node, OperationNode):
            return self.workflow.operations[node.operation].has_effect
        return isinstance(node, ChildNode | ContinueNode | AgentLeaf)


def asked_anew(run: Run, before: Workflow, after: Workflow) -> tuple[str, ...]:
    """The keys of the waiting steps whose questions change by the migration. ``run`` is folded in full.

    ``ConsistencyError`` says why the run cannot be moved.
    """
    _check_parked(run, before)
    old, new = Version.of(before), Version.of(after)
    _check_declared(before, after)
    begun = _begun_keys(run)
    _check_begun(run, begun, old, new)
    _check_gates(run, begun, old, new)
    _check_twice(begun, old, new)
    _check_channels(before.graph, after.graph)
    changed = _changed_ahead(run, begun, old, new)
    _check_passed(run, begun, old, new, changed)
    return tuple(_asked_otherwise(run, old, new, changed))


def _refuse(words: str, remedy: str = "It stays on its version: let it end, or cancel it and start another.") -> None:
    raise ConsistencyError(words, remedy=remedy)


def _check_parked(run: Run, before: Workflow) -> None:
    if run.status in RUN.terminal or run.canceling is not None:
        _refuse(f"The run is {'being canceled' if run.canceling else run.status}: nothing of it is left to be done.")
    moving = [key for key, row in run.steps.items() if row.status in (StepState.READY, StepState.RUNNING)]
    if moving or run.executing or run.status is RunState.QUEUED or not run.state.parked:
        words = f"The step {moving[0]} is in the middle of its work" if moving else "The run does not wait"
        _refuse(f"{words}; only a run that waits is moved.", "Try again when it waits.")
    if doubts := sorted({row.step_key for row in run.receipts.values() if row.status in _OPEN}):
        _refuse(f"Nobody knows yet whether the action of {doubts[0]} happened.", "Let that be found out first.")
    if run.mutations:
        _refuse("Steps were added to this run, and no version has them.")


def _check_declared(before: Workflow, after: Workflow) -> None:
    for name in sorted(before.operations.keys() & after.operations.keys()):
        if before.operations[name].digest != after.operations[name].digest:
            _refuse(f"The declaration of {name} is another one in version {after.version}.")


def _begun_keys(run: Run) -> dict[str, set[str]]:
    """The keys of the steps that have begun or were left out, by step id."""
    state, found = run.state, dict[str, set[str]]()
    receipts = (row.step_key for row in run.receipts.values())
    every = (run.past, run.steps, state.status, state.parked, state.failures, state.branches, state.loops, receipts)
    for key in (key for keys in every for key in keys):
        found.setdefault(StepKey.of(key).node, set()).add(key)
    return found


def _left_out(run: Run, keys: Iterable[str]) -> bool:
    return all(run.state.status.get(key) == SKIPPED for key in keys)


def _check_begun(run: Run, begun: Mapping[str, set[str]], old: Version, new: Version) -> None:
    """Refuse a version in which a begun step is missing, is of another kind, or is in another place."""
    for name, keys in sorted(begun.items()):
        node, then = old.nodes.get(name), new.nodes.get(name)
        if node is None and then is not None:
            _refuse(f"The step {name} was left out before the run was moved last, and version {_at(new)} has it.")
        if node is None or then is None:
            if not _left_out(run, keys):
                _refuse(f"The step {name} has begun, and version {_at(new)} has no such step.")
            continue
        if type(then) is not type(node) or getattr(then, "operation", "") != getattr(node, "operation", ""):
            _refuse(f"The step {name} has begun, and is of another kind in version {_at(new)}.")
        if name not in old.placed or name not in new.placed or old.placed[name].around != new.placed[name].around:
            _refuse(f"The step {name} has begun, and stands elsewhere in version {_at(new)}.")
        if old.does(name) != new.does(name) and (problem := _bound(run, name, keys, old)):
            _refuse(f"The step {name} {problem}, and does something else in version {_at(new)}.")


def _bound(run: Run, name: str, keys: Iterable[str], old: Version) -> str:
    """The reason why the work of the step may not change any more; "" if it may."""
    parked = {key: run.state.parked[key].partition(":")[0] for key in keys if key in run.state.parked}
    node = old.nodes[name]
    if not old.placed[name].named:
        return "has begun under no id of its own"
    if not isinstance(node, LeafNode) and not _is_over(run, keys):
        return "is under way"
    if isinstance(node, AgentLeaf) and any(key in run.state.agents for key in keys):
        return "is an agent under way"
    if any(kind not in _PROPOSED_ANEW for kind in parked.values()):
        return f"waits ({', '.join(sorted(parked.values()))})"
    if isinstance(node, GateNode) and set(keys) - parked.keys() and not _left_out(run, set(keys) - parked.keys()):
        return "is a gate that people have passed"
    return ""


def _is_over(run: Run, keys: Iterable[str]) -> bool:
    return not any(key in run.state.branches or key in run.state.loops for key in keys)


def _check_gates(run: Run, begun: Mapping[str, set[str]], old: Version, new: Version) -> None:
    """Refuse a version in which the run would skip a gate: an old one that it has not passed, or a new one."""
    waits, again = _going(run, begun, old)
    ahead = {
        name for name in old.nodes.keys() - (begun.keys() - waits - again)
        if _is_gate(old, name) and not _in_skipped(run, old, name)
    }  # fmt: skip
    for gate in sorted(ahead):
        if gate not in new.nodes or not _is_gate(new, gate):
            _refuse(f"The run has still to pass {gate}, and version {_at(new)} has no such gate.")
    for name in sorted(new.nodes.keys() - (begun.keys() - again)):
        if not isinstance(new.nodes[name], LeafNode):
            continue
        gates = old.gates_before.get(name, frozenset(ahead) if new.has_effect(name) else frozenset())
        if missing := sorted((gates & ahead) - new.gates_before[name] - {name}):
            _refuse(f"In version {_at(new)} {name} no longer comes after {missing[0]}, a gate still ahead.")
    for gate in sorted(name for name in new.nodes if _is_gate(new, name) and name not in begun):
        moved = gate not in old.placed or gate not in new.placed or old.placed[gate].around != new.placed[gate].around
        if moved and any(holder in begun for holder, _ in new.placed[gate].around):
            _refuse(f"The gate {gate} of version {_at(new)} is inside of what has begun already.")
        if late := sorted(name for name in begun if name in new.nodes and gate in new.gates_before[name]):
            _refuse(f"The gate {gate} of version {_at(new)} comes before {late[0]}, which has begun.")


def _at(version: Version) -> int:
    return version.workflow.version


def _is_gate(version: Version, name: str) -> bool:
    """True for a gate, and for a child run, which may contain one."""
    return isinstance(version.nodes[name], GateNode | ChildNode)


def _in_skipped(run: Run, version: Version, name: str) -> bool:
    """True if the step is in a part that is over or was left out, so that the run never reaches it."""
    placed = version.placed.get(name)
    return placed is not None and any(holder in run.state.status for holder, _ in placed.around)


def _check_twice(begun: Mapping[str, set[str]], old: Version, new: Version) -> None:
    """Refuse a version in which another step would repeat what a begun step has done."""
    for name in sorted(new.nodes.keys() - begun.keys()):
        if not isinstance(new.nodes[name], LeafNode) or not new.has_effect(name):
            continue
        does = new.does(name)
        if does is None:
            _refuse(f"The step {name} of version {_at(new)} cannot be compared.")
        if does == old.does(name):
            continue
        for done in sorted(begun):
            if isinstance(old.nodes.get(done), LeafNode) and old.has_effect(done) and old.does(done) == does:
                _refuse(f"In version {_at(new)} {name} would do again what {done} has done.")


def _check_channels(before: Graph, after: Graph) -> None:
    for name, channel in sorted(before.channels.items()):
        now = after.channels.get(name)
        if now is None or (now.reducer, now.ledger) != (channel.reducer, channel.ledger):
            _refuse(f"The channel {name} is gone, or is folded otherwise, in version {after.version}.")


def _going(run: Run, begun: Mapping[str, set[str]], version: Version) -> tuple[set[str], set[str]]:
    """The waiting steps, and the steps in loops under way: both have begun, and have still work to do."""
    loops = {StepKey.of(key).node for key in run.state.loops}
    waits = {name for name, keys in begun.items() if any(key in run.state.parked for key in keys)}
    return waits, {name for name, one in version.placed.items() if any(holder in loops for holder, _ in one.around)}


def _changed_ahead(run: Run, begun: Mapping[str, set[str]], old: Version, new: Version) -> set[str]:
    """The steps ahead whose work or writes differ from those of the old version."""
    waits, again = _going(run, begun, old)
    over = begun.keys() - waits - again
    leaves = {name for name, node in new.nodes.items() if isinstance(node, LeafNode) and not isinstance(node, GateNode)}
    return {
        name for name in leaves - over
        if (old.written(name) != new.written(name) if name in old.nodes else new.has_effect(name) or new.sets(name))
    } | {name for name in old.nodes.keys() - new.nodes.keys() - over if old.sets(name)}  # fmt: skip


def _after(gate: str, name: str, old: Version, new: Version) -> bool:
    return any(gate in version.gates_before.get(name, ()) for version in (old, new))


def _check_passed(run: Run, begun: Mapping[str, set[str]], old: Version, new: Version, changed: Iterable[str]) -> None:
    """Refuse a version that changes the work after a passed gate, unless another gate is ahead of that work."""
    waits, again = _going(run, begun, old)
    gates = {name for name in begun if isinstance(old.nodes.get(name), GateNode)}
    passed = {name for name in gates if not _left_out(run, begun[name] - run.state.parked.keys())}
    ahead = {name for name, node in new.nodes.items() if isinstance(node, GateNode)} - (begun.keys() - waits - again)
    for name in sorted(changed):
        if ahead & new.gates_before.get(name, frozenset()) and name not in waits:
            continue  # people are asked about it anew
        for gate in sorted(passed):
            if _after(gate, name, old, new):
                _refuse(
                    f"People have passed {gate}, and in version {_at(new)} what comes after it, {name}, is another.",
                    "Put a gate before it, which people pass anew; or let the run end, or cancel it.",
                )


def _asked_otherwise(run: Run, old: Version, new: Version, changed: Iterable[str]) -> Iterator[str]:
    """Yield the waiting steps that ask something else, and the open gates before changed work."""
    for key, kind in sorted(run.state.parked.items()):
        name = StepKey.of(key).node
        later = isinstance(old.nodes.get(name), GateNode) and any(_after(name, one, old, new) for one in changed)
        if kind.partition(":")[0] == WaitKind.APPROVAL and (later or old.does(name) != new.does(name)):
            yield key


def _placed(
    steps: Sequence[StepDocument], path: tuple[str | int, ...], around: tuple[tuple[str, str], ...]
) -> Iterator[tuple[str, Placed]]:
    """Yield each step under the id that the compiler gives it."""
    for number, step in enumerate(steps):
        at = (*path, number)
        words = "_".join(str(part) for part in at[1:] if part != "steps")
        name = step.id or f"{(step.kinds() or ['step'])[0]}_{words}"
        document: dict[str, Any] = step.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        written = {key: value for key, value in document.items() if key not in _PLACE}
        does = {key: value for key, value in written.items() if key not in _BESIDES}
        yield name, Placed(written, does, around, step.id is not None)
        for field, key in _INSIDE:
            inside = getattr(step, field)
            if isinstance(inside, tuple):
                yield from _placed(inside, (*at, key), (*around, (name, key)))


def _gates_before(scope: Scope, inherited: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each node with the gates that must be over before it begins: those that it, or a node around it, needs."""
    known, held = dict[str, frozenset[str]](), dict[str, frozenset[str]]()
    for node in scope.nodes:
        held[node.id] = frozenset(one.id for one in Scope((node,)).walk() if isinstance(one, GateNode | ChildNode))
        known[node.id] = inherited.union(*(known[need] | held[need] for need in node.needs))
        yield node.id, known[node.id]
        for inner in scopes_of(node):
            yield from _gates_before(inner, known[node.id])


def check_trigger(after: Workflow, trigger: JsonObject) -> None:
    """Refuse a version whose trigger does not accept the run's own trigger."""
    try:
        after.check_trigger(trigger)
    except InputError as error:
        _refuse(f"Version {after.version} does not take what has started the run: {error}")
