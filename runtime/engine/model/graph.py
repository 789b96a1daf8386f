"""The canonical graph of a workflow: what the engine plans over.

A scope is an ordered list of nodes with explicit needs, sorted so that every node comes after what it needs. Composite
nodes (``if``, ``foreach``, ``while``) hold scopes of their own and have no step row; the leaves do. A leaf may hold
scopes as well: its branches, for the case that it fails.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Protocol, TypeAlias

from msgspec import Struct

from core.canonical import Json, JsonObject
from runtime.engine.model.errors import REJECTED, RELEASED, ErrorClass
from runtime.engine.model.keys import StepKey

# The variable with the waiting token, by which the outside reports the end of a durable operation.
HANDED_OUT = "wait.token"


class Renderable(Protocol):
    """A compiled expression, template or structure of templates. Pure; ``ExpressionError`` on any error."""

    @property
    def references(self) -> frozenset[str]:
        """The names of the variables that it reads."""

    def render(self, values: Mapping[str, object]) -> Json:
        """The value for these variables."""

    def literals(self) -> JsonObject:
        """The members of an object that are constant."""

    def word(self, path: tuple[str | int, ...]) -> str | None:
        """The text at this place if the document fixes it; None if it is computed, or if nothing stands there."""


class Reducer(StrEnum):
    """The way in which a channel combines its value and a new write."""

    REPLACE = "replace"
    APPEND = "append"
    MERGE = "merge"
    SUM = "sum"
    MAX = "max"
    MIN = "min"
    UNION = "union"


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel's declaration. ``keep`` bounds a list to its last items; ``initial`` is the value before any write.

    ``start`` computes that value from the trigger, if it is an expression. ``turns`` says that agents remember turns by
    this channel.

    ``ledger`` keeps every write in a row of its own, even if the channel keeps only few.
    """

    name: str
    reducer: Reducer = Reducer.REPLACE
    keep: int | None = None
    initial: Json = None
    ledger: bool = False
    start: Renderable | None = None
    turns: bool = False


