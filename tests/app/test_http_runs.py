"""Webhooks and the runs' API: one run per trigger, pages, and what a run shows of itself."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from itertools import groupby
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from app.access import Role
from app.http.dependencies import decode_cursor, encode_cursor
from app.processes import listen
from core.errors import InputError
from evidence.chain import ChainHead
from runtime.requests.publishing import ensure_tenant
from runtime.store.commits import STEPS_CHANNEL

EVENT = {"table": "incident", "event": "insert", "number": "INC7", "sys_id": "s7", "sys_mod_count": "0"}


@pytest.mark.req("U-8")
@pytest.mark.req("Q-1")
async def test_ten_deliveries_of_one_event_at_once_start_one_run(installation: Any) -> None:
    answers = await asyncio.gather(*(installation.webhook(EVENT) for _ in range(10)))
    assert [answer.status_code for answer in answers] == [202] * 10
    runs = [answer.json()["runs"] for answer in answers]
    assert {item["run_id"] for (item,) in runs} == {runs[0][0]["run_id"]}
    assert sorted(item["created"] for (item,) in runs) == [False] * 9 + [True]
    again = (await installation.webhook(EVENT)).json()["runs"]
    assert again == [{"run_id": runs[0][0]["run_id"], "created": False, "reference": "INC7"}]
    run = await installation.books.run()
    assert (run.status, run.trigger_type, run.requested_by) == ("queued", "servicenow", "servicenow:incidents")


@pytest.mark.req("Q-12")
async def test_a_start_that_a_cap_holds_up_names_it_and_so_do_the_run_and_the_metrics(installation: Any) -> None:
    """The cap of the workflow, or of the tenant: the run is there, and starts when its turn comes."""
    steps = "steps:\n  - {wait: {for: PT1H}, id: pause}\n"
    await installation.add(f"workflow: metered\nversion: 1\ncaps: {{max_runs_per_min: 1}}\n{steps}")
    client = await installation.client(Role.OPERATOR)
    body = {"workflow": "metered", "input": {}}
    assert (await client.post("/v1/runs", json=body)).json()["waiting_for"] is None
    await installation.work()
    answer = await client.post("/v1/runs", json=body)
    held = "its start: caps.max_runs_per_min of metered is 1"
    assert (answer.status_code, answer.json()["waiting_for"]) == (201, held)
    assert (await client.get(f"/v1/runs/{answer.json()['run_id']}")).json()["waiting_for"] == held
    assert 'counterseal_starts_left{cap="workflow"} 0.0' in (await client.get("/metrics")).text
    async with installation.app.faces.database.transaction("default") as connection:
        await ensure_tenant(connection, "default", max_runs_per_min=1)
    await installation.add(f"workflow: plain\nversion: 1\n{steps}")
    for _ in range(2):
        plain = (await client.post("/v1/runs", json={"workflow": "plain", "input": {}})).json()
        await installation.work()
    assert plain["waiting_for"] is None, "the start asks about its workflow's cap alone"
    row = (await client.get(f"/v1/runs/{plain['run_id']}")).json()
    assert (row["status"], row["waiting_for"]) == ("queued", "its start: max_runs_per_min of the tenant default is 1")
    assert 'counterseal_starts_left{cap="tenant"} 0.0' in (await client.get("/metrics")).text


async def test_an_event_that_nobody_listens_to_is_acknowledged_and_kept(installation: Any) -> None:
    answer = await installation.webhook({**EVENT, "table": "problem"})
    assert (answer.status_code, answer.json()["runs"]) == (200, [])
    assert (await installation.books.notice()).processed


async def test_an_endpoint_starts_runs_of_its_own_tenant(installation: Any) -> None:
    await installation.publish("other")
    secret = "a-webhook-secret-of-tests2"
    answer = await installation.webhook(EVENT, endpoint="others", secret=secret)
    assert answer.status_code == 202, answer.text
    run = await installation.books.run()
    assert (run.tenant, run.workspace) == ("other", "main")


async def test_a_run_is_of_the_workspace_that_was_asked_for(installation: Any) -> None:
    client = await installation.client(Role.TRIGGER)
    body = {"workflow": "simple", "input": {"number": "INC1"}}
    for asked, found in (({"workspace": "other-one"}, "other-one"), ({}, "main")):
        started = await client.post("/v1/runs", json={**body, **asked})
        assert started.status_code == 201, started.text
        reader = await installation.client(Role.AUDITOR)
        shown = (await reader.get(f"/v1/runs/{started.json()['run_id']}")).json()
        assert shown["workspace_id"] == found


async def test_the_same_key_starts_one_run_and_another_input_under_it_is_a_conflict(installation: Any) -> None:
    client = await installation.client(Role.TRIGGER)
    body = {"workflow": "simple", "input": {"number": "INC1"}}
    headers = {"Idempotency-Key": "k1"}
    answers = await asyncio.gather(*(client.post("/v1/runs", json=body, headers=headers) for _ in range(10)))
    assert sorted(answer.status_code for answer in answers) == [200] * 9 + [201]
    assert len({answer.json()["run_id"] for answer in answers}) == 1
    in_body = await client.post("/v1/runs", json={**body, "idempotency_key": "k1"})
    assert (in_body.status_code, in_body.json()["created"]) == (200, False)
    other = await client.post("/v1/runs", json={**body, "input": {"number": "INC2"}}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "consistency")
    await installation.add("workflow: plain\nversion: 1\nsteps:\n  - {wait: {for: PT1H}, id: pause}\n")
    named = {"workflow": "plain", "idempotency_key": "k0"}
    nothing = await client.post("/v1/runs", json=named)
    something = await client.post("/v1/runs", json={**named, "input": {"number": "INC1"}})
    assert (nothing.status_code, something.status_code) == (201, 409), "no input is an input as well"
    both = await client.post("/v1/runs", json={**body, "idempotency_key": "k2"}, headers=headers)
    assert both.status_code == 400
    without = [await client.post("/v1/runs", json=body) for _ in range(2)]
    assert [answer.status_code for answer in without] == [201, 201]
    assert without[0].headers["location"] == f"/v1/runs/{without[0].json()['run_id']}"


async def _pages(client: httpx.AsyncClient, path: str, limit: int) -> list[list[dict[str, Any]]]:
    pages, cursor = [], ""
    while True:
        answer = await client.get(path, params={"limit": limit, "cursor": cursor})
        assert answer.status_code == 200, answer.text
        body = answer.json()
        pages.append(body["items"])
        cursor = body["next"]
        if cursor is None:
            return pages


async def test_pages_show_every_run_once_newest_first(installation: Any) -> None:
    started = [str(await installation.start("simple", f"INC{number}")) for number in range(7)]
    # Five of them at the very same moment: the id decides among those.
    assert await installation.trouble.begin_runs_earlier("2026-01-01", before_reference="INC5") == 5
    client = await installation.client(Role.OPERATOR)
    pages = await _pages(client, "/v1/runs", 3)
    assert [len(page) for page in pages] == [3, 3, 1]
    shown = [run["run_id"] for page in pages for run in page]
    assert shown == [started[6], started[5], *sorted(started[:5], reverse=True)]
    assert [run["run_id"] for page in await _pages(client, "/v1/runs", 7) for run in page] == shown


async def test_lists_are_filtered(installation: Any) -> None:
    await installation.start("simple", "INC1")
    waiting, _, _ = await installation.asked("INC2")
    client = await installation.client(Role.OPERATOR)

    async def found(**wanted: str) -> list[str]:
        answer = await client.get("/v1/runs", params=wanted)
        return [run["reference"] for run in answer.json()["items"]]

    assert await found() == ["INC2", "INC1"]
    assert await found(status="waiting_approval") == ["INC2"]
    assert await found(workflow="simple") == ["INC1"]
    assert await found(reference="INC2") == ["INC2"]
    assert await found(reference="INC2", workflow="simple") == []
    await installation.start("simple", "Störung 7")
    assert await found(reference="Störung 7") == ["Störung 7"]
    assert (await client.get("/v1/runs", params={"reference": "a\0"})).status_code == 422
    assert (await client.get(f"/v1/runs/{waiting}")).json()["status"] == "waiting_approval"


async def test_a_run_shows_steps_receipts_checkpoints_and_what_happened(installation: Any) -> None:
    run_id = await installation.start("simple")
    await installation.work()
    client = await installation.client(Role.OPERATOR, Role.AUDITOR, subject="aud")
    path = f"/v1/runs/{run_id}"
    run = (await client.get(path)).json()
    assert (run["status"], run["writes"], run["bundle"]["bytes"] > 0) == ("succeeded", 1, True)
    (step,) = (await client.get(f"{path}/steps")).json()["items"]
    done = {"name": "INC1", "applied": 1}
    assert (step["step_key"], step["status"], step["output"]) == ("first", "succeeded", done)
    (receipt,) = (await client.get(f"{path}/receipts")).json()["items"]
    assert (receipt["status"], receipt["target"], receipt["external_id"]) == ("succeeded", "thing/INC1", "e1")
    checkpoints = [item for page in await _pages(client, f"{path}/checkpoints", 1) for item in page]
    assert [item["superstep"] for item in checkpoints] == list(range(len(checkpoints)))
    timeline = [item for page in await _pages(client, f"{path}/timeline", 2) for item in page]
    assert [item["seq"] for item in timeline] == list(range(run["audit_count"]))
    assert (timeline[0]["type"], timeline[-1]["type"]) == ("run.opened", "run.closed")


async def test_the_audit_lines_are_the_hashed_bytes_and_reading_them_is_an_event(installation: Any) -> None:
    run_id = await installation.start("simple")
    await installation.work()
    client = await installation.client(Role.AUDITOR, subject="aud")
    pages = await _pages(client, f"/v1/runs/{run_id}/audit", 3)
    lines = [item for page in pages for item in page]
    run = (await client.get(f"/v1/runs/{run_id}")).json()
    assert [item["seq"] for item in lines] == list(range(run["audit_count"]))
    head = ChainHead.of(f"run:{run_id}")
    for _, append in groupby(lines, lambda item: item["append"]):
        head = head.after([item["line"].encode() for item in append])
    assert (head.count, head.hash) == (run["audit_count"], run["audit_head"])
    told = await installation.tenant_events("evidence.read")
    events = [one for one in told if one["data"]["what"] == "audit"]
    assert len(events) == len(pages)
    assert events[0]["actor"] == {"kind": "token", "id": "aud"}
    assert events[0]["data"] == {"run": str(run_id), "what": "audit"}


async def test_a_waiting_run_is_canceled_once_with_its_question(installation: Any) -> None:
    run_id, approval_id, _ = await installation.asked()
    client = await installation.client(Role.OPERATOR, Role.APPROVER, subject="ann")
    answer = await client.post(f"/v1/runs/{run_id}/cancel", json={"reason": "not needed"})
    assert (answer.status_code, answer.json()["status"]) == (200, "canceled")
    again = await client.post(f"/v1/runs/{run_id}/cancel", json={})
    assert (again.status_code, again.json()["code"]) == (409, "consistency")
    assert (await client.get(f"/v1/approvals/{approval_id}")).json()["status"] == "canceled"
    vote = await client.post(f"/v1/approvals/{approval_id}/votes", json={"choice": "approve"})
    assert vote.status_code == 409
    assert installation.outside.effects == []


async def test_documents_are_published_and_listed(installation: Any) -> None:
    client = await installation.client(Role.ADMIN, subject="root")
    text = "workflow: extra\nversion: 1\nreference: x\nsteps:\n  - {id: a, do: probe.effect.apply, with: {name: x}}\n"
    first = await client.post("/v1/workflows", json={"source": text})
    again = await client.post("/v1/workflows", json={"source": text})
    changed = await client.post("/v1/workflows", json={"source": text.replace("name: x", "name: y")})
    assert [answer.status_code for answer in (first, again, changed)] == [201, 200, 409]
    listed = (await client.get("/v1/workflows")).json()["items"]
    assert [item["name"] for item in listed] == ["asking", "extra", "simple"]
    (active,) = (await client.get("/v1/policies")).json()["items"]
    assert (active["name"], active["active"]) == ("tests", True)
    published = await installation.tenant_events("workflow.published")
    assert published[-1]["actor"] == {"kind": "token", "id": "root"}


async def test_metrics_count_requests_votes_and_runs(installation: Any) -> None:
    _, approval_id, _ = await installation.asked()
    client = await installation.client(Role.APPROVER, Role.OPERATOR, subject="ann")
    await client.post(f"/v1/approvals/{approval_id}/votes", json={"choice": "approve"})
    await installation.webhook(EVENT, secret="wrong-secret-altogether")
    await client.get("/nowhere/at/all")
    text = (await client.get("/metrics")).text
    assert 'counterseal_runs{status="running"} 1.0' in text
    assert 'counterseal_steps{state="pending"} 1.0' in text
    assert 'counterseal_slots{state="used"} 0.0' in text
    assert 'counterseal_commands{kind="step",status="pending"} 1.0' in text
    assert 'counterseal_votes_total{channel="http",code="counted"} 1.0' in text
    assert 'counterseal_requests_refused_total{code="signature",face="servicenow"} 1.0' in text
    assert 'route="/v1/approvals/{approval_id}/votes",status="200"' in text
    assert "nowhere" not in text


async def test_a_cursor_that_somebody_made_up_is_400(installation: Any) -> None:
    client = await installation.client(Role.OPERATOR)
    nil = "00000000-0000-0000-0000-000000000000"
    for key in (
        ["0001-01-01T00:00:00+23:59", nil],
        ["9999-12-31T23:59:59-23:59", nil],
        ["2026-01-01T00:00:00", nil],
        ["2026-01-01T00:00:00Z", "x"],
        ["2026-01-01T00:00:00Z"],
        [2**60, nil],
    ):
        answer = await client.get("/v1/runs", params={"cursor": encode_cursor(key)})
        assert (answer.status_code, answer.json()["where"]) == (400, "cursor"), key


def test_a_cursor_comes_back_as_what_it_was() -> None:
    at, identifier = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), UUID(int=7)
    assert decode_cursor(encode_cursor((at, identifier)), datetime, UUID) == [at, identifier]
    assert decode_cursor("", int) == []
    wrong = [([1, 2], (int,)), ([True], (int,)), ([2**40], (int,)), (["2026-01-01"], (datetime,)), (["x"], (UUID,))]
    for key, kinds in wrong:
        with pytest.raises(InputError):
            decode_cursor(encode_cursor(key), *kinds)


async def test_a_lost_line_to_the_database_is_taken_up_again(installation: Any) -> None:
    """Nothing polls fast, so a wake-up that is not heard any more would cost seconds."""
    heard: asyncio.Queue[str] = asyncio.Queue()
    stop = asyncio.Event()
    wakes = {STEPS_CHANNEL: [lambda: heard.put_nowait("wake")]}
    listening = asyncio.create_task(listen(installation.app.database, wakes, stop))
    async with asyncio.timeout(20):
        await heard.get()  # at the beginning everybody looks
        async with installation.engine.connection() as connection:
            await connection.execute(f"NOTIFY {STEPS_CHANNEL}")
            await heard.get()
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
        assert installation.settings.database_url is not None
        owner = await asyncpg.connect(installation.settings.database_url.get_secret_value())
        await owner.execute(ended)
        await heard.get()  # after the line is back, everybody looks again
        await owner.execute(f"NOTIFY {STEPS_CHANNEL}")
        await heard.get()
        await owner.close()
        stop.set()
        await listening
