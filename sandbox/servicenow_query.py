"""Encoded queries, in the part that the stand-in supports: ``a=b^cINd,e^ORf=g^ORDERBYDESCsys_created_on``."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final


class QueryError(ValueError):
    """A part of the query is not supported. (The real system would silently drop it and return too much.)"""


_TERM: Final = re.compile(
    r"(?P<field>[a-z][a-z0-9_]*)"
    r"(?P<op>ISNOTEMPTY|ISEMPTY|NOT IN|IN|NOT LIKE|LIKE|STARTSWITH|ENDSWITH|CONTAINS|!=|>=|<=|=|>|<)"
    r"(?P<value>.*)",
    re.DOTALL,
)
_TESTS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "=": lambda have, want: have == want,
    "!=": lambda have, want: have != want,
    ">": lambda have, want: have > want,
    "<": lambda have, want: have < want,
    ">=": lambda have, want: have >= want,
    "<=": lambda have, want: have <= want,
    "IN": lambda have, want: have in want.split(","),
    "NOT IN": lambda have, want: have not in want.split(","),
    "LIKE": lambda have, want: want.lower() in have.lower(),
    "CONTAINS": lambda have, want: want.lower() in have.lower(),
    "NOT LIKE": lambda have, want: want.lower() not in have.lower(),
    "STARTSWITH": lambda have, want: have.lower().startswith(want.lower()),
    "ENDSWITH": lambda have, want: have.lower().endswith(want.lower()),
    "ISEMPTY": lambda have, _want: not have,
    "ISNOTEMPTY": lambda have, _want: bool(have),
}
Test = Callable[[Mapping[str, str]], bool]


def _conditions(query: str) -> list[str]:
    """The parts between carets; a doubled caret is a caret in a value."""
    return [part.replace("\0", "^") for part in query.replace("^^", "\0").split("^") if part]


def select(records: Iterable[Mapping[str, str]], query: str, hidden: Collection[str] = ()) -> list[Mapping[str, str]]:
    """The records that satisfy the query, in its order. QueryError names the part that is not supported.

    Conditions on ``hidden`` fields are dropped without a word, as the real system does.
    """
    groups: list[list[Test]] = []
    orders: list[tuple[str, bool]] = []
    for part in _conditions(query):
        named = _TERM.fullmatch(part.removeprefix("OR"))
        if part == "EQ" or (named is not None and named["field"] in hidden):
            continue
        if part.startswith("ORDERBY"):
            descending = part.startswith("ORDERBYDESC")
            orders.append((part.removeprefix("ORDERBYDESC" if descending else "ORDERBY"), descending))
        elif part.startswith("OR") and groups:
            groups[-1].append(_term(part.removeprefix("OR")))
        else:
            groups.append([_term(part)])
    found = [row for row in records if all(any(test(row) for test in group) for group in groups)]
    for name, descending in reversed(orders):
        found.sort(key=partial(_value, name), reverse=descending)
    return found


def _value(name: str, row: Mapping[str, str]) -> str:
    return row.get(name, "")


def _term(part: str) -> Test:
    match = _TERM.fullmatch(part)
    if match is None:
        raise QueryError(f"sysparm_query: cannot read {part!r}; a term is field, operator, value, such as active=true")
    name, operator, value = match["field"], match["op"], match["value"]
    test = _TESTS[operator]
    return lambda row: test(_value(name, row), value)
