"""Starts, kills, pauses and restarts the processes as a supervisor would, and PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from app.postgres_cluster import Cluster

ROOT = Path(__file__).parents[1]
RESTART_SECONDS = 0.5
# Others take over what a process holds that stands still, if they are not stopped as well.
TAKEN_OVER_LOOKS = 150


@dataclass
class Machine:
    """One place where a process runs and is restarted. ``skew`` is the error of its wall clock in seconds."""

    name: str
    part: str
    skew: float = 0.0
    process: asyncio.subprocess.Process | None = None
    paused: bool = False


@dataclass
class Machines:
    """Three workers, two keepers, one face. Each is restarted when it ends, until ``close``."""

    home: Path
    environment: dict[str, str]
    machines: list[Machine] = field(default_factory=list)
    exits: Counter[str] = field(default_factory=Counter)
    _supervisors: list[asyncio.Task[None]] = field(default_factory=list)
    _expected: set[int] = field(default_factory=set)

    async def start(self) -> None:
        """Start all machines, each under its own supervisor."""
        for name, part, skew in (
            ("worker-1", "work", 0.0),
            ("worker-2", "work", 5 * 3600.0),
            ("worker-3", "work", -3 * 3600.0),
            ("keeper-1", "keep", 45 * 60.0),
            ("keeper-2", "keep", 0.0),
            ("face", "serve", 90.0),
        ):
            machine = Machine(name, part, skew)
            self.machines.append(machine)
            self._supervisors.append(asyncio.create_task(self._supervise(machine), name=name))

    def chosen(self, part: str, which: int) -> Machine:
        """The ``which``-th machine with this part."""
        found = [machine for machine in self.machines if machine.part == part]
        return found[which % len(found)]

    def signal(self, machine: Machine, number: signal.Signals) -> bool:
        """Send a signal to the process, if there is one."""
        if machine.process is None or machine.process.returncode is not None:
            return False
        self._expected.add(machine.process.pid)
        machine.process.send_signal(number)
        return True

    async def pause(self, machine: Machine, seconds: float, left: Callable[[int], Awaitable[bool]]) -> bool:
        """Send SIGSTOP; after some seconds, and once others have all that it held (``left``), SIGCONT.

        False if there is no process to pause, or if nobody was there to take it over.
        """
        if machine.paused or machine.process is None or machine.process.returncode is not None:
            return False
        process = machine.process
        machine.paused = True
        process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
            for _ in range(TAKEN_OVER_LOOKS):
                if await left(process.pid):
                    return True
                await asyncio.sleep(0.2)
            return False
        finally:
            machine.paused = False
            if process.returncode is None:
                process.send_signal(signal.SIGCONT)

    async def _supervise(self, machine: Machine) -> None:
        while True:
            machine.process = await self._spawn(machine)
            code = await machine.process.wait()
            if machine.process.pid not in self._expected:
                self.exits[f"{machine.name}: exit code {code}"] += 1
            await asyncio.sleep(RESTART_SECONDS)

    async def _spawn(self, machine: Machine) -> asyncio.subprocess.Process:
        environment = self.environment | {
            "PYTHONPATH": os.pathsep.join([str(ROOT / "chaos" / "skew"), str(ROOT)]),
            "CHAOS_SKEW_SECONDS": str(machine.skew),
        }
        with (self.home / f"{machine.name}.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-m", "app", machine.part, env=environment, stdout=log, stderr=log, cwd=ROOT
            )

    async def close(self) -> None:
        """Stop the supervisors and kill the processes."""
        for task in self._supervisors:
            task.cancel()
        await asyncio.gather(*self._supervisors, return_exceptions=True)
        for machine in self.machines:
            process = machine.process
            if process is not None and process.returncode is None:
                process.kill()
                await process.wait()


class Postgres:
    """An embedded server that nobody else uses, so that it can be crashed."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True)
        self._root = root
        self._cluster = Cluster(root, durable=True)
        self._lock = asyncio.Lock()

    async def start(self) -> str:
        """Start the server. Returns its DSN, which never changes."""
        await asyncio.to_thread(self._cluster.launch)
        return self._cluster.dsn()

    async def stop(self) -> None:
        """Stop the server for good."""
        async with self._lock:
            await asyncio.to_thread(self._cluster.stop)

    async def restart(self, *, immediate: bool) -> None:
        """Stop the server cleanly, or by SIGQUIT, which acts like a crash; then start it again."""
        async with self._lock:
            if immediate:
                pid = int((self._root / "cluster" / "data" / "postmaster.pid").read_text().splitlines()[0])
                os.kill(pid, signal.SIGQUIT)
            await asyncio.to_thread(self._cluster.stop)
            await asyncio.to_thread(self._cluster.launch)
