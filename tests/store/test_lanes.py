"""Lanes of the queue as operators see them: literal rows of two tenants with two workspaces, all figures at once."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.store import queue_reads
from runtime.store.queue_reads import CapQueue, MessageQueue
from tests.support.rows import ago, put, put_run

# The rows are of no book.
pytestmark = [pytest.mark.tampers, pytest.mark.req("O-7")]

HELD = {"owner": "w", "lease_id": 9}


async def rows(runtime: Any) -> None:
    await runtime.tenant("acme", concurrency=7, weight=2.0)
    await runtime.tenant("beta", concurrency=3)
    for tenant, workspace, weight in (("acme", "main", 1.0), ("acme", "two", 3.0), ("beta", "main", 1.0)):
        await put(runtime.database, "workspaces", tenant, workspace_id=workspace, weight=weight)
    for cap, slots in (("v", 4), ("w", None)):
        starts = {"max_runs_per_min": 60} if slots is None else {}
        await put(runtime.database, "caps", "acme", cap=cap, slots=slots, **starts)
    steps: list[tuple[str, str, str, float, dict[str, Any]]] = [
        ("acme", "main", "claimable", 5, {"cap": "v"}), ("acme", "main", "claimable", 1, {}),
        ("acme", "main", "sent", 9, {"cap": "v", "expires_at": ago(hours=-1)}),
        ("acme", "main", "leased", 9, {"cap": "v", "expires_at": ago(hours=-1)}),
        ("acme", "main", "leased", 9, {"expires_at": ago(hours=1)}),
        ("acme", "two", "claimable", 3, {"cap": "w"}), ("acme", "two", "leased", 9, {"expires_at": ago(hours=-1)}),
        ("beta", "main", "claimable", 8, {"cap": "v"}),
        ("beta", "main", "leased", 9, {"cap": "v", "expires_at": ago(hours=1)}),
    ]  # fmt: skip
    for number, (tenant, workspace, status, hours, more) in enumerate(steps, 1):
        held = HELD if status != "claimable" else {}
        row = {"run_id": number, "step_id": number, "workspace_id": workspace, "status": status, **held, **more}
        await put(runtime.database, "queue", tenant, created_at=ago(hours=hours), **row)
    waits = [
        ("acme", 1, "timer"),
        ("acme", 1, "signal"),
        ("acme", 2, "timer"),
        ("beta", 3, "task"),
        ("acme", 1, "timer"),
    ]
    for number, (tenant, run, kind) in enumerate(waits, 1):
        await put(runtime.database, "waits", tenant, wait_id=number, run_id=run, kind=kind)
    await put(runtime.database, "waits", "acme", wait_id=90, run_id=1, kind="timer", status="completed")
    for number, (tenant, workspace) in enumerate((("acme", "main"), ("acme", "two"), ("beta", "main")), 1):
        await put_run(runtime.database, tenant, number, workspace_id=workspace)
    messages = [("acme", "card", "pending", 2), ("acme", "card", "pending", 6), ("acme", "card", "failed", 4)]
    messages += [("acme", "task", "leased", 1), ("beta", "card", "pending", 9), ("acme", "card", "dispatched", 9)]
    for number, (tenant, kind, status, hours) in enumerate(messages, 1):
        row = {"command_id": number, "run_id": 1, "kind": kind, "status": status, "created_at": ago(hours=hours)}
        await put(runtime.database, "commands", tenant, **row)


async def seen(runtime: Any, tenant: str | None = None, most: int | None = None) -> dict[str, Any]:
    async with runtime.database.transaction() as connection:
        return {one.tenant: one for one in await queue_reads.queues(connection, tenant, most)}


def hours(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds / 3600)


async def test_every_figure_of_a_queue_is_that_of_its_tenant_its_lane_and_its_kind(runtime: Any) -> None:
    await rows(runtime)
    found = await seen(runtime)
    acme, beta = found["acme"], found["beta"]
    assert [*found] == ["acme", "beta"]
    assert (acme.weight, acme.slots, acme.slots_used, acme.max_runs_per_min, acme.starts_left) == (
        2.0,
        7,
        4,
        None,
        None,
    )
    assert (beta.weight, beta.slots, beta.slots_used) == (1.0, 3, 1)
    lanes = [
        (one.workspace, one.weight, one.pending, hours(one.oldest_pending_seconds), one.admitted, one.running)
        for one in acme.lanes
    ]
    assert lanes == [("main", 1.0, 2, 5, 1, 2), ("two", 3.0, 1, 3, 0, 1)]
    assert [(one.abandoned, one.parked) for one in acme.lanes] == [(1, {"signal": 1, "timer": 2}), (0, {"timer": 1})]
    (lane,) = beta.lanes
    assert (lane.pending, hours(lane.oldest_pending_seconds), lane.running, lane.abandoned, lane.parked) == (
        1, 8, 1, 1, {"task": 1},
    )  # fmt: skip
    assert acme.caps == (CapQueue("v", 4, 2, 1, None, None), CapQueue("w", None, 0, 1, 60, 60))
    assert beta.caps == ()
    assert (acme.steps, acme.parked) == ({"pending": 3, "admitted": 1, "running": 3}, {"signal": 1, "timer": 3})
    assert hours(acme.oldest_pending_seconds) == 5
    told = [(one.kind, one.status, one.count, hours(one.oldest_seconds)) for one in acme.messages]
    assert told == [("card", "failed", 1, 4), ("card", "pending", 2, 6), ("task", "leased", 1, 1)]
    assert [type(one) for one in beta.messages] == [MessageQueue]


async def test_one_tenant_is_seen_alone_and_counts_are_bounded(runtime: Any) -> None:
    await rows(runtime)
    whole = await seen(runtime)
    alone = await seen(runtime, "beta")
    assert [*alone] == ["beta"]
    assert (alone["beta"].caps, [one.parked for one in alone["beta"].lanes]) == ((), [{"task": 1}])
    bounded = (await seen(runtime, most=1))["acme"]
    assert [one.pending for one in bounded.lanes] == [1, 1]
    assert [cap.pending for cap in bounded.caps] == [1, 1]
    assert bounded.slots_used == whole["acme"].slots_used, "places are never estimated"
    assert sum(one.count for one in bounded.messages if one.status == "pending") <= 1
