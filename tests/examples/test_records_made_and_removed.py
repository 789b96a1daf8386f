"""ServiceNow: a record is made once and found again; one is removed with approval, shown whole, and made again."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from connectors.servicenow.creating import CORRELATION
from sandbox.faults import Effect, Fault, FaultKind

pytestmark = pytest.mark.req("promise 2")

FLOW = """
workflow: handover
version: 1
reference: ${{ trigger.number }}
steps:
  - id: make
    do: servicenow.record.create
    with: {table: incident, fields: {short_description: "Laptop <b>", urgency: "2", work_notes: "asked for"}}
  - {id: remove, do: servicenow.record.delete, with: {table: incident, sys_id: old, if_version: "4"}}
  - {id: again, do: servicenow.record.delete, with: {table: incident, sys_id: old}}
"""
POLICY = """
policy: handover
version: 1
applies: {connectors: [servicenow]}
rules:
  - {id: made, match: {operation: servicenow.record.create}, outcome: allow}
  - id: removed
    match: {operation: servicenow.record.delete}
    when: "action.reversible || size(action.changed) == 0"
    outcome: needs_approval
    approvers: [{group: managers}]
"""
OLD = {"number": "INC7", "sys_mod_count": "4", "short_description": "Old & sad", "priority": "3", "correlation_id": "x"}


def made(office: Any) -> list[dict[str, str]]:
    rows = office.world.servicenow.state.tables["incident"].values()
    return [dict(row) for row in rows if row["short_description"] == "Laptop <b>"]


@pytest.mark.parametrize("effect", [None, Effect.LANDED])
async def test_a_record_is_made_once_another_removed_once_and_made_again(office: Any, effect: Effect | None) -> None:
    office.insert("incident", "old", **OLD)
    await office.publish(FLOW, policy=POLICY)
    for method in ("POST", "DELETE") if effect else ():
        fault = Fault("/api/now/table/incident", FaultKind.RESET, effect or Effect.LOST, method)
        office.world.servicenow.faults.inject(fault)
    run_id = await office.start("handover", {"number": "INC7"})
    state = office.world.servicenow.state

    async def rest() -> None:
        for _ in range(4):  # doubts rest until what was sent has arrived, or never will
            await office.go_on()
            office.arrivals.everything_so_far()
            await office.trouble.make_waits_due("retry", "timer")
        await office.go_on()

    await rest()
    (record,) = made(office)
    receipts = (await office.get(f"/v1/runs/{run_id}/receipts"))["items"]
    key = record[CORRELATION]
    assert (len(key), record["sys_id"] in str(receipts[0])) == (64, True), "the receipt names the record"
    card = (await office.get(f"/v1/approvals/{(await office.question()).id}"))["card"]
    shown = {one["field"]: (one["before"], one["after"]) for one in card["changes"]}
    assert shown == {"priority": ("3", None), "short_description": ("Old & sad", None)}, "all that goes is shown"
    assert (await office.vote("cara.diaz", "approve")).status_code == 200
    await rest()
    assert (await office.status(run_id), state.record("incident", "old")) == ("succeeded", None), await office.error(
        run_id
    )
    assert [one.operation for one in state.writes("incident")] == ["insert", "delete"], "each once"
    _, removed, nothing = (await office.get(f"/v1/runs/{run_id}/receipts"))["items"]
    assert (removed["status"], removed["reversible"], nothing["status"]) == ("succeeded", True, "succeeded")
    await office.verified(run_id)
    order = f"/v1/receipts/{removed['receipt_id']}/reverse"
    undo = UUID((await office.http("POST", order, json={"reason": "It was needed."})).json()["run_id"])
    await rest()
    (back,) = [row for row in state.tables["incident"].values() if row["short_description"] == "Old & sad"]
    assert (await office.status(undo), back["priority"]) == ("succeeded", "3")
    assert (back["sys_id"] == "old", back[CORRELATION] == "x") == (False, False), "another record, with a key of ours"
    await office.verified(undo)
