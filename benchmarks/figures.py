"""Figures of measurements, and their table."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

FOLDER = Path(__file__).parent / "results"
RESULTS = FOLDER / "latest.json"
COLUMNS = ("what", "budget", "measured", "spread", "verdict")


Number = float | int | str


class Verdict(StrEnum):
    """The verdict on a budget."""

    WITHIN = "within"
    OVER = "over"
    NOT_MEASURED = "not measured"
    NO_BUDGET = "no budget"


@dataclass(frozen=True, slots=True)
class Figure:
    """One row: the name of the figure, its budget and verdict in words, and the numbers behind it.

    ``measured`` is the median of the rounds, ``spread`` their smallest and largest; counted figures have no spread.
    """

    what: str
    budget: str
    measured: str
    verdict: Verdict
    numbers: Mapping[str, Number]
    spread: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        """The row, in the order of ``COLUMNS``."""
        return self.what, self.budget, self.measured, self.spread, self.verdict


def at_most(what: str, limit: float, found: float, unit: str, *, spread: str = "", **numbers: Number) -> Figure:
    """A figure with an upper limit. ``numbers`` are further ones, shown in the JSON only."""
    verdict = Verdict.WITHIN if found <= limit else Verdict.OVER
    measured = f"{short(found)} {unit}"
    return Figure(what, f"≤ {limit:g} {unit}", measured, verdict, {"value": found, **numbers}, spread)


def at_least(what: str, limit: float, found: float, unit: str, *, spread: str = "", **numbers: Number) -> Figure:
    """A figure with a lower limit."""
    verdict = Verdict.WITHIN if found >= limit else Verdict.OVER
    measured = f"{short(found)} {unit}"
    return Figure(what, f"≥ {limit:,.10g} {unit}", measured, verdict, {"value": found, **numbers}, spread)


def plain(what: str, found: str, *, spread: str = "", **numbers: Number) -> Figure:
    """A figure without a budget, for information."""
    return Figure(what, "", found, Verdict.NO_BUDGET, dict(numbers), spread)


def unmeasured(what: str, budget: str, measured: str = "", *, spread: str = "", **numbers: Number) -> Figure:
    """A figure whose budget cannot be checked here."""
    return Figure(what, budget, measured, Verdict.NOT_MEASURED, dict(numbers), spread)


def median(values: Sequence[float]) -> float:
    return float(statistics.median(values))


def percentile(values: Sequence[float], hundredth: int) -> float:
    """The percentile of some values; a single value is its own percentile."""
    if len(values) == 1:
        return float(values[0])
    return float(statistics.quantiles(values, n=100, method="inclusive")[hundredth - 1])


def spread_of(values: Sequence[float]) -> str:
    """The smallest and the largest of the rounds."""
    return f"{short(min(values))} to {short(max(values))}"


def short(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    shown = f"{value:.2f}"
    return shown.rstrip("0").rstrip(".")


def show(figures: Sequence[Figure]) -> None:
    """Print one table: formatted on a terminal, tab-separated otherwise."""
    if not sys.stdout.isatty():
        print("\t".join(COLUMNS))
        for figure in figures:
            print("\t".join(figure.cells))
        return
    from rich.console import Console
    from rich.table import Table

    colours = {Verdict.WITHIN: "green", Verdict.OVER: "red"}
    table = Table(*COLUMNS)
    for figure in figures:
        table.add_row(*figure.cells, style=colours.get(figure.verdict))
    Console().print(table)


def save(figures: Sequence[Figure], about: dict[str, str | float], path: Path = RESULTS) -> None:
    """Write everything, unrounded, as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"about": about, "figures": [asdict(figure) for figure in figures]}
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path: Path = RESULTS) -> tuple[list[Figure], dict[str, str | float]]:
    """Read what ``save`` wrote. ``OSError`` if there is nothing."""
    content = json.loads(path.read_text(encoding="utf-8"))
    figures = [Figure(**{**row, "verdict": Verdict(row["verdict"])}) for row in content["figures"]]
    return figures, content["about"]
