"""``python -m benchmarks`` (``make bench``): every budget that this release can be held to, in one table.

Counted figures (transactions, statements, WAL, rows) hold anywhere; timed ones are this machine's, under the load that
it has now. Nothing fails on a figure: tests assert the counted ones. Takes about two minutes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

import structlog
import uvloop

from benchmarks import counted, policy_decision, timed, verifying
from benchmarks.figures import RESULTS, Figure, save, show, unmeasured
from benchmarks.world import new_server, new_world

_LATER = (
    unmeasured("throughput with 1,000,000 finished and 100,000 parked runs", "≥ 0.9 of empty"),
    unmeasured("click → Slack answered, 200 clicks/s, p99", "≤ 100 ms"),
    unmeasured("first `make demo`: first card, after downloads", "≤ 15 s"),
)


async def _measure() -> tuple[list[Figure], dict[str, str | float]]:
    figures: list[Figure] = []
    async with new_server() as (url, folder):
        async with new_world(url, folder) as world:
            _tell("counting transactions, statements and WAL")
            figures += await counted.measure(world)
            version = str(await world.plain.fetchval("SHOW server_version"))
        async with new_world(url, folder, connections=1) as world:
            figures.append(await counted.growth(world))
        async with new_world(url, folder) as world:
            _tell("timing decisions and runs")
            figures += await timed.latency(world)
            figures += await timed.throughput(world)
        async with new_world(url, folder) as world:
            _tell("idling")
            figures.append(await timed.idle(world))
    return figures, {"postgres": version}


def _tell(what: str) -> None:
    print(f"{what} ...", file=sys.stderr, flush=True)


def _offline() -> list[Figure]:
    _tell("deciding and verifying")
    with tempfile.TemporaryDirectory(prefix="counterseal-bench-") as folder:
        return [policy_decision.measure(), *verifying.measure(Path(folder))]


def main() -> None:
    """Measure, print, save."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    if os.environ.get("PEERS", "0") not in ("", "0", "no", "false"):
        _tell("PEERS=1: other engines are not measured in this release")
    begun = time.perf_counter()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as the product does
        figures, about = runner.run(_measure())
    figures += _offline() + list(_LATER)
    about |= {
        "python": platform.python_version(),
        "machine": platform.platform(),
        "processors": float(os.cpu_count() or 0),
        "load": os.getloadavg()[0],
        "seconds": time.perf_counter() - begun,
    }
    show(figures)
    save(figures, about)
    _tell(f"{about['seconds']:.0f} s in all; the numbers are in {RESULTS}")


if __name__ == "__main__":
    main()
