"""What a measurement says, and how its table is drawn."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "latest.json"


class Verdict(StrEnum):
    """Whether a budget is kept."""

    WITHIN = "within"
    OVER = "over"
    NOT_MEASURED = "not measured in this release"
    NO_BUDGET = "no budget"


@dataclass(frozen=True, slots=True)
class Figure:
    """One row: what was measured, its budget and the verdict in words, and the numbers behind it."""

    what: str
    budget: str
    measured: str
    verdict: Verdict
    numbers: dict[str, float | int | str]


def at_most(what: str, limit: float, found: float, unit: str, **numbers: float | int | str) -> Figure:
    """A figure that is to be small. ``numbers`` are further ones, shown in the JSON only."""
    verdict = Verdict.WITHIN if found <= limit else Verdict.OVER
    return Figure(what, f"≤ {limit:g} {unit}", f"{_short(found)} {unit}", verdict, {"value": found, **numbers})


def at_least(what: str, limit: float, found: float, unit: str, **numbers: float | int | str) -> Figure:
    """A figure that is to be large."""
    verdict = Verdict.WITHIN if found >= limit else Verdict.OVER
    return Figure(what, f"≥ {limit:,.10g} {unit}", f"{_short(found)} {unit}", verdict, {"value": found, **numbers})


def plain(what: str, found: str, **numbers: float | int | str) -> Figure:
    """A figure without a budget, for whoever reads the others."""
    return Figure(what, "", found, Verdict.NO_BUDGET, dict(numbers))


def unmeasured(what: str, budget: str, measured: str = "") -> Figure:
    """A budget that this release cannot hold itself to."""
    return Figure(what, budget, measured, Verdict.NOT_MEASURED, {})


def median(values: Sequence[float]) -> float:
    return float(statistics.median(values))


def percentile(values: Sequence[float], hundredth: int) -> float:
    return float(statistics.quantiles(values, n=100, method="inclusive")[hundredth - 1])


def _short(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}".rstrip("0").rstrip(".")


def show(figures: Sequence[Figure]) -> None:
    """One table: for people on a terminal, tab-separated otherwise."""
    if not sys.stdout.isatty():
        print("what\tbudget\tmeasured\tverdict")
        for figure in figures:
            print(f"{figure.what}\t{figure.budget}\t{figure.measured}\t{figure.verdict}")
        return
    from rich.console import Console
    from rich.table import Table

    colours = {Verdict.WITHIN: "green", Verdict.OVER: "red"}
    table = Table("what", "budget", "measured", "verdict")
    for figure in figures:
        table.add_row(figure.what, figure.budget, figure.measured, figure.verdict, style=colours.get(figure.verdict))
    Console().print(table)


def save(figures: Sequence[Figure], about: dict[str, str | float], path: Path = RESULTS) -> None:
    """Write everything, unrounded, as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"about": about, "figures": [asdict(figure) for figure in figures]}
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