class Branch(StrEnum):
    """The branches of a failed leaf. The run takes the most specific one for the failure."""

    FAILURE = "on_failure"
    TIMEOUT = "on_timeout"
    REJECTED = "on_rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafNode:
    """The base of every leaf. ``sets`` maps channels to expressions over ``output``; ``reference`` names the run.

    ``hold`` is the group that decides about the leaf if it fails, "" for none. With a group, the branch for failures is
    empty.
    """

    id: str
    index: int
    needs: tuple[str, ...]
    sets: Mapping[str, Renderable] = field(default_factory=dict)
    reference: Renderable | None = None
    branches: Mapping[Branch, Scope] = field(default_factory=dict)
    hold: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationNode(LeafNode):
    """A leaf that calls an operation. ``timeout`` bounds a durable one. ``heads`` is the title of its cards."""

    operation: str
    inputs: Renderable
    timeout: timedelta | None = None
    heads: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateNode(LeafNode):
    """A leaf that asks people whether to go on. ``terms`` is the JSON form of approvals.model.Terms."""

    summary: Renderable
    terms: JsonObject
    heads: str = ""
    operation: str = field(default="approve", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerNode(LeafNode):
    """A leaf that waits for a duration (``span``), or until a moment that an expression gives."""

    span: timedelta | None
    until: Renderable | None
    operation: str = field(default="wait.timer", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalNode(LeafNode):
    """A leaf that waits for a signal of this name with this correlation."""

    name: str
    correlate: Renderable
    timeout: timedelta | None
    operation: str = field(default="wait.signal", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNode(LeafNode):
    """A leaf that a person of ``group`` completes by filling in ``form``, a JSON Schema."""

    title: Renderable
    description: Renderable | None
    form: JsonObject
    group: str
    timeout: timedelta | None
    operation: str = field(default="task", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildNode(LeafNode):
    """A leaf that runs another workflow and gets its result. A ``version`` of None is the newest.

    ``abandons`` leaves the child running if this run ends first. ``inherit`` are the channels whose copies the child
    gets.
    """

    workflow: str
    version: int | None
    inputs: Renderable
    timeout: timedelta | None
    abandons: bool
    inherit: tuple[str, ...] = ()
    operation: str = field(default="run", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinueNode(LeafNode):
    """A leaf that starts another run and does not wait for it."""

    workflow: str
    version: int | None
    inputs: Renderable
    operation: str = field(default="continue_with", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLeaf(LeafNode, ABC):
    """A leaf whose turns and calls are steps of their own (``agent_node.AgentNode``)."""

    operation: str = field(default="agent", init=False)

    @abstractmethod
    def inner(self, key: StepKey, tool: str | None) -> Leaf:
        """The leaf of a turn, or of a call of this tool."""


@dataclass(frozen=True, slots=True)
class IfNode:
    """A condition that chooses one of two scopes, once."""

    id: str
    index: int
    needs: tuple[str, ...]
    condition: Renderable
    then: Scope
    otherwise: Scope


@dataclass(frozen=True, slots=True)
class ForeachNode:
    """A scope that runs once per item, up to ``max_parallel`` at a time; the item is visible as ``item_name``."""

    id: str
    index: int
    needs: tuple[str, ...]
    items: Renderable
    item_name: str
    max_parallel: int
    body: Scope


@dataclass(frozen=True, slots=True)
class WhileNode:
    """A scope that runs repeatedly while the condition holds, at most ``iterations_max`` times."""

    id: str
    index: int
    needs: tuple[str, ...]
    condition: Renderable
    iterations_max: int
    body: Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNode(LeafNode):
    """A leaf that writes to channels, or names the run, and calls nothing."""

    operation: str = field(default="set", init=False)


Leaf: TypeAlias = (
    OperationNode | GateNode | TimerNode | SignalNode | TaskNode | ChildNode | ContinueNode | SetNode | AgentLeaf
)
Composite: TypeAlias = IfNode | ForeachNode | WhileNode
Node: TypeAlias = Leaf | Composite


@dataclass(frozen=True, slots=True)
class Scope:
    """Nodes in an order in which every node comes after what it needs."""

    nodes: tuple[Node, ...]

    def walk(self) -> Iterator[Node]:
        """Every node, also inside composites and branches."""
        for node in self.nodes:
            yield node
            for scope in scopes_of(node):
                yield from scope.walk()


def scopes_of(node: Node) -> tuple[Scope, ...]:
    """The scopes that a node holds."""
    match node:
        case IfNode():
            return (node.then, node.otherwise)
        case ForeachNode() | WhileNode():
            return (node.body,)
        case _:
            return tuple(node.branches.values())


# Two sets of names that shape a node: what its expressions and those around it read, and what decides if it is taken.
Flow: TypeAlias = tuple[frozenset[str], frozenset[str]]


@dataclass(frozen=True)
class Graph:
    """A workflow version, ready to be run. ``leaves`` maps the id at the end of a step key to the leaf.

    ``read`` holds the ids whose output some expression reads: only those outputs are carried in checkpoints. ``failed``
    maps each node inside a branch to the leaf whose failure the branch handles. ``result`` gives the run's result,
    which its parent gets. ``flow`` is what shapes each node, by its id (``runtime.engine.book.plan``).
    """

    name: str
    version: int
    digest: str
    channels: Mapping[str, Channel]
    root: Scope
    leaves: Mapping[str, Leaf]
    read: frozenset[str]
    failed: Mapping[str, str] = field(default_factory=dict)
    result: Renderable | None = None
    flow: Mapping[str, Flow] = field(default_factory=dict)

    def leaf(self, step_key: str, tool: str | None = None) -> Leaf:
        """The leaf behind a step key such as ``assign``, ``each[3].assign`` or, with its tool, ``triage/3/2``."""
        key = StepKey.of(step_key)
        leaf = self.leaves[key.node]
        return leaf.inner(key, tool) if key.is_inner and isinstance(leaf, AgentLeaf) else leaf

    def fails_run(self, step_key: str, error: JsonObject) -> bool:
        """True if this failure fails the run: no branch and no agent handles it.

        A failure that may be held fails the run only if the step was not held.
        """
        return not StepKey.of(step_key).is_inner and self.branch(step_key, error) is None

    def branch(self, step_key: str, error: JsonObject) -> Branch | None:
        """The branch that handles this failure of this step; None if it fails the run."""
        leaf, branch = self._handled(step_key, error)
        holds = leaf is not None and leaf.hold and branch is Branch.FAILURE
        return None if holds and error.get(RELEASED) is not True else branch

    def held_by(self, step_key: str, error: JsonObject) -> str:
        """The group that decides about the step after this failure; "" if the step is not held."""
        leaf, branch = self._handled(step_key, error)
        return leaf.hold if leaf is not None and branch is Branch.FAILURE else ""

    def _handled(self, step_key: str, error: JsonObject) -> tuple[Leaf | None, Branch | None]:
        key = StepKey.of(step_key)
        leaf = None if key.is_inner else self.leaves.get(key.node)
        if leaf is None:
            return None, None
        specific = Branch.REJECTED if error.get("code") == REJECTED else None
        if error.get("class") == ErrorClass.TIMEOUT:
            specific = Branch.TIMEOUT
        for branch in (specific, Branch.FAILURE):
            if branch is not None and branch in leaf.branches:
                return leaf, branch
        return leaf, None


# The graph for moves that evaluate and plan nothing: they are possible even if the workflow cannot be read.
NO_GRAPH = Graph("", 0, "", {}, Scope(()), {}, frozenset())


class Window(Struct, frozen=True):
    """Some of a loop's items: those from the index ``start`` on."""

    start: int
    items: tuple[Json, ...]

    def get(self, index: int) -> Json:
        """The item with this index; ``NeedsItems`` if it is not among these."""
        if not self.start <= index < self.start + len(self.items):
            raise NeedsItems
        return self.items[index - self.start]


class NeedsItems(Exception):
    """The next item of a loop is not among those that were loaded."""
