"""The syntax of an expression in numbers: its parts, its loops, and how far what it makes can grow."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from core.cel_ast import Limits, Syntax, fields_of, lint, read_syntax, root_of
from core.cel_growth import _Growth
from core.errors import ExpressionError
from core.expressions import Environment

ENVIRONMENT = Environment({"a": "string", "b": "list<string>", "n": "int"})


def serialized(source: str) -> bytes:
    program: Any = ENVIRONMENT._env.compile(source)
    return bytes(program.serialize())


@pytest.mark.parametrize(
    ("source", "nodes", "loops", "variables", "tests", "adds", "patterns", "growth"),
    [
        ("a", 1, 0, [], 0, False, [], 1),
        ("'x'", 1, 0, [], 0, False, [], 0),
        ("1", 1, 0, [], 0, False, [], 0),
        ("a == 'x'", 3, 0, [], 0, False, [], 1),
        ("a + a", 3, 0, [], 0, False, [], 2),
        ("a + a + 'x'", 5, 0, [], 0, False, [], 2),
        ("[a, a]", 3, 0, [], 0, False, [], 2),
        ("[]", 1, 0, [], 0, False, [], 1),
        ("{'k': a, 'l': a}", 5, 0, [], 0, False, [], 2),
        ("{}", 1, 0, [], 0, False, [], 1),
        ("a.size()", 2, 0, [], 0, False, [], 1),
        ("size(b)", 2, 0, [], 0, False, [], 1),
        ("b.map(i, i)", 9, 1, ["i"], 0, False, [], 1),
        ("b.map(i, i + 'x')", 11, 1, ["i"], 0, True, [], 1),
        ("b.filter(i, i == a)", 14, 1, ["i"], 0, False, [], 1),
        ("b.map(i, a)", 9, 1, ["i"], 0, False, [], inf),
        ("b.map(i, [i])", 10, 1, ["i"], 0, False, [], 1),
        ("b.all(i, b.exists(j, j == i))", 20, 2, ["i", "j"], 0, False, [], 1),
        ("b.map(i, i).filter(j, j != '')", 22, 2, ["i", "j"], 0, False, [], 1),
        ("n > 1 ? a : a + a", 8, 0, [], 0, False, [], 2),
        ("n > 1 ? a + a : a", 8, 0, [], 0, False, [], 2),
        ("a.replace('ab', 'xyz')", 4, 0, [], 0, False, [], 2),
        ("a.replace('', 'xy')", 4, 0, [], 0, False, [], 3),
        ("a.replace('abc', 'x')", 4, 0, [], 0, False, [], 1),
        ("b.join()", 2, 0, [], 0, False, [], 1),
        ("b.join('--')", 3, 0, [], 0, False, [], 3),
        ("strings.quote(a)", 2, 0, [], 0, False, [], 2),
        ("a.upperAscii()", 2, 0, [], 0, False, [], 1),
        ("cel.bind(t, a + a, t + t)", 7, 0, ["t"], 0, False, [], 4),
        ("cel.bind(t, a, t)", 3, 0, ["t"], 0, False, [], 1),
        ("a.matches('^x+$')", 3, 0, [], 0, False, ["^x+$"], 1),
        ("b[0]", 3, 0, [], 0, False, [], 1),
        ("has({'k': a}.k)", 4, 0, [], 1, False, [], 1),
        ("{'k': {'l': a}}.k.l", 7, 0, [], 0, False, [], 1),
        ("a.split(',')", 3, 0, [], 0, False, [], 1),
        ("string(n)", 2, 0, [], 0, False, [], 1),
        ("-n", 2, 0, [], 0, False, [], 1),
        ("!(n == 1)", 4, 0, [], 0, False, [], 1),
        ("n in [1, 2]", 5, 0, [], 0, False, [], 1),
        ("b.exists_one(i, i == 'x')", 15, 1, ["i"], 0, False, [], 1),
        ("b.map(i, n > 0, i)", 14, 1, ["i"], 0, False, [], 1),
        ("a.substring(1)", 3, 0, [], 0, False, [], 1),
        ("b.map(i, i.upperAscii())", 10, 1, ["i"], 0, False, [], 1),
        ("b.map(i, n > 1 ? i : 'y')", 14, 1, ["i"], 0, False, [], 1),
        ("b.map(i, n)", 9, 1, ["i"], 0, False, [], inf),
        ("[].map(i, i)", 9, 1, ["i"], 0, False, [], 1),
        ("[a].map(i, i)", 10, 1, ["i"], 0, False, [], 1),
        ("matches(a, 'x+')", 3, 0, [], 0, False, ["x+"], 1),
        ("matches('x+', a)", 3, 0, [], 0, False, [], 1),
        # What a loop goes over is outside of it; everything else of a loop is inside, however deep it stands.
        ("(b + b).map(i, i)", 11, 1, ["i"], 0, False, [], 2),
        ("b.map(i, cel.bind(t, i + 'x', t))", 13, 1, ["i", "t"], 0, True, [], inf),
        ("b.map(i, [i + 'x'])", 12, 1, ["i"], 0, True, [], 1),
        ("b.map(i, {'k': i + 'x'})", 13, 1, ["i"], 0, True, [], inf),
        ("b.map(i, {i + 'x': 1})", 13, 1, ["i"], 0, True, [], inf),
        ("b.map(i, {'k': i + 'x'}.k)", 14, 1, ["i"], 0, True, [], inf),
        ("b.map(i, (i + 'x').trim())", 12, 1, ["i"], 0, True, [], 1),
        ("b.map(i, i).map(j, j).map(k, k)", 25, 3, ["i", "j", "k"], 0, False, [], 1),
        ("[a, b.map(i, i)[0]]", 13, 1, ["i"], 0, False, [], 2),
        ("[b.map(i, i)[0], a]", 13, 1, ["i"], 0, False, [], 2),
        ("{'k': a, 'l': b.map(i, i)[0]}", 15, 1, ["i"], 0, False, [], 2),
        ("{b.map(i, i)[0]: a, 'l': a}", 15, 1, ["i"], 0, False, [], 3),
        ("b.map(i, i)[0] == b.map(i, b.map(j, j)[0])[0]", 33, 2, ["i", "j"], 0, False, [], 1),
        ("has({'k': a}.k) && has({'k': a}.k)", 9, 0, [], 2, False, [], 1),
        ("a.matches('é+') || 'x'.matches(a) || a.matches('y')", 11, 0, [], 0, False, ["é+", "y"], 1),
    ],
)
def test_an_expression_has_so_many_parts_and_grows_so_far(
    source: str,
    nodes: int,
    loops: int,
    variables: list[str],
    tests: int,
    adds: bool,
    patterns: list[str],
    growth: float,
) -> None:
    found = read_syntax(serialized(source))
    assert (found.nodes, found.loops, sorted(found.loop_variables)) == (nodes, loops, variables)
    assert (found.presence_tests, found.adds_in_loop, found.patterns) == (tests, adds, patterns)
    assert _Growth().of(root_of(serialized(source)), {}, None) == growth


@pytest.mark.parametrize(
    ("source", "growth"),
    [
        # A new text for each place of the old one, rounded up; for each place between two characters if it is empty.
        ("a.replace('ab', 'a')", 1),
        ("a.replace('ab', 'ab')", 1),
        ("a.replace('ab', 'abcd')", 2),
        ("a.replace('ab', 'abcde')", 3),
        ("a.replace('abc', 'abcd')", 2),
        ("a.replace('a', '')", 1),
        ("a.replace('', '')", 1),
        ("a.replace('', 'x')", 2),
        ("(a + a).replace('a', 'xyz')", 6),
        ("b.join('')", 1),
        ("b.join('-')", 2),
        ("b.join('-----')", 6),
        ("(b + b).join('--')", 6),
        # Any other text is as long as the longest that it is made of, and no shorter than one.
        ("'x'.trim()", 1),
        ("'x'.trim() + a", 2),
        ("(a + a).trim()", 2),
        ("dyn(a + a)", 2),
        ("optional.of('x').orValue(a + a)", 2),
        ("optional.of(a + a).orValue('x')", 2),
        ("n > 1 ? 'x' : a + a + a", 3),
        ("n > 1 ? a + a + a : 'x'", 3),
        ("strings.quote(a + a)", 4),
        # Keys, values and members of all entries add up.
        ("{'k': a}", 1),
        ("{a: 'x'}", 1),
        ("{a: a}", 2),
        ("{a: a, 'k': a}", 3),
        ("{a: 'x', a + a: 'y'}", 3),
        ("[a, a, a]", 3),
        ("[]", 1),
        ("{}", 1),
        ("{1: a, 'k': a}", 2),
        ("{1u: a, 2u: a}", 2),
    ],
)
def test_a_text_grows_by_what_is_put_into_it(source: str, growth: float) -> None:
    assert _Growth().of(root_of(serialized(source)), {}, None) == growth


@pytest.mark.parametrize(
    ("result", "own"),
    [
        ("i", True),
        ("a", False),
        ("[i, 'x', 1]", True),
        ("[i, a]", False),
        ("[a, i]", False),
        ("n > 1 ? i : 'y'", True),
        ("{'k': true}.k ? i : 'y'", True),
        ("n > 1 ? a : i", False),
        ("n > 1 ? i : a", False),
        ("optional.of(i).orValue('x')", True),
        ("optional.of(a).orValue(i)", False),
        ("optional.of(i).orValue(a)", False),
        ("dyn(i)", True),
        ("dyn(a)", False),
        ("a == i", True),
        ("size(b)", True),
        ("i.split(',')", True),
        ("{'k': i}", False),
        ("{'k': i}.k", False),
        ("b.map(j, j)", False),
        ("b.map(j, j)[0]", False),
        ("b.filter(j, j == i)", False),
        ("b.exists(j, j == i)", False),
    ],
)
def test_a_loop_over_parts_of_its_items_is_no_longer_than_they_are(result: str, own: bool) -> None:
    """Anything else is made once for each item: there is no bound by what the expression reads."""
    assert _Growth().of(root_of(serialized(f"b.map(i, {result})")), {}, None) == (1 if own else inf)


@pytest.mark.parametrize(
    "keys", ["1u, 'k'", "1u, 1", "'k', 1u", "1u, 1, 'k'", "1, 'k', true, 1u", "1u, a", "a, 1u", "1u, 2u, n"]
)
def test_an_unsigned_key_stands_beside_no_other_kind(keys: str) -> None:
    source = "{%s}" % ", ".join(f"{key}: a" for key in keys.split(", "))  # noqa: UP031
    with pytest.raises(ExpressionError, match="has a map with unsigned and other keys"):
        _Growth().of(root_of(serialized(source)), {}, None)


def test_what_is_bound_counts_as_often_as_it_is_used() -> None:
    assert _Growth().of(root_of(serialized("a")), {"a": 7.0}, None) == 7
    with pytest.raises(ExpressionError, match="grow without bound"):
        _Growth().of(root_of(serialized("a + a")), {"a": 33.0}, None)
    assert _Growth().of(root_of(serialized("a + a")), {"a": 32.0}, None) == 64
    with pytest.raises(ExpressionError, match="gives a name to something"):
        _Growth().of(root_of(serialized("cel.bind(t, a, t)")), {"a": 65.0}, None)
    assert _Growth().of(root_of(serialized("cel.bind(t, a, t)")), {"a": 64.0}, None) == 64
    assert _Growth().of(root_of(serialized("n == 1 ? a : 'x'")), {"a": inf}, None) == inf


def test_the_innermost_name_is_the_one_that_is_meant() -> None:
    def growth(source: str, **known: float) -> float:
        return _Growth().of(root_of(serialized(source)), known, None)

    assert growth("cel.bind(a, a + 'x', a + a)", a=30.0) == 60
    assert growth("cel.bind(t, a, t + t)", t=60.0) == 2
    assert growth("b.map(i, i + i)", i=60.0) == 1
    assert growth("cel.bind(t, {'k': a + a}, t.k + t.k)") == 4
    assert growth("{'k': a + a, 'l': 'x'}.k") == 2
    assert growth("cel.bind(t, a + a, b.map(t, t + t)[0] + t)") == 3
    with pytest.raises(ExpressionError, match="grow without bound"):
        growth("b.map(i, a + a)", a=60.0)
    for source in ("b.map(i, cel.bind(t, a.trim(), t))", "b.map(i, b.map(j, i.trim())[0])"):
        with pytest.raises(ExpressionError, match="on something else than its own item"):
            growth(source)


@pytest.mark.parametrize(
    ("syntax", "words"),
    [
        (Syntax(nodes=10, loops=2), ""),
        (Syntax(nodes=11, loops=2), "has 11 parts; at most 10"),
        (Syntax(nodes=10, loops=3), "has 3 comprehensions"),
        (Syntax(adds_in_loop=True), r"uses '\+' inside a comprehension"),
        (Syntax(presence_tests=1), "has\\(\\) on a declared variable"),
        (Syntax(loop_variables={"i", "a"}), "'a' hides a declared one"),
        (Syntax(loop_variables={"i"}), ""),
    ],
)
def test_what_is_too_large_or_means_something_else_is_refused(syntax: Syntax, words: str) -> None:
    if not words:
        lint(syntax, Syntax(), Limits(100, 10, 2), {"a", "b"})
        return
    with pytest.raises(ExpressionError, match=words):
        lint(syntax, Syntax(), Limits(100, 10, 2), {"a", "b"})


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (b"", []),
        (b"\x08\x96\x01", [(1, 150)]),
        (b"\x12\x02hi\x18\x01", [(2, b"hi"), (3, 1)]),
        (b"\x09" + b"x" * 8 + b"\x18\x01", [(1, b"x" * 8), (3, 1)]),
        (b"\x0d" + b"y" * 4 + b"\x18\x7f", [(1, b"y" * 4), (3, 127)]),
        (b"\x82\x01\x01z", [(16, b"z")]),
    ],
)
def test_a_message_is_read_field_by_field(message: bytes, fields: list[Any]) -> None:
    assert [*fields_of(message)] == fields
    with pytest.raises(ValueError, match="wire type 3"):
        [*fields_of(message + b"\x0b")]
