"""The canonical graph of a workflow: what the kernel plans over (X-3).

A scope is an ordered list of nodes with explicit needs, sorted so that every node comes after what it needs. Composite
nodes (``if``, ``foreach``) hold scopes of their own and have no step row; the leaves (operations and gates) do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from core.canonical import Json, JsonObject
from runtime.kernel.channels import Channel


class Renderable(Protocol):
    """A compiled expression, template or structure of templates. Pure; ``ExpressionError`` on any error."""

    def render(self, values: Mapping[str, object]) -> Json:
        """The value for these variables."""


@dataclass(frozen=True, slots=True)
class OperationNode:
    """A leaf that calls an operation. ``sets`` maps channels to expressions over ``output``."""

    id: str
    index: int
    needs: tuple[str, ...]
    operation: str
    inputs: Renderable
    sets: Mapping[str, Renderable]


@dataclass(frozen=True, slots=True)
class GateNode:
    """A leaf that asks people whether to go on. ``terms`` is the JSON form of approvals.model.Terms."""

    id: str
    index: int
    needs: tuple[str, ...]
    summary: Renderable
    terms: JsonObject

    @property
    def operation(self) -> str:
        """What the step row says it does."""
        return "approve"


@dataclass(frozen=True, slots=True)
class IfNode:
    """One of two scopes, chosen once (X-11)."""

    id: str
    index: int
    needs: tuple[str, ...]
    condition: Renderable
    then: Scope
    otherwise: Scope


@dataclass(frozen=True, slots=True)
class ForeachNode:
    """The scope once per item, up to ``max_parallel`` at a time; the item is visible under ``item_name``."""

    id: str
    index: int
    needs: tuple[str, ...]
    items: Renderable
    item_name: str
    max_parallel: int
    body: Scope


Leaf: TypeAlias = OperationNode | GateNode
Node: TypeAlias = OperationNode | GateNode | IfNode | ForeachNode


@dataclass(frozen=True, slots=True)
class Scope:
    """Nodes in an order in which needs come first."""

    nodes: tuple[Node, ...]

    def walk(self) -> Iterator[Node]:
        """Every node, also inside composites."""
        for node in self.nodes:
            yield node
            for scope in scopes_of(node):
                yield from scope.walk()


def scopes_of(node: Node) -> tuple[Scope, ...]:
    """The scopes that a composite holds; none for a leaf."""
    match node:
        case IfNode():
            return (node.then, node.otherwise)
        case ForeachNode():
            return (node.body,)
        case _:
            return ()


@dataclass(frozen=True)
class Graph:
    """A workflow version, ready to be run. ``leaves`` finds a leaf by the id that ends every step key.

    ``read`` holds the ids whose output some expression reads: only those outputs are carried in checkpoints.
    """

    name: str
    version: int
    digest: str
    channels: Mapping[str, Channel]
    root: Scope
    leaves: Mapping[str, Leaf]
    read: frozenset[str]

    def leaf(self, step_key: str) -> Leaf:
        """The leaf behind a step key such as ``assign`` or ``each[3].assign``."""
        return self.leaves[step_key.rpartition(".")[2]]


# For moves that evaluate, fold and plan nothing: they are possible also where the workflow cannot be read.
NO_GRAPH = Graph("", 0, "", {}, Scope(()), {}, frozenset())
