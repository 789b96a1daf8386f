"""SQL stands in files that PostgreSQL could read as they are: no code of the product puts a statement together."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.store.statements import statements

VERBS = "SELECT INSERT UPDATE DELETE WITH CREATE ALTER DROP GRANT REVOKE SET LOCK TRUNCATE NOTIFY LISTEN"
BEGINS = re.compile(rf"\s*\(?\s*({'|'.join(VERBS.split())})\s+\S")
# A part of a statement has such words, even without its verb; no sentence of ours has them.
HOLDS = re.compile(r"\b(FROM \w+|WHERE \w|ORDER BY|GROUP BY|RETURNING|LEFT JOIN|FOR UPDATE|ON CONFLICT|VALUES \()")
NAMES_A_TABLE = re.compile(r"\b(FROM|INTO|JOIN|UPDATE)\s+(ONLY\s+)?[a-z_{]")
QUERIES = Path("runtime/store/queries")
# The modules whose code names tables, and those that put statements together, each with the reason.
TABLES = {
    "app/storage.py": "reads the version of the schema, before there is one that a store could know",
    "connectors/sql/statements.py": "an outside system's tables, which a declaration names, and its catalogue",
    "app/logins.py": "makes and checks logins, which belong to the server and to no schema",
}
BUILT = {
    "connectors/sql/statements.py": "an outside system's tables and columns, which only a declaration names",
    "core/grouping.py": "several calls of functions of ours in one statement: their names, and placeholders",
    "core/db.py": "the settings of a connection: SET takes no parameters, and the names are ours",
}

Modules = Callable[..., Iterator[Any]]


def words_of(node: ast.AST) -> str:
    """The constant text in an expression, with an x for each value in an f-string."""
    if isinstance(node, ast.FormattedValue):
        return "x"
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(map(words_of, ast.iter_child_nodes(node)))


def put_together(node: ast.AST) -> list[Any]:
    """Texts that an expression puts together by f-string, ``+``, ``%``, ``format``, ``replace``, ``join``, ``sub``."""
    match node:
        case ast.JoinedStr(values=values) if any(isinstance(value, ast.FormattedValue) for value in values):
            return [node]
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return [left, right]
        case ast.BinOp(op=ast.Mod(), left=left):
            return [left]
        case ast.Call(func=ast.Attribute(attr="format" | "format_map" | "replace" | "join", value=text), args=args):
            return [text, *args]
        case ast.Call(func=ast.Attribute(attr="sub" | "subn" | "substitute"), args=args):
            return list(args)
    return []


def built(tree: ast.Module) -> list[int]:
    """Lines that put SQL together. A call's own words do not count: the call is looked at by itself."""
    found = set()
    for node in ast.walk(tree):
        texts = [text for text in put_together(node) if not isinstance(text, ast.Call)]
        if any(BEGINS.match(words) or HOLDS.search(words) for words in map(words_of, texts)):
            found.add(getattr(node, "lineno", 0))
    return sorted(found)


def on_tables(tree: ast.Module) -> list[int]:
    """Lines of texts that are a statement on a table: they begin with a verb of SQL, and name one."""
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr)]
    return sorted(
        {text.lineno for text in texts if BEGINS.match(words_of(text)) and NAMES_A_TABLE.search(words_of(text))}
    )


def test_no_code_puts_a_statement_together(read_modules: Modules, our_packages: list[str]) -> None:
    found = {module.path: lines for module in read_modules(*our_packages) if (lines := built(module.tree))}
    assert {path: lines for path, lines in found.items() if path not in BUILT} == {}, (
        "give it parameters, or a name each"
    )
    assert set(BUILT) == set(found), "an exemption that nobody needs any more"


def test_statements_on_tables_stand_in_the_files_of_the_store(read_modules: Modules, our_packages: list[str]) -> None:
    packages = [package for package in our_packages if package not in ("migrations", "sandbox")]
    found = {module.path: lines for module in read_modules(*packages) if (lines := on_tables(module.tree))}
    assert {path: lines for path, lines in found.items() if path not in TABLES} == {}, f"move it to {QUERIES}"
    assert set(TABLES) == set(found), "an exemption that nobody needs any more"


def test_each_statement_of_a_file_is_used_once_and_no_other_is_asked_for(
    read_modules: Modules, repository: Path
) -> None:
    used: dict[str, list[str]] = {}
    for module in read_modules("runtime"):
        asked = re.findall(r'^_SQL = statements\("(\w+)"\)$', module.text, re.MULTILINE)
        if asked:
            assert asked == [Path(module.path).stem], "a module has the file with its own name"
            used[asked[0]] = sorted(re.findall(r'_SQL\["(\w+)"\]', module.text))
    assert used == {path.stem: sorted(statements(path.stem)) for path in (repository / QUERIES).glob("*.sql")}


@pytest.mark.parametrize(
    ("found", "source"),
    [
        (True, "x = f'SELECT {a} FROM people'"),
        (True, "x = f'''\n  UPDATE people SET a = {b}'''"),
        (True, "x = f'{a} WHERE b = $1'"),
        (True, "x = 'SELECT a FROM people WHERE b = {0}'.format(b)"),
        (True, "x = TEMPLATE.format('SELECT 1')"),
        (True, "x = 'DELETE FROM people_%s' % kind"),
        (True, "x = READ.replace('$1', 'FROM people')"),
        (True, "x = 'INSERT INTO a (b)' + values"),
        (True, "x = ' '.join(['SELECT 1', *more])"),
        (True, "x = name.sub(one, 'SELECT a FROM b')"),
        (True, "x = f'GRANT {right} ON people TO faces'"),
        (False, "x = 'SELECT a FROM people WHERE b = $1'"),
        (False, "x = f'Select {a} from the list.'"),
        (False, "x = f'{a} with {b}'"),
        (False, "x = 'a {0}'.format(b)"),
    ],
)
def test_the_rule_sees_what_is_put_together(found: bool, source: str) -> None:
    assert bool(built(ast.parse(source))) is found


@pytest.mark.parametrize(
    ("found", "source"),
    [
        (True, "x = '''\nINSERT INTO people (a) VALUES ($1)'''"),
        (True, "x = f'SELECT a FROM people{kind}'"),
        (True, "x = 'UPDATE ONLY people SET a = 1'"),
        (True, "x = 'WITH a AS (SELECT 1 FROM b) SELECT * FROM a'"),
        (False, "x = 'SELECT now()'"),
        (False, "x = 'SELECT pg_notify($1, $2)'"),
        (False, "'''Select from the list.'''"),
    ],
)
def test_the_rule_sees_tables(found: bool, source: str) -> None:
    assert bool(on_tables(ast.parse(source))) is found


@pytest.mark.parametrize("name", statements("read_models"))
def test_each_statement_of_a_face_names_the_tenant(name: str) -> None:
    """Row-level security stands behind it, and is not the only guard (promise 8)."""
    assert "tenant_id = $1" in statements("read_models")[name]
