"""A process that vanishes in the middle of something, and says nothing more, stops nobody else (promises 4, 9, 11).

It is stopped, or its machine has gone: its connections stay open, and its locks with them. At each of its statements:
another keeper ends everybody's timers, workers claim everybody's steps, and the emergency stop gets through. They wait
for facts; how long that takes is a matter of the limits of a session (``core.limits``).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from core.db import ENGINE_ROLE, FACES_ROLE, Database
from core.terms import Stopped
from evidence.chain import Actor
from runtime.keep.sweeper import Sweeper
from runtime.requests import pausing
from runtime.requests.policies import publish_policy
from runtime.store import claims
from tests.support.vanishing import SHORT, Vanishing, vanishes

OPS = Actor("person", "olga")
POLICY = """
policy: p
version: %d
rules:
  - {id: all, match: {connector: probe}, outcome: allow}
  - {id: asked, match: {operation: probe.effect.apply}, when: action.fields.name == 'ask', outcome: needs_approval,
     approvers: [{group: owners}]}
"""
ASKS = """
workflow: asks
version: 1
reference: r
steps: [{id: a, do: probe.effect.apply, with: {name: ask}}]
"""
SLEEPS = """
workflow: sleeps
version: 1
reference: r
channels: {done: {initial: ''}}
steps: [{id: t, wait: {for: PT1H}}, {set: {done: 'yes'}}]
"""
SETS = """
workflow: sets
version: 1
reference: r
channels: {done: {initial: ''}}
steps: [{set: {done: 'yes'}}]
"""
TENANTS = ("acme", "other")
DEEP = os.environ.get("COUNTERSEAL_DEEP") == "1"


async def sweep(runtime: Any, database: Vanishing) -> Any:
    return await Sweeper(database, runtime.definitions).sweep()


async def pause(runtime: Any, database: Vanishing) -> Any:
    return await pausing.pause(database, runtime.definitions, "acme", Stopped.TENANT, "", "It burns.", OPS)


async def publish(runtime: Any, database: Vanishing) -> Any:
    async with database.transaction("acme") as connection:
        return await publish_policy(connection, runtime.definitions, "acme", POLICY % 2, "p.yaml", OPS)


# What vanishes, under which login, and how many of its statements at least are tried.
ACTS: dict[str, tuple[Callable[[Any, Vanishing], Coroutine[Any, Any, Any]], str, int]] = {
    "sweep": (sweep, ENGINE_ROLE, 15),
    "pause": (pause, FACES_ROLE, 6),
    "publication": (publish, FACES_ROLE, 12),
}


async def prepared(runtime: Any) -> None:
    """Two tenants, each with a question, a timer that is due and a lease that has run out."""
    for tenant in TENANTS:
        await runtime.tenant(tenant)
        await runtime.policy(POLICY % 1, tenant)
        for text in (ASKS, SLEEPS, SETS):
            await runtime.publish(text, tenant)
        await runtime.start("asks", tenant=tenant)
        await runtime.start("sleeps", tenant=tenant)
    await runtime.worker().work_off()
    await runtime.trouble.make_waits_due("timer")
    for tenant in TENANTS:
        await runtime.start("sets", tenant=tenant, ref="dead")
    async with runtime.database.connection() as connection:
        for _ in TENANTS:
            assert await claims.claim_next(connection, "dead", timedelta(seconds=30), 1)
    await runtime.trouble.expire_leases()


@asynccontextmanager
async def others(runtime: Any, url: str) -> AsyncIterator[Any]:
    """Another keeper and another worker, with the short limits of the test."""
    stop = asyncio.Event()
    async with (
        Database(url, ENGINE_ROLE, connections=16, limits=SHORT) as engine,
        Database(url, FACES_ROLE, limits=SHORT) as faces,
    ):
        found = replace(runtime, database=engine, faces=faces)
        keeper = Sweeper(engine, runtime.definitions, interval=timedelta(seconds=0.05))
        tasks = [asyncio.create_task(part.run(stop)) for part in (keeper, found.worker("other"))]
        try:
            yield found
        finally:
            stop.set()
            await asyncio.wait_for(asyncio.gather(*tasks), 60)


async def everybody_goes_on(found: Any) -> None:
    """The stop gets through at the first call; timers end, and steps that are ready or left behind are claimed."""

    async def stops() -> None:
        verb = (found.faces, found.definitions, "acme", Stopped.TENANT, "")
        await pausing.pause(*verb, "An emergency.", OPS)
        assert [str(one.what) for one in await held(found)] == ["tenant"]
        await pausing.resume(*verb, "", OPS)

    async def runs() -> None:
        for tenant in TENANTS:
            await found.start("sets", tenant=tenant, ref="new")
        await found.until(all_done)

    async def all_done() -> bool:
        rows = await found.books.runs()
        return all(run.status == "succeeded" for run in rows if run.workflow in ("sleeps", "sets"))

    await asyncio.gather(stops(), runs())


async def held(found: Any) -> Any:
    async with found.faces.transaction("acme") as connection:
        return await pausing.listed(connection, "acme")


@pytest.mark.tampers
@pytest.mark.parametrize("how", ["frozen", "killed"])
@pytest.mark.parametrize("act", [*ACTS])
async def test_nobody_waits_for_a_process_that_has_vanished_at_any_statement(
    databases: Any, template_database: str, runtime: Any, database_url: str, act: str, how: str
) -> None:
    do, role, least = ACTS[act]
    await prepared(runtime)
    await runtime.database.close()
    await runtime.faces.close()
    at, reached = 0, True
    name = database_url.rpartition("/")[2].partition("?")[0]
    while reached:
        with databases.made("vanish", name) as url:
            async with Vanishing(url, role, at, how) as database:
                world = replace(runtime, database=database)
                gone = await vanishes(database, do(world, database))
                reached = gone is not None
                if gone is not None:
                    async with others(runtime, url) as found:
                        await everybody_goes_on(found)
                    gone.cancel()
                    await asyncio.wait({gone})
        at += 1 if how == "frozen" or DEEP else 4  # crash points kill at every statement as well
    assert at > least, "so many statements were tried"
