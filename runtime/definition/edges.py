"""The edges of a graph: what needs what to be over, and what reads what (V-5). Derived, so that there is one record.

The published text, and the log of what was added to a run, are the only record of dependencies; these are read from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from enum import StrEnum
from typing import Any

from msgspec import Struct

from core.canonical import JsonObject
from runtime.engine.graph import Branch, Graph, IfNode, Node, Scope, scopes_of


class EdgeKind(StrEnum):
    """``sequence``: the second begins when the first is over. ``data``: its expressions read the first's result.

    ``branch``: the second stands inside the first, in a condition, a loop or a branch for failures.
    """

    SEQUENCE = "sequence"
    DATA = "data"
    BRANCH = "branch"


class Edge(Struct, frozen=True):
    """From one node to another, by their ids."""

    source: str
    target: str
    kind: EdgeKind


def edges_of(graph: Graph) -> tuple[Edge, ...]:
    """Every edge once, in the order of the nodes that they lead to."""
    return tuple(dict.fromkeys(_edges(graph.root)))


def nodes_of(graph: Graph) -> list[JsonObject]:
    """Every node: its id, what it does, and the node that it stands in, with the part of that (null for the root)."""
    return list(_nodes(graph.root, None, None))


def _edges(scope: Scope) -> Iterator[Edge]:
    for node in scope.nodes:
        yield from (Edge(need, node.id, EdgeKind.SEQUENCE) for need in node.needs)
        yield from (Edge(read, node.id, EdgeKind.DATA) for read in sorted(_reads(node)))
        for inner in scopes_of(node):
            yield from (Edge(node.id, child.id, EdgeKind.BRANCH) for child in inner.nodes)
            yield from _edges(inner)


def _reads(node: Node) -> set[str]:
    """The ids whose output or status the node's own expressions read."""
    found: set[str] = set()
    for item in fields(node):
        value: Any = getattr(node, item.name)
        for source in value.values() if item.name == "sets" else (value,):
            names: frozenset[str] = getattr(source, "references", frozenset())
            found |= {name.split(".")[1] for name in names if name.startswith("steps.")}
    return found


def _nodes(scope: Scope, inside: str | None, part: str | None) -> Iterator[JsonObject]:
    for node in scope.nodes:
        operation = getattr(node, "operation", None) or type(node).__name__.removesuffix("Node").lower()
        yield {"id": node.id, "operation": operation, "inside": inside, "part": part}
        for name, inner in _parts(node):
            yield from _nodes(inner, node.id, name)


def _parts(node: Node) -> list[tuple[str, Scope]]:
    if isinstance(node, IfNode):
        return [("then", node.then), ("else", node.otherwise)]
    branches: dict[Branch, Scope] = getattr(node, "branches", {})
    named = [(str(branch), scope) for branch, scope in branches.items()]
    return named or [("steps", scope) for scope in scopes_of(node)]
