"""Runs the rounds. In each, every engine does every workload in turn, so other load on the machine affects all alike.

Each measurement has its own process and its own new database, which end with it.
"""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.peers.databases import SLOW_COMMIT_MICROSECONDS, Databases, databases
from benchmarks.peers.driving import DriverError, run_driver
from benchmarks.peers.engines import OURS, Spec
from benchmarks.peers.environments import Environment, UnavailableError, prepare
from benchmarks.peers.interpreters import best
from benchmarks.peers.results import AS_IS, DISKS, SLOW, WORKLOADS, Cell, Comparison, Entry
from benchmarks.timed import IN_FLIGHT
from benchmarks.world import new_server

WARM_UP = 100
LATENCY_WARM_UP = 20
_FIGURES = ("runs_per_second", "steps_per_second", "p50_ms", "p99_ms", "transactions_per_run")


@dataclass(frozen=True, slots=True)
class Sizes:
    """The numbers of runs of a measurement, of runs for latency (one at a time), and of rounds."""

    runs: int
    latency_runs: int
    rounds: int

    def of(self, workload: str) -> tuple[int, int]:
        """The number of runs, and of warm-up runs before the clock starts."""
        if workload == "latency":
            return self.latency_runs, min(LATENCY_WARM_UP, self.latency_runs)
        return self.runs, min(WARM_UP, self.runs)


def measure(peers: Sequence[Spec], sizes: Sizes) -> Comparison:
    """Install and measure, with progress on stderr."""
    entries, environments = [Entry(spec) for spec in (OURS, *peers)], {}
    for entry in entries:
        _tell(f"{entry.spec.name}: preparing its environment")
        try:
            environments[entry.spec.key] = prepare(entry.spec)
        except UnavailableError as reason:
            entry.failure = f"could not be installed: {reason}"
            _tell(f"{entry.spec.name} {entry.failure}")
    return asyncio.run(_measured(entries, environments, sizes))


async def _measured(entries: list[Entry], environments: dict[str, Environment], sizes: Sizes) -> Comparison:
    task = asyncio.current_task()
    assert task is not None
    # Treat SIGTERM like Ctrl-C, so that we stop drivers and servers, which have their own sessions.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    about: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "python": best().words,
        "machine": platform.platform(),
        "processors": os.cpu_count() or 0,
        "load_before": os.getloadavg()[0],
        "in_flight": IN_FLIGHT,
        "commit_delay_microseconds": SLOW_COMMIT_MICROSECONDS,
        **asdict(sizes),
    }
    async with new_server() as (url, _), databases(url) as server:
        # A short name, because Restate puts Unix sockets into this folder, whose paths must be short.
        with tempfile.TemporaryDirectory(prefix="peers-", ignore_cleanup_errors=True) as scratch:
            work = _Work(server, environments, sizes, Path(scratch))
            await work.all_rounds([entry for entry in entries if not entry.failure])
        about["postgres"] = await server.version()
    about["load_after"] = os.getloadavg()[0]
    return Comparison(entries, about)


class _Work:
    """All measurements, one after the other."""

    def __init__(self, server: Databases, environments: dict[str, Environment], sizes: Sizes, scratch: Path) -> None:
        self._server = server
        self._environments = environments
        self._sizes = sizes
        self._scratch = scratch
        self._idle: dict[tuple[str, str], int] = {}

    async def all_rounds(self, entries: Sequence[Entry]) -> None:
        for disk in DISKS:
            await self._server.commit_delay(SLOW_COMMIT_MICROSECONDS if disk == SLOW else 0)
            for number in range(self._sizes.rounds):
                for workload in WORKLOADS:
                    _tell(f"{disk.replace('_', ' ')}, round {number + 1} of {self._sizes.rounds}, {workload}")
                    for entry in _rotated(entries, number):
                        if disk == AS_IS or entry.spec.on_postgres:
                            await self._cell(entry, disk, workload)

    async def _cell(self, entry: Entry, disk: str, workload: str) -> None:
        """Run one more round of a cell, unless one has failed: then the cell shows no figures anyway."""
        cell = entry.cell(disk, workload)
        if cell.failure:
            return
        try:
            await self._sample(entry, cell, disk, workload)
        except (DriverError, TimeoutError) as error:
            cell.failure = str(error) or "its connections stayed"
            _tell(f"{entry.spec.name}, {workload}: {cell.failure}")
        finally:
            await self._server.drop_all()

    async def _sample(self, entry: Entry, cell: Cell, disk: str, workload: str) -> None:
        runs, _ = self._sizes.of(workload)
        counts = entry.spec.on_postgres and entry.spec != OURS and disk == AS_IS and workload != "latency"
        if counts and (entry.spec.key, workload) not in self._idle:
            _, self._idle[entry.spec.key, workload] = await self._drive(entry, workload, 0, counted=True)
        found, committed = await self._drive(entry, workload, runs, counted=counts)
        entry.version, entry.configuration = found["version"], found["configuration"]
        if counts:
            # Subtract the transactions of setup and warm-up, measured once without runs.
            found["transactions_per_run"] = (committed - self._idle[entry.spec.key, workload]) / runs
        cell.rounds.append({name: found[name] for name in _FIGURES if name in found})

    async def _drive(self, entry: Entry, workload: str, runs: int, *, counted: bool) -> tuple[dict[str, Any], int]:
        """Run the driver. Returns its result, and the transactions that its database committed since its creation."""
        name, url = f"peer_{entry.spec.key}", self._server.url
        makes = entry.spec.on_postgres and entry.spec != OURS
        if makes:
            url = await self._server.create(name)
        arguments = {
            "url": url,
            "workload": workload,
            "runs": runs,
            "in-flight": IN_FLIGHT,
            "warm-up": self._sizes.of(workload)[1],
        }
        said = [f"--{option}={value}" for option, value in arguments.items()]
        found = await run_driver(self._environments[entry.spec.key], entry.spec.module, said, self._scratch)
        committed = await self._server.committed(name) if counted else 0
        if makes:
            await self._server.drop_all()
        return found, committed


def _rotated(entries: Sequence[Entry], number: int) -> list[Entry]:
    """The entries in an order that begins with another one in each round."""
    first = number % len(entries) if entries else 0
    return [*entries[first:], *entries[:first]]


def _tell(what: str) -> None:
    print(f"{what} ...", file=sys.stderr, flush=True)
