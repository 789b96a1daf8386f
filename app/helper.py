"""One helper: does jobs from standard input, each within limits of its own. See ``app.helpers``."""

from __future__ import annotations

import asyncio
import resource
import signal
import sys
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING
from uuid import UUID

import orjson

from app.helpers import IDLE_SECONDS, NO_MEMORY, STOPPING
from core.budgets import most
from core.canonical import JsonObject
from core.errors import CountersealError
from core.memory import share_arenas

if TYPE_CHECKING:
    from runtime.definition.catalog import Definitions


def main() -> None:
    """Do jobs until there are no more, or none has come for a while. A job that takes too much ends this process."""
    share_arenas()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(ValueError, OSError):  # not every system bounds it
        resource.setrlimit(resource.RLIMIT_AS, (most("helper_bytes"),) * 2)
    for number in STOPPING:  # terminals and systemd send them to all: whoever started us ends us
        signal.signal(number, signal.SIG_IGN)
    signal.alarm(IDLE_SECONDS)
    while line := sys.stdin.buffer.readline():
        signal.alarm(0)
        job = orjson.loads(line)
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (used() + job["seconds"], hard))
        sys.stdout.write(f"{_done(job)}\n")
        sys.stdout.flush()
        signal.alarm(IDLE_SECONDS)


def _done(job: JsonObject) -> int:
    """Do one job. Problems of a text are no failure: the caller reads it next, and finds the same ones."""
    try:
        with suppress(CountersealError):
            if job["job"] == "step":
                asyncio.run(_rehearse(job))
            else:
                _read(job)
    except (MemoryError, RecursionError):
        return NO_MEMORY
    return 0


def used() -> int:
    """The processor time of this process so far, which does not count for the next job."""
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return int(spent.ru_utime + spent.ru_stime)


def _read(job: JsonObject) -> None:
    from connectors.catalog import Catalog, Source, load_catalog
    from runtime.definition.workflow import thaw_operations
    from runtime.requests.publishing import check_workflow

    definitions, text, file = _definitions(), str(job["text"]), str(job["file"])
    declared = thaw_operations(job["operations"], file).operations if isinstance(job["operations"], dict) else {}
    packaged = definitions.catalog
    catalog = Catalog({**packaged.operations, **declared}, packaged.packaged)
    if job["job"] == "workflow":
        check_workflow(catalog, text, file)
    elif job["job"] == "operations":
        load_catalog([Source(file, text)], catalog.operations)
    else:
        definitions.check_policy(text, file, catalog)


@cache
def _definitions() -> Definitions:
    from connectors.catalog import load_catalog
    from runtime.definition.catalog import Definitions

    return Definitions(load_catalog())


async def _rehearse(job: JsonObject) -> None:
    from app.outside import Outsides
    from app.settings import load_settings
    from app.wiring import OwnConnectors
    from core.db import ENGINE_ROLE, Database
    from runtime.engine.model.rows import Claim
    from runtime.work.rehearsal import rehearse

    settings, lease = load_settings(), job["lease"]
    assert isinstance(lease, dict), "app.helpers writes it"
    claim = Claim(str(lease["key"]), UUID(str(lease["id"])), int(str(lease["epoch"])))
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(Database(str(job["url"]), ENGINE_ROLE, connections=1))
        definitions = _definitions()
        connectors = OwnConnectors(Outsides(settings, stack))
        span = timedelta(seconds=settings.lease_seconds)
        named = (UUID(str(job["run"])), claim, str(lease["owner"]))
        await rehearse(database, definitions, connectors, *named, span)


if __name__ == "__main__":
    main()
