"""The public conformance suite of CEL: no other value, no crash; what is not supported is refused beforehand."""

from __future__ import annotations

import json
from collections import Counter
from math import isclose
from pathlib import Path

from core.canonical import Json
from core.errors import ExpressionError
from core.expressions import WORKFLOW_LIMITS, Bound, Environment, Expression

SUITE = json.loads((Path(__file__).parent / "cel_conformance.json").read_text(encoding="utf-8"))
# An empty map is written as an empty list in the file.
EMPTY: Json = []


def same(found: Json, wanted: Json) -> bool:
    if isinstance(found, float) and isinstance(wanted, float):
        return isclose(found, wanted, rel_tol=1e-12)
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    if isinstance(found, dict) and isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(same(found[key], wanted[key]) for key in found)
    if isinstance(found, dict) and wanted == EMPTY:
        return not found
    return type(found) is type(wanted) and found == wanted


def value_of(expression: Expression, bound: Bound) -> tuple[Json, str]:
    """The value, and the error in its place."""
    try:
        return expression.value(bound), ""
    except ExpressionError as error:
        return None, str(error)


def test_no_other_value_and_every_gap_is_refused_when_it_is_checked() -> None:
    seen: Counter[str] = Counter()
    for name, source, given, wanted in SUITE["cases"]:
        environment = Environment(dict.fromkeys(given, "dyn"), WORKFLOW_LIMITS)
        try:
            expression = environment.compile(source)
        except ExpressionError:
            seen["refused"] += 1
            continue
        found, failed = value_of(expression, environment.bind(given))
        if failed:
            assert "value" not in wanted, (name, source, failed)
            seen["error"] += 1
            continue
        assert "error" not in wanted, (name, source, found)
        if "value" in wanted:
            assert same(found, wanted["value"]), (name, source, found, wanted)
            seen["value"] += 1
    assert seen["value"] > 1_200, seen
