"""The command ``python -m benchmarks`` (``make bench``): every budget of this release in one table.

Counted figures (transactions, statements, WAL, rows) hold on any machine; timed ones hold for this machine under its
present load. No figure makes the command fail: tests assert the counted ones. It takes about six minutes; with PEERS=1
in the environment it measures the other engines first, which takes a quarter of an hour more.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import platform
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime

import structlog
import uvloop

from benchmarks import report
from benchmarks.curves import draw
from benchmarks.figures import FOLDER, RESULTS, Figure, read, save, show
from benchmarks.parts import PARTS, Part, UnknownPartError, chosen
from benchmarks.peers.interpreters import best, own
from benchmarks.stage import Stage, tell
from benchmarks.world import new_server


async def _measure(parts: Sequence[Part], *, quick: bool) -> tuple[list[Figure], Stage]:
    tell(f"measured with {own().words}")
    if best().path != own().path:
        tell(f"{best().path} is faster here; to measure with it: make clean, then make bench PYTHON={best().path}")
    figures: list[Figure] = []
    async with new_server() as (url, folder):
        stage = Stage(url, folder, quick)
        for part in parts:
            begun = time.perf_counter()
            tell(f"{part.name}: {part.says}")
            figures += await part.measure(stage)
            stage.about[f"seconds of {part.name}"] = time.perf_counter() - begun
    return figures, stage


def _about(stage: Stage) -> dict[str, str | float]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "python": own().words,
        "machine": platform.platform(),
        "processors": float(os.cpu_count() or 0),
        "load": os.getloadavg()[0],
        **stage.about,
    }


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    names = "\n".join(f"  {part.name:12} {part.says}{' (only when named)' if part.asked else ''}" for part in PARTS)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure against the budgets.",
        epilog=f"measurements:\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", metavar="NAME[,NAME]", help="measure these and nothing else")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it works, measures nothing")
    parser.add_argument("--report", action="store_true", help="measure nothing; write the newest table into docs/")
    options = parser.parse_args(arguments)
    if options.report and (options.quick or options.only):
        parser.error("--report writes what the whole of `make bench` found last; it measures nothing")
    try:
        options.parts = chosen([name.strip() for name in options.only.split(",")] if options.only is not None else None)
    except UnknownPartError as unknown:
        parser.error(str(unknown))
    return options


def _report() -> str | None:
    """Write the newest table into the document. Returns the reason if that is impossible, or None."""
    try:
        report.write(*read())
    except OSError:
        return "there is no result yet: run `make bench` first"
    except report.MarkersMissingError as missing:
        return str(missing)
    tell(f"the table is in {report.DOCUMENT}")
    return None


def _run(options: argparse.Namespace) -> None:
    begun = time.perf_counter()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as the product does
        figures, stage = runner.run(_measure(options.parts, quick=options.quick))
    about = _about(stage) | {"seconds": time.perf_counter() - begun}
    show(figures)
    path = RESULTS
    if options.quick or options.only:  # a partial measurement must not overwrite the result
        path = FOLDER / ("quick.json" if options.quick else "partial.json")
    save(figures, about, path)
    for curve in stage.curves:
        draw(curve, path.parent / "quick" if options.quick else path.parent)
    tell(f"{about['seconds']:.0f} s in all; the numbers are in {path}")


def _compare() -> None:
    """Measure the other engines, because some budgets are multiples of what they reach."""
    from benchmarks.peers import compare, reporting

    found = compare()
    reporting.show(found)
    reporting.save(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, save. Returns the exit code."""
    # Errors of the measured code go to stderr; only the table goes to stdout.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    options = _options(arguments)
    if options.report:
        fault = _report()
        if fault:
            print(fault, file=sys.stderr)
        return 1 if fault else 0
    if os.environ.get("PEERS", "0") not in ("", "0", "no", "false") and not options.quick and not options.only:
        _compare()
    _run(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
