"""The documentation, as its tests see it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Example:
    """One fenced block: where it begins, its language, its text."""

    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@pytest.fixture(scope="session")
def docs_root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def pages() -> list[Path]:
    """Every page that people read."""
    return [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "SECURITY.md",
        ROOT / "deploy" / "README.md",
        *sorted((ROOT / "docs").glob("**/*.md")),
    ]


@pytest.fixture(scope="session")
def examples(pages: list[Path]) -> Callable[[str, str], list[Example]]:
    """All blocks of one language whose text has this key at the top."""

    def found(language: str, key: str) -> list[Example]:
        return [block for page in pages for block in _blocks(page) if block.language == language and _has(block, key)]

    return found


def _blocks(page: Path) -> Iterator[Example]:
    text = page.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield Example(page.relative_to(ROOT).as_posix(), line, match["language"], match["text"])


def _has(block: Example, key: str) -> bool:
    return re.search(rf"^{key}", block.text, re.MULTILINE) is not None
