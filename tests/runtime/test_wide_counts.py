"""The cost of many parallel steps: appends a step, and races lost between appends that commute (W3)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.insides import count_retried_appends

STEPS = 320
IN_FLIGHT = 16
ATTEMPTS = 3
WIDE = """
workflow: wide
version: 1
steps:
  - id: each
    foreach: ${{ trigger.items }}
    max_parallel: 1000
    steps:
      - {id: effect, do: probe.effect.apply, with: {name: "n${{ item }}"}}
"""


@pytest.mark.req("X-6")
@pytest.mark.parametrize(("workers", "appends"), [(1, 0.2), (2, 0.3), (4, 0.6)])
async def test_appends_of_a_wide_run(
    runtime: Any, monkeypatch: pytest.MonkeyPatch, workers: int, appends: float
) -> None:
    """Workers with tools of their own are as strange to each other as processes.

    Groups form within milliseconds. What else runs on the machine may break them up, so one run of three has to do.
    """
    refused = count_retried_appends(monkeypatch)
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(WIDE)
    found = []
    for attempt in range(1, ATTEMPTS + 1):
        refused.clear()
        made = await appends_of_one(runtime, workers, str(attempt))
        assert len(runtime.outside.effects) == attempt * STEPS
        found.append((made / STEPS, len(refused)))
        # The first append of a run moves its gate, and whoever holds another of its first steps decides again.
        if made / STEPS <= appends and len(refused) <= workers - 1:
            return
    raise AssertionError(f"appends a step, and races lost: {found}")


async def appends_of_one(runtime: Any, workers: int, ref: str) -> int:
    run_id = (await runtime.start("wide", {"items": [*range(STEPS)]}, ref=ref)).run_id
    stop = asyncio.Event()
    every = [runtime.worker(f"w{n}", concurrency=IN_FLIGHT // workers) for n in range(workers)]
    working = [asyncio.create_task(worker.run(stop)) for worker in every]

    async def over() -> bool:
        return bool(await runtime.status(run_id) == "succeeded")

    await runtime.until(over)
    stop.set()
    await asyncio.gather(*working)
    return int((await runtime.books.run(run_id)).version)
