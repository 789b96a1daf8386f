"""Processes killed at the worst moment: between an effect and its outcome (promises 2 and 4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandbox.faults import Effect, Fault, FaultKind


@pytest.mark.req("Q-8")
@pytest.mark.req("P-10")
@pytest.mark.parametrize(("effect", "words"), [(Effect.LANDED, "probe: applied"), (Effect.LOST, "probe: not applied")])
async def test_a_worker_killed_around_the_patch_leaves_one_change(stack: Any, effect: Effect, words: str) -> None:
    servicenow = stack.world.servicenow
    await stack.run("db", "upgrade")
    await stack.publish_examples()
    serving, keeping, worker = await asyncio.gather(*(stack.spawn(role) for role in ("serve", "keep", "work")))
    await stack.healthy()
    servicenow.faults.inject(Fault(r"/api/now/table/incident/", method="PATCH", kind=FaultKind.HANG, effect=effect))
    record = servicenow.state.insert("incident", {"short_description": "Printer jams"}, "raj.quist")

    def written() -> list[Any]:
        return servicenow.state.writes("incident", record["sys_id"], "counterseal.integration")

    if effect is Effect.LANDED:
        await servicenow.state.until(lambda: len(written()) == 1, seconds=60)
    else:
        await servicenow.faults.until(
            lambda: servicenow.faults.count(r"/api/now/table/incident/", "PATCH") == 1, seconds=60
        )
    await stack.kill(worker)
    assert (await stack.books.receipt()).status == "intended"
    # Its request could still arrive for a minute and a half, and nothing is done again before; let that time be over.
    servicenow.faults.clear()
    await stack.spawn("work", module="tests.support.arrivals")
    (run,) = await stack.run_status("succeeded")
    assert len(written()) == 1
    receipt = await stack.books.receipt(run=run.id)
    assert receipt.status == "succeeded"
    assert receipt.resolution.startswith(words)
    events = await stack.books.event_types(run.id)
    assert "lease.expired" in events
    assert "action.doubt_resolved" in events
    bundle = stack.home / "evidence.zip"

    await stack.until(lambda: stack.books.bundles(run=run.id))
    await stack.run("evidence", "get", str(run.id), "-o", str(bundle))
    await stack.run("evidence", "trust")
    await stack.run("evidence", "verify", str(bundle))
    assert serving.returncode is None
    assert keeping.returncode is None
