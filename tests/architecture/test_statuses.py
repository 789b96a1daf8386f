"""A status is a member of its state table's enum, not a quoted string: a misspelt one would be true nowhere.

SQL can only quote, so each status that it quotes is held against the enums.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from approvals.model import ApprovalStatus
from evidence.receipts import ReceiptStatus
from runtime.engine.model.states import CommandState, EffectState, RunState, StepState, WaitState

STATUSES = frozenset(
    str(status)
    for states in (RunState, StepState, WaitState, CommandState, ApprovalStatus, ReceiptStatus, EffectState)
    for status in states
)

# The table `queue` has a status that no state table knows: a held row is a lease, and says so to nobody but the store.
OF_THE_QUEUE = {"claimable", "sent", "leased"}
IN_SQL = re.compile(r"\bstatus\s*(?:=|<>|!=|(?:NOT )?IN|WHEN)\s*\(?\s*('\w*'(?:,\s*'\w*')*)")

# Words that are spelt like a status and are none, by file.
EXEMPT = {
    ("app/http/application.py", "ready"): "the readiness of this process",
    ("connectors/bpmn/connector.py", "canceled"): "the name of a member of an output",
    ("connectors/operation.py", "in_doubt"): "the name of a field of declarations",
    ("connectors/frozen.py", "in_doubt"): "the same",
    ("evidence/derived.py", "canceled"): "the name of a member of the bundle",
    ("evidence/history.py", "approved"): "the verifier knows approvals from the chain alone, not from `approvals`",
    ("evidence/history.py", "requested"): "the same",
    ("evidence/judging/actions.py", "approved"): "the same",
    ("evidence/judging/people.py", "approved"): "the same",
    ("evidence/judging/people.py", "rejected"): "the same",
    ("evidence/judging/actions.py", "failed"): "the resolution of a doubt",
    ("evidence/judging/steps.py", "canceled"): "the verifier knows runs from the chain alone, not from the engine",
    ("evidence/judging/steps.py", "failed_terminal"): "the same",
    ("evidence/judging/steps.py", "succeeded"): "the same",
    ("app/console/entrance.py", "left"): "the name of a value of a page",
    ("runtime/store/commits.py", "queued"): "the name of a part of a commit",
    ("runtime/engine/life/ask.py", "approved"): "the name of a member of an output",
}


def quoted(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of every quoted status that is compared, matched, looked up, or given to something called so."""
    for node in ast.walk(tree):
        found: list[ast.AST | None] = []
        match node:
            case ast.Compare():
                found = [node.left, *node.comparators]
            case ast.MatchValue():
                found = [node.value]
            case ast.Dict():
                given = zip(node.keys, node.values, strict=True)
                found = [*node.keys, *(value for key, value in given if _text(key) == "status")]
            case ast.keyword(arg="status"):
                found = [node.value]
            case ast.AnnAssign(target=ast.Name(id="status")) | ast.Assign(targets=[ast.Name(id="status")]):
                found = [node.value]
            case ast.arguments():
                named = [*node.posonlyargs, *node.args][-len(node.defaults) :] if node.defaults else []
                defaults = [
                    *zip(named, node.defaults, strict=True),
                    *zip(node.kwonlyargs, node.kw_defaults, strict=True),
                ]
                found = [default for argument, default in defaults if argument.arg == "status"]
        for part in found:
            inner = part.elts if isinstance(part, ast.Tuple | ast.List | ast.Set) else [part]
            yield from (
                (getattr(each, "lineno", 0), text)
                for each in inner
                if each is not None and (text := _text(each)) in STATUSES
            )


def _text(node: ast.AST | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def test_no_status_is_a_quoted_string(read_modules: Callable[..., Iterator[Any]], our_packages: list[str]) -> None:
    found = {
        (module.path, text): line
        for module in read_modules(*(package for package in our_packages if package not in ("sandbox", "migrations")))
        for line, text in quoted(module.tree)
    }
    wrong = [f"{path}:{line}: {text!r}" for (path, text), line in found.items() if (path, text) not in EXEMPT]
    assert not wrong, "Use the member of the state's enum:\n" + "\n".join(wrong)
    assert set(EXEMPT) <= set(found), "an exemption that nobody needs any more"


def in_sql(text: str) -> list[str]:
    """The statuses that SQL compares, sets or lists."""
    return [word for words in IN_SQL.findall(text) for word in re.findall(r"'(\w*)'", words)]


def test_every_status_in_sql_is_one(repository: Path) -> None:
    files = [*(repository / "runtime" / "store").rglob("*.sql"), *(repository / "migrations").rglob("*.sql")]
    found = {(file.name, status) for file in files for status in in_sql(file.read_text(encoding="utf-8"))}
    assert len(found) > 30, "the rule sees the store's statements"
    assert {(file, status) for file, status in found if status not in STATUSES | OF_THE_QUEUE} == set()


@pytest.mark.parametrize(
    ("sql", "statuses"),
    [
        ("w.status = 'waiting' AND", ["waiting"]),
        ("status <> 'claimable'", ["claimable"]),
        ("status IN ('queued', 'cancelled')", ["queued", "cancelled"]),
        ("CASE status WHEN 'leased' THEN", ["leased"]),
        ("status = $1, kind = 'card'", []),
    ],
)
def test_the_rule_sees_sql(sql: str, statuses: list[str]) -> None:
    assert in_sql(sql) == statuses


@pytest.mark.parametrize(
    "source",
    [
        "row['status'] == 'waiting'",
        "'succeeded' != status",
        "status in ('succeeded', other)",
        "{'failed': 1}",
        "{'status': 'ready'}",
        "call(status='queued')",
        "status = 'running'",
        "status: str = 'running'",
        "def f(status='requested'): ...",
        "def f(*, status='requested'): ...",
        "match status:\n    case 'canceled': ...",
    ],
)
def test_the_rule_sees(source: str) -> None:
    assert len(list(quoted(ast.parse(source)))) == 1


@pytest.mark.parametrize(
    "source", ["say('failed')", "SUCCEEDED = 'succeeded'", "status == State.FAILED", "x['failed']"]
)
def test_the_rule_lets_pass(source: str) -> None:
    assert not list(quoted(ast.parse(source)))
