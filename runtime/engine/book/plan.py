"""Planning: decides which leaves become runnable after what is done. Pure and deterministic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field

from core.budgets import most
from core.canonical import Json, canonical_bytes
from core.errors import ConsistencyError, ExpressionError, InputError
from runtime.engine.book import contributors
from runtime.engine.book.agent_plan import due
from runtime.engine.model.agent_node import AgentNode
from runtime.engine.model.graph import (
    Branch,
    ChildNode,
    Flow,
    ForeachNode,
    Graph,
    IfNode,
    Leaf,
    LeafNode,
    Node,
    Renderable,
    Scope,
    WhileNode,
    Window,
    scopes_of,
)
from runtime.engine.model.keys import StepKey
from runtime.engine.model.run import FAILED, SKIPPED, SUCCEEDED, Loop, State

# The most items of a loop, and their most bytes. A checkpoint records them, so these bound what its commit writes.
LOOP_ITEMS_MAX = most("loop_items")
LOOP_BYTES_MAX = most("loop_bytes")
# The number of next items of a loop that a stored run holds. When they are used up, the book is folded anew.
WINDOW = 100
# The variable with the number of a checkpoint: the one that a step begins from, or that a condition is part of.
CHECKPOINT = "run.checkpoint"


class Planned(Struct, frozen=True):
    """One leaf that has become runnable."""

    key: str
    leaf: Leaf


class PlanError(Exception):
    """An expression of the composite with the key ``node`` failed, so the run fails. It never counts as false."""

    def __init__(self, node: str, error: ExpressionError) -> None:
        super().__init__(f"{node}: {error}")
        self.node = node
        self.error = error


class Choices(Protocol):
    """The values that conditions and collections give when planning asks for them."""

    def choose(self, state: State, source: Renderable, key: str) -> Json:
        """The value of a composite's expression. ``PlanError`` if it has none."""


class Evaluated(Struct):
    """Evaluates each choice, and notes it in ``made`` under the composite's key. ``checkpoint`` is the next number."""

    graph: Graph
    constants: Mapping[str, object]
    checkpoint: int
    made: list[Json] = field(default_factory=list)

    def choose(self, state: State, source: Renderable, key: str) -> Json:
        """The value that the expression has in this state."""
        try:
            seen = variables(self.graph, state, self.constants, key)
            seen[CHECKPOINT] = self.checkpoint
            value = source.render(seen)
        except ExpressionError as error:
            raise PlanError(key, error) from None
        self.made.append([key, value])
        return value


class Recorded:
    """Reads choices back in the order in which they were made. ``ConsistencyError`` if another key is asked for."""

    def __init__(self, made: Iterable[Json]) -> None:
        self._made = iter(made)

    def choose(self, state: State, source: Renderable, key: str) -> Json:
        """The next recorded value."""
        match next(self._made, None):
            case [str(at), value] if at == key:
                return value
            case other:
                raise ConsistencyError(f"planning asks for {key}; recorded next is {other!r}")


def variables(graph: Graph, state: State, constants: Mapping[str, object], key: str) -> Variables:
    """Everything that an expression of the node with this key sees: the run, channels, visible steps, items.

    In a branch for failures, also the error. The caller adds the checkpoint's number.
    """
    # The outermost scope "" first, then each loop iteration inwards, so that inner names win.
    parsed = StepKey.of(key)
    values = Variables(constants)
    values.state, values.scopes = state, parsed.scopes[::-1]
    values["step.id"] = parsed.own
    if state.reference is not None:
        values["run.reference"] = state.reference
    for scope in parsed.scopes[1:]:
        loop_key, _, index = scope[:-2].rpartition("[")
        loop = state.loops.get(loop_key)
        if parsed.is_inner and (loop is None or int(index) not in loop.active):
            continue  # a call in doubt has outlived its agent's iteration
        loop = state.loops[loop_key]
        values["index"] = int(index)
        if loop.total is not None:
            values["item"] = values[loop.name] = loop.active[int(index)]
    leaf = None if parsed.is_inner else graph.failed.get(parsed.node)
    if leaf is not None:
        error = next(state.failures[scope + leaf].error for scope in values.scopes if scope + leaf in state.failures)
        values.update({f"error.{name}": value for name, value in error.items()})
    return values


