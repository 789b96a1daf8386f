"""Answers over HTTP as they were, whole: of one tenant's runs, questions, tasks and waits, and of another's not a word.

Ids, times and digests are told apart by the order in which they appear; ``tests.support.whole`` holds the rest.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.access import Role
from tests.support.whole import Named, as_it_was

EXPECTED = Path(__file__).with_name("whole_http.json")
BUSY = """
workflow: busy
version: 1
reference: ${{ trigger.number }}
channels: {log: {reduce: append, ledger: true}}
steps:
  - {id: one, do: probe.effect.apply, with: {name: one}, set: {log: one}}
  - {id: case, do: probe.case.open, with: {name: "${{ trigger.number }}"}, timeout: P1D}
  - {id: said, wait: {signal: said, correlate: "${{ trigger.number }}"}}
"""
FORM = """
workflow: form
version: 1
reference: ${{ trigger.number }}
steps:
  - id: sign
    task:
      title: "Sign ${{ trigger.number }}"
      description: In ink.
      assign: {group: leads}
      form: {type: object, properties: {name: {type: string}}, required: [name]}
"""
OF_A_RUN = ("", *("/steps", "/checkpoints", "/receipts", "/timeline", "/ledger", "/audit", "/mutations", "/waits"))


async def _paths(installation: Any, number: str, tenant: str) -> list[str]:
    """Everything that this tenant has: three runs, of which one waits, one asks, and one has a task."""
    for text in (BUSY, FORM):
        await installation.add(text, tenant)
    busy = await installation.parked("busy", f"{number}1", tenant)
    form = await installation.parked("form", f"{number}2", tenant)
    asked, approval, _ = await installation.asked(f"{number}3", tenant)
    client = await installation.client(Role.ADMIN, tenant=tenant)
    [task] = (await client.get("/v1/tasks")).json()["items"]
    runs = [f"/v1/runs/{run}{part}" for run in (busy, form, asked) for part in OF_A_RUN]
    return [*runs, f"/v1/runs/{busy}/graph", f"/v1/approvals/{approval}", f"/v1/tasks/{task['task_id']}"]


LISTS = (
    *("/v1/runs", "/v1/approvals", "/v1/tasks", "/v1/runs?status=waiting", "/v1/runs?workflow=form"),
    *("/v1/runs?reference=A3", "/v1/approvals?status=requested", "/v1/tasks?state=open", "/v1/tasks?group=leads"),
    *("/v1/tasks?group=others", "/v1/tasks?state=completed", "/v1/runs?status=failed_terminal", "/v1/pauses"),
    "/v1/workflows",
)


@pytest.mark.req("U-7")
async def test_answers_are_as_they_were_and_of_one_tenant_alone(installation: Any) -> None:
    await installation.publish("other")
    theirs = await _paths(installation, "B", "other")
    ours = await _paths(installation, "A", "default")
    admin, stranger = [await installation.client(Role.ADMIN, tenant=tenant) for tenant in ("default", "other")]
    named, found = Named(), dict[str, Any]()
    for path in (*LISTS, *ours):
        answer = await admin.get(path)
        found[named(path)] = [answer.status_code, named(answer.json())]
        if path in ours:
            refused = await stranger.get(path)
            assert refused.status_code == 404, path
            assert (await admin.get(theirs[ours.index(path)])).status_code == 404, path
    answer = await admin.post(ours[0] + "/cancel", json={"reason": "enough"})
    found["cancel"] = [answer.status_code, named(answer.json())]
    await installation.work()
    for path in (f"{ours[0]}/steps", f"{ours[0]}/waits"):
        found[f"canceled: {named(path)}"] = named((await admin.get(path)).json())
    assert "B1" not in str(found)
    assert "B3" not in str(found)
    as_it_was(EXPECTED, found)


async def test_lists_of_one_run_are_of_it_alone(installation: Any) -> None:
    """A list that is asked for by run, state and group holds what meets all of it."""
    ann = await installation.client(Role.APPROVER, subject="ann")
    first, approval, _ = await installation.asked("A")
    second, other, _ = await installation.asked("B")
    voted = await ann.post(f"/v1/approvals/{approval}/votes", json={"choice": "approve", "digest": "0" * 64})
    assert (voted.status_code, voted.json()["code"]) == (409, "changed")
    voted = await ann.post(f"/v1/approvals/{approval}/votes", json={"choice": "approve"})
    assert voted.status_code == 200

    async def ids(query: str) -> list[str]:
        items = (await ann.get(f"/v1/approvals?{query}")).json()["items"]
        return [one["approval_id"] for one in items]

    assert await ids("") == [str(other), str(approval)], "the newest first"
    assert await ids(f"run_id={first}") == [str(approval)]
    assert await ids(f"run_id={second}&status=requested") == [str(other)]
    assert await ids(f"run_id={first}&status=requested") == []
    assert await ids("status=approved") == [str(approval)]
