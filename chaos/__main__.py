"""The command ``python -m chaos --seed 1 --minutes 3``: exit code 0 if every promise held, 1 if not."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from chaos.flood import Flood, flood
from chaos.schedule import KILLS, Kind
from chaos.story import Plan, Report, run


def main() -> int:
    """Run, print the report, and write it as JSON to ``--report``."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--kills-only", action="store_true", help="nothing but SIGKILLs")
    parser.add_argument("--queue", choices=("postgres", "sqs"), default="postgres")
    parser.add_argument("--report", type=Path, help="write the report there, as JSON")
    parser.add_argument("--home", type=Path, help="an empty folder to keep; without it, a temporary one")
    parser.add_argument("--scenario", choices=("storm", "flood"), default="storm", help="storm: everything breaks")
    parser.add_argument("--connections", type=int, default=1500, help="of a flood: idle or slow ones of one client")
    parser.add_argument("--slowest", type=float, default=1.0, help="of a flood: the seconds for others' answers")
    given = parser.parse_args()
    kinds = KILLS if given.kills_only else tuple(Kind)
    with tempfile.TemporaryDirectory(prefix="counterseal-chaos-", ignore_cleanup_errors=True) as temporary:
        home = given.home or Path(temporary)
        home.mkdir(parents=True, exist_ok=True)
        if given.scenario == "flood":
            return _flooded(Flood(home, given.connections, given.minutes * 60, given.slowest))
        report = asyncio.run(run(Plan(given.seed, given.minutes * 60, home, kinds, queue=given.queue), _say))
    _print(report)
    if given.report:
        given.report.parent.mkdir(parents=True, exist_ok=True)
        given.report.write_text(json.dumps(asdict(report), indent=2) + "\n")
    return 1 if report.violations else 0


def _flooded(plan: Flood) -> int:
    found = asyncio.run(flood(plan))
    for name, count in sorted(found.answers.items()):
        print(f"  {count:6}  {name}")
    load = f"{os.getloadavg()[0]:.1f}"
    print(f"slowest answer {found.slowest:.2f} s, of which {found.waited:.2f} s without a processor (load {load})")
    print(f"memory {found.memory >> 20} MiB")
    for line in found.violations:
        print(f"BROKEN: {line}")
    print("flood: " + ("BROKEN" if found.violations else "every promise held"))
    return 1 if found.violations else 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print(report: Report) -> None:
    for title, counts in (
        ("injected", report.injected),
        ("could not be injected", report.missed),
        ("requests that were hit", report.requests_hit),
        ("processes that ended by themselves", report.exits),
        ("people", report.people),
        ("runs by kind", report.cases),
        ("figures", report.figures),
        ("errors in the logs", report.complaints),
    ):
        if counts:
            print(f"\n{title}")
            for name, count in counts.items():
                print(f"  {count:6}  {name}")
    print(f"\nsettled {report.settled_after} s after the last fault")
    for line in report.violations:
        print(f"BROKEN: {line}")
    print(f"seed {report.seed}, queue {report.queue}: " + ("BROKEN" if report.violations else "every promise held"))


if __name__ == "__main__":
    raise SystemExit(main())
