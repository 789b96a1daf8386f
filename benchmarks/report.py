"""The table of budgets as Markdown, written into docs/performance.md between two markers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import COLUMNS, Figure

DOCUMENT = Path(__file__).parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- budgets:begin -->", "<!-- budgets:end -->"
_ABOUT = (
    ("date", "Measured on"),
    ("machine", "on"),
    ("python", "with"),
    ("processors", "processors:"),
    ("load", "load at the end:"),
)


class MarkersMissingError(ValueError):
    """The document has no place for the table."""


def markdown(figures: Sequence[Figure], about: dict[str, str | float]) -> str:
    """The table, and a line about the circumstances of the measurement."""
    rows = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    rows += ["| " + " | ".join(_cell(cell) for cell in figure.cells) + " |" for figure in figures]
    facts = [f"{about[name]:g}" if isinstance(about[name], float) else str(about[name]) for name in _named(about)]
    said = ", ".join(f"{words} {fact}" for words, fact in zip(_words(about), facts, strict=True))
    return "\n".join([*rows, "", f"{said}."]) if said else "\n".join(rows)


def write(figures: Sequence[Figure], about: dict[str, str | float], path: Path = DOCUMENT) -> None:
    """Write the table between the markers of the document; a missing document is created with only the markers."""
    text = path.read_text(encoding="utf-8") if path.exists() else f"# Performance\n\n{BEGIN}\n{END}\n"
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise MarkersMissingError(f"{path} has no {BEGIN} followed by {END}: put both where the table is to stand.")
    path.write_text(f"{before}{BEGIN}\n{markdown(figures, about)}\n{END}{after}", encoding="utf-8")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _named(about: dict[str, str | float]) -> list[str]:
    return [name for name, _ in _ABOUT if name in about]


def _words(about: dict[str, str | float]) -> list[str]:
    return [words for name, words in _ABOUT if name in about]
