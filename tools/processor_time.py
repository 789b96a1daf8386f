"""Processor time of worker and PostgreSQL per run, of several checkouts in turn: what a commit made cheaper or dearer.

    git worktree add ../before 85ab0d6
    PYTHONPATH=. .venv/bin/python tools/processor_time.py . ../before

Each turn is a process and a database server of its own, with the load of `make bench`: 50 runs in flight, started and
approved in the worker's process. Rounds alternate, because the machine has other things to do at times; the ratio of
each round is to the last checkout. The processor's time depends less on the load of the machine than seconds do.
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
from pathlib import Path

WARM_UP = 60


async def measured(runs: int) -> dict[str, list[float]]:
    """Milliseconds a run, of this process and of PostgreSQL, by workload; with the modules of the working folder."""
    from benchmarks.postgres_use import processor_seconds
    from benchmarks.timed import Load, machine
    from benchmarks.world import new_server, new_world

    found = {}
    async with new_server() as (url, folder), new_world(url, folder) as world, machine(world) as running:
        for workflow in ("w1", "w2"):
            load = Load(world, running, workflow)
            await load.run(WARM_UP)
            postgres, python = await processor_seconds(world.plain), time.process_time()
            await load.run(runs)
            python, postgres = time.process_time() - python, await processor_seconds(world.plain) - postgres
            found[workflow] = [python / runs * 1000, postgres / runs * 1000]
    return found


def turn(checkout: Path, runs: int) -> dict[str, list[float]]:
    """Measure one checkout in a process of its own."""
    command = [sys.executable, __file__, "--measure", "--runs", str(runs)]
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
    parser.add_argument("checkouts", nargs="*", type=Path, help="folders with a checkout each; the last is the base")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--measure", action="store_true", help="measure the working folder, and print JSON")
    given = parser.parse_args()
    if given.measure:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            say(json.dumps(runner.run(measured(given.runs))))
        return
    if not given.checkouts:
        parser.error("name at least one checkout")
    sums: dict[tuple[Path, str], list[float]] = {}
    for _ in range(given.rounds):
        for checkout in given.checkouts:
            for workflow, (python, postgres) in turn(checkout.resolve(), given.runs).items():
                sums.setdefault((checkout, workflow), []).append(python + postgres)
                say(f"{workflow} {checkout}: Python {python:.2f} + PostgreSQL {postgres:.2f} ms a run")
    base = given.checkouts[-1]
    for (checkout, workflow), found in sums.items():
        ratios = [one / other for one, other in zip(found, sums[base, workflow], strict=True)]
        say(f"{workflow} {checkout}: {statistics.median(found):.2f} ms, {statistics.median(ratios):.2f} of the last")


if __name__ == "__main__":
    main()
