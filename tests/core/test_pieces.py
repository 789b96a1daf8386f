"""Texts with expressions: cut where an expression ends, and nowhere within it."""

from __future__ import annotations

import pytest

from core.errors import ExpressionError
from core.pieces import split


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", [(False, "")]),
        ("a", [(False, "a")]),
        ("${{ a }}", [(True, "a")]),
        ("${{a}}", [(True, "a")]),
        ("${{}}", [(True, "")]),
        (" ${{ a }} ", [(False, " "), (True, "a"), (False, " ")]),
        ("${{ a }}${{ b }}", [(True, "a"), (True, "b")]),
        ("x ${{ a }}, ${{ b }}.", [(False, "x "), (True, "a"), (False, ", "), (True, "b"), (False, ".")]),
        ("${ { a }} {{ b }} $", [(False, "${ { a }} {{ b }} $")]),
        ("${{ a }} }}", [(True, "a"), (False, " }}")]),
        ("${{ {'a': {'b': 1}} }}!", [(True, "{'a': {'b': 1}}"), (False, "!")]),
        ("${{ {'a': 1}}}!", [(True, "{'a': 1}"), (False, "!")]),
        ("${{ '}}' }}!", [(True, "'}}'"), (False, "!")]),
        ('${{ "}}" }}!', [(True, '"}}"'), (False, "!")]),
        ("${{ '{' }}!", [(True, "'{'"), (False, "!")]),
        ("${{ '\"' + '}}' }}!", [(True, "'\"' + '}}'"), (False, "!")]),
        (r"${{ 'it\'s }}' }}!", [(True, r"'it\'s }}'"), (False, "!")]),
        (r'${{ "a \" }}" }}!', [(True, r'"a \" }}"'), (False, "!")]),
        (r"${{ '\\' }}!", [(True, r"'\\'"), (False, "!")]),
        (r"${{ '\\\'}}' }}!", [(True, r"'\\\'}}'"), (False, "!")]),
        ("${{ a\n + b }}", [(True, "a\n + b")]),
        ("${{ '${{' }}", [(True, "'${{'")]),
    ],
)
def test_braces_and_quotes_within_an_expression_do_not_end_it(text: str, pieces: list[tuple[bool, str]]) -> None:
    assert list(split(text)) == pieces


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("${{ a", 1),
        ("x ${{ a }", 3),
        ("${{ a }} ${{ b", 10),
        ("${{ 'a }}", 1),
        ("${{ {'a': 1 }}", 1),
        (r"${{ 'a\' }}", 1),
    ],
)
def test_what_is_not_closed_is_told_with_its_column(text: str, column: int) -> None:
    with pytest.raises(ExpressionError) as refused:
        list(split(text))
    assert str(refused.value) == f"the expression at column {column} is not closed. End it with }}}}."
