"""The flow of values into the nodes of a graph, known when the workflow compiles (promise 12). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from runtime.engine.graph import ChildNode, Flow, LeafNode, Node, Scope, scopes_of

# The fields of nodes that hold an expression, besides what a leaf sets.
_SOURCES = (
    *("inputs", "summary", "until", "correlate", "title", "description", "reference", "condition", "items"),
    *("instructions", "input"),
)


def flow_of(root: Scope) -> Mapping[str, Flow]:
    """By node, the channels (``state.x``), steps (``steps.x``), answers (``votes.x``) and reference that shape it.

    The first set is what its own expressions read, and those of the conditions and loops around it. The second set is
    what decides if, or how often, the node is taken.
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
            elif head == "state" or name == "run.reference":
                yield name
    yield from (f"state.{name}" for name in (node.inherit if isinstance(node, ChildNode) else ()))
