"""The reads of cards, values, receipts, bundles and reports: each is an event, at every door, once an hour."""

from __future__ import annotations

from typing import Any

from starlette.routing import Route

from app.access import Role
from app.console import application as console
from app.http import application as api
from app.http.read_recording import SHOWN
from runtime.store import audit
from tests.support.browsing import Browser

# Shows no run, question or person; or records the read itself.
SILENT = {
    *("/healthz", "/readyz", "/metrics", "/v1/workflows", "/v1/workflows/{name}/{version}", "/v1/schemas/{name}"),
    *("/v1/actions", "/v1/actions/{action_id}"),  # an agent is shown its own alone
    *("/v1/policies", "/v1/policies/in-force", "/v1/pauses", "/v1/denials"),
    *("/v1/schedules", "/v1/schedules/{workflow}/moments"),
    *("/v1/audit", "/v1/evidence/runs", "/v1/runs/{run_id}/audit", "/v1/runs/{run_id}/evidence"),
    *("/v1/runs/{run_id}/evidence/values", "/v1/operations", "/v1/operations/{name}", "/v1/operations/{name}/diff"),
    *("console:", "console:/login", "console:/login/{code}", "console:/logout", "console:/evidence"),
    *("console:/policies/{name}/{version}/activate", "console:/policies/{name}/{version}"),
    *(
        "console:/workflows/{name}/{version}",
        "console:/policies",
        "console:/workflows",
        "console:/static/{name}",
        "console:/runs/{run}/evidence",
    ),
}


def test_every_route_that_shows_something_is_known() -> None:
    doors = (("", api.ROUTERS), ("console:", console.ROUTERS))
    routes = [(door, route) for door, parts in doors for part in parts for route in part.routes]
    paths = {f"{door}{one.path}" for door, one in routes if isinstance(one, Route) and "GET" in (one.methods or ())}
    assert {path for path in paths - SHOWN.keys() - SILENT if "oidc" not in path} == set()
    assert SHOWN.keys() <= paths, SHOWN.keys() - paths


async def test_a_read_is_one_event_for_each_person_thing_and_hour(installation: Any) -> None:
    run_id, approval, _ = await installation.asked("INC1")
    ended = await installation.start("simple", "INC2")
    await installation.work()
    client = await installation.client(Role.AUDITOR, Role.APPROVER, subject="ann")
    browser = await Browser.logged_in(installation, await installation.token(Role.AUDITOR, subject="aud"))
    for _ in range(3):
        for path in (f"/runs/{run_id}", f"/runs/{run_id}/receipts", f"/approvals/{approval}", "/approvals"):
            assert (await client.get(f"/v1{path}")).status_code == 200
        for path in (f"/runs/{run_id}", f"/evidence/{ended}", f"/evidence/{ended}/report"):
            assert (await browser.get(path)).status_code == 200, path
    assert (await client.get(f"/v1/runs/{approval}")).status_code == 404
    read = [(one["actor"]["id"], one["data"]) for one in await installation.tenant_events("evidence.read")]
    run, end, thing = str(run_id), str(ended), str(approval)
    expected = [
        ("ann", {"what": "run", "door": "http", "run": run}),
        ("ann", {"what": "receipts", "door": "http", "run": run}),
        ("ann", {"what": "approval", "door": "http", "run": run, "thing": thing}),
        ("ann", {"what": "approvals", "door": "http"}),
        ("aud", {"what": "run", "door": "console", "run": run}),
        ("aud", {"what": "verification", "door": "console", "run": end}),
        ("aud", {"what": "report", "door": "console", "run": end}),
    ]
    assert len(read) == len(expected)
    assert all(one in read for one in expected), read
    found = await client.get("/v1/audit", params={"type": "evidence.*", "run": run})
    assert found.status_code == 200, found.text
    assert {one["actor"]["id"] for one in found.json()["items"]} == {"ann", "aud"}


async def test_nothing_is_shown_that_cannot_be_recorded(installation: Any, monkeypatch: Any) -> None:
    run_id, _, _ = await installation.asked("INC1")
    client = await installation.client(Role.AUDITOR, subject="ann")

    async def broken(*_: Any, **__: Any) -> None:
        raise ConnectionError("no audit today")

    monkeypatch.setattr(audit, "read_by", broken)
    answer = await client.get(f"/v1/runs/{run_id}")
    assert answer.status_code >= 500
    assert "INC1" not in answer.text


def test_the_command_line_tells_too_once_an_hour(command: Any) -> None:
    """Each command is a process of its own: that it was told stands in the database."""
    for _ in range(3):
        command("approval", "list")
        command("run", "list")
    read = command.json("audit", "tenant", "--type", "evidence.*")["items"]
    assert [one["data"]["what"] for one in read if one["data"].get("door") == "cli"] == ["runs", "approvals"]
