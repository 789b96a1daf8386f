"""One process of the product: `python -m benchmarks.process work|keep|serve [...] [--slack]`.

It is wired as `counterseal` wires it, from the same environment; only the outside system does nothing, and connections
count statements. It answers each line on stdin with a line of JSON on stdout: its resource use so far.
"""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import signal
import sys
from dataclasses import replace
from functools import partial

import psutil
import structlog
import uvloop

from app.processes import Duty, run
from app.settings import Settings, load_settings
from app.wiring import App, build
from benchmarks.counting import Counter, CountingDatabase
from benchmarks.world import NoOp, Silent
from connectors.port import Connectors
from core.db import ENGINE_ROLE, FACES_ROLE
from core.memory import keep_for_good


async def main(parts: frozenset[Duty], *, slack: bool) -> None:
    """Run the parts until SIGTERM; with the Slack of the settings, or with one that takes all and shows nothing."""
    settings, counter, stop = load_settings(), Counter(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    connectors = Connectors({"bench": NoOp()})
    async with (
        build(settings, connectors=connectors, messenger=None if slack else Silent()) as app,
        asyncio.TaskGroup() as group,
    ):
        answering = group.create_task(_answer(counter))
        await run(_counted(app, settings, counter), parts, stop, partial(_announce, parts))
        answering.cancel()


def _counted(app: App, settings: Settings, counter: Counter) -> App:
    assert settings.database_url is not None
    url = settings.database_url.get_secret_value()
    engine = CountingDatabase(url, ENGINE_ROLE, counter, connections=settings.worker_concurrency + 8)
    faces = replace(app.faces, database=CountingDatabase(url, FACES_ROLE, counter))
    # A replaced object makes its systems anew, by the settings: without this line every effect is "not configured".
    faces.outsides.given = app.outsides.given
    return replace(app, database=engine, faces=faces)


def _announce(parts: frozenset[Duty], url: str | None) -> None:
    keep_for_good()
    print(json.dumps({"parts": sorted(parts), "url": url}), flush=True)


async def _answer(counter: Counter) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        counts, used = await counter.read(), resource.getrusage(resource.RUSAGE_SELF)
        memory = psutil.Process().memory_info().rss / 1024
        answer = {
            "transactions": counts.transactions,
            "statements": counts.statements,
            "cpu_seconds": used.ru_utime + used.ru_stime,
            "resident_kib": memory,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        duties = frozenset(Duty(name) for name in sys.argv[1:] if name != "--slack")
        runner.run(main(duties, slack="--slack" in sys.argv))
