"""The page docs/requirements.md and the tests' `req` markers fit together, and the report on them is true."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def numbers(repository: Path) -> list[str]:
    page = (repository / "docs" / "requirements.md").read_text(encoding="utf-8")
    return re.findall(r"^\| ([A-Z]-\d+) \|", page, re.MULTILINE)


def marked(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and number of every `pytest.mark.req("…")`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "req":
            for argument in node.args:
                yield node.lineno, str(argument.value) if isinstance(argument, ast.Constant) else ast.unparse(argument)


def test_numbers_are_unique_and_without_gaps(numbers: list[str]) -> None:
    by_letter: defaultdict[str, list[int]] = defaultdict(list)
    for number in numbers:
        letter, _, index = number.partition("-")
        by_letter[letter].append(int(index))
    assert set(by_letter) == set("UQOVXP")
    for letter, indices in by_letter.items():
        assert indices == list(range(1, len(indices) + 1)), letter


def test_every_marker_names_a_requirement(read_modules: Callable[..., Iterator[Any]], numbers: list[str]) -> None:
    unknown = [
        f"{module.path}:{line}: {number}"
        for module in read_modules("tests")
        for line, number in marked(module.tree)
        if number not in numbers and not re.fullmatch(r"promise ([1-9]|1[0-2])", number)
    ]
    assert not unknown, "\n".join(unknown)


def report(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(repository / "tools" / "requirements_report.py"), *arguments]
    return subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=60, check=False)


def test_the_report_names_the_tests_that_prove_a_number(repository: Path, tmp_path: Path, numbers: list[str]) -> None:
    file = tmp_path / "test_example.py"
    file.write_text(
        'import pytest\n@pytest.mark.req("Q-9")\n@pytest.mark.req("U-3")\n'
        '@pytest.mark.parametrize("n", [1, 2])\ndef test_lease(n): pass\n'
    )
    done = report(repository, "--json", str(file))
    assert done.returncode == 0, done.stderr
    rows = {row["number"]: row for row in json.loads(done.stdout)}
    assert list(rows) == numbers
    for number in ("Q-9", "U-3"):
        assert [test.rpartition("::")[2] for test in rows[number]["tests"]] == ["test_lease"]
    assert rows["Q-10"]["tests"] == []

    plain = report(repository, str(file)).stdout.splitlines()
    assert any(line.startswith("Q-9\t") and line.endswith("::test_lease") for line in plain)
    assert any(line.startswith("Q-10\t") and line.endswith("\topen") for line in plain)
    assert plain[-1] == f"2 of {len(numbers)} requirements are proved by tests."


def test_the_report_refuses_a_number_that_is_nowhere_written(repository: Path, tmp_path: Path) -> None:
    file = tmp_path / "test_example.py"
    file.write_text('import pytest\n@pytest.mark.req("Q-999")\ndef test_it(): pass\n')
    done = report(repository, str(file))
    assert done.returncode == 1
    assert "Q-999" in done.stderr


def test_the_report_says_when_tests_cannot_be_collected(repository: Path, tmp_path: Path) -> None:
    file = tmp_path / "test_example.py"
    file.write_text("import there_is_no_such_module\n")
    done = report(repository, str(file))
    assert done.returncode == 1
    assert "there_is_no_such_module" in done.stderr
    assert "could not be collected" in done.stderr
