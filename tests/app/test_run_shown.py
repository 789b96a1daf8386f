"""A run as it is shown: its business state, its checkpoint, the failures that it has handled, what was attempted."""

from __future__ import annotations

from typing import Any

import pytest

from app.access import Role

TEXT = """
workflow: shown
version: 1
reference: r
channels: {got: {}}
steps:
  - {id: a, do: probe.effect.apply, with: {name: first}, set: {got: done}}
  - id: b
    do: transform.data.apply
    with: {value: "${{ trigger.missing }}"}
    on_failure:
      - {id: c, do: probe.effect.apply, with: {name: instead}}
"""


@pytest.mark.req("X-5")
@pytest.mark.req("Q-4")
@pytest.mark.req("Q-7")
async def test_a_run_shows_its_state_and_what_it_attempted(installation: Any) -> None:
    client = await installation.client(Role.ADMIN, Role.OPERATOR)
    assert (await client.post("/v1/workflows", json={"source": TEXT})).status_code == 201
    started = await client.post("/v1/runs", json={"workflow": "shown", "idempotency_key": "1"})
    run_id = started.json()["run_id"]
    await installation.work()
    shown = (await client.get(f"/v1/runs/{run_id}")).json()
    assert shown["status"] == "succeeded", shown["error"]
    assert (shown["channels"], shown["failures_handled"]) == ({"got": "done"}, 1)
    assert shown["checkpoint"] > 0
    last = (await client.get(f"/v1/runs/{run_id}/checkpoints/{shown['checkpoint']}")).json()
    assert last["state"]["channels"] == shown["channels"]
    receipts = (await client.get(f"/v1/runs/{run_id}/receipts")).json()["items"]
    assert [receipt["request"]["inputs"] for receipt in receipts] == [["name"], ["name"]]
    assert all(receipt["request"]["decision"] for receipt in receipts)
    assert "first" in receipts[0]["request"]["summary"]


@pytest.mark.req("Q-7")
async def test_a_run_that_a_failure_has_ended_has_handled_none(installation: Any) -> None:
    client = await installation.client(Role.ADMIN, Role.OPERATOR)
    unhandled = TEXT.partition("    on_failure:")[0]
    assert (await client.post("/v1/workflows", json={"source": unhandled})).status_code == 201
    started = await client.post("/v1/runs", json={"workflow": "shown", "idempotency_key": "1"})
    await installation.work()
    shown = (await client.get(f"/v1/runs/{started.json()['run_id']}")).json()
    assert (shown["status"], shown["failures_handled"]) == ("failed_terminal", 0)
