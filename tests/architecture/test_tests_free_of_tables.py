"""SQL on the engine's tables stands in tests/support and in the store's own tests, nowhere else among the tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

TABLES = (
    "runs|journal|queue|steps|waits|approvals|votes|receipts|effects|commands|outbox|inbox|audit_events|decisions"
    "|checkpoints|loop_items|ledger|mutations|run_inputs|run_steps|queue|caps|workspaces|bundles|remains|records"
)
# SQL that names a table, and SQL that names it by a variable.
NAMES_A_TABLE = re.compile(rf"\b(FROM|INTO|UPDATE|JOIN|ON) (ONLY )?({TABLES})\b|\b(FROM|INTO|UPDATE|JOIN) \{{")
MAY = ("tests/support/", "tests/store/", "tests/benchmarks/test_governed_by_hand.py")  # the last has tables of its own

# Files that still have to be freed. The list only shrinks: a file that has become clean is taken off.
STILL_TO_DO: set[str] = set()

Modules = Callable[..., Iterator[Any]]


def found(text: str) -> list[tuple[int, str]]:
    """Line and words of every place that names a table."""
    lines = enumerate(text.splitlines(), 1)
    return [(number, match.group()) for number, line in lines if (match := NAMES_A_TABLE.search(line))]


def test_tests_do_not_know_the_engines_tables(read_modules: Modules) -> None:
    knowing = {
        module.path: places
        for module in read_modules("tests")
        if not module.path.startswith(MAY) and (places := found(module.text))
    }
    told = [f"{path}:{line}: {words}" for path, places in knowing.items() for line, words in places]
    more = [line for line in told if line.split(":")[0] not in STILL_TO_DO]
    assert not more, "ask tests/support, or add a question or a trouble there:\n" + "\n".join(more)
    clean = STILL_TO_DO - set(knowing)
    assert not clean, f"these are free of tables: take them off STILL_TO_DO: {', '.join(sorted(clean))}"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('await runtime.one("SELECT status FROM %s WHERE run_id = $1", run_id)', "runs"),
        ('"UPDATE %s SET expires_at = now()"', "queue"),
        ('await connection.execute("INSERT INTO %s (tenant_id, cap) VALUES ($1, 1)")', "caps"),
        ('"SELECT line FROM tenants JOIN %s USING (stream_id)"', "audit_events"),
        ('"REVOKE INSERT ON %s FROM counterseal_faces"', "audit_events"),
        ('f"SELECT count(*) FROM %s"', "{table.name}"),
    ],
)
def test_the_rule_sees(line: str, name: str) -> None:
    assert len(found(line % name)) == 1


@pytest.mark.parametrize(
    "line",
    [
        '"UPDATE tenants SET policy_digests = NULL"',
        '"SELECT name FROM workflows"',
        "# what comes from steps of another run",
        "from runtime.store import claims",
        'await runtime.books.step("a")',
    ],
)
def test_the_rule_lets_be(line: str) -> None:
    assert found(line) == []
