"""A tenant beyond a limit gets 429 with its name and a time; the others notice nothing; the audit has a line."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog

from app.access import Role
from app.budgeting import CHARGES
from app.faces import Faces
from app.http.application import create_app
from app.logs import OfTenants
from app.settings import Settings
from core.budgets import LIMITS, Kind, Meter, OverLimit
from core.db import FACES_ROLE, Database
from runtime.store import claims

ROOT = Path(__file__).parents[2]
EVENT = {"table": "incident", "event": "insert", "number": "INC1", "sys_id": "s1", "sys_mod_count": "0"}
LARGE = b'{"x":"' + b"a" * (256 * 1024) + b'"}'
START = ("POST", "/v1/runs", {"workflow": "asking", "input": {"number": "INC1"}})
DOCUMENT = ("POST", "/v1/workflows/check", {"source": "workflow: x"})
# The limit, its value here, and the request that reaches it: the second one is refused.
REACHED: Mapping[str, tuple[int, tuple[str, str, Any]]] = {
    "requests": (1, ("GET", "/v1/runs", None)),
    "starts": (1, START),
    "compile_units": (1, DOCUMENT),
    "answer_bytes": (1, ("GET", "/v1/runs", None)),
    "open_runs": (1, START),
    "signals_kept": (1, ("POST", "/v1/signals/nobody", {"output": 1})),
    "open_questions": (1, START),
}
# Those that are not reached by a request of a token.
ELSEWHERE = {"agent_actions", "agent_questions", "cards", "channel_messages", "log_lines", "log_warnings"}


@pytest.fixture
def low() -> dict[str, int]:
    return {}


@pytest.fixture
def settings(settings: Settings, low: dict[str, int]) -> Settings:
    return settings.model_copy(update={"budgets": low})


def test_every_limit_has_a_row_and_every_charge_a_limit() -> None:
    assert {*REACHED} | ELSEWHERE == {name for name, one in LIMITS.items() if one.kind is not Kind.SIZE}
    assert {name for names in CHARGES.values() for name in names} <= {*REACHED}
    paths = create_app(
        Faces(Settings(), Database("postgresql://x@localhost/x", FACES_ROLE), AsyncExitStack())
    ).openapi()
    there = {(method.upper(), path) for path, methods in paths["paths"].items() for method in methods}
    assert {(method, path.replace(":path", "")) for method, path in CHARGES} - there == set()
    whole = {key for key, told in each_body(paths) if told.endswith("/Document")}
    assert {key for key in whole if "compile_units" not in CHARGES.get(key, ())} == set(), "documents are charged"


def each_body(described: dict[str, Any]) -> Iterator[tuple[tuple[str, str], str]]:
    """The schema that each request takes."""
    for path, methods in described["paths"].items():
        for method, told in methods.items():
            body = told.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            yield (method.upper(), path), str(body.get("$ref", ""))


def test_a_size_is_read_from_its_limit_and_from_nowhere_else() -> None:
    """Each limit of a size is taken by the module that reads; none is left that nobody heeds."""
    taken: set[str] = set()
    for package in ("app", "approvals", "connectors", "core", "evidence", "policy", "runtime"):
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "most":
                    taken |= {str(one.value) for one in node.args if isinstance(one, ast.Constant)}
    assert taken == {name for name, one in LIMITS.items() if one.kind is Kind.SIZE}


@pytest.mark.parametrize(("low", "name"), [({name: most}, name) for name, (most, _) in REACHED.items()], ids=[*REACHED])
async def test_beyond_a_limit_is_429_for_this_tenant_alone(installation: Any, name: str) -> None:
    method, path, body = REACHED[name][1]
    await installation.publish("other")
    roles = (Role.ADMIN, Role.OPERATOR, Role.TRIGGER)
    mine, theirs = [await installation.client(*roles, tenant=tenant) for tenant in ("default", "other")]
    if name == "open_questions":
        await installation.asked()
        await installation.app.faces.budgets.look()
    else:
        assert (await mine.request(method, path, json=body)).status_code != 429
    refused = await mine.request(method, path, json=body)
    assert (refused.status_code, refused.json()["limit"]) == (429, name), refused.text
    assert refused.headers["content-type"] == "application/problem+json"
    assert int(refused.headers["retry-after"]) >= 1
    assert (await theirs.request(method, path, json=body)).status_code != 429
    (line,) = await installation.tenant_events("request.refused")
    assert line["data"] == {"endpoint": "http", "code": name, "count": 1}
    assert await installation.tenant_events("request.refused", "other") == []


@pytest.mark.parametrize("low", [{"starts": 1}])
async def test_an_event_and_a_body_beyond_their_limits_name_them_too(installation: Any) -> None:
    assert (await installation.webhook(EVENT)).status_code == 202
    refused = await installation.webhook({**EVENT, "sys_id": "s2"})
    assert (refused.status_code, refused.json()["limit"]) == (429, "starts")
    client = await installation.client(Role.OPERATOR)
    large = await client.post("/v1/runs", content=LARGE, headers={"Content-Type": "application/json"})
    assert (large.status_code, large.json()["limit"]) == (413, "request_bytes")
    lines = [line["data"] for line in await installation.tenant_events("request.refused")]
    assert [(line["endpoint"], line["code"]) for line in lines] == [
        ("servicenow:incidents", "starts"),
        ("http", "request_bytes"),
    ]


@pytest.mark.parametrize("low", [{"requests": 8}])
async def test_many_runs_at_once_are_charged_by_run(installation: Any) -> None:
    client = await installation.client(Role.OPERATOR, Role.TRIGGER)
    for number in ("INC1", "INC2", "INC3", "INC4"):
        await installation.start("asking", number)
    body = {"verb": "cancel", "where": ["workflow=asking"], "reason": "x"}
    planned = await client.post("/v1/bulk/runs", json={**body, "dry_run": True})
    assert (planned.status_code, len(planned.json()["items"])) == (200, 4), "one request"
    assert len((await client.post("/v1/bulk/runs", json=body)).json()["items"]) == 4
    refused = await client.get("/v1/runs")
    assert (refused.status_code, refused.json()["limit"]) == (429, "requests")


def test_a_bucket_fills_up_again_and_what_is_known_afterwards_makes_the_next_one_wait() -> None:
    clock = [0.0]
    meter = Meter({"starts": 60, "answer_bytes": 600}, lambda: clock[0])
    for _ in range(60):
        meter.take("starts", "acme")
    with pytest.raises(OverLimit, match="starts"):
        meter.take("starts", "acme")
    meter.take("starts", "globex")
    clock[0] = 1.0
    meter.take("starts", "acme")
    meter.used("answer_bytes", "acme", amount=1200)
    assert 60 <= meter.wait("answer_bytes", "acme") <= 61
    clock[0] = 62.0
    assert meter.wait("answer_bytes", "acme") == 0


def test_lines_of_a_loud_tenant_are_left_out_and_it_is_said_once_a_minute() -> None:
    clock = [0.0]
    drop = OfTenants(Meter({"log_lines": 3}, lambda: clock[0]))

    def written(tenant: str) -> list[str]:
        found = []
        for _ in range(10):
            try:
                found.append(drop(None, "info", {"event": "said", "tenant": tenant, "level": "info"})["event"])
            except structlog.DropEvent:
                continue
        return found

    assert written("loud") == ["said"] * 3 + ["lines about this tenant are left out"]
    assert written("") == ["said"] * 10
    clock[0] = 70.0
    assert written("loud") == ["said"] * 3 + ["lines about this tenant are left out"]


@pytest.mark.parametrize("low", [{"channel_messages": 1}, {"cards": 1}])
async def test_cards_beyond_the_share_of_an_hour_are_held_back_and_not_lost(
    serve: Any, settings: Settings, slack_world: Any, low: Any
) -> None:
    (name,) = low
    installation = await serve(settings.model_copy(update={"slack_channel": "C0INC"}))
    await installation.publish()
    for number in ("INC1", "INC2"):
        await installation.parked("asking", number)
    cards = await installation.books.commands(kind="card")
    assert sorted(card.status for card in cards) == ["dispatched", "pending"]
    (line,) = await installation.tenant_events("request.refused")
    assert (line["data"]["endpoint"], line["data"]["code"]) == ("slack", name)


async def test_a_step_whose_worker_is_gone_is_rehearsed_by_a_helper_and_goes_on(installation: Any) -> None:
    run_id = await installation.start("simple")
    async with installation.engine.connection() as connection:
        await claims.claim_next(connection, "gone", timedelta(seconds=30))
    await installation.trouble.expire_leases()
    await installation.app.sweeper().sweep()
    assert (await installation.books.step()).error["code"] == "lease_lost"
    with structlog.testing.capture_logs() as lines:
        await installation.work()
    assert [line for line in lines if "abandoned" in line["event"]] == [], "the helper came to its end"
    assert await installation.status(run_id) == "succeeded"
