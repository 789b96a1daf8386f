"""The comparison for people: two tables on the terminal, JSON, and Markdown between two markers of a document."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import FOLDER, short
from benchmarks.peers.engines import OURS
from benchmarks.peers.results import AS_IS, DISKS, GATE, RATES, SLOW, Cell, Comparison, Entry, from_json

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
ALONE, BY_HAND = "The engines alone, which govern nothing", "The same job by hand"


class MarkersMissingError(ValueError):
    """The document has no place for the table."""


def groups(found: Comparison) -> dict[str, list[tuple[str, ...]]]:
    """The rows of the two tables by their titles: each engine on each disk, ours in both.

    An unmeasured row gives the reason. There is no second table if nothing by hand was asked for.
    """
    by_hand = [entry for entry in found.entries if entry.spec.by_hand]
    entries = {ALONE: [entry for entry in found.entries if not entry.spec.by_hand]}
    if by_hand:
        entries[BY_HAND] = [*(entry for entry in found.entries if entry.spec == OURS), *by_hand]
    return {title: [_row(found, entry, disk) for disk in DISKS for entry in some] for title, some in entries.items()}


def gate(found: Comparison) -> list[str]:
    """The ratio of our rate to that of the leanest job by hand, one sentence for each workload that was measured."""
    said = []
    for workload in RATES:
        leanest = found.leanest(AS_IS, workload)
        ratio = found.ratio(leanest, AS_IS, workload) if leanest is not None else None
        if leanest is not None and ratio is not None:
            verdict = "within" if ratio >= GATE else "below"
            said.append(
                f"{workload.upper()}: {ratio:.2f} times the leanest job by hand ({leanest.spec.name}); "
                f"the gate is {GATE:g}: {verdict}."
            )
    return said


def notes(found: Comparison) -> list[str]:
    """The reasons for empty cells, one sentence each."""
    said = [f"{entry.spec.name}: {entry.failure}." for entry in found.entries if entry.failure]
    for entry in found.entries:
        for (disk, workload), cell in entry.cells.items():
            if cell.failure:
                said.append(f"{entry.spec.name}, {workload}, disk {_DISKS[disk]}: failed: {cell.failure}.")
    return said


def show(found: Comparison) -> None:
    """Print the tables, formatted on a terminal, tab-separated otherwise; the gate; the reasons for empty cells."""
    for title, rows in groups(found).items():
        if sys.stdout.isatty():
            from rich.console import Console
            from rich.table import Table

            table = Table(*COLUMNS, title=title)
            for row in rows:
                table.add_row(*row, style="bold" if row[0] == OURS.name else None)
            Console().print(table)
        else:
            print(title)
            for row in (COLUMNS, *rows):
                print("\t".join(row))
    for note in (*gate(found), *notes(found)):
        print(note)


def save(found: Comparison, path: Path = RESULTS) -> None:
    """Write everything, unrounded, as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found.as_json(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path: Path = RESULTS) -> Comparison:
    """Read what ``save`` wrote. ``OSError`` if there is nothing."""
    return from_json(json.loads(path.read_text(encoding="utf-8")))


def markdown(found: Comparison) -> str:
    """The tables, the circumstances of the measurement, and the version and configuration of each engine."""
    lines: list[str] = []
    for title, rows in groups(found).items():
        lines += [f"{title}:", "", _line(COLUMNS), _line(["---"] * len(COLUMNS)), *(_line(row) for row in rows), ""]
    lines += [f"- {sentence}" for sentence in gate(found)]
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
