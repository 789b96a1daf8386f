"""SQL that names a table stands in runtime/store, nowhere else in the product: so its statements are found together."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from runtime.store import read_models
from runtime.store.read_models import Statement

BEGINS = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b")
NAMES_A_TABLE = re.compile(r"\b(FROM|INTO|JOIN|UPDATE)\s+(ONLY\s+)?[a-z_{]")
HOME = "runtime/store/"
EXEMPT = {
    "app/storage.py": "reads the version of the schema, before there is one that a store could know",
    "connectors/sql/statements.py": "an outside system's tables, which a declaration names, and its catalogue",
    "app/logins.py": "makes and checks logins, which belong to the server and to no schema",
}

Modules = Callable[..., Iterator[Any]]


def statements(tree: ast.Module) -> list[int]:
    """Lines of texts that are a statement on a table: they begin with a verb of SQL, and name one."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str() as words):
                pass
            case ast.JoinedStr(values=parts):
                words = "".join(str(part.value) if isinstance(part, ast.Constant) else "{x}" for part in parts)
            case _:
                continue
        if BEGINS.match(words) and NAMES_A_TABLE.search(words):
            found.add(node.lineno)
    return sorted(found)


def test_sql_on_tables_stands_in_the_store(read_modules: Modules, our_packages: list[str]) -> None:
    packages = [package for package in our_packages if package not in ("migrations", "sandbox")]
    found = {module.path: lines for module in read_modules(*packages) if (lines := statements(module.tree))}
    outside = {path: lines for path, lines in found.items() if not path.startswith(HOME) and path not in EXEMPT}
    assert outside == {}, "move it to runtime/store"
    assert set(EXEMPT) <= set(found), "an exemption that nobody needs any more"
    assert len(found) > 15, "the rule sees the store's own statements"


@pytest.mark.parametrize(
    "source",
    [
        "x = 'SELECT a, b FROM people WHERE c = $1'",
        "x = '''\nINSERT INTO people (a) VALUES ($1)'''",
        "x = f'SELECT a FROM people_{kind}'",
        "x = 'UPDATE ONLY people SET a = 1'",
        "x = 'DELETE FROM people'",
        "x = 'WITH a AS (SELECT 1 FROM b) SELECT * FROM a'",
    ],
)
def test_the_rule_sees(source: str) -> None:
    assert len(statements(ast.parse(source))) == 1


@pytest.mark.parametrize(
    "source", ["x = 'SELECT now()'", "x = 'SELECT pg_notify($1, $2)'", "'''Select from the list.'''", "x = 'UPDATE'"]
)
def test_the_rule_lets_pass(source: str) -> None:
    assert statements(ast.parse(source)) == []


@pytest.mark.parametrize("name", [name for name, value in vars(read_models).items() if isinstance(value, Statement)])
def test_each_statement_of_a_face_names_the_tenant(name: str) -> None:
    """Row-level security stands behind it, and is not the only guard (promise 8)."""
    statement = getattr(read_models, name)
    assert f"tenant_id = ${statement.names.index('tenant') + 1}" in statement.sql
