"""The threat model is whole: each setting, route, connector and table has a row, and the tests of a row are there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import AsyncExitStack
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from app.faces import Faces
from app.http.application import create_app
from app.settings import Settings
from connectors.catalog import load_catalog
from core.db import FACES_ROLE, Database


def rows(root: Path) -> list[list[str]]:
    lines = (root / "docs" / "threat-model.md").read_text().splitlines()
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return found[2:]


def settings() -> Iterable[str]:
    return Settings.model_fields


def routes() -> Iterable[str]:
    database = Database("postgresql://docs@localhost/docs", FACES_ROLE)
    paths: dict[str, object] = create_app(Faces(Settings(), database, AsyncExitStack())).openapi()["paths"]
    return paths


def connectors() -> Iterable[str]:
    return {one.connector for one in load_catalog().operations.values()} | {"sql", "mcp"}


def tables() -> Iterable[str]:
    folder = Path(__file__).parents[2] / "migrations" / "versions"
    return {
        name for file in folder.glob("*_tables.sql") for name in re.findall(r"CREATE TABLE (\w+)", file.read_text())
    }


@pytest.mark.parametrize(("sign", "every"), [("s", settings), ("r", routes), ("c", connectors), ("t", tables)])
def test_everything_stands_in_a_row_and_a_row_names_nothing_that_is_not_there(
    docs_root: Path, sign: str, every: object
) -> None:
    assert callable(every)
    named = {part[2:] for row in rows(docs_root) for part in row[-1].split() if part.startswith(f"{sign}:")}
    there = {*every()}
    assert {one for one in there if not any(fnmatchcase(one, pattern) for pattern in named)} == set()
    assert {pattern for pattern in named if not any(fnmatchcase(one, pattern) for one in there)} == set()


def test_each_row_is_held_by_tests_that_are_there(docs_root: Path) -> None:
    for row in rows(docs_root):
        assert len(row) == 5, row
        named = re.findall(r"`(tests/[\w/]+(?:\.py)?)`", row[3])
        assert named, row
        assert [name for name in named if not (docs_root / name).exists()] == []
