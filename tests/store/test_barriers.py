"""Barriers that nobody needs any more: their rows go, and nothing is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.rows import ago, put, read

# The rows are put in by hand.
pytestmark = [pytest.mark.tampers, pytest.mark.req("P-1")]

TWO = """
workflow: two
version: 1
reference: r
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}}
  - {id: b, do: probe.effect.apply, with: {name: b}}
"""


async def owed(runtime: Any, run_id: Any) -> None:
    """A barrier of this run is due, and whoever owed it is gone."""
    row = {"run_id": run_id, "step_key": "", "status": "leased", "owner": "barrier", "lease_id": 9, "epoch": 1}
    await put(runtime.database, "queue", "acme", **row, expires_at=ago(minutes=1))


async def places(runtime: Any) -> list[Any]:
    return [step for (step,) in await read(runtime.database, "SELECT step_key FROM queue ORDER BY 1")]


async def test_a_run_that_is_over_crosses_no_barrier(runtime: Any) -> None:
    run_id = await runtime.go(TWO)
    events = await runtime.events(run_id)
    await owed(runtime, run_id)
    assert await runtime.sweep() == 1
    assert (await places(runtime), await runtime.events(run_id)) == ([], events)
    assert await runtime.status(run_id) == "succeeded"
    await runtime.history(run_id)


async def test_a_run_whose_steps_execute_crosses_none_yet(runtime: Any, gate: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(TWO)
    run_id = (await runtime.start("two")).run_id
    runtime.outside.gates["a"] = gate
    async with runtime.working():
        await asyncio.wait_for(gate.reached.wait(), 60)
        events = await runtime.events(run_id)
        await owed(runtime, run_id)
        assert await runtime.sweep() == 1
        assert (await places(runtime), await runtime.events(run_id)) == (["a"], events)
        gate.opened.set()
        await runtime.until(lambda: runtime.books.runs(status="succeeded"))
    await runtime.history(run_id)
