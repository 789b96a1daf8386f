"""The measurements of each engine, and the figures derived from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.figures import median
from benchmarks.peers.engines import OURS, PEERS, Spec

WORKLOADS = ("w1", "w2", "latency")
AS_IS, SLOW = "as_is", "slow_commit"
DISKS = (AS_IS, SLOW)
# Counterseal's rate has to be so many times that of the leanest job by hand.
GATE = 1.3
RATES = {"w1": "runs_per_second", "w2": "steps_per_second"}


@dataclass
class Cell:
    """One engine, one workload, one disk: the figures of each round by name, and the failure that ended it."""

    rounds: list[dict[str, float]] = field(default_factory=list)
    failure: str = ""

    def values(self, figure: str) -> list[float]:
        """One figure in each round; empty after a failure, so that half a measurement never counts as a whole."""
        return [] if self.failure else [found[figure] for found in self.rounds if figure in found]


@dataclass
class Entry:
    """One engine. ``failure`` says why it could not be measured at all."""

    spec: Spec
    version: str = ""
    configuration: str = ""
    failure: str = ""
    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)

    def cell(self, disk: str, workload: str) -> Cell:
        """The cell of this disk and workload; created empty if needed."""
        return self.cells.setdefault((disk, workload), Cell())

    def median(self, disk: str, workload: str, figure: str) -> float | None:
        """The median of the rounds; None if there are none."""
        values = self.cell(disk, workload).values(figure)
        return median(values) if values else None


@dataclass
class Comparison:
    """All engines, ours first, and the circumstances of the measurement."""

    entries: list[Entry]
    about: dict[str, Any]

    def ratio(self, entry: Entry, disk: str, workload: str) -> float | None:
        """Our rate divided by this peer's, in runs or steps per second: above 1 we are faster."""
        ours = self.entries[0].median(disk, workload, RATES[workload])
        theirs = entry.median(disk, workload, RATES[workload])
        return ours / theirs if ours and theirs and entry.spec != OURS else None

    def leanest(self, disk: str, workload: str) -> Entry | None:
        """The fastest of the engines that do the same job by hand; None if none was measured."""
        figure = RATES[workload]
        rates = {
            number: rate
            for number, entry in enumerate(self.entries)
            if entry.spec.by_hand and (rate := entry.median(disk, workload, figure)) is not None
        }
        return self.entries[max(rates, key=lambda number: rates[number])] if rates else None

    def as_json(self) -> dict[str, Any]:
        """Give ``{"about": …, "engines": {key: {"name", "version", …, disk: {workload: {figure: [values]}}}}}``."""
        return {"about": self.about, "engines": {entry.spec.key: _engine(entry) for entry in self.entries}}


def from_json(content: Mapping[str, Any]) -> Comparison:
    """Read what ``as_json`` gave, without engines that are no longer measured."""
    said = content["engines"]
    return Comparison([_entry(spec, said[spec.key]) for spec in (OURS, *PEERS) if spec.key in said], content["about"])


def _entry(spec: Spec, said: Mapping[str, Any]) -> Entry:
    entry = Entry(spec, said["version"], said["configuration"], said["failure"])
    for disk in DISKS:
        for workload, figures in said[disk].items():
            if figures:
                entry.cells[disk, workload] = _cell_of(figures)
    return entry


def _cell_of(figures: Mapping[str, Any]) -> Cell:
    if "failure" in figures:
        return Cell(failure=figures["failure"])
    names = list(figures)
    return Cell([dict(zip(names, one, strict=True)) for one in zip(*figures.values(), strict=True)])


def _engine(entry: Entry) -> Mapping[str, Any]:
    said: dict[str, Any] = {
        "name": entry.spec.name,
        "version": entry.version,
        "configuration": entry.configuration,
        "on_postgres": entry.spec.on_postgres,
        "by_hand": entry.spec.by_hand,
        "failure": entry.failure,
    }
    measured = {disk: {work: _cell(entry.cell(disk, work)) for work in WORKLOADS} for disk in DISKS}
    return {**said, **measured}


def _cell(cell: Cell) -> dict[str, Any]:
    if cell.failure:
        return {"failure": cell.failure}
    figures = {name for found in cell.rounds for name in found}
    return {name: cell.values(name) for name in sorted(figures)}
