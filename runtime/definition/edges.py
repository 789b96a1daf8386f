"""The edges of a graph: which node begins after which node, and which node reads which.

They are derived: the only record of dependencies is the published text, with the log of a run's extensions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import fields
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct

from connectors.catalog import Catalog
from connectors.operation import AGENT, Operation, text_parts
from core.canonical import JsonObject
from runtime.engine.model.agent_node import AgentTool
from runtime.engine.model.graph import Branch, Graph, IfNode, Node, Scope, scopes_of


class EdgeKind(StrEnum):
    """Kinds of edges. ``sequence``: the second begins after the first. ``data``: its expressions read the first.

    ``branch``: the second is inside the first, which is a condition, a loop, or a step with a branch for failures.
    """

    SEQUENCE = "sequence"
    DATA = "data"
    BRANCH = "branch"


class Edge(Struct, frozen=True):
    """An edge from one node to another, by their ids."""

    source: str
    target: str
    kind: EdgeKind


def edges_of(graph: Graph) -> tuple[Edge, ...]:
    """Every edge once, ordered by the nodes to which they lead."""
    found: dict[Edge, None] = {}
    for node, inside, _ in _placed(graph.root):
        found |= dict.fromkeys(Edge(need, node.id, EdgeKind.SEQUENCE) for need in node.needs)
        found |= dict.fromkeys(Edge(read, node.id, EdgeKind.DATA) for read in sorted(_reads(node)))
        if inside is not None:
            found[Edge(inside, node.id, EdgeKind.BRANCH)] = None
    return tuple(found)


def nodes_of(graph: Graph) -> list[JsonObject]:
    """Every node: its id, what it does, and the node and part of that node that contain it (null for the root)."""
    found: list[JsonObject] = []
    for node, inside, part in _placed(graph.root):
        operation = getattr(node, "operation", None) or type(node).__name__.removesuffix("Node").lower()
        found.append({"id": node.id, "operation": operation, "inside": inside, "part": part})
    return found


def _placed(
    scope: Scope, inside: str | None = None, part: str | None = None
) -> Iterator[tuple[Node, str | None, str | None]]:
    for node in scope.nodes:
        yield node, inside, part
        for name, inner in _parts(node):
            yield from _placed(inner, node.id, name)


def _reads(node: Node) -> set[str]:
    """The ids of the steps whose output or status the node's expressions read, including those of an agent's tools."""
    own = {item.name: getattr(node, item.name) for item in fields(node)}
    tools: Collection[AgentTool] = own.get("tools", {}).values()
    sources = [*own.values(), *own.get("sets", {}).values(), *(tool.fixed for tool in tools)]
    names = [name for source in sources for name in getattr(source, "references", ())]
    found = {name.split(".")[1] for name in names if name.startswith("steps.")}
    return found.union(*(_reads(tool.leaf) for tool in tools))


def _parts(node: Node) -> list[tuple[str, Scope]]:
    if isinstance(node, IfNode):
        return [("then", node.then), ("else", node.otherwise)]
    branches: dict[Branch, Scope] = getattr(node, "branches", {})
    named = [(str(branch), scope) for branch, scope in branches.items()]
    return named or [("steps", scope) for scope in scopes_of(node)]


class Generics:
    """Finds the operations of a catalog that can do what a given operation does.

    Targets are indexed by the plain text with which they begin and end, so the work for one operation does not grow
    with the number of all others.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._packaged, self._place = catalog.packaged, {name: at for at, name in enumerate(catalog.operations)}
        self._others: dict[str, list[Operation]] = {}
        self._forms: dict[tuple[str, str], dict[str, dict[str, list[Operation]]]] = {}
        for one in catalog.operations.values():
            self._others.setdefault(one.handler, []).append(one)
            first, last = _ends(one.target)
            ending = self._forms.setdefault((one.handler, first), {}).setdefault(last, {})
            ending.setdefault(one.target, []).append(one)

    def of(self, specific: Operation) -> dict[str, str]:
        """The operations that can do what this one does, each with the CEL condition under which its call does it."""
        if specific.connector == AGENT:
            return {}  # a declaration of an agent's own tool stands for that tool only
        wider = sorted((one.name for one in self._wider(specific)), key=self._place.__getitem__)
        found = dict.fromkeys(wider, " && ".join(_conditions(specific)) or "true")
        if specific.name in self._packaged:
            others = self._others[specific.handler]
            alone = not any(one.name in self._packaged for one in others if one is not specific)
            renamed = [one for one in others if one.name not in self._packaged and (alone or one.owner is not None)]
            found |= {one.name: "true" for one in renamed}
        return found

    def _wider(self, specific: Operation) -> Iterator[Operation]:
        """Yield the operations whose targets include every target of the specific one, and more."""
        target, names_fields = specific.target, isinstance(specific.writes, tuple)
        own = _form(target)
        for end in range(len(target) + 1):
            ending = self._forms.get((specific.handler, target[:end]))
            for start in range(len(target) + 1) if ending is not None else ():
                for text, several in ending.get(target[start:], {}).items() if ending is not None else ():
                    if text != target and _form(text).fullmatch(target) is None:
                        continue
                    if text != target and own.fullmatch(text) is None:
                        yield from several
                    elif names_fields:
                        yield from (one for one in several if isinstance(one.writes, str))


@lru_cache(maxsize=16_384)
def _form(text: str) -> re.Pattern[str]:
    """The pattern of a target: the one of ``{table}/{sys_id}`` matches ``incident/{sys_id}``."""
    return re.compile("".join(re.escape(part) if isinstance(part, str) else ".+" for part in text_parts(text)))


def _ends(target: str) -> tuple[str, str]:
    """The plain text at the beginning and at the end of a target; "" for a placeholder."""
    parts = text_parts(target)
    first, last = (parts[0], parts[-1]) if parts else ("", "")
    return first if isinstance(first, str) else "", last if isinstance(last, str) else ""


def _conditions(specific: Operation) -> list[str]:
    """The conditions under which an action could have been one of this operation."""
    first, *rest = text_parts(specific.target)
    found = []
    if isinstance(first, str):
        found.append(f"action.target.startsWith({first!r})" if rest else f"action.target == {first!r}")
    if isinstance(specific.writes, tuple) and specific.writes:
        found.append("(" + " || ".join(f"{name!r} in action.present" for name in specific.writes) + ")")
    return found
