"""Late answers over HTTP and on the command line: on the run, the receipt, the approval and the evidence."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.access import Role
from runtime.engine.life import doubt
from tests.support.arrivals import Arrivals
from tests.support.outside import Gate

SAYS = "A late answer: attempt 1 happened (e1). It counts as failed."


@pytest.fixture
def arrivals(monkeypatch: pytest.MonkeyPatch) -> Arrivals:
    found = Arrivals()
    monkeypatch.setattr(doubt, "rest", found.rest)
    return found


async def given_up(installation: Any, arrivals: Arrivals) -> Any:
    """A run whose action people gave up, after its bundle was stored; then the stalled worker's answer came."""
    run_id, approval, _ = await installation.asked()
    gate = installation.outside.gates["INC1"] = Gate(after_effect=True)
    client = await installation.client(Role.APPROVER, subject="ann")
    answer = await client.post(f"/v1/approvals/{approval}/votes", json={"choice": "approve"})
    assert answer.json()["counted"], answer.text
    slow = asyncio.create_task(installation.app.worker().work_off())
    await asyncio.wait_for(gate.reached.wait(), 60)
    await installation.trouble.expire_leases()
    assert await installation.app.sweeper().sweep() == 1
    arrivals.everything_so_far()
    await installation.work()
    doubt = await installation.books.approval(run=run_id, kind="in_doubt")
    answer = await client.post(f"/v1/approvals/{doubt.id}/votes", json={"choice": "fail", "reason": "no"})
    assert answer.json()["counted"], answer.text
    await installation.work()
    assert await installation.status(run_id) == "failed_terminal"
    gate.opened.set()
    await slow
    await installation.work()
    return run_id, approval


@pytest.mark.req("U-8")
async def test_every_face_says_what_was_told_too_late(installation: Any, arrivals: Arrivals, command: Any) -> None:
    run_id, approval = await given_up(installation, arrivals)
    client = await installation.client(Role.ADMIN)
    run = (await client.get(f"/v1/runs/{run_id}")).json()
    assert run["late"] == [f"danger: {SAYS}"]
    assert len(run["editions"]) == 2
    assert run["bundle"]["name"] == run["editions"][-1]
    (receipt,) = (await client.get(f"/v1/runs/{run_id}/receipts")).json()["items"]
    assert receipt["status"] == "failed"
    (late,) = receipt["late"]
    assert (late["known"], late["external_id"], late["says"]) == ("succeeded", "e1", SAYS)
    timeline = (await client.get(f"/v1/runs/{run_id}/timeline")).json()["items"]
    assert [event["type"] for event in timeline[-2:]] == ["run.closed", "action.late"]
    assert (await client.get(f"/v1/approvals/{approval}")).json()["late"] == SAYS
    answer = await client.get(f"/v1/runs/{run_id}/evidence")
    assert run["editions"][-1] in answer.headers["content-disposition"]
    printed = " ".join((await asyncio.to_thread(command, "run", "show", str(run_id))).split())
    assert f"danger: {SAYS}" in printed
    assert all(name in printed for name in run["editions"])
    assert "NOT STORED" not in printed
    assert SAYS in " ".join((await asyncio.to_thread(command, "approval", "show", str(approval))).split())
