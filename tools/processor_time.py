"""Compares the processor time of worker and PostgreSQL per run between several checkouts.

    git worktree add ../before 85ab0d6
    PYTHONPATH=. .venv/bin/python tools/processor_time.py . ../before

Each turn has its own worker process and database server, with the load of `make bench`: 50 runs in flight. A third
process starts and approves the runs; its time is shown separately. Settings of the worker may stand behind a checkout:

    PYTHONPATH=. .venv/bin/python tools/processor_time.py .,COUNTERSEAL_OTEL_ENDPOINT=http://127.0.0.1:4318 .

The checkouts alternate round by round, because the
load of the machine changes. Ratios are relative to the last checkout, with and without the third process. Processor
time depends less on the machine's load than elapsed time, but still does: look at `uptime`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

WARM_UP = 60


async def measured(runs: int, given: dict[str, str]) -> dict[str, list[float]]:
    """Milliseconds per run of worker, PostgreSQL and load, by workload, with the modules of the working folder.

    ``given`` are more settings of the worker.
    """
    from benchmarks.children import child, environment
    from benchmarks.postgres_use import processor_seconds
    from benchmarks.timed import CONCURRENCY, Load, machine
    from benchmarks.world import new_server, new_world

    found = {}
    async with new_server() as (url, folder), new_world(url, folder) as world, AsyncExitStack() as stack:
        settings = environment(world, COUNTERSEAL_WORKER_CONCURRENCY=str(CONCURRENCY)) | given
        command = ["-m", "benchmarks.process", "work"]
        worker = await stack.enter_async_context(child(command, settings, world.folder / "work.log"))
        running = await stack.enter_async_context(machine(world, concurrency=0))

        async def used() -> list[float]:
            postgres = await processor_seconds(world.plain)
            return [(await worker.ask())["cpu_seconds"], postgres, time.process_time()]

        for workflow in ("w1", "w2"):
            load = Load(world, running, workflow)
            await load.run(WARM_UP)
            before = await used()
            await load.run(runs)
            found[workflow] = [(one - other) / runs * 1000 for one, other in zip(await used(), before, strict=True)]
    return found


def turn(named: str, runs: int) -> dict[str, list[float]]:
    """Measure one checkout, with the settings behind it, in a process of its own."""
    folder, *settings = named.split(",")
    checkout = Path(folder).resolve()
    command = [sys.executable, __file__, "--measure", "--runs", str(runs), *settings]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{checkout}: {done.stderr.strip().splitlines()[-1]}")
    found: dict[str, list[float]] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkouts", nargs="*", help="folders with a checkout each, and settings; the last is the base")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--measure", action="store_true", help="measure the working folder, and print JSON")
    given = parser.parse_args()
    if given.measure:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            say(json.dumps(runner.run(measured(given.runs, dict(one.split("=", 1) for one in given.checkouts)))))
        return
    if not given.checkouts:
        parser.error("name at least one checkout")
    sums: dict[tuple[str, str], list[list[float]]] = {}
    for _ in range(given.rounds):
        for checkout in given.checkouts:
            for workflow, used in turn(checkout, given.runs).items():
                sums.setdefault((checkout, workflow), []).append([sum(used[:2]), sum(used)])
                worker, postgres, load = used
                say(f"{workflow} {checkout}: worker {worker:.2f} + PostgreSQL {postgres:.2f} ms a run; load {load:.2f}")
    base = given.checkouts[-1]
    for (checkout, workflow), found in sums.items():
        plain, whole = zip(*found, strict=True)
        base_plain, base_whole = zip(*sums[base, workflow], strict=True)
        ratio, with_load = _ratio(plain, base_plain), _ratio(whole, base_whole)
        say(f"{workflow} {checkout}: {statistics.median(plain):.2f} ms, {ratio} of the last; with the load {with_load}")


def _ratio(found: Sequence[float], base: Sequence[float]) -> str:
    ratios = [one / other for one, other in zip(found, base, strict=True)]
    return f"{statistics.median(ratios):.3f}"


if __name__ == "__main__":
    main()
