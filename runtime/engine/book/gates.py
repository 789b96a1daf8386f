"""Gates that a run has still to pass: the open ones, and those that it may yet come to. Pure.

Whoever decides at a gate has not seen the steps that are added later. So added steps come after all of these gates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from runtime.engine.model.agent_node import AgentNode
from runtime.engine.model.graph import (
    Branch,
    ChildNode,
    Composite,
    ForeachNode,
    GateNode,
    Graph,
    IfNode,
    Node,
    Scope,
    WhileNode,
    scopes_of,
)
from runtime.engine.model.keys import StepKey
from runtime.engine.model.run import SKIPPED, State

# Says if the workflow that this step runs may have a gate still to pass.
HasGate: TypeAlias = Callable[[ChildNode], bool]

# The kinds of steps whose operation does not say what the step will do outside.
OPAQUE = frozenset({"agent", "run", "continue_with"})


def gates_ahead(graph: Graph, state: State, within: HasGate) -> tuple[str, ...]:
    """The outermost steps that are or hold a gate which the run has still to pass, sorted.

    A branch that is not taken holds none any more. A loop holds its gates until it is over.
    """
    nodes = (node for node in graph.root.nodes if node.id not in state.status)
    return tuple(sorted(node.id for node in nodes if _holds(node, node.id, state, within)))


def gates_passed(graph: Graph, state: State) -> Iterator[str]:
    """Yield the keys of done steps that may hold a person's permission to go on: gates, child runs, loops of these.

    Of a loop that is over, the state keeps only that it is over, so the whole loop counts.
    """
    nodes = {node.id: node for node in graph.root.walk()}
    for key, status in state.status.items():
        node = nodes.get(StepKey.of(key).node)
        if node is None or status == SKIPPED:
            continue
        inner = node.body.walk() if isinstance(node, ForeachNode | WhileNode) else (node,)
        if any(isinstance(one, GateNode | ChildNode) for one in inner):
            yield key


def may_hold_gates(graph: Graph, within: HasGate) -> bool:
    """True if a run of this graph may come to a gate."""
    return any(_is_gate(node, within) for node in graph.root.walk())


def children_in(graph: Graph) -> Iterable[ChildNode]:
    """The steps that run other workflows, including tools of agents."""
    for node in graph.root.walk():
        yield from _children_of(node)


def come_before(graph: Graph, gates: Iterable[str], name: str) -> str | None:
    """The first of these gates that needs this outermost step, directly or not; None if none does."""
    needs = {node.id: node.needs for node in graph.root.nodes}
    for gate in gates:
        todo, seen = [gate], set[str]()
        while todo:
            one = todo.pop()
            if one == name:
                return gate
            if one not in seen:
                seen.add(one)
                todo += needs.get(one, ())
    return None


def root_of(graph: Graph, key: str) -> str:
    """The step of the outermost list that holds the step with this key."""
    name = StepKey.of(key).node
    return next(node.id for node in graph.root.nodes if any(one.id == name for one in Scope((node,)).walk()))


def _holds(node: Node, key: str, state: State, within: HasGate) -> bool:
    if _is_gate(node, within):
        return True
    # A gate in a loop counts as still to pass: one iteration may have passed it, and another not.
    prefix = f"{key}[]." if isinstance(node, ForeachNode | WhileNode) else key[: len(key) - len(node.id)]
    inner = [(prefix + one.id, one) for scope in _taken(node, key, state) for one in scope.nodes]
    return any(place not in state.status and _holds(one, place, state, within) for place, one in inner)


def _taken(node: Node, key: str, state: State) -> tuple[Scope, ...]:
    """The scopes of a node that the run has taken, or may yet take."""
    if isinstance(node, IfNode) and key in state.branches:
        return (node.then if state.branches[key] else node.otherwise,)
    if key in state.failures and not isinstance(node, Composite):
        return (node.branches[Branch(state.failures[key].branch)],)
    return scopes_of(node)


def _is_gate(node: Node, within: HasGate) -> bool:
    return isinstance(node, GateNode) or any(map(within, _children_of(node)))


def _children_of(node: Node) -> list[ChildNode]:
    if isinstance(node, AgentNode):
        return [tool.leaf for tool in node.tools.values() if isinstance(tool.leaf, ChildNode)]
    return [node] if isinstance(node, ChildNode) else []
