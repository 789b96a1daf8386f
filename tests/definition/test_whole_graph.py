"""A workflow in which every kind of step has every key, with values that differ: what becomes of it, whole."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import pytest

from connectors.operation import Operation
from core.expressions import Expression
from core.templates import Template
from policy.foresee import Foreseen, Verdict
from policy.sets import NO_POLICIES
from runtime.definition import foresight
from runtime.definition.edges import edges_of, nodes_of
from runtime.definition.foresight import foresee_steps
from tests.support.whole import as_it_was

TEXT = Path(__file__).with_name("whole.yaml")
EXPECTED = Path(__file__).with_name("whole_graph.json")


def shown(value: Any) -> Any:
    """A part of a graph as JSON: an expression is its source and type, an operation its name."""
    match value:
        case Template():
            return {"template": shown(value._node), "reads": sorted(value.references)}
        case Expression():
            return f"${{{{ {value.source} }}}}" + (f" as {value.want}" if value.want else "")
        case Operation():
            return value.name
        case Enum():
            return str(value)
        case timedelta():
            return f"{value.total_seconds():g} s"
        case dict():
            return {str(key): shown(item) for key, item in value.items()}
        case set() | frozenset():
            return sorted(map(str, value))
        case tuple() | list():
            return [shown(item) for item in value]
    if type(value).__name__ == "_Text":  # a text with expressions in it, of which some are not escaped
        escaped = ["escaped"] if value.languages is not None else []
        return [*map(shown, value.parts), *escaped, *(f"raw {at}" for at in sorted(value.raw))]
    if is_dataclass(value) or isinstance(value, msgspec.Struct):
        names = value.__struct_fields__ if isinstance(value, msgspec.Struct) else [one.name for one in fields(value)]
        return {"is": type(value).__name__} | {name: shown(getattr(value, name)) for name in names}
    return value if value is None or isinstance(value, str | int | float | bool) else type(value).__name__


@pytest.mark.req("U-4")
def test_what_is_known_of_each_step_before_any_run(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step in a loop or a branch has another key each time; an agent's turn and its name are known of no call."""
    known: list[Any] = []

    def foresee(policies: Any, workflow: str, operation: str, fixed: dict[str, Any]) -> Foreseen:
        known.append(fixed | {"of": f"{operation} in {workflow}"})
        return Foreseen(Verdict.DEPENDS, (), ())

    monkeypatch.setattr(foresight, "foresee", foresee)
    told = foresee_steps(compiled(TEXT.read_text(encoding="utf-8")), NO_POLICIES)
    assert [one.operation for one in told] == [one["action.operation"] for one in known]
    found = {one.step: facts for one, facts in zip(told, known, strict=True)}
    as_it_was(EXPECTED.with_name("whole_foresight.json"), found)


@pytest.mark.req("X-1")
def test_a_document_becomes_the_whole_graph(compiled: Any) -> None:
    workflow = compiled(TEXT.read_text(encoding="utf-8"))
    graph = workflow.graph
    steps = {f"step {number}": shown(node) for number, node in enumerate(graph.root.nodes)}
    of_graph = {"channels": shown(graph.channels), "result": shown(graph.result), "failed": graph.failed}
    of_graph |= {"read": sorted(graph.read), "leaves": sorted(graph.leaves), "nodes": nodes_of(graph)}
    edges = [f"{one.source} → {one.target} ({one.kind})" for one in edges_of(graph)]
    names = ("name", "version", "title", "reference", "servicenow", "operations", "writes_max", "sla", "retention")
    rest = {
        name: shown(getattr(workflow, name)) for name in (*names, "max_concurrency", "max_runs_per_min", "functions")
    }
    as_it_was(EXPECTED, steps | of_graph | {"edges": edges} | rest)
