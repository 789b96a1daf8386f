"""Extending a running graph over HTTP: governed, on record, and only by somebody who has seen it as it is."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from app.access import Role

GROWING = """
workflow: growing
version: 1
reference: ${{ trigger.number }}
steps:
  - id: go
    wait: {signal: go, correlate: "${{ run.reference }}"}
  - id: last
    do: probe.effect.apply
    with: {name: last}
"""
STEP = {"id": "extra", "do": "probe.effect.apply", "with": {"name": "extra"}}
BODY = {"steps": [STEP], "before": ["last"]}


@pytest.fixture
async def growing(installation: Any) -> Any:
    await installation.add(GROWING)
    return installation


async def tag_of(client: Any, run_id: UUID) -> str:
    tag: str = (await client.get(f"/v1/runs/{run_id}")).headers["etag"]
    return tag


@pytest.mark.req("V-6", "X-17")
async def test_steps_are_added_by_whoever_has_seen_the_run_as_it_is(growing: Any) -> None:
    run_id = await growing.parked("growing", "G1")
    client = await growing.client(Role.OPERATOR, subject="agent-7")
    path = f"/v1/runs/{run_id}/steps"
    missing = await client.post(path, json=BODY)
    assert (missing.status_code, missing.json()["code"]) == (428, "precondition_required")
    tag = await tag_of(client, run_id)
    answers = await asyncio.gather(*(client.post(path, json=BODY, headers={"If-Match": tag}) for _ in range(4)))
    assert sorted(answer.status_code for answer in answers) == [201, 412, 412, 412]
    (made,) = (answer for answer in answers if answer.status_code == 201)
    assert made.json() == {"number": 1, "steps": ["extra"], "version": int(tag.strip('"')) + 1}
    assert made.headers["etag"] == await tag_of(client, run_id) == f'"{made.json()["version"]}"'
    (mutation,) = (await client.get(f"/v1/runs/{run_id}/mutations")).json()["items"]
    assert (mutation["number"], mutation["actor"], mutation["source"]) == (1, "agent-7", BODY)
    assert (await client.get(f"/v1/runs/{run_id}")).json()["extensions"] == 1
    await client.post("/v1/signals/go:G1", json={})
    await growing.work()
    assert await growing.status(run_id) == "succeeded"
    assert [call.input["name"] for call in growing.outside.effects] == ["extra", "last"]


async def test_what_is_added_is_governed_like_any_step(growing: Any) -> None:
    run_id = await growing.parked("growing", "G1")
    client = await growing.client(Role.OPERATOR)
    body = {"steps": [{"id": "risk", "do": "probe.danger.apply", "with": {"name": "x"}}], "before": ["last"]}
    added = await client.post(f"/v1/runs/{run_id}/steps", json=body, headers={"If-Match": await tag_of(client, run_id)})
    assert added.status_code == 201, added.text
    await client.post("/v1/signals/go:G1", json={})
    await growing.work()
    assert growing.outside.effects == []
    (approval,) = (await client.get("/v1/approvals?status=requested")).json()["items"]
    assert (approval["run_id"], approval["step"]) == (str(run_id), "risk")


@pytest.mark.req("V-6")
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"steps": []}, 422),
        ({}, 422),
        ({"steps": [STEP], "after": ["go"]}, 422),
        ({"steps": "extra"}, 422),
        ({"steps": [{"id": "extra"}]}, 400),
        ({"steps": [{"id": "extra", "do": "probe.nothing.here"}]}, 400),
        ({"steps": [{"id": "go", "do": "probe.effect.apply", "with": {"name": "x"}}]}, 400),
        ({"steps": [STEP], "before": ["go"]}, 400),
        ({"steps": [STEP], "before": ["nowhere"]}, 400),
        ({"steps": [{**STEP, "needs": ["extra"]}]}, 400),
        ({"steps": [{**STEP, "needs": ["last"]}], "before": ["last"]}, 400),
        ({"steps": [{**STEP, "with": {"name": "${{ steps.nowhere.output }}"}}]}, 400),
        ({"steps": [{**STEP, "with": {"name": "${{ 1 + }}"}}]}, 400),
    ],
)
async def test_an_extension_that_cannot_be_is_refused_with_its_place(growing: Any, body: Any, expected: int) -> None:
    run_id = await growing.parked("growing", "G1")
    client = await growing.client(Role.OPERATOR)
    tag = await tag_of(client, run_id)
    answer = await client.post(f"/v1/runs/{run_id}/steps", json=body, headers={"If-Match": tag})
    assert answer.status_code == expected, answer.text
    if expected == 400:
        assert answer.json()["where"]
    assert await tag_of(client, run_id) == tag
    assert (await client.get(f"/v1/runs/{run_id}/mutations")).json()["items"] == []


@pytest.mark.parametrize("tag", ["*", "", 'W/"1"', "odd", '"1", "2"', "0", "-1", "9" * 50, '"1.5"'])
async def test_what_is_no_version_is_refused(growing: Any, tag: str) -> None:
    run_id = await growing.parked("growing", "G1")
    client = await growing.client(Role.OPERATOR)
    answer = await client.post(f"/v1/runs/{run_id}/steps", json=BODY, headers={"If-Match": tag})
    assert (answer.status_code, answer.json()["where"]) == (400, "If-Match")


async def test_a_run_that_has_ended_takes_nothing_more(growing: Any) -> None:
    run_id = await growing.parked("growing", "G1")
    client = await growing.client(Role.OPERATOR)
    await client.post(f"/v1/runs/{run_id}/cancel", json={})
    answer = await client.post(
        f"/v1/runs/{run_id}/steps", json=BODY, headers={"If-Match": await tag_of(client, run_id)}
    )
    assert (answer.status_code, answer.json()["code"]) == (409, "consistency")


async def test_only_operators_of_its_tenant_extend_a_run(growing: Any) -> None:
    run_id = await growing.parked("growing", "G1")
    operator = await growing.client(Role.OPERATOR)
    headers = {"If-Match": await tag_of(operator, run_id)}
    await growing.publish("other")
    foreign = await growing.client(Role.OPERATOR, tenant="other")
    path = f"/v1/runs/{run_id}/steps"
    assert (await foreign.post(path, json=BODY, headers=headers)).status_code == 404
    for page in ("mutations", "waits"):
        assert (await foreign.get(f"/v1/runs/{run_id}/{page}")).status_code == 404
    assert (await operator.post(f"/v1/runs/{uuid4()}/steps", json=BODY, headers=headers)).status_code == 404
    for role in (Role.TRIGGER, Role.APPROVER, Role.AUDITOR):
        client = await growing.client(role)
        assert (await client.post(path, json=BODY, headers=headers)).status_code == 403
    assert await tag_of(operator, run_id) == headers["If-Match"]
