"""The edges of a graph, read from the definition alone (V-5)."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.definition.edges import edges_of, nodes_of

TEXT = """
workflow: w
version: 1
steps:
  - {id: a, do: probe.effect.apply, with: {name: x}}
  - id: b
    needs: []
    do: probe.effect.apply
    with: {name: y}
    on_failure: [{id: f, do: probe.effect.apply, with: {name: z}}]
  - id: c
    needs: [a, b]
    do: probe.effect.apply
    with: {name: "${{ steps.a.output.name + steps.b.status }}"}
  - if: ${{ steps.c.output.ok }}
    id: d
    then: [{id: e, do: probe.effect.apply, with: {name: "${{ steps.a.output.name }}"}}]
"""


@pytest.mark.req("V-5")
def test_edges_say_what_is_waited_for_what_is_read_and_what_stands_inside(compiled: Any) -> None:
    graph = compiled(TEXT).graph
    edges = {(edge.source, edge.target, str(edge.kind)) for edge in edges_of(graph)}
    assert edges == {
        ("a", "c", "sequence"),
        ("b", "c", "sequence"),
        ("c", "d", "sequence"),
        ("a", "c", "data"),
        ("b", "c", "data"),
        ("c", "d", "data"),
        ("a", "e", "data"),
        ("b", "f", "branch"),
        ("d", "e", "branch"),
    }
    places = {node["id"]: (node["inside"], node["part"]) for node in nodes_of(graph)}
    assert places == {
        "a": (None, None),
        "b": (None, None),
        "c": (None, None),
        "d": (None, None),
        "e": ("d", "then"),
        "f": ("b", "on_failure"),
    }
