"""The edges of a graph, read from the definition alone (V-5)."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.catalog import load_catalog
from runtime.definition.edges import Edge, EdgeKind, edges_of, nodes_of
from runtime.definition.workflow import load_workflow

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


FORM = "{type: object, properties: {x: {type: string}}}"
ASK = f"{{ask: {{name: n, title: %s, form: {FORM}, assign: {{group: g}}}}}}"
READING = (
    "do: transform.data.apply, with: {value: [{x: %s}]}",
    "do: transform.data.apply, with: {value: 1}, set: {log: %s}",
    "do: transform.data.apply, with: {value: 1}, reference: %s",
    "set: {log: {x: [%s]}}",
    "reference: %s",
    "approve: {summary: %s, approvers: {group: g}}",
    f"task: {{title: %s, form: {FORM}, assign: {{group: g}}}}",
    f"task: {{title: t, description: %s, form: {FORM}, assign: {{group: g}}}}",
    "wait: {until: %s}",
    "wait: {signal: s, correlate: %s}",
    "run: other, with: {x: %s}",
    "continue_with: {workflow: other, with: {x: %s}}",
    "foreach: %s, steps: [{set: {log: 1}}]",
    "while: %s, steps: [{set: {log: 1}}]",
    "if: %s, then: [{set: {log: 1}}]",
    "agent: {model: m, instructions: %s, input: i}",
    "agent: {model: m, instructions: i, input: %s}",
    "agent: {model: m, instructions: i, input: i, tools: [{do: transform.data.apply, with: {value: %s}}]}",
    "agent: {model: m, instructions: i, input: i, tools: [{run: other, with: {x: %s}}]}",
    f"agent: {{model: m, instructions: i, input: i, tools: [{ASK}]}}",
)


@pytest.mark.req("V-5")
@pytest.mark.parametrize("reading", READING)
def test_whatever_an_expression_of_a_step_stands_in_what_it_reads_is_an_edge(reading: str) -> None:
    text = "workflow: w\nversion: 1\nchannels: {log: {}}\nsteps:\n"
    text += "  - {id: a, do: transform.data.apply, with: {value: 1}}\n  - {id: between, set: {log: 1}}\n"
    step = reading % '"${{ steps.a.output.value }}"'
    text += "  - {id: b, " + step + "}\n"
    graph = load_workflow(text, "w.yaml", load_catalog()).graph
    assert [edge for edge in edges_of(graph) if edge.kind is EdgeKind.DATA] == [Edge("a", "b", EdgeKind.DATA)]
