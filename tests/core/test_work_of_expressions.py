"""The cost of an expression is known before it runs: no document of a tenant holds up a process by comparisons."""

from __future__ import annotations

from typing import Any

import pytest

from core.errors import ExpressionError
from core.expressions import WORKFLOW_LIMITS, ConditionSet, Environment

SCOPE = Environment({"a": "dyn", "b": "dyn", "t.s": "dyn"}, WORKFLOW_LIMITS)
MANY: list[Any] = [*range(40_000)]
TEXT = "x" * 90_000
ROWS = [{"id": str(number), "tags": ["x", "y"]} for number in range(5_000)]

TOO_MUCH: dict[str, tuple[str, Any, Any]] = {
    "all of another list at each item": ("a.all(x, b == b)", MANY, MANY),
    "by a name that stands for it": ("cel.bind(q, b, a.all(x, q == q))", MANY, MANY),
    "through a list that is written down": ("a.all(x, [b].all(y, y == b))", MANY, MANY),
    "a member of something large": ("a.exists(x, b.deep == x)", MANY, {"deep": MANY}),
    "looked up in a list": ("a.filter(x, x in b)", MANY, MANY),
    "a pattern over a text": ("a.all(x, !b.matches('(x|y)*z'))", MANY, TEXT),
    "a text that is split": ("b.split('').all(x, !b.contains(x))", [], TEXT),
    "itself": ("a.map(x, a)", MANY, None),
    "a copy for each": ("a.map(x, {'id': x, 'all': b})", MANY, MANY),
    "many copies for each": (f"a.map(x, [{', '.join(['b'] * 60)}])", MANY[:2_000], MANY[:600]),
    "an outer item at each inner one": ("a.all(x, x.all(y, y != x))", [MANY], None),
    "many small products": (" && ".join(["a.all(x, x != b)"] * 40), MANY[:500], MANY[:500]),
}
ENOUGH: dict[str, tuple[str, Any, Any]] = {
    "one value": ("a.filter(x, x.id == b)", ROWS, "4999"),
    "a list that is written down": ("a.filter(x, x.id in ['1', '2'])", ROWS, None),
    "a short list": ("a.filter(x, x.id in b)", ROWS, ["1", "2", "3"]),
    "its own parts": ("a.all(x, x.tags.exists(y, y == 'x') && x.tags == x.tags)", ROWS[:2_000], None),
    "a member of something large, by a condition": (
        "a.exists(x, b.flag && x.id == b.id)",
        ROWS,
        {"flag": True, "id": "1"},
    ),
    "a small part of each": ("a.map(x, {'id': x.id, 'case': b.number})", ROWS, {"number": "INC1", "rest": MANY}),
}


@pytest.mark.parametrize(("source", "a", "b"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_an_expression_that_would_take_too_long_with_these_values_is_not_begun(source: str, a: Any, b: Any) -> None:
    expression = SCOPE.compile(source)
    with pytest.raises(ExpressionError, match="too long"):
        expression.value(SCOPE.bind({"a": a, "b": b}))
    if ".map(" not in source and ".filter(" not in source:
        (found,) = ConditionSet([SCOPE.compile(source, "bool")]).run({"a": a, "b": b})
        assert isinstance(found, ExpressionError)
        assert "too long" in str(found)


@pytest.mark.parametrize(("source", "a", "b"), ENOUGH.values(), ids=ENOUGH)
def test_what_people_write_about_large_lists_is_evaluated(source: str, a: Any, b: Any) -> None:
    assert SCOPE.compile(source).value(SCOPE.bind({"a": a, "b": b})) not in (None, [])
