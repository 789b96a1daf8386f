"""Undo: judged like any action, refused if the record was changed since, once; cancel lists what was done."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

pytestmark = pytest.mark.req("Q-4")

FLOW = """
workflow: raising
version: 1
reference: ${{ trigger.number }}
subject: ${{ trigger.whom }}
steps:
  - {id: up, do: servicenow.incident.update, with: {sys_id: i1, fields: {priority: "1", short_description: "Now <b>"}}}
  - {id: gate, approve: {summary: Go on?, approvers: {group: duty-managers}}}
"""
POLICY = """
policy: raising
version: 1
applies: {connectors: [servicenow]}
rules:
  - {id: free, match: {connector: servicenow}, when: run.workflow == 'raising', outcome: allow}
  - id: undone
    match: {connector: servicenow}
    when: run.workflow.startsWith('counterseal-undo-') && run.reference != 'NEVER'
    outcome: needs_approval
    approvers: [{group: managers}, {group: service-owners}]
"""


async def raised(office: Any, number: str = "INC1", whom: str = "tess") -> tuple[UUID, str]:
    """A run that has raised an incident, and the receipt of that."""
    run_id = await office.start("raising", {"number": number, "whom": whom})
    await office.go_on()
    (receipt,) = (await office.get(f"/v1/runs/{run_id}/receipts"))["items"]
    assert (receipt["status"], receipt["reverse"] is not None) == ("succeeded", True)
    return run_id, receipt["receipt_id"]


async def undo(office: Any, receipt: str, status: int = 201) -> Any:
    answer = await office.http("POST", f"/v1/receipts/{receipt}/reverse", json={"reason": "It was a mistake."})
    assert answer.status_code == status, answer.text
    await office.go_on()
    return answer.json()


@pytest.fixture
async def desk(office: Any) -> Any:
    office.insert("incident", "i1", number="INC1", priority="3", short_description="Before & after")
    await office.publish(FLOW, policy=POLICY)
    return office


def now(office: Any) -> tuple[str, str]:
    record = office.record("incident", "i1")
    return record["priority"], record["short_description"]


async def test_an_effect_is_undone_once_with_approval_and_its_receipt_names_the_other(desk: Any) -> None:
    _, receipt = await raised(desk)
    assert now(desk) == ("1", "Now <b>")
    run = UUID((await undo(desk, receipt))["run_id"])
    assert "already" in (await undo(desk, receipt, 409))["detail"]
    for person in ("cara.diaz", "ana.lee"):
        question = next(one for one in await desk.books.approvals(open=True) if one.run == run)
        said = await desk.http("POST", f"/v1/approvals/{question.id}/votes", person, json={"choice": "approve"})
        assert said.status_code == 200, said.text
    await desk.go_on()
    assert (await desk.status(run), now(desk)) == ("succeeded", ("3", "Before & after"))
    (other,) = (await desk.get(f"/v1/runs/{run}/receipts"))["items"]
    assert (other["reverses"], other["status"]) == (receipt, "succeeded")
    await undo(desk, receipt, 409)
    await desk.verified(run)


@pytest.mark.parametrize("when", ["before it is asked", "while people are asked"])
async def test_what_was_changed_since_is_not_overwritten(desk: Any, when: str) -> None:
    _, receipt = await raised(desk)
    if when == "before it is asked":
        desk.insert("incident", "i1", number="INC1", priority="2", short_description="Now <b>")
    run = UUID((await undo(desk, receipt))["run_id"])
    if when == "while people are asked":
        desk.insert("incident", "i1", number="INC1", priority="2", short_description="Now <b>")
        for person in ("cara.diaz", "ana.lee"):
            question = next(one for one in await desk.books.approvals(open=True) if one.run == run)
            await desk.http("POST", f"/v1/approvals/{question.id}/votes", person, json={"choice": "approve"})
        await desk.go_on()
    assert now(desk) == ("2", "Now <b>")
    assert (await desk.status(run), (await desk.error(run))["code"]) == ("failed_terminal", "changed_since")


async def test_whom_the_first_run_was_about_does_not_decide_on_its_undoing(desk: Any) -> None:
    _, receipt = await raised(desk, whom="ana.lee")
    run = UUID((await undo(desk, receipt))["run_id"])
    question = next(one for one in await desk.books.approvals(open=True) if one.run == run)
    said = await desk.http("POST", f"/v1/approvals/{question.id}/votes", "ana.lee", json={"choice": "approve"})
    assert said.status_code == 403


async def test_policy_may_deny_it_and_nobody_knows_a_receipt_that_is_none(desk: Any) -> None:
    _, receipt = await raised(desk, number="NEVER")
    run = UUID((await undo(desk, receipt))["run_id"])
    assert (await desk.status(run), (await desk.error(run))["code"]) == ("failed_terminal", "policy_denied")
    await undo(desk, str(UUID(int=7)), 404)


async def test_cancel_lists_what_was_done(desk: Any) -> None:
    run_id, receipt = await raised(desk)
    answer = await desk.http("POST", f"/v1/runs/{run_id}/cancel", json={"reason": "not needed"})
    (done,) = answer.json()["done"]
    assert (done["receipt_id"], done["reversible"]) == (receipt, True)
