"""A run's past over HTTP: any checkpoint, what changed between two, the ledger; and what retention leaves of them."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from app.access import Role

WORKFLOW = """
workflow: counting
version: 1
reference: ${{ trigger.number }}
retention: PT1H
channels: {seen: {reduce: append, initial: [], ledger: true}, last: {ledger: true}, quiet: {}}
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}, set: {seen: "${{ output.applied }}", last: "${{ 'a' }}"}}
  - {id: b, do: probe.effect.apply, with: {name: b}, set: {seen: "${{ output.applied }}", quiet: "${{ true }}"}}
"""


@pytest.fixture
async def counted(installation: Any) -> UUID:
    await installation.add(WORKFLOW)
    run_id: UUID = await installation.parked("counting")
    assert await installation.status(run_id) == "succeeded"
    return run_id


@pytest.mark.req("P-9")
async def test_any_checkpoint_can_be_read(installation: Any, counted: UUID) -> None:
    client = await installation.client(Role.AUDITOR)
    listed = (await client.get(f"/v1/runs/{counted}/checkpoints")).json()["items"]
    assert [item["superstep"] for item in listed] == [0, 1, 2]
    for item in listed:
        answer = await client.get(f"/v1/runs/{counted}/checkpoints/{item['superstep']}")
        assert (answer.status_code, answer.json()) == (200, item)
    missing = await client.get(f"/v1/runs/{counted}/checkpoints/3")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    assert "0 to 2" in missing.text


@pytest.mark.req("P-3")
async def test_a_checkpoint_says_what_made_it_and_which_version_of_each_channel_it_holds(
    installation: Any, counted: UUID
) -> None:
    client = await installation.client(Role.AUDITOR)
    listed = (await client.get(f"/v1/runs/{counted}/checkpoints")).json()["items"]
    assert [item["source"] for item in listed] == ["input", "loop", "loop"]
    assert [item["versions_seen"] for item in listed] == [
        {"seen": 0, "last": 0, "quiet": 0},
        {"seen": 1, "last": 1, "quiet": 0},
        {"seen": 2, "last": 1, "quiet": 2},
    ]
    assert [[(write["step"], write["channel"]) for write in item["writes"]] for item in listed] == [
        [],
        [("a", "seen"), ("a", "last")],
        [("b", "seen"), ("b", "quiet")],
    ]
    assert listed[1]["writes"][1]["value"] == "a"


@pytest.mark.req("P-9")
async def test_what_changed_between_two_checkpoints_is_a_patch(installation: Any, counted: UUID) -> None:
    client = await installation.client(Role.OPERATOR)
    answer = await client.get(f"/v1/runs/{counted}/checkpoints/diff", params={"from": 1, "to": 2})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["from_superstep"], body["to_superstep"]) == (1, 2)
    changes = {item["path"]: (item["op"], item["before"], item["after"]) for item in body["changes"]}
    assert changes["/channels/seen/1"] == ("add", None, 2)
    assert changes["/channels/quiet"] == ("replace", None, True)
    assert changes["/open"] == ("remove", ["b"], None)
    assert changes["/status/b"] == ("add", None, "succeeded")
    same = await client.get(f"/v1/runs/{counted}/checkpoints/diff", params={"from": 1, "to": 1})
    assert same.json()["changes"] == []
    for wrong in ({"from": 1}, {"from": "x", "to": 1}, {"from": -1, "to": 1}):
        refused = await client.get(f"/v1/runs/{counted}/checkpoints/diff", params=wrong)
        assert 400 <= refused.status_code < 500
    assert (await client.get(f"/v1/runs/{counted}/checkpoints/diff?from=0&to=9")).status_code == 404


@pytest.mark.req("P-7")
@pytest.mark.parametrize("limit", [1, 2])
async def test_the_ledger_comes_in_pages(installation: Any, counted: UUID, limit: int) -> None:
    client = await installation.client(Role.OPERATOR)
    pages: list[list[Any]] = []
    cursor = ""
    while cursor is not None:
        body = (await client.get(f"/v1/runs/{counted}/ledger", params={"limit": limit, "cursor": cursor})).json()
        pages.append([(item["superstep"], item["step_key"], item["channel"], item["value"]) for item in body["items"]])
        cursor = body["next"]
    every = [(0, "a", "last", "a"), (0, "a", "seen", 1), (1, "b", "seen", 2)]
    assert pages == [every[start : start + limit] for start in range(0, 3, limit)]


@pytest.mark.parametrize("path", ["checkpoints/0", "checkpoints/diff?from=0&to=1", "ledger"])
async def test_another_tenants_past_is_not_there(installation: Any, counted: UUID, path: str) -> None:
    await installation.publish("other")
    stranger = await installation.client(Role.ADMIN, tenant="other")
    assert (await stranger.get(f"/v1/runs/{counted}/{path}")).status_code == 404
    own = await installation.client(Role.ADMIN)
    assert (await own.get(f"/v1/runs/{uuid4()}/{path}")).status_code == 404
    assert (await own.get(f"/v1/runs/{counted}/{path}")).status_code == 200
    trigger = await installation.client(Role.TRIGGER)
    assert (await trigger.get(f"/v1/runs/{counted}/{path}")).status_code == 403


async def _purged(installation: Any) -> tuple[UUID, UUID]:
    """A run that people had approved, and its approval, after its retention."""
    asked, approval, nonce = await installation.asked()
    assert (await installation.slack(installation.click(approval, nonce))).status_code == 200
    await installation.work()
    assert await installation.status(asked) == "succeeded"
    await installation.trouble.make_purge_due()
    await installation.app.sweeper().sweep()
    assert all(run.purged_at is not None for run in await installation.books.runs())
    return asked, approval


@pytest.mark.req("X-20")
async def test_what_retention_left_is_shown_and_what_it_took_is_said(installation: Any) -> None:
    asked, approval = await _purged(installation)
    client = await installation.client(*Role)
    paths = ("", "/steps", "/checkpoints", "/receipts", "/timeline", "/audit", "/ledger")
    answers = {path: (await client.get(f"/v1/runs/{asked}{path}")).status_code for path in paths}
    assert answers == dict.fromkeys(paths, 200)
    for path in ("/v1/approvals", f"/v1/approvals/{approval}"):
        answer = await client.get(path)
        assert answer.status_code == 200, answer.text
        assert "4711-secret" not in answer.text
        assert "Removed by retention." in answer.text
    gone = await client.get(f"/v1/runs/{asked}/checkpoints/0")
    assert (gone.status_code, "retention" in gone.text) == (404, True)
    bundle = await client.get(f"/v1/runs/{asked}/evidence")
    assert bundle.status_code == 200


async def test_what_comes_too_late_for_a_run_that_retention_emptied_is_refused(installation: Any) -> None:
    asked, approval = await _purged(installation)
    client = await installation.client(*Role)
    for path, body in ((f"/v1/approvals/{approval}/votes", {"choice": "approve"}), (f"/v1/runs/{asked}/cancel", {})):
        answer = await client.post(path, json=body)
        assert 400 <= answer.status_code < 500, answer.text


async def test_the_key_of_a_run_whose_input_was_removed_still_finds_it(installation: Any, counted: UUID) -> None:
    client = await installation.client(Role.TRIGGER)
    body = {"workflow": "counting", "input": {"number": "INC5"}, "idempotency_key": "k"}
    first = (await client.post("/v1/runs", json=body)).json()["run_id"]
    await installation.work()
    assert await installation.trouble.make_purge_due(UUID(first)) == 1
    await installation.app.sweeper().sweep()
    again = await client.post("/v1/runs", json=body)
    assert (again.status_code, again.json()["run_id"], again.json()["created"]) == (200, first, False)