class Variables(dict[str, object]):
    """The variables that expressions see. Channels and steps are looked up only when they are read.

    ``scopes`` are the prefixes of the visible steps' keys, innermost first.
    """

    state: State
    scopes: Sequence[str]

    def __missing__(self, name: str) -> object:
        head, _, rest = name.partition(".")
        if head == "state":
            return self.state.channels[rest]
        step, _, what = rest.rpartition(".")
        held: Mapping[str, object] = self.state.outputs if what == "output" else self.state.status
        for scope in self.scopes if head == "steps" else ():
            if scope + step in held:
                return held[scope + step]
        raise KeyError(name)


class Planner(Struct):
    """Plans the scopes of ``state`` as far as possible without executing anything; ``state`` is changed in place.

    ``ready`` are the leaves that have become runnable, in graph order, ``items`` those of loops that have begun, by the
    loop's key. ``NeedsItems`` if a loop goes on with items that ``windows`` does not hold.
    """

    state: State
    choices: Choices
    windows: Mapping[str, Window]
    ready: list[Planned] = field(default_factory=list)
    items: dict[str, list[Json]] = field(default_factory=dict)

    def advance(self, scope: Scope, prefix: str) -> bool:
        """Plan the scope's nodes; true if every one is done."""
        done = True
        for node in scope.nodes:
            key = prefix + node.id
            if key in self.state.status:
                continue
            over = False
            if all(prefix + need in self.state.status for need in node.needs):
                match node:
                    case IfNode():
                        over = self._branch(node, key, prefix)
                    case ForeachNode():
                        over = self._loop(node, key)
                    case WhileNode():
                        over = self._repeat(node, key)
                    case _ if key in self.state.failures:
                        over = self._failed(node, key, prefix)
                    case AgentNode() if key in self.state.parked and key in self.state.agents:
                        self._turn(node, key)
                    case _ if key not in self.state.open and key not in self.state.parked:
                        self.state.open.append(key)
                        self.ready.append(Planned(key, node))
            done &= over
        return done

    def _failed(self, node: Leaf, key: str, prefix: str) -> bool:
        """Plan the branch of a failed leaf. Once it is done the leaf is over, and the run goes on."""
        if not self.advance(node.branches[Branch(self.state.failures[key].branch)], prefix):
            return False
        del self.state.failures[key]
        self.state.status[key] = FAILED
        return True

    def _turn(self, node: AgentNode, key: str) -> None:
        """Begin the next turn of an agent, or those calls of its last one that can begin."""
        for inner in due(node, key, self.state.agents[key]):
            self.state.open.append(inner)
            self.ready.append(Planned(inner, node.turn))

    def _branch(self, node: IfNode, key: str, prefix: str) -> bool:
        state = self.state
        if key not in state.branches:
            state.branches[key] = bool(self._value(node.condition, key, bool))
            self._skip(node.otherwise if state.branches[key] else node.then, prefix)
        chosen = node.then if state.branches[key] else node.otherwise
        if not self.advance(chosen, prefix):
            return False
        del state.branches[key]
        state.status[key] = SUCCEEDED
        return True

    def _skip(self, scope: Scope, prefix: str) -> None:
        for node in scope.nodes:
            self.state.status[prefix + node.id] = SKIPPED
            if isinstance(node, IfNode):
                self._skip(node.then, prefix)
                self._skip(node.otherwise, prefix)

    def _loop(self, node: ForeachNode, key: str) -> bool:
        if key not in self.state.loops:
            self.items[key] = self._items(node, key)
            self.state.loops[key] = Loop(node.item_name, len(self.items[key]), 0, {})
        loop = self.state.loops[key]
        assert loop.total is not None
        for index in list(loop.active):
            self._iterate(node.body, loop, key, index)
        while loop.next < loop.total and len(loop.active) < node.max_parallel:
            index = loop.next
            fresh = self.items.get(key)
            loop.active[index] = fresh[index] if fresh is not None else self.windows.get(key, Window(0, ())).get(index)
            loop.next += 1
            self._iterate(node.body, loop, key, index)
        return not loop.active and self._close_loop(key, loop.total)

    def _items(self, node: ForeachNode, key: str) -> list[Json]:
        items = self._value(node.items, key, list)
        assert isinstance(items, list)
        if len(items) > LOOP_ITEMS_MAX:
            raise PlanError(key, ExpressionError(f"has {len(items)} items; at most {LOOP_ITEMS_MAX} are taken"))
        try:
            size = len(canonical_bytes(items))
        except InputError as error:
            raise PlanError(key, ExpressionError(f"has an item that cannot be recorded: {error.message}")) from None
        if size > LOOP_BYTES_MAX:
            raise PlanError(key, ExpressionError(f"has {size} bytes of items; at most {LOOP_BYTES_MAX} are taken"))
        return items

    def _repeat(self, node: WhileNode, key: str) -> bool:
        loop = self.state.loops.setdefault(key, Loop("", None, 0, {}))
        while True:
            for index in list(loop.active):
                self._iterate(node.body, loop, key, index)
            if loop.active:
                return False
            if not self._value(node.condition, key, bool):
                return self._close_loop(key, loop.next)
            if loop.next >= node.iterations_max:
                message = f"still holds after {loop.next} iterations; at most {node.iterations_max} are done"
                raise PlanError(key, ExpressionError(message, remedy="Raise `max`, or let the condition end."))
            loop.active[loop.next] = None
            loop.next += 1

    def _close_loop(self, key: str, count: int) -> bool:
        del self.state.loops[key]
        self.state.status[key] = SUCCEEDED
        self.state.outputs[key] = {"count": count}
        return True

    def _iterate(self, body: Scope, loop: Loop, key: str, index: int) -> None:
        prefix = f"{key}[{index}]."
        if self.advance(body, prefix):
            del loop.active[index]
            for held in (self.state.status, self.state.outputs):
                for finished in [name for name in held if name.startswith(prefix)]:
                    del held[finished]
            contributors.forget(self.state, prefix)

    def _value(self, source: Renderable, key: str, kind: type) -> Json:
        value = self.choices.choose(self.state, source, key)
        if not isinstance(value, kind):
            wanted = "true or false" if kind is bool else "a list"
            raise PlanError(key, ExpressionError(f"gave {type(value).__name__}, not {wanted}"))
        return value


