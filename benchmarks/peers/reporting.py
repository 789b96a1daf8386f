"""The comparison for people: a table on the terminal, JSON, and Markdown in docs/performance.md between two markers."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import FOLDER, short
from benchmarks.peers.engines import OURS
from benchmarks.peers.results import AS_IS, DISKS, RATES, SLOW, Cell, Comparison, Entry, from_json

RESULTS = FOLDER / "peers.json"
DOCUMENT = Path(__file__).parents[2] / "docs" / "performance.md"
BEGIN, END = "<!-- peers:begin -->", "<!-- peers:end -->"
COLUMNS = (
    "engine",
    "disk",
    "W1 runs/s",
    "W1: ours / theirs",
    "W2 steps/s",
    "W2: ours / theirs",
    "decision → complete, p50 / p99",
    "W1 transactions/run",
    "W2 transactions/step",
)
_DISKS = {AS_IS: "as it is", SLOW: "2 ms commit"}
_W2_STEPS = 10


class MarkersMissingError(ValueError):
    """The document has no place for the table."""


def rows(found: Comparison) -> list[tuple[str, ...]]:
    """The rows of the table: each engine on each disk. An unmeasured row gives the reason."""
    return [_row(found, entry, disk) for disk in DISKS for entry in found.entries]


def notes(found: Comparison) -> list[str]:
    """The reasons for empty cells, one sentence each."""
    said = [f"{entry.spec.name}: {entry.failure}." for entry in found.entries if entry.failure]
    for entry in found.entries:
        for (disk, workload), cell in entry.cells.items():
            if cell.failure:
                said.append(f"{entry.spec.name}, {workload}, disk {_DISKS[disk]}: failed: {cell.failure}.")
    return said


def show(found: Comparison) -> None:
    """Print one table, formatted on a terminal, tab-separated otherwise; then the reasons for empty cells."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        table = Table(*COLUMNS)
        for row in rows(found):
            table.add_row(*row, style="bold" if row[0] == OURS.name else None)
        Console().print(table)
    else:
        for row in (COLUMNS, *rows(found)):
            print("\t".join(row))
    for note in notes(found):
        print(note)


def save(found: Comparison, path: Path = RESULTS) -> None:
    """Write everything, unrounded, as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found.as_json(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path: Path = RESULTS) -> Comparison:
    """Read what ``save`` wrote. ``OSError`` if there is nothing."""
    return from_json(json.loads(path.read_text(encoding="utf-8")))


def markdown(found: Comparison) -> str:
    """The table, the circumstances of the measurement, and the version and configuration of each engine."""
    lines = [_line(COLUMNS), _line(["---"] * len(COLUMNS)), *(_line(row) for row in rows(found))]
    if said := notes(found):
        lines += ["", *(f"- {note}" for note in said)]
    lines += [
        "",
        _circumstances(found.about),
        "",
        _line(["engine", "version", "configuration"]),
        _line(["---"] * 3),
    ]
    lines += [_line([entry.spec.name, entry.version, entry.configuration]) for entry in found.entries]
    return "\n".join(lines)


def _circumstances(about: dict[str, Any]) -> str:
    return (
        f"Measured on {about['date']}, {about['machine']}, {about['processors']} processors, {about['python']}, "
        f"PostgreSQL {about['postgres']}; load {about['load_before']:.1f} before, {about['load_after']:.1f} after. "
        f"Medians of {about['rounds']} rounds, each of all engines, with the smallest and the largest; "
        f"{about['runs']} runs a measurement, {about['in_flight']} in flight; {about['latency_runs']} for latency, one "
        f"at a time. The slow disk is `commit_delay = {about['commit_delay_microseconds']}`, `commit_siblings = 0`. "
        "Transactions include looks for work. PostgreSQL counted those of the peers, and what it takes to set up is "
        "taken off; Counterseal's are counted at its driver. Counterseal's load looks into the database for what waits "
        "and what has ended; the peers' are told by their own process, which costs them nothing."
    )


def write(found: Comparison, path: Path = DOCUMENT) -> None:
    """Write the table between the markers of the document; a missing document is created with only the markers."""
    text = path.read_text(encoding="utf-8") if path.exists() else f"# Performance\n\n{BEGIN}\n{END}\n"
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise MarkersMissingError(f"{path} has no {BEGIN} followed by {END}: put both where the table is to stand.")
    path.write_text(f"{before}{BEGIN}\n{markdown(found)}\n{END}{after}", encoding="utf-8")


def _row(found: Comparison, entry: Entry, disk: str) -> tuple[str, ...]:
    if entry.failure:
        return (entry.spec.name, _DISKS[disk], *["not installed"] * (len(COLUMNS) - 2))
    if disk == SLOW and not entry.spec.on_postgres:
        return (entry.spec.name, _DISKS[disk], *["not on PostgreSQL"] * (len(COLUMNS) - 2))
    w1, w2, alone = (entry.cell(disk, workload) for workload in ("w1", "w2", "latency"))
    return (
        entry.spec.name,
        _DISKS[disk],
        _spread(w1, RATES["w1"]),
        _times(found.ratio(entry, disk, "w1")),
        _spread(w2, RATES["w2"]),
        _times(found.ratio(entry, disk, "w2")),
        _milliseconds(entry, disk, alone),
        _transactions(entry, "w1", 1),
        _transactions(entry, "w2", _W2_STEPS),
    )


def _spread(cell: Cell, figure: str) -> str:
    values = sorted(cell.values(figure))
    if not values:
        return "failed" if cell.failure else ""
    middle = short(round(values[len(values) // 2] if len(values) % 2 else sum(values) / len(values)))
    return f"{middle} ({short(round(values[0]))} to {short(round(values[-1]))})" if len(values) > 1 else middle


def _times(ratio: float | None) -> str:
    return f"{ratio:.2f}" if ratio is not None else ""


def _milliseconds(entry: Entry, disk: str, cell: Cell) -> str:
    half, last = entry.median(disk, "latency", "p50_ms"), entry.median(disk, "latency", "p99_ms")
    if half is None or last is None:
        return "failed" if cell.failure else ""
    return f"{half:.1f} / {last:.1f} ms"


def _transactions(entry: Entry, workload: str, steps: int) -> str:
    if not entry.spec.on_postgres:
        return "none"
    used = entry.median(AS_IS, workload, "transactions_per_run")
    return f"{used / steps:.1f}" if used is not None else ""


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
