"""Statements of the connector ``sql``: whatever a table or a column is called, its name is a name and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from connectors.sql import statements

# With the names blotted out, a statement is the same whatever they are. No text stands in one, and no value.
_NAME = re.compile(r'"(?:[^"]|"")*"')
HOSTILE = ('a" FROM x; DROP TABLE t; --', "b'); --", '""', "$1", "c/*", "\\", "d\n;", "\u2033", "{0}", "E'x")
MAKE: dict[str, Callable[[str, str], str]] = {
    "read": lambda table, name: statements.read(table, [name], [name, name], name, lock=True),
    "select": lambda table, name: statements.select(table, [name], [name], [name], [name]),
    "insert": lambda table, name: statements.insert(table, [name], [name], name),
    "update": lambda table, name: statements.update(table, [name], [name], name),
    "delete": lambda table, name: statements.delete(table, [name]),
    "remember": lambda table, _: statements.REMEMBER.format(table=statements.quoted(table)),
    "recall": lambda table, _: statements.RECALL.format(table=statements.quoted(table)),
    "keep": lambda table, _: statements.KEEP.format(table=statements.quoted(table)),
}


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_leaves_its_quotes(kind: str, name: str) -> None:
    made, plain = MAKE[kind](f"s.{name}", name), MAKE[kind]("s.t", "c")
    assert _NAME.sub("N", made) == _NAME.sub("N", plain)
    assert name.replace('"', '""') in made
