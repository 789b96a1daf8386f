"""The command ``python -m benchmarks.dojo``: play everything under each policy, and print one table."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.dojo import installing
from benchmarks.dojo.adapting import Adapting, Slips, adaptive_faults
from benchmarks.dojo.adapting import told as told_adaptive
from benchmarks.dojo.asking import Far
from benchmarks.dojo.declared import OPERATIONS, POLICIES, Declared
from benchmarks.dojo.measuring import Figures, Measure, Worlds
from benchmarks.dojo.quick import Quick
from benchmarks.dojo.renaming import Renaming
from benchmarks.dojo.table import faults, table

SUITES = ("workspace", "travel", "banking", "slack")


@dataclass(frozen=True)
class Job:
    """A part of the work, for one process: every ``of``-th task, from ``at`` on."""

    python: Path
    policy: Path
    suites: tuple[str, ...]
    quick: bool
    every: bool
    at: int
    of: int
    renamed: int | None


def measure(job: Job) -> tuple[Figures, Slips]:
    """Play one part. Attacks that are made from the policy are played without a runtime only."""
    declared = Declared.of(OPERATIONS.glob("*.yaml"), [job.policy])
    figures, slips = Figures(), Slips()
    with ExitStack() as held:
        far = held.enter_context(Far(job.python))
        suites = far.suites(attacks=True)
        worlds: Worlds = far.world
        if job.renamed is not None:
            names = Renaming.of(suites, job.renamed)
            suites, worlds = [*map(names.suite, suites)], names.worlds(worlds)
        if job.quick:
            measuring = Measure(declared, Quick(declared), worlds, job.every)
        else:
            from benchmarks.dojo.engine import started

            engine = held.enter_context(started(declared, job.suites))
            measuring = Measure(declared, engine, worlds, job.every)
        tasks = 0
        for suite in suites:
            if suite.name in job.suites:
                mine = [task for number, task in enumerate(suite.tasks, tasks) if number % job.of == job.at]
                tasks += len(suite.tasks)
                figures.add(part := measuring.of(suite, mine))
                slips.add(Adapting(declared, Quick(declared), worlds).of(suite, mine))
                print(f"  {job.policy.stem}, {suite.name}: {len(part.slipped)} of {part.pairs} pairs", flush=True)
    return figures, slips


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure. Exit code 1 if a figure is over its limit, 2 if AgentDojo cannot be installed."""
    options = _options(arguments)
    try:
        python = installing.python()
    except installing.UnavailableError as error:
        print(f"AgentDojo cannot be installed: {error}", file=sys.stderr)
        return 2
    began, jobs = time.monotonic(), options.jobs
    policies = [POLICIES / f"{name}.yaml" for name in options.policies]
    every = options.orders == "all"
    todo = [
        Job(python, policy, tuple(options.suites), options.quick, every, at, jobs, options.renamed)
        for policy in policies
        for at in range(jobs)
    ]
    found = {policy.stem: Figures() for policy in policies}
    adaptive = {policy.stem: Slips() for policy in policies}
    with ProcessPoolExecutor(jobs) as processes:
        running = {processes.submit(measure, job): job for job in todo}
        for ended in as_completed(running):
            stem, (part, slips) = running[ended].policy.stem, ended.result()
            found[stem].add(part)
            adaptive[stem].add(slips)
            print(f"{time.monotonic() - began:6.0f} s  a part of {stem}", flush=True)
            if options.json is not None:  # save partial results, in case a later part fails
                told = {name: asdict(one) | {"adaptive": asdict(adaptive[name])} for name, one in found.items()}
                options.json.write_text(json.dumps(told, indent=1), encoding="utf-8")
    how = "policies alone, no runtime" if options.quick else "real runs on PostgreSQL"
    print(f"\nAgentDojo v1.2.2, {datetime.now(UTC).date()}, {how}, {options.orders} orders, a scripted worst case\n")
    print(table(found), "", *told_adaptive(adaptive), sep="\n")
    wrong = [*faults(found), *adaptive_faults(adaptive)] if {*options.suites} == {*SUITES} else []
    print(*("", *wrong) if wrong else (), sep="\n")
    return 1 if wrong else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    names = sorted(path.stem for path in POLICIES.glob("*.yaml"))
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dojo", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ask the policies alone, without a runtime")
    parser.add_argument(
        "--orders", choices=("all", "telling"), help="of the calls; all with --quick, else the two telling"
    )
    parser.add_argument("--policies", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--suites", nargs="+", choices=SUITES, default=SUITES, metavar="NAME", help=", ".join(SUITES))
    parser.add_argument(
        "--renamed", type=int, metavar="SEED", help="give people, places, files and accounts other names"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go, too")
    options = parser.parse_args(arguments)
    options.orders = options.orders or ("all" if options.quick else "telling")
    return options


if __name__ == "__main__":
    sys.exit(main())