# The fields of nodes that hold an expression, besides what a leaf sets.
_SOURCES = (
    *("inputs", "summary", "until", "correlate", "title", "description", "reference", "condition", "items"),
    *("instructions", "input"),
)


def flow_of(root: Scope) -> Mapping[str, Flow]:
    """The channels (``state.x``), steps (``steps.x``), answers (``votes.x``) and reference that shape each node.

    By the node's id, two sets. The first is what its own expressions read, and those of the conditions and loops around
    it. The second is what decides if, or how often, the node is taken.
    """
    return dict(_flow(root, frozenset()))


def _flow(scope: Scope, around: frozenset[str], failed: str = "") -> Iterator[tuple[str, Flow]]:
    for node in scope.nodes:
        reads, leaf = around.union(_reads(node, failed)), isinstance(node, LeafNode)
        yield node.id, (reads, around if leaf else reads)
        for inner in scopes_of(node):  # a branch of a leaf is taken because of what became of the leaf
            within = (around | {f"steps.{node.id}"}, node.id) if leaf else (reads, failed)
            yield from _flow(inner, *within)


def _reads(node: Node, failed: str) -> Iterator[str]:
    sources = [getattr(node, name, None) for name in _SOURCES]
    for source in [*sources, *(node.sets.values() if isinstance(node, LeafNode) else ())]:
        for name in source.references if source is not None else ():
            head, _, rest = name.partition(".")
            if head == "steps":
                step, _, what = rest.rpartition(".")
                yield from (f"steps.{step}", f"votes.{step}") if what == "output" else (f"steps.{step}",)
            elif head == "error":
                yield f"votes.{failed}"
                if rest in ("message", "code"):
                    yield f"errors.{failed}"
            elif head == "state" or name == "run.reference":
                yield name
    yield from (f"state.{name}" for name in (node.inherit if isinstance(node, ChildNode) else ()))
