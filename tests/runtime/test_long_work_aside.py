"""One tenant's long books hold up nobody else (promise 9): they are folded in bounded turns, beside everything else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from core.db import Database
from evidence.chain import Actor
from runtime.keep import purging, reviewing
from runtime.keep.sweeper import Sweeper
from runtime.requests import consequences
from runtime.requests.policies import publish_policy

OPS = Actor("person", "olga")
POLICY = """
policy: p
version: %d
rules:
  - {id: all, match: {connector: probe}, outcome: %s, approvers: [{group: owners}]}
"""
ASKS = """
workflow: asks
version: 1
reference: r
steps: [{id: a, do: probe.effect.apply, with: {name: a}}]
"""
LONG = """
workflow: long
version: 1
reference: r
channels: {n: {initial: 0}}
steps:
  - {foreach: "${{ trigger.items }}", max_parallel: 50, steps: [{set: {n: 1}}]}
  - {id: a, do: probe.effect.apply, with: {name: a}}
"""
SLEEPS = """
workflow: sleeps
version: 1
reference: r
channels: {done: {initial: ''}}
steps: [{id: t, wait: {for: PT1H}}, {set: {done: 'yes'}}]
"""


@asynccontextmanager
async def keeping(runtime: Any) -> AsyncIterator[None]:
    stop = asyncio.Event()
    keeper = Sweeper(runtime.database, runtime.definitions, interval=timedelta(seconds=0.05))
    task = asyncio.create_task(keeper.run(stop))
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait_for(task, 60)


@pytest.mark.parametrize("work", ["questions", "purges"])
async def test_timers_of_everybody_end_while_a_tenants_long_work_is_under_way(
    runtime: Any, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    """The long work does not come to its end before the timer of another tenant has."""
    for tenant in ("acme", "other"):
        await runtime.tenant(tenant)
        await runtime.policy(POLICY % (1, "needs_approval"), tenant)
        await runtime.publish(ASKS, tenant)
        await runtime.publish(SLEEPS, tenant)
    await runtime.start("asks")
    timer = (await runtime.start("sleeps", tenant="other")).run_id
    await runtime.worker().work_off()
    begun, ended = asyncio.Event(), asyncio.Event()

    async def long(*_: Any, **__: Any) -> Any:
        begun.set()
        await ended.wait()
        return reviewing.Reviewed(False, 1)

    if work == "questions":
        monkeypatch.setattr(reviewing, "review_question", long)
        await runtime.execute("UPDATE tenants SET judge_after = '00000000-0000-0000-0000-000000000000'")
    else:
        monkeypatch.setattr(purging.retention, "hold", long)
        monkeypatch.setattr("runtime.store.sweeps.MAY_BE_PURGED", "true")
        due = (await runtime.books.runs(workflow="asks"))[0].id
        monkeypatch.setattr(
            "runtime.keep.sweeper.sweeps.due", _with_purge(__import__("runtime.store.sweeps", fromlist=["due"]).due, due)
        )
    async with keeping(runtime):
        await asyncio.wait_for(begun.wait(), 60)
        await runtime.trouble.make_waits_due("timer")
        async with runtime.working():
            await runtime.until(lambda: _over(runtime, timer))
        ended.set()


async def _over(runtime: Any, run_id: Any) -> bool:
    return bool(await runtime.status(run_id) == "succeeded")
