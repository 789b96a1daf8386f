"""Tasks over HTTP: listed, looked at, and completed by those to whom they are assigned, once."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from app.access import Role
from tests.support.asking import owning

ONBOARDING = """
workflow: onboarding
version: 1
reference: ${{ trigger.number }}
channels: {owner: {reduce: replace}}
result: ${{ state.owner }}
steps:
  - id: sign
    task:
      title: "Confirm the owner of ${{ trigger.number }}"
      description: Look at the register.
      form:
        type: object
        required: [owner, share]
        properties:
          owner: {type: string, minLength: 2}
          share: {type: integer, minimum: 1, maximum: 100}
          kinds: {type: array, items: {type: string, enum: [person, trust]}}
          sure: {type: boolean}
      assign: {group: leads}
    timeout: P3D
    set: {owner: "${{ output.owner }}"}
"""
NOBODY = UUID(int=7)
VALUE = {"owner": "Acme", "share": 40, "kinds": ["trust"], "sure": True}


@pytest.fixture
async def tasked(installation: Any) -> Any:
    await installation.add(ONBOARDING)
    return installation


async def task_of(installation: Any, run_id: UUID) -> str:
    return str((await installation.books.wait(run=run_id)).id)


@pytest.mark.req("X-9", "P-12")
async def test_a_task_is_completed_once_by_a_member_of_its_group(tasked: Any) -> None:
    run_id = await tasked.parked("onboarding", "C1")
    client = await tasked.client(Role.APPROVER, subject="ann")
    bob = await tasked.client(Role.APPROVER, subject="bob")
    (listed,) = (await client.get("/v1/tasks?state=open&group=leads")).json()["items"]
    assert (listed["title"], listed["group"], listed["state"]) == ("Confirm the owner of C1", "leads", "open")
    assert (listed["run_id"], listed["step"], listed["reference"]) == (str(run_id), "sign", "C1")
    path = f"/v1/tasks/{listed['task_id']}"
    shown = (await client.get(path)).json()
    assert (shown["form"]["required"], shown["description"], shown["value"]) == (
        ["owner", "share"],
        "Look at the register.",
        None,
    )
    assert list(shown["form"]["properties"]) == ["owner", "share", "kinds", "sure"]
    answers = await asyncio.gather(*(client.post(f"{path}/complete", json={"value": VALUE}) for _ in range(8)))
    assert [answer.status_code for answer in answers] == [200] * 8, [answer.text for answer in answers]
    assert (await tasked.books.event_types(run_id)).count("wait.completed") == 1
    other = await bob.post(f"{path}/complete", json={"value": VALUE})
    assert (other.status_code, other.json()["code"]) == (409, "completed")
    assert "Ann" in other.json()["detail"]
    changed = await client.post(f"{path}/complete", json={"value": {**VALUE, "share": 41}})
    assert (changed.status_code, changed.json()["code"]) == (409, "completed")
    await tasked.work()
    shown = (await client.get(path)).json()
    assert (shown["state"], shown["completed_by"], shown["value"]) == ("completed", "Ann", VALUE)
    run = (await client.get(f"/v1/runs/{run_id}")).json()
    assert (run["status"], run["result"]) == ("succeeded", "Acme")


@pytest.mark.req("P-12")
async def test_others_are_refused_on_record_and_learn_nothing_about_the_form(tasked: Any) -> None:
    run_id = await tasked.parked("onboarding", "C1")
    path = f"/v1/tasks/{await task_of(tasked, run_id)}/complete"
    for person in ("eve", "stranger"):
        client = await tasked.client(Role.APPROVER, subject=person)
        for value in (VALUE, {"owner": 7}):
            refused = await client.post(path, json={"value": value})
            assert (refused.status_code, refused.json()["code"]) == (403, "not_assigned")
            assert "problems" not in refused.json()
    events = await tasked.tenant_events("task.refused")
    assert [event["actor"]["id"] for event in events] == ["eve", "eve", "stranger", "stranger"]
    assert await tasked.status(run_id) == "waiting"


async def test_a_right_counts_at_the_moment_of_completing(tasked: Any) -> None:
    run_id = await tasked.parked("onboarding", "C1")
    path = f"/v1/tasks/{await task_of(tasked, run_id)}/complete"
    client = await tasked.client(Role.APPROVER, subject="ann")
    async with owning(tasked.engine) as connection:
        await connection.execute("DELETE FROM group_members WHERE person_id = 'ann'")
    assert (await client.post(path, json={"value": VALUE})).status_code == 403


@pytest.mark.parametrize(
    ("value", "places"),
    [
        ({}, {"owner", "share"}),
        ({"owner": "A", "share": 0}, {"owner", "share"}),
        ({"owner": 7, "share": "x"}, {"owner", "share"}),
        ({"owner": "Acme", "share": 1, "kinds": ["trust", "dog"]}, {"kinds[1]"}),
        ({"owner": "Acme", "share": 1, "extra": 1}, {"extra"}),
        ({"owner": "Acme", "share": 1, "sure": None}, {"sure"}),
        ({"owner": "A" * 3001, "share": 1e300}, {"owner", "share"}),
    ],
)
async def test_a_form_that_is_not_filled_in_is_refused_field_by_field(
    tasked: Any, value: dict[str, Any], places: set[str]
) -> None:
    run_id = await tasked.parked("onboarding", "C1")
    client = await tasked.client(Role.APPROVER, subject="ann")
    answer = await client.post(f"/v1/tasks/{await task_of(tasked, run_id)}/complete", json={"value": value})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert {problem["where"] for problem in answer.json()["problems"]} == places
    assert all(problem["message"] for problem in answer.json()["problems"])
    assert await tasked.status(run_id) == "waiting"


async def test_a_task_that_is_over_is_409(tasked: Any) -> None:
    canceled, expired = await tasked.parked("onboarding", "C1"), await tasked.parked("onboarding", "C2")
    operator = await tasked.client(Role.OPERATOR)
    await operator.post(f"/v1/runs/{canceled}/cancel", json={})
    await tasked.trouble.make_waits_due(run=expired)
    await tasked.app.sweeper().sweep()
    client = await tasked.client(Role.APPROVER, subject="ann")
    for run_id, state in ((canceled, "canceled"), (expired, "expired")):
        task = await task_of(tasked, run_id)
        answer = await client.post(f"/v1/tasks/{task}/complete", json={"value": VALUE})
        assert (answer.status_code, answer.json()["code"]) == (409, state)
        (listed,) = (await client.get(f"/v1/tasks?state={state}")).json()["items"]
        assert listed["task_id"] == task


async def test_tasks_come_in_pages(tasked: Any) -> None:
    runs = {str(await tasked.parked("onboarding", f"C{number}")) for number in range(5)}
    client = await tasked.client(Role.AUDITOR)
    seen, cursor = [], ""
    for _ in range(3):
        answer = (await client.get("/v1/tasks", params={"limit": 2, "cursor": cursor})).json()
        seen += [task["run_id"] for task in answer["items"]]
        cursor = answer["next"] or ""
    assert (set(seen), len(seen), cursor) == (runs, 5, "")
    assert (await client.get("/v1/tasks?group=others")).json()["items"] == []


async def test_a_tenant_sees_and_completes_only_its_own_tasks(tasked: Any) -> None:
    run_id = await tasked.parked("onboarding", "C1")
    task = await task_of(tasked, run_id)
    await tasked.publish("other")
    foreign = await tasked.client(Role.APPROVER, Role.OPERATOR, subject="ann", tenant="other")
    assert (await foreign.get("/v1/tasks")).json()["items"] == []
    assert (await foreign.get(f"/v1/tasks/{task}")).status_code == 404
    answer = await foreign.post(f"/v1/tasks/{task}/complete", json={"value": VALUE})
    assert answer.status_code == 404
    assert await tasked.status(run_id) == "waiting"


@pytest.mark.parametrize(
    ("method", "path", "body", "roles", "expected"),
    [
        ("GET", "/v1/tasks", None, [], 401),
        ("GET", "/v1/tasks", None, [Role.TRIGGER], 403),
        ("GET", "/v1/tasks?state=odd", None, [Role.AUDITOR], 422),
        ("GET", "/v1/tasks?cursor=odd", None, [Role.AUDITOR], 400),
        ("GET", "/v1/tasks?group=%00", None, [Role.AUDITOR], 422),
        ("GET", f"/v1/tasks/{NOBODY}", None, [Role.AUDITOR], 404),
        ("GET", "/v1/tasks/odd", None, [Role.AUDITOR], 422),
        ("POST", f"/v1/tasks/{NOBODY}/complete", {"value": {}}, [Role.APPROVER], 404),
        ("POST", f"/v1/tasks/{NOBODY}/complete", {"value": {}}, [Role.OPERATOR, Role.ADMIN], 403),
        ("POST", f"/v1/tasks/{NOBODY}/complete", {"value": []}, [Role.APPROVER], 422),
        ("POST", f"/v1/tasks/{NOBODY}/complete", {}, [Role.APPROVER], 422),
        ("POST", f"/v1/tasks/{NOBODY}/complete", {"value": {}, "as": "ann"}, [Role.APPROVER], 422),
    ],
)
async def test_what_makes_no_sense_is_refused(
    tasked: Any, method: str, path: str, body: Any, roles: list[Role], expected: int
) -> None:
    client = await tasked.client(*roles)
    answer = await client.request(method, path, **({} if body is None else {"json": body}))
    assert answer.status_code == expected, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
