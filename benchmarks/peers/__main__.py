"""The command ``python -m benchmarks.peers``: measure all engines in turn, print one table, save the numbers."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence

import structlog

from benchmarks.peers import compare
from benchmarks.peers.engines import PEERS, UnknownEngineError
from benchmarks.peers.reporting import DOCUMENT, RESULTS, MarkersMissingError, read, save, show, write


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    known = ",".join(peer.key for peer in PEERS)
    parser.add_argument("--only", metavar="NAME[,NAME]", help=f"these peers beside Counterseal, of {known}")
    parser.add_argument("--runs", type=_positive, default=400, help="runs of each measurement")
    parser.add_argument("--latency-runs", type=_positive, default=100, help="runs of it where they come one at a time")
    parser.add_argument("--rounds", type=_positive, default=3)
    parser.add_argument("--report", action="store_true", help=f"write the newest table into {DOCUMENT.name}")
    options = parser.parse_args(arguments)
    if options.only is not None and options.report:
        parser.error("--report writes what the whole measurement found last; it measures nothing")
    return options


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("has to be 1 or more")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, save. Returns the exit code. A peer's failure is a row of the table, not a failure of this."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    options = _options(arguments)
    try:
        return _report() if options.report else _measure(options)
    except (UnknownEngineError, MarkersMissingError) as mistake:
        print(mistake, file=sys.stderr)
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("interrupted: all that was started has been ended", file=sys.stderr)
        return 130


def _measure(options: argparse.Namespace) -> int:
    names = [name.strip() for name in options.only.split(",")] if options.only is not None else None
    found = compare(runs=options.runs, latency_runs=options.latency_runs, rounds=options.rounds, names=names)
    show(found)
    # Budgets use the whole measurement only, so a partial one goes to another file.
    path = RESULTS if names is None else RESULTS.with_name("peers-partial.json")
    save(found, path)
    print(f"the numbers are in {path}", file=sys.stderr)
    return 0


def _report() -> int:
    try:
        write(read())
    except OSError:
        print("there is no result yet: run `python -m benchmarks.peers` first", file=sys.stderr)
        return 1
    print(f"the table is in {DOCUMENT}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
