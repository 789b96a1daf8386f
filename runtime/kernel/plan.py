"""Planning: which leaves become runnable, given what is done (P-1, X-11, X-12). Pure and deterministic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.canonical import Json
from core.errors import ExpressionError
from runtime.kernel.graph import ForeachNode, GateNode, Graph, IfNode, Leaf, Node, OperationNode, Renderable, Scope
from runtime.kernel.state import SKIPPED, SUCCEEDED, Loop, State

# A loop's items live in the checkpoint; more than this would make every commit of the run a large one.
LOOP_ITEMS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Planned:
    """One leaf that has become runnable."""

    key: str
    leaf: Leaf


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome of planning: new leaves in graph order, and whether the whole graph is done."""

    ready: tuple[Planned, ...]
    finished: bool


class PlanError(Exception):
    """An expression of a composite failed; ``node`` is its key. The run fails (never: the branch is not taken)."""

    def __init__(self, node: str, error: ExpressionError) -> None:
        super().__init__(f"{node}: {error}")
        self.node = node
        self.error = error


def variables(state: State, constants: Mapping[str, object], prefix: str) -> dict[str, object]:
    """Everything an expression inside the scope ``prefix`` sees: run constants, channels, visible steps, loop items."""
    values: dict[str, object] = dict(constants)
    for name, value in state.channels.items():
        values[f"state.{name}"] = value
    for scope in _enclosing(prefix):
        _add_steps(values, state, scope)
        _add_item(values, state, scope)
    return values


def plan(graph: Graph, state: State, constants: Mapping[str, object]) -> Plan:
    """Move every scope of ``state`` as far as it goes without executing anything; ``state`` is changed in place."""
    planner = _Planner(graph, state, constants)
    finished = planner.advance(graph.root, "")
    return Plan(tuple(planner.ready), finished)


def scope_of(step_key: str) -> str:
    """The prefix of the scope that a step key belongs to: ``each[3].`` for ``each[3].assign``."""
    return step_key[: step_key.rfind(".") + 1]


def _enclosing(prefix: str) -> list[str]:
    """``""``, then each loop iteration around, outermost first, so that inner names win."""
    parts = prefix.split(".")[:-1]
    return [""] + [".".join(parts[: depth + 1]) + "." for depth in range(len(parts))]


def _add_steps(values: dict[str, object], state: State, prefix: str) -> None:
    for key, status in state.status.items():
        if scope_of(key) == prefix:
            values[f"steps.{key[len(prefix) :]}.status"] = status
    for key, output in state.outputs.items():
        if scope_of(key) == prefix:
            values[f"steps.{key[len(prefix) :]}.output"] = output


def _add_item(values: dict[str, object], state: State, prefix: str) -> None:
    if not prefix:
        return
    loop_key, _, index = prefix[:-2].rpartition("[")
    loop = state.loops[loop_key]
    values["item"] = values[loop.name] = loop.items[int(index)]
    values["index"] = int(index)


class _Planner:
    def __init__(self, graph: Graph, state: State, constants: Mapping[str, object]) -> None:
        self._graph = graph
        self._state = state
        self._constants = constants
        self.ready: list[Planned] = []

    def advance(self, scope: Scope, prefix: str) -> bool:
        """Whether every node of the scope is done."""
        done = True
        for node in scope.nodes:
            key = prefix + node.id
            if key in self._state.status:
                continue
            runnable = all(prefix + need in self._state.status for need in node.needs)
            if not runnable or not self._visit(node, key, prefix):
                done = False
        return done

    def _visit(self, node: Node, key: str, prefix: str) -> bool:
        match node:
            case OperationNode() | GateNode():
                if key not in self._state.open and key not in self._state.parked:
                    self._state.open.append(key)
                    self.ready.append(Planned(key, node))
                return False
            case IfNode():
                return self._branch(node, key, prefix)
            case ForeachNode():
                return self._loop(node, key, prefix)

    def _branch(self, node: IfNode, key: str, prefix: str) -> bool:
        state = self._state
        if key not in state.branches:
            state.branches[key] = bool(self._value(node.condition, key, prefix, bool))
            self._skip(node.otherwise if state.branches[key] else node.then, prefix)
        chosen = node.then if state.branches[key] else node.otherwise
        if not self.advance(chosen, prefix):
            return False
        del state.branches[key]
        state.status[key] = SUCCEEDED
        return True

    def _skip(self, scope: Scope, prefix: str) -> None:
        for node in scope.nodes:
            self._state.status[prefix + node.id] = SKIPPED
            if isinstance(node, IfNode):
                self._skip(node.then, prefix)
                self._skip(node.otherwise, prefix)

    def _loop(self, node: ForeachNode, key: str, prefix: str) -> bool:
        state = self._state
        if key not in state.loops:
            items = self._value(node.items, key, prefix, list)
            assert isinstance(items, list)
            if len(items) > LOOP_ITEMS_MAX:
                raise PlanError(key, ExpressionError(f"has {len(items)} items; at most {LOOP_ITEMS_MAX} are taken"))
            state.loops[key] = Loop(node.item_name, items, 0, [])
        loop = state.loops[key]
        for index in list(loop.active):
            self._iterate(node, loop, key, index)
        while loop.next < len(loop.items) and len(loop.active) < node.max_parallel:
            index = loop.next
            loop.next += 1
            loop.active.append(index)
            self._iterate(node, loop, key, index)
        if loop.active:
            return False
        del state.loops[key]
        state.status[key] = SUCCEEDED
        state.outputs[key] = {"count": len(loop.items)}
        return True

    def _iterate(self, node: ForeachNode, loop: Loop, key: str, index: int) -> None:
        prefix = f"{key}[{index}]."
        if self.advance(node.body, prefix):
            loop.active.remove(index)
            for held in (self._state.status, self._state.outputs):
                for finished in [name for name in held if name.startswith(prefix)]:
                    del held[finished]

    def _value(self, source: Renderable, key: str, prefix: str, kind: type) -> Json:
        try:
            value = source.render(variables(self._state, self._constants, prefix))
        except ExpressionError as error:
            raise PlanError(key, error) from None
        if not isinstance(value, kind):
            wanted = "true or false" if kind is bool else "a list"
            raise PlanError(key, ExpressionError(f"gave {type(value).__name__}, not {wanted}"))
        return value
