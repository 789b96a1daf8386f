"""The source tree, as the architecture tests see it."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Module:
    """One source file: its path from the repository's root, its text, its syntax tree."""

    path: str
    text: str
    tree: ast.Module


@pytest.fixture(scope="session")
def repository() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def our_packages() -> list[str]:
    """The top-level packages that pyproject.toml puts into the wheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages: list[str] = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return packages


@pytest.fixture(scope="session")
def read_modules() -> Callable[..., Iterator[Module]]:
    """All Python files below folders of the repository. Applied migrations are history and are left out."""

    def read(*folders: str) -> Iterator[Module]:
        for folder in folders:
            for file in sorted((ROOT / folder).rglob("*.py")):
                path = file.relative_to(ROOT).as_posix()
                if not path.startswith("migrations/versions/"):
                    text = file.read_text(encoding="utf-8")
                    yield Module(path, text, ast.parse(text, path))

    return read
