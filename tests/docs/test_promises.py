"""The promises of docs/promises.md: code, tests and pages cite their numbers and no others, and tests cite each one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

# "promise 4", "promises 1 and 8", "promises 1, 2". A comment may be broken between the word and its number.
CITED = re.compile(r"\bpromises?[\s#]+(\d+(?:(?:, | and )\d+)*)", re.IGNORECASE)
FOLDERS = (
    *("app", "approvals", "connectors", "core", "evidence", "migrations", "policy", "runtime"),
    *("sandbox", "benchmarks", "chaos", "tools", "tests", "docs", "examples", "deploy"),
)
SUFFIXES = {".py", ".sql", ".js", ".html", ".md", ".yaml", ".toml"}
ALSO = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile", "pyproject.toml")


def cited(text: str) -> list[int]:
    return [int(number) for found in CITED.findall(text) for number in re.findall(r"\d+", found)]


def texts(root: Path) -> Iterator[tuple[str, str]]:
    """Path and text of every file of the repository in which a promise could be cited, but this one."""
    files = [file for folder in FOLDERS for file in sorted((root / folder).rglob("*")) if file.suffix in SUFFIXES]
    for file in [*files, *(root / name for name in ALSO)]:
        if file != Path(__file__):
            yield file.relative_to(root).as_posix(), file.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def promised(docs_root: Path) -> list[int]:
    page = (docs_root / "docs" / "promises.md").read_text(encoding="utf-8")
    return [int(number) for number in re.findall(r"^(\d+)\. \*\*", page, re.MULTILINE)]


def test_the_promises_are_numbered_without_gaps(promised: list[int]) -> None:
    assert promised == list(range(1, 13))


def test_every_number_that_is_cited_is_promised(docs_root: Path, promised: list[int]) -> None:
    unknown = [f"{path}: {n}" for path, text in texts(docs_root) for n in cited(text) if n not in promised]
    assert unknown == []


def test_every_promise_is_cited_by_a_test(docs_root: Path, promised: list[int]) -> None:
    found = {n for path, text in texts(docs_root) if path.startswith("tests/") for n in cited(text)}
    assert sorted(set(promised) - found) == []


def test_nobody_cites_a_design_that_no_reader_has(docs_root: Path) -> None:
    assert [path for path, text in texts(docs_root) if re.search(r"\bDESIGN\b", text)] == []


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("kept (promise 4).", [4]),
        ("(promises 1, 2)", [1, 2]),
        ("Promises 5 and 13: so it is", [5, 13]),
        ("# (promise\n# 12)", [12]),
        ("a promise of 3 days; promised 4", []),
    ],
)
def test_the_rule_sees(text: str, numbers: list[int]) -> None:
    assert cited(text) == numbers
