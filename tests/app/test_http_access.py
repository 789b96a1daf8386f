"""Rights over HTTP: each role has its own, and no tenant sees another's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from fastapi.routing import APIRoute

from app import access
from app.access import Role
from app.http.application import ROUTERS, create_app
from core.errors import AuthenticationError
from evidence.chain import Actor
from tests.support.app_stage import PEOPLE
from tests.support.books import tenants_seen

RUN = "01890000-0000-7000-8000-000000000002"

COMPOSERS = {Role.ADMIN, Role.AUTHOR, Role.OPERATOR, Role.APPROVER, Role.AUDITOR}
# What each role may reach; everything else of the table is 403 for it.
ROUTES: list[tuple[str, str, dict[str, Any] | None, set[Role]]] = [
    ("POST", f"/v1/approvals/{RUN}/break-glass", {"reason": "x"}, {Role.APPROVER}),
    ("POST", f"/v1/approvals/{RUN}/review", {"reason": "x"}, {Role.APPROVER}),
    ("POST", "/v1/actions", {"operation": "x", "input": {}}, {Role.AGENT}),
    ("GET", "/v1/actions", None, {Role.AGENT}),
    ("GET", f"/v1/actions/{RUN}", None, {Role.AGENT}),
    ("DELETE", f"/v1/actions/{RUN}", None, {Role.AGENT}),
    ("POST", f"/v1/actions/{RUN}/permit", {"nonce": "a" * 32, "digest": "a" * 64}, {Role.AGENT}),
    ("POST", f"/v1/actions/{RUN}/heartbeat", {"permit": "a" * 64}, {Role.AGENT}),
    (
        *("POST", f"/v1/actions/{RUN}/outcome", {"permit": "a" * 64, "outcome": "unknown", "digest": "a" * 64}),
        {Role.AGENT},
    ),
    ("POST", "/v1/runs", {"workflow": "nowhere"}, {Role.ADMIN, Role.OPERATOR, Role.TRIGGER}),
    ("GET", "/v1/runs", None, {Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR}),
    ("GET", f"/v1/runs/{RUN}", None, COMPOSERS),
    ("GET", f"/v1/runs/{RUN}/steps", None, {Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR}),
    ("GET", f"/v1/runs/{RUN}/agents", None, {Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR}),
    ("GET", f"/v1/runs/{RUN}/checkpoints", None, {Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR}),
    ("GET", f"/v1/runs/{RUN}/receipts", None, {Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR}),
    ("GET", f"/v1/runs/{RUN}/timeline", None, {Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR}),
    ("GET", f"/v1/runs/{RUN}/audit", None, {Role.ADMIN, Role.AUDITOR}),
    ("GET", f"/v1/runs/{RUN}/evidence", None, {Role.ADMIN, Role.AUDITOR}),
    ("GET", f"/v1/runs/{RUN}/evidence/values", None, {Role.ADMIN, Role.AUDITOR}),
    ("POST", f"/v1/runs/{RUN}/cancel", {}, {Role.ADMIN, Role.OPERATOR}),
    ("POST", f"/v1/runs/{RUN}/close", {}, {Role.ADMIN, Role.OPERATOR}),
    ("POST", f"/v1/runs/{RUN}/retry", {"reason": "mended"}, {Role.ADMIN, Role.OPERATOR}),
    ("POST", f"/v1/runs/{RUN}/fork", {"at": "3", "reason": "mended"}, {Role.ADMIN, Role.OPERATOR}),
    ("GET", f"/v1/runs/{RUN}/checkpoints/1", None, {Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR}),
    (
        "GET",
        f"/v1/runs/{RUN}/checkpoints/diff?from=0&to=1",
        None,
        {Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR},
    ),
    ("GET", f"/v1/runs/{RUN}/ledger", None, {Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR}),
    ("GET", f"/v1/runs/{RUN}/graph", None, COMPOSERS),
    ("GET", f"/v1/runs/{RUN}/waits", None, {Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR}),
    ("GET", f"/v1/runs/{RUN}/mutations", None, {Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR}),
    ("POST", f"/v1/runs/{RUN}/steps", {"steps": [{"id": "x"}]}, {Role.ADMIN, Role.OPERATOR, Role.AUTHOR}),
    (
        "POST",
        f"/v1/runs/{RUN}/steps/a/answer",
        {"answer": "again", "reason": "mended"},
        {Role.ADMIN, Role.OPERATOR, Role.APPROVER},
    ),
    ("GET", f"/v1/runs/{RUN}/grants", None, {Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR}),
    ("POST", f"/v1/runs/{RUN}/grants/{RUN}/revoke", {"reason": "no more"}, {Role.ADMIN, Role.OPERATOR, Role.APPROVER}),
    ("POST", f"/v1/receipts/{RUN}/reverse", {"reason": "wrong"}, {Role.ADMIN, Role.OPERATOR}),
    ("GET", "/v1/tasks", None, {Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR}),
    ("GET", f"/v1/tasks/{RUN}", None, {Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR}),
    ("POST", f"/v1/tasks/{RUN}/complete", {"value": {}}, {Role.APPROVER}),
    ("POST", "/v1/signals/key", {}, {Role.OPERATOR, Role.TRIGGER}),
    ("POST", "/v1/signals/key/extend", {}, {Role.OPERATOR, Role.TRIGGER}),
    (
        "POST",
        f"/v1/approvals/{RUN}/said",
        {"said": "asks", "text": "why?"},
        {Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.TRIGGER},
    ),
    (
        "PUT",
        "/v1/people/workflow/delegation",
        {"to": "x", "from": "2026-12-01", "until": "2026-12-02"},
        {Role.ADMIN},
    ),
    ("DELETE", "/v1/people/workflow/delegation", None, {Role.ADMIN}),
    ("GET", f"/v1/approvals/{RUN}/form", None, {Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.TRIGGER}),
    ("POST", f"/v1/approvals/{RUN}/edit", {"values": {}}, {Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.TRIGGER}),
    ("GET", "/v1/approvals", None, {Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR}),
    ("GET", f"/v1/approvals/{RUN}", None, {Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR}),
    ("POST", f"/v1/approvals/{RUN}/votes", {"choice": "approve"}, {Role.APPROVER}),
    ("GET", "/v1/workflows", None, COMPOSERS),
    ("POST", "/v1/workflows/check", {"source": "x"}, {Role.ADMIN, Role.AUTHOR}),
    ("POST", "/v1/workflows", {"source": "x"}, {Role.ADMIN, Role.AUTHOR}),
    ("GET", "/v1/workflows/simple/1", None, COMPOSERS),
    ("POST", "/v1/workflows/simple/1/retire", None, {Role.ADMIN}),
    ("POST", "/v1/workflows/simple/1/activate", None, {Role.ADMIN}),
    ("GET", "/v1/schemas/workflow", None, COMPOSERS),
    ("GET", "/v1/operations", None, COMPOSERS),
    ("GET", "/v1/operations/workflow", None, COMPOSERS),
    ("GET", "/v1/operations/workflow/diff?from=1&to=2", None, {Role.ADMIN}),
    ("POST", "/v1/operations", {"source": "x"}, {Role.ADMIN}),
    ("POST", "/v1/operations/diff", {"source": "x"}, {Role.ADMIN}),
    ("GET", "/v1/policies", None, {Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR}),
    ("POST", "/v1/policies", {"source": "x"}, {Role.ADMIN}),
    ("POST", "/v1/policies/workflow/retire", None, {Role.ADMIN}),
    ("POST", "/v1/policies/simple/1/activate", None, {Role.ADMIN}),
    ("GET", "/v1/audit", None, {Role.ADMIN, Role.AUDITOR}),
    ("GET", "/v1/directory", None, {Role.ADMIN, Role.AUDITOR}),
    ("GET", "/v1/policies/in-force", None, {Role.ADMIN, Role.AUDITOR}),
    ("GET", "/v1/evidence/runs", None, {Role.ADMIN, Role.AUDITOR}),
    ("GET", "/v1/pauses", None, {Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR}),
    ("GET", "/v1/denials", None, {Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR}),
    (
        "POST",
        "/v1/denials",
        {"operation": "x", "until": "2030-01-01T00:00:00Z", "reason": "x"},
        {Role.ADMIN, Role.OPERATOR},
    ),
    ("POST", "/v1/denials/lift", {"operation": "x"}, {Role.ADMIN, Role.OPERATOR}),
    (
        "POST",
        "/v1/bulk/runs",
        {"verb": "retry", "where": ["status=failed"], "reason": "x"},
        {Role.ADMIN, Role.OPERATOR},
    ),
    (
        "POST",
        "/v1/bulk/migrations",
        {"workflow": "x", "since": 1, "to": 2, "reason": "x"},
        {Role.ADMIN, Role.AUTHOR},
    ),
    ("GET", "/v1/waiting", None, {Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR}),
    ("GET", "/v1/schedules", None, {Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR}),
    ("GET", "/v1/schedules/{workflow}/moments", None, {Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR}),
    ("POST", "/v1/pauses", {"what": "tenant", "reason": "x"}, {Role.ADMIN, Role.OPERATOR}),
    ("POST", "/v1/pauses/resume", {"what": "tenant"}, {Role.ADMIN, Role.OPERATOR}),
]


async def test_nothing_but_healthz_is_open(installation: Any) -> None:
    client = await installation.client()
    assert (await client.get("/healthz")).status_code == 200
    for path in ("/readyz", "/metrics", "/openapi.json", "/docs", "/v1/runs", "/nowhere", "/healthz/", "/v1"):
        answer = await client.get(path)
        assert answer.status_code == 401, path
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_the_table_of_roles_covers_every_route(installation: Any) -> None:
    listed = {
        (method, path.partition("?")[0].replace(RUN, "*").replace("/simple/1", "/*/*")) for method, path, _, _ in ROUTES
    }
    schema = create_app(installation.app.faces).openapi()
    found = {
        (
            method.upper(),
            path.replace("{run_id}", "*")
            .replace("{action_id}", "*")
            .replace("{approval_id}", "*")
            .replace("{task_id}", "*")
            .replace("{grant_id}", "*")
            .replace("{receipt_id}", "*")
            .replace("{step}", "a")
            .replace("{number}", "1")
            .replace("{correlation_key}", "key")
            .replace("{name}/{version}", "*/*")
            .replace("{name}", "workflow")
            .replace("{person}", "workflow"),
        )
        for path, methods in schema["paths"].items()
        for method in methods
        if path.startswith("/v1")
    }
    assert found == listed


async def test_every_route_lets_in_exactly_its_roles(installation: Any) -> None:
    await installation.people(PEOPLE.replace("groups:", "service_accounts: [{id: bot, owner: eve}]\ngroups:"))
    for role in Role:
        client = await installation.client(role, subject="bot" if role is Role.AGENT else "tess")
        for method, path, body, roles in ROUTES:
            answer = await client.request(method, path, json=body)
            assert (answer.status_code != 403) == (role in roles), (role, method, path, answer.text)
            assert answer.status_code < 500, (role, method, path)


async def test_every_route_has_a_summary(installation: Any) -> None:
    assert all(route.summary for part in ROUTERS for route in part.routes if isinstance(route, APIRoute))
    paths = create_app(installation.app.faces).openapi()["paths"].values()
    operations = [item for path in paths for item in path.values()]
    assert all(operation.get("summary") and operation.get("description") for operation in operations)


WRONG_TOKENS = (
    "", "Bearer", "Basic YTpi", "Bearer nope", "Bearer cst_" + "x" * 43, "Bearer cst_\xff", "cst_x", "Bearer a b"
)  # fmt: skip


async def test_a_wrong_token_is_401(installation: Any) -> None:
    client = await installation.client()
    for header in WRONG_TOKENS:
        answer = await client.get("/v1/runs", headers={"Authorization": header.encode("latin-1")})
        assert (answer.status_code, answer.json()["code"]) == (401, "authentication"), header


async def test_a_token_of_another_scheme_is_401(installation: Any) -> None:
    token = await installation.token(Role.ADMIN)
    client = await installation.client()
    for scheme, status in (("Bearer", 200), ("bearer", 200), ("Basic", 401)):
        answer = await client.get("/v1/runs", headers={"Authorization": f"{scheme} {token}"})
        assert answer.status_code == status, scheme


async def test_two_authorization_headers_are_401(installation: Any) -> None:
    token = await installation.token(Role.ADMIN)
    client = await installation.client()
    headers = [("Authorization", f"Bearer {token}"), ("Authorization", f"Bearer {token}")]
    assert (await client.get("/v1/runs", headers=headers)).status_code == 401


async def test_an_expired_and_a_revoked_token_are_refused_at_once(installation: Any) -> None:
    database = installation.app.faces.database
    expired = await installation.token(Role.ADMIN, lifetime=timedelta(seconds=-1))
    with pytest.raises(AuthenticationError):
        await access.principal_of(database, expired)
    valid = await installation.token(Role.ADMIN, Role.AUDITOR, subject="ann")
    found = await access.principal_of(database, valid)
    assert (found.tenant, found.subject, found.roles) == ("default", "ann", {"admin", "auditor"})
    assert await access.revoke_token(database, "default", valid, Actor("test", "tests")) == 1
    with pytest.raises(AuthenticationError):
        await access.principal_of(database, valid)


async def test_only_the_hash_of_a_token_is_stored_and_its_making_is_audited(installation: Any) -> None:
    token = await installation.token(Role.OPERATOR, subject="ann")
    rows = await installation.all("SELECT * FROM tokens")
    assert token not in str(rows)
    (event,) = await installation.tenant_events("token.created")
    assert event["data"] == {
        "token": access.token_hash(token)[:12],
        "subject": "ann",
        "roles": ["operator"],
        "expires": event["data"]["expires"],
    }
    assert token not in str(event)


async def test_another_tenants_run_and_approval_do_not_exist(installation: Any) -> None:
    await installation.publish("other")
    run_id, approval_id, _ = await installation.asked(tenant="other")
    everything = tuple(role for role in Role if role is not Role.AGENT)
    stranger = await installation.client(*everything, subject="ann")
    owner = await installation.client(*everything, subject="ann", tenant="other")
    for method, path, body, _ in ROUTES:
        if RUN not in path or path.startswith("/v1/actions"):  # an agent's own test asks for another's
            continue
        own = path.replace(RUN, str(approval_id if "approvals" in path else run_id))
        answer = await stranger.request(method, own, json=body)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), own
    assert (await stranger.get("/v1/runs")).json()["items"] == []
    assert (await stranger.get("/v1/approvals")).json()["items"] == []
    assert 'counterseal_runs{status="' not in (await stranger.get("/metrics")).text
    assert len((await owner.get("/v1/runs")).json()["items"]) == 1
    assert len((await owner.get("/v1/approvals")).json()["items"]) == 1
    assert await installation.status(run_id) == "waiting_approval"


async def test_a_query_that_forgets_its_tenant_sees_nothing(installation: Any) -> None:
    await installation.start("simple")
    database = installation.app.faces.database
    async with database.transaction() as connection:
        assert await tenants_seen(connection) == set()
    async with database.transaction("other") as connection:
        assert await tenants_seen(connection) <= {"other"}
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        async with database.transaction("other") as connection:
            await connection.execute("INSERT INTO people VALUES ('default', 'x', 'X')")
