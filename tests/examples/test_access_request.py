"""The workflow access-request: granted by a manager, taken back by the clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

TRIGGER = {"number": "RITM0010001", "entitlement": "e1", "channel": "C0INC"}


async def requested(office: Any, folder: Path) -> UUID:
    office.insert("u_entitlement", "e1", number="ENT1", u_user="raj.quist", u_system="payroll", u_state="none")
    await office.publish(
        folder / "workflows" / "access-request.yaml", policy=folder / "policies" / "access-request.yaml"
    )
    run_id: UUID = await office.start("access-request", TRIGGER)
    await office.go_on()
    assert await office.status(run_id) == "waiting_approval"
    assert office.record("u_entitlement", "e1")["u_state"] == "none"
    return run_id


@pytest.mark.req("X-7")
async def test_access_is_granted_by_a_manager_and_taken_back_when_its_time_is_over(
    office: Any, examples_folder: Path
) -> None:
    run_id = await requested(office, examples_folder)
    assert "u_state" in str((await office.question()).card)
    assert (await office.vote("raj.quist", "approve")).status_code == 403
    assert (await office.vote("cara.diaz", "approve")).status_code == 200
    await office.go_on()
    assert (await office.status(run_id), office.record("u_entitlement", "e1")["u_state"]) == ("waiting", "active")
    await office.holds_nothing()
    await office.pass_days(29)
    await office.go_on()
    assert office.record("u_entitlement", "e1")["u_state"] == "active"
    await office.pass_days(1)
    await office.go_on()
    assert (await office.status(run_id), await office.result(run_id)) == ("succeeded", "returned")
    assert office.record("u_entitlement", "e1")["u_state"] == "expired"
    assert await office.receipts(run_id) == [
        ("grant", "succeeded"),
        ("tell_granted", "succeeded"),
        ("take_back", "succeeded"),
    ]
    written = office.world.servicenow.state.writes("u_entitlement", "e1")
    assert [effect.changes["u_state"] for effect in written] == [("none", "active"), ("active", "expired")]
    await office.verified(run_id)


@pytest.mark.req("X-10")
async def test_a_rejected_request_changes_nothing_and_tells_the_requester(office: Any, examples_folder: Path) -> None:
    run_id = await requested(office, examples_folder)
    await office.vote("cara.diaz", "reject", "not without a ticket")
    await office.go_on()
    assert (await office.status(run_id), await office.result(run_id)) == ("succeeded", "rejected")
    assert office.world.servicenow.state.writes("u_entitlement", "e1") == []
    assert await office.posts() == ["RITM0010001: payroll was not granted. not without a ticket"]
    await office.verified(run_id)


async def test_nobody_deciding_is_another_outcome_than_a_rejection(office: Any, examples_folder: Path) -> None:
    run_id = await requested(office, examples_folder)
    for _ in range(2):  # the reminder after a day, the end after another
        assert await office.status(run_id) == "waiting_approval"
        await office.pass_days(1)
        await office.go_on()
    assert (await office.status(run_id), await office.result(run_id)) == ("succeeded", "expired")
    assert office.world.servicenow.state.writes("u_entitlement", "e1") == []


async def test_access_that_cannot_be_taken_back_is_told_to_operations(office: Any, examples_folder: Path) -> None:
    run_id = await requested(office, examples_folder)
    await office.vote("cara.diaz", "approve")
    await office.go_on()
    office.world.servicenow.state.delete("u_entitlement", "e1", "somebody")
    await office.pass_days(30)
    await office.go_on()
    assert (await office.status(run_id), await office.result(run_id)) == ("succeeded", "stuck")
    assert any("could NOT be taken back" in text for text in await office.posts())
