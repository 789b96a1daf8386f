"""The workflow change-rollout: a gate per wave, and a stop that leaves what people have seen work."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from sandbox.faults import Fault

WAVES = [{"name": "canary", "servers": ["s1"]}, {"name": "rest", "servers": ["s2", "s3", "s4"]}]
TRIGGER = {"change": "CHG0030001", "version": "2.4", "waves": WAVES}


async def rollout(office: Any, folder: Path, *, missing: str = "") -> UUID:
    for name in ("s1", "s2", "s3", "s4"):
        if name != missing:
            office.insert("cmdb_ci_server", name, name=f"server {name}", u_version="2.3")
    await office.publish(
        folder / "workflows" / "change-rollout.yaml", policy=folder / "policies" / "change-rollout.yaml"
    )
    run_id: UUID = await office.start("change-rollout", TRIGGER)
    await office.go_on()
    return run_id


def versions(office: Any) -> dict[str, str]:
    return {name: row["u_version"] for name, row in office.world.servicenow.state.tables["cmdb_ci_server"].items()}


@pytest.mark.req("X-12")
@pytest.mark.req("P-7")
async def test_every_wave_waits_for_people(office: Any, examples_folder: Path) -> None:
    run_id = await rollout(office, examples_folder)
    assert (await office.status(run_id), set(versions(office).values())) == ("waiting_approval", {"2.3"})
    await office.holds_nothing()
    await office.vote("ana.lee", "approve")
    await office.go_on()
    assert versions(office) == {"s1": "2.4", "s2": "2.3", "s3": "2.3", "s4": "2.3"}
    assert "rest (3 servers)" in str((await office.question()).card)
    await office.vote("cara.diaz", "approve")
    await office.go_on()
    assert set(versions(office).values()) == {"2.4"}
    assert (await office.status(run_id), await office.result(run_id)) == ("succeeded", {"servers": 4, "stopped": ""})
    assert len(await office.books.entries(run=run_id, channel="log")) == 4
    assert await office.receipts(run_id) == [("install", "succeeded")] * 4
    await office.verified(run_id)


@pytest.mark.req("X-10")
async def test_a_rejected_wave_stops_the_rollout_and_leaves_what_went_out(office: Any, examples_folder: Path) -> None:
    run_id = await rollout(office, examples_folder)
    await office.vote("ana.lee", "approve")
    await office.go_on()
    await office.vote("ana.lee", "reject", "not on a Friday")
    await office.go_on()
    assert versions(office) == {"s1": "2.4", "s2": "2.3", "s3": "2.3", "s4": "2.3"}
    result = {"servers": 1, "stopped": "rejected before rest"}
    assert (await office.status(run_id), await office.result(run_id)) == ("succeeded", result)
    assert await office.posts() == ["CHG0030001 stopped: rejected before rest"]
    await office.verified(run_id)


@pytest.mark.req("X-10")
async def test_a_server_that_refuses_rolls_its_wave_back_and_not_the_one_before(
    office: Any, examples_folder: Path
) -> None:
    run_id = await rollout(office, examples_folder)
    await office.vote("ana.lee", "approve")
    await office.go_on()
    office.world.servicenow.faults.inject(Fault("cmdb_ci_server/s3", method="PATCH", status=403))
    await office.vote("cara.diaz", "approve")
    await office.go_on()
    assert versions(office) == {"s1": "2.4", "s2": "2.3", "s3": "2.3", "s4": "2.3"}
    found = await office.result(run_id)
    assert (await office.status(run_id), found["servers"]) == ("succeeded", 1)
    assert found["stopped"].startswith("server s3 failed: forbidden")
    kinds = [step for step, status in await office.receipts(run_id) if status == "succeeded"]
    assert (kinds.count("install"), kinds.count("restore")) == (3, 2)
    await office.verified(run_id)


async def test_no_wave_begins_after_a_stop(office: Any, examples_folder: Path) -> None:
    run_id = await rollout(office, examples_folder)
    await office.vote("ana.lee", "reject")
    await office.go_on()
    assert await office.status(run_id) == "succeeded"
    assert len(await office.books.approvals()) == 1
    assert set(versions(office).values()) == {"2.3"}
