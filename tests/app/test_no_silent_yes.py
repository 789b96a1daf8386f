"""Tests that what will have no effect is refused, or said, with a remedy."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fastapi.routing import APIRoute

from app import doctor
from app.access import Role
from app.http.application import ROUTERS

EVENT = {"table": "incident", "event": "insert", "number": "INC7", "sys_id": "s7", "sys_mod_count": "0"}
# Their names come before and after that of the workflow that starts.
BROKEN = """
workflow: {name}
version: 1
reference: {reference}
triggers: {{servicenow: {{table: incident, events: [insert], when: "{when}", dedupe: "{dedupe}"}}}}
steps: [{{id: a, wait: {{for: PT1H}}}}]
"""
GOOD = {"reference": "r", "when": "${{ true }}", "dedupe": "${{ trigger.sys_id }}"}
MISSING = {"reference": "${{ trigger.no_such_field }}", "when": "${{ trigger.no == 1 }}", "dedupe": "${{ trigger.no }}"}
ROUTES = sorted(
    (method, route.path)
    for part in ROUTERS
    for route in part.routes
    if isinstance(route, APIRoute)
    for method in route.methods
)


async def test_no_route_takes_a_query_parameter_that_it_does_not_know(installation: Any) -> None:
    client = await installation.client(*Role)
    for method, path in ROUTES:
        place = re.sub(r"{\w+(:path)?}", "00000000-0000-7000-8000-000000000000", path)
        body: dict[str, Any] = {"json": {}} if method in ("POST", "PUT") else {}
        answer = await client.request(method, place, params={"statsu": "failed"}, **body)
        assert (answer.status_code, answer.json().get("where")) == (400, "statsu"), (method, path, answer.text)
        assert answer.json()["remedy"]


async def test_a_mistyped_filter_names_the_nearest_and_never_lists_everything(installation: Any) -> None:
    client = await installation.client(Role.ADMIN)
    answer = await client.get("/v1/runs", params={"statsu": "failed"})
    assert (answer.status_code, answer.json().get("remedy")) == (400, "Did you mean 'status'?")
    assert (await client.get("/v1/runs", params={"status": "canceled", "limit": "3"})).status_code == 200
    nothing = await client.get("/healthz", params={"deep": "1"})
    assert nothing.json().get("remedy") == "This path takes no query parameters."


@pytest.mark.parametrize("part", MISSING)
async def test_a_workflow_that_cannot_be_started_fails_alone(installation: Any, part: str) -> None:
    for name in ("aa-broken", "zz-broken"):
        await installation.add(BROKEN.format(name=name, **GOOD | {part: MISSING[part]}))
    answer = await installation.webhook(EVENT)
    assert (answer.status_code, len(answer.json().get("runs", ()))) == (202, 1), answer.text
    failed = {one["workflow"]: one["reason"] for one in answer.json()["unstarted"]}
    assert sorted(failed) == ["aa-broken", "zz-broken"]
    assert answer.json()["sentence"] == "1 started, 2 could not be started."
    assert all("no_such_field" in reason or "trigger.no" in reason or "'no'" in reason for reason in failed.values())
    events = [event["data"]["name"] for event in await installation.tenant_events("workflow.unstarted")]
    assert events == ["aa-broken", "zz-broken"]
    checks = {check.what: check for check in await doctor.examine(installation.settings)}
    shown = checks["trigger of aa-broken"]
    assert (shown.state, failed["aa-broken"] in shown.detail) == (doctor.State.WARNING, True)


async def test_an_event_that_starts_nothing_says_so(installation: Any) -> None:
    unheard = await installation.webhook({**EVENT, "table": "problem"})
    assert (unheard.status_code, unheard.json()["runs"]) == (200, [])
    assert unheard.json()["sentence"].startswith("Nothing is started")
    await installation.add(
        BROKEN.format(name="alone", **GOOD | {"reference": MISSING["reference"]}).replace("incident", "cmdb_ci")
    )
    failed = await installation.webhook({**EVENT, "table": "cmdb_ci"})
    assert (failed.status_code, failed.json()["code"]) == (422, "unstarted")
    assert [one["workflow"] for one in failed.json()["unstarted"]] == ["alone"]


async def test_a_signal_that_nobody_waits_for_says_so_over_http(installation: Any) -> None:
    client = await installation.client(Role.TRIGGER)
    answer = await client.post("/v1/signals/foo:bar", json={})
    assert answer.status_code == 202
    assert (
        answer.json().get("sentence", "").startswith("Nobody waits for 'foo:bar' now. The signal is kept for 30 days")
    )


def test_a_signal_that_nobody_waits_for_says_so_on_the_command_line(command: Any) -> None:
    printed = command("signal", "send", "foo:bar", exit_code=6)
    assert "Nobody waits for 'foo:bar' now." in printed
    assert "first wait for this key" in printed
