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
from core.errors import path_text
from core.expressions import Expression
from core.templates import Template
from policy.foresee import Foreseen, Verdict
from policy.sets import NO_POLICIES
from runtime.definition import foresight
from runtime.definition.compiler import RUN_VARIABLES
from runtime.definition.edges import edges_of, nodes_of
from runtime.definition.foresight import foresee_steps
from runtime.definition.leaves import LeafCompiler, StepScope
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


@pytest.mark.req("X-4")
def test_what_each_expression_sees(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names and the types, besides those that every expression sees."""
    text = TEXT.read_text(encoding="utf-8")
    channels = ("plain", "notes", "total", "facts", "most", "turns")
    common = (
        RUN_VARIABLES | {"run.checkpoint": "int", "step.id": "string"} | {f"state.{one}": "dyn" for one in channels}
    )
    found: dict[str, Any] = {}
    really = LeafCompiler._compiled

    def noted(compiler: Any, scope: StepScope, key: tuple[str | int, ...], compiled_in: Any) -> Any:
        more = {name: kind for name, kind in scope.variables.items() if common.get(name) != kind}
        hidden = [f"without {name}" for name in sorted(common.keys() - scope.variables.keys())]
        path = path_text((*scope.path, *key))
        assert path not in found
        over = {name.split(".")[1] for name in more if name.startswith("steps.")}
        results = {
            f"steps.{one}.{part}": kind for one in over for part, kind in (("output", "dyn"), ("status", "string"))
        }
        assert {name: kind for name, kind in more.items() if name.startswith("steps.")} == results
        own = [f"{name}: {kind}" for name, kind in sorted(more.items()) if name not in results]
        found[path] = ", ".join([*own, *hidden, *([f"results of {' '.join(sorted(over))}"] if over else [])])
        return really(compiler, scope, key, compiled_in)

    monkeypatch.setattr(LeafCompiler, "_compiled", noted)
    compiled(text)
    as_it_was(EXPECTED.with_name("whole_visible.json"), found)


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
