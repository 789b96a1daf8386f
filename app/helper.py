"""One helper: does one job from standard input, within limits of its own, and ends. See ``app.helpers``."""

from __future__ import annotations

import asyncio
import resource
import sys
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from uuid import UUID

import orjson

from app.helpers import NO_MEMORY
from core.budgets import most
from core.canonical import JsonObject
from core.errors import CountersealError


def main() -> int:
    """Do the job. Problems of a text are no failure: whoever reads it next finds the same ones."""
    job = orjson.loads(sys.stdin.buffer.read())
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (most("helper_bytes"),) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (used() + job["seconds"],) * 2)
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
    """The processor time of this process until now, which nobody's text has taken."""
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return int(spent.ru_utime + spent.ru_stime)


def _read(job: JsonObject) -> None:
    from app.adapters import catalog_of
    from app.settings import load_settings
    from runtime.definition.catalog import Definitions
    from runtime.requests.publishing import check_workflow

    definitions = Definitions(catalog_of(load_settings()))
    if job["job"] == "workflow":
        check_workflow(definitions, str(job["text"]), str(job["file"]))
    else:
        definitions.compile_policy(str(job["text"]), str(job["file"]))


async def _rehearse(job: JsonObject) -> None:
    from app.adapters import catalog_of
    from app.outside import Outsides
    from app.settings import load_settings
    from app.wiring import OwnConnectors
    from core.db import ENGINE_ROLE, Database
    from runtime.definition.catalog import Definitions
    from runtime.engine.model.rows import Claim
    from runtime.work.rehearsal import rehearse

    settings, lease = load_settings(), job["lease"]
    assert isinstance(lease, dict), "app.helpers writes it"
    claim = Claim(str(lease["key"]), UUID(str(lease["id"])), int(str(lease["epoch"])))
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(Database(str(job["url"]), ENGINE_ROLE, connections=1))
        definitions = Definitions(catalog_of(settings))
        connectors = OwnConnectors(Outsides(settings, definitions.catalog, stack))
        span = timedelta(seconds=settings.lease_seconds)
        named = (UUID(str(job["run"])), claim, str(lease["owner"]))
        await rehearse(database, definitions, connectors, *named, span)


if __name__ == "__main__":
    raise SystemExit(main())
