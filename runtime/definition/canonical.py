"""The definition of a run for independent verifiers: steps and declarations as plain JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from connectors.operation import Operation
from core.canonical import Json, JsonObject
from evidence.judging.case import JUDGED, WITHHELD
from runtime.engine.model.agent_node import AgentNode
from runtime.engine.model.graph import (
    ChildNode,
    ContinueNode,
    ForeachNode,
    GateNode,
    Graph,
    IfNode,
    LeafNode,
    Node,
    Scope,
    WhileNode,
)
from runtime.engine.model.workflow import Workflow


def definition_of(editions: Sequence[Workflow], moved: Sequence[int] = ()) -> JsonObject:
    """The declarations of a run's operations, and its steps at the beginning and after each change of its graph.

    ``run.opened.definition`` names the first text and the first declarations; an extension adds declarations. ``moved``
    are the numbers of the editions that began with a migration: ``run.migrated.definition`` names each of them.
    """
    first = editions[0]
    more = {name: operation for one in editions[1:] for name, operation in one.operations.items()}
    added: JsonObject = {name: _declared(one) for name, one in sorted(more.items()) if name not in first.operations}
    shown: JsonObject = {name: _declared(one) for name, one in sorted(first.operations.items())}
    steps: list[Json] = [steps_of(one.graph) for one in editions]
    shape: JsonObject = {"operations": shown, "added": added, "editions": steps}
    migrated: list[Json] = [
        {"edition": number, "text": editions[number].digest, "operations": [*sorted(editions[number].operations)]}
        for number in moved
    ]
    return {**shape, "migrated": migrated} if migrated else shape


def _declared(operation: Operation) -> JsonObject:
    """A declaration as evidence shows it; only the digest of one with fixed inputs, because these may be secret."""
    document: JsonObject = operation.model_dump(mode="json")
    if not operation.params:
        return document
    return {name: document[name] for name in ("name", *JUDGED) if name in document} | {WITHHELD: operation.digest}


def steps_of(graph: Graph) -> JsonObject:
    """Every step of a graph, by id: what it does, the steps that it needs, and the step that contains it."""
    return dict(_within(graph.root, None, None))


def _within(scope: Scope, around: str | None, branch: str | None) -> Iterator[tuple[str, Json]]:
    for node in scope.nodes:
        facts: JsonObject = {"needs": [*node.needs], **_facts(node)}
        if around is not None:
            facts |= {"within": around, "branch": branch}
        yield node.id, facts
        for name, inner in _scopes(node):
            yield from _within(inner, node.id, name)


def _scopes(node: Node) -> list[tuple[str, Scope]]:
    match node:
        case IfNode():
            return [("then", node.then), ("else", node.otherwise)]
        case ForeachNode() | WhileNode():
            return [("steps", node.body)]
        case _:
            return [(str(name), scope) for name, scope in node.branches.items()]


def _facts(node: Node) -> JsonObject:
    match node:
        case IfNode():
            return {"operation": "if"}
        case ForeachNode():
            return {"operation": "foreach", "loops": True}
        case WhileNode():
            return {"operation": "while", "loops": True}
        case GateNode():
            return {**_leaf(node), "terms": node.terms}
        case ChildNode() | ContinueNode():
            return {**_leaf(node), "workflow": node.workflow}
        case AgentNode():
            tools: JsonObject = {one.tool.source: one.leaf.operation for one in node.tools.values()}
            return {**_leaf(node), "tools": tools, "model": node.model}
        case _:
            return _leaf(node)


def _leaf(node: LeafNode) -> JsonObject:
    facts: JsonObject = {"operation": str(getattr(node, "operation", ""))}
    return facts | ({"branches": [*map(str, node.branches)]} if node.branches else {})
