"""The ServiceNow stand-in answers as an instance does where a client could go wrong."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import httpx
import pytest
from starlette.responses import Response

from sandbox.servicenow import ServiceNowConfig
from sandbox.servicenow_access import Accounts, AclRule, RateRule
from sandbox.servicenow_seed import seed_id
from sandbox.world import SandboxConfig, World, sandbox_world

INCIDENTS = "/api/now/table/incident"


async def open_incident(client: httpx.AsyncClient, **fields: str) -> dict[str, Any]:
    answer = await client.post(INCIDENTS, json={"short_description": "Payroll is down", **fields})
    assert answer.status_code == 201, answer.text
    return dict(answer.json()["result"])


async def test_an_incident_is_numbered_stamped_and_given_its_defaults(servicenow: httpx.AsyncClient) -> None:
    first = await open_incident(servicenow, impact="1", urgency="2")
    second = await open_incident(servicenow)
    assert (first["number"], second["number"]) == ("INC0010001", "INC0010002")
    assert (first["sys_mod_count"], first["state"], first["priority"]) == ("0", "1", "2")
    assert first["sys_created_by"] == first["sys_updated_by"] == "counterseal.integration"
    assert len(first["sys_updated_on"]) == len("2026-01-01 00:00:00")
    assert len(first["sys_id"]) == 32


async def test_a_write_counts_and_system_fields_cannot_be_set(world: World, servicenow: httpx.AsyncClient) -> None:
    record = await open_incident(servicenow)
    fields = {"priority": "1", "sys_mod_count": "99", "sys_updated_by": "somebody", "number": "INC9"}
    answer = await servicenow.patch(f"{INCIDENTS}/{record['sys_id']}", json=fields)
    changed = answer.json()["result"]
    assert (answer.status_code, changed["priority"], changed["sys_mod_count"]) == (200, "1", "1")
    assert (changed["sys_updated_by"], changed["number"]) == ("counterseal.integration", record["number"])
    effect = world.servicenow.state.writes("incident", record["sys_id"])[-1]
    assert (effect.operation, effect.user, effect.changes) == (
        "update",
        "counterseal.integration",
        {"priority": ("5", "1")},
    )


async def test_a_write_that_changes_nothing_is_none(world: World, servicenow: httpx.AsyncClient) -> None:
    record = await open_incident(servicenow, priority="3")
    answer = await servicenow.patch(f"{INCIDENTS}/{record['sys_id']}", json={"priority": "3"})
    assert answer.json()["result"]["sys_mod_count"] == "0"
    assert len(world.servicenow.state.writes("incident")) == 1


async def test_work_notes_append_on_each_write_even_the_same_text(servicenow: httpx.AsyncClient) -> None:
    record = await open_incident(servicenow)
    for _ in range(2):
        answer = await servicenow.patch(f"{INCIDENTS}/{record['sys_id']}", json={"work_notes": "act_1 done"})
    changed = answer.json()["result"]
    assert (changed["sys_mod_count"], changed["work_notes"].count("act_1 done")) == ("2", 2)
    query = f"element_id={record['sys_id']}^element=work_notes^ORDERBYsys_created_on"
    journal = await servicenow.get("/api/now/table/sys_journal_field", params={"sysparm_query": query})
    entries = journal.json()["result"]
    assert [(entry["value"], entry["sys_created_by"]) for entry in entries] == [
        ("act_1 done", "counterseal.integration")
    ] * 2


async def test_lists_are_filtered_ordered_paged_and_narrowed(servicenow: httpx.AsyncClient) -> None:
    for priority, text in (("3", "VPN"), ("1", "Payroll"), ("2", "Mail")):
        await open_incident(servicenow, priority=priority, short_description=text)
    params = {
        "sysparm_query": "priority=1^ORpriority=2^active=true^ORDERBYDESCpriority",
        "sysparm_fields": "short_description,priority",
        "sysparm_limit": "1",
    }
    first = await servicenow.get(INCIDENTS, params=params)
    second = await servicenow.get(INCIDENTS, params=params | {"sysparm_offset": "1"})
    assert first.json()["result"] == [{"short_description": "Mail", "priority": "2"}]
    assert second.json()["result"] == [{"short_description": "Payroll", "priority": "1"}]
    assert first.headers["X-Total-Count"] == "2"


async def test_references_are_links_unless_excluded(world: World, servicenow: httpx.AsyncClient) -> None:
    group = seed_id("sys_user_group", "network")
    record = await open_incident(servicenow, assignment_group=group)
    link = f"{world.servicenow.url}/api/now/table/sys_user_group/{group}"
    assert record["assignment_group"] == {"link": link, "value": group}
    assert record["assigned_to"] == ""
    raw = await servicenow.get(f"{INCIDENTS}/{record['sys_id']}", params={"sysparm_exclude_reference_link": "true"})
    assert raw.json()["result"]["assignment_group"] == group
    assert (await servicenow.get(f"/api/now/table/sys_user_group/{group}")).json()["result"]["name"] == "network"


async def test_refusals_are_the_table_apis(
    world: World, servicenow: httpx.AsyncClient, plain: httpx.AsyncClient
) -> None:
    record = await open_incident(servicenow)
    url = f"{INCIDENTS}/{record['sys_id']}"
    user = f"/api/now/table/sys_user/{seed_id('sys_user', 'ana.lee')}"
    cases = [
        (await plain.get(world.servicenow.url + INCIDENTS), 401, "User Not Authenticated"),
        (await plain.get(world.servicenow.url + INCIDENTS, auth=("ana.lee", "wrong")), 401, "User Not Authenticated"),
        (await servicenow.get(f"{INCIDENTS}/{'0' * 32}"), 404, "No Record found"),
        (await servicenow.patch(user, json={"name": "Eve"}), 403, "Operation Failed"),
        (await servicenow.get("/api/now/table/No-Such"), 400, "Invalid table No-Such"),
        (await servicenow.get(INCIDENTS, params={"sysparm_query": "nonsense"}), 400, "Invalid query"),
        (await servicenow.get(INCIDENTS, params={"sysparm_limit": "-1"}), 400, "Invalid sysparm_limit"),
        (
            await servicenow.patch(url, content=b"{", headers={"Content-Type": "application/json"}),
            400,
            "Exception while reading request",
        ),
        (await servicenow.patch(url, json={"impact": {"a": 1}}), 400, "Exception while reading request"),
        (await servicenow.patch(url, content=b"a=b"), 415, "Unsupported media type"),
    ]
    for answer, status, message in cases:
        assert (answer.status_code, answer.json()["error"]["message"]) == (status, message)
        assert answer.json()["status"] == "failure"
    assert len(world.servicenow.state.effects) == 1


async def test_a_hidden_record_looks_absent() -> None:
    acl = (AclRule("incident", "read", "raj.quist"),)
    async with sandbox_world(SandboxConfig(servicenow=ServiceNowConfig(acl=acl))) as world:
        record = world.servicenow.state.insert("incident", {"short_description": "secret"}, "ana.lee")
        for user, status, count in (("ana.lee", 200, 1), ("raj.quist", 404, 0)):
            async with httpx.AsyncClient(verify=False, base_url=world.servicenow.url, auth=(user, "sandbox")) as client:
                assert (await client.get(f"{INCIDENTS}/{record['sys_id']}")).status_code == status
                assert len((await client.get(INCIDENTS)).json()["result"]) == count


async def test_client_credentials_give_a_bearer_token_that_expires(plain: httpx.AsyncClient) -> None:
    now = [1_000_000.0]
    config = ServiceNowConfig(accounts=Accounts(token_seconds=60), clock=lambda: now[0])
    async with sandbox_world(SandboxConfig(servicenow=config)) as world:
        url = world.servicenow.url
        grant = {"grant_type": "client_credentials", "client_id": "counterseal", "client_secret": "sandbox-secret"}
        refused = await plain.post(f"{url}/oauth_token.do", data=grant | {"client_secret": "wrong"})
        assert (refused.status_code, refused.json()["error"]) == (401, "invalid_client")
        issued = (await plain.post(f"{url}/oauth_token.do", data=grant)).json()
        assert (issued["token_type"], issued["expires_in"]) == ("Bearer", 60)
        headers = {"Authorization": f"Bearer {issued['access_token']}"}
        made = await plain.post(url + INCIDENTS, json={"short_description": "x"}, headers=headers)
        assert made.json()["result"]["sys_created_by"] == "counterseal.integration"
        now[0] += 61
        assert (await plain.get(url + INCIDENTS, headers=headers)).status_code == 401


async def test_a_rate_rule_answers_429_with_its_headers(plain: httpx.AsyncClient) -> None:
    config = ServiceNowConfig(rate=RateRule(limit=2, seconds=3600), clock=lambda: 7200.0 + 3590)
    async with sandbox_world(SandboxConfig(servicenow=config)) as world:
        url, auth = world.servicenow.url + INCIDENTS, ("ana.lee", "sandbox")
        answers = [await plain.get(url, auth=auth) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[0].headers["X-RateLimit-Limit"] == "2"
        assert (answers[2].headers["Retry-After"], answers[2].headers["X-RateLimit-Reset"]) == ("10", "10800")
        assert (await plain.get(url, auth=("raj.quist", "sandbox"))).status_code == 200


@pytest.mark.parametrize("encoding", ["base64", "hex"])
async def test_what_people_do_is_told_to_the_webhook_signed(
    world: World, receiver: Any, servicenow: httpx.AsyncClient, encoding: Any
) -> None:
    world.servicenow.webhooks.encoding = encoding
    record = world.servicenow.state.insert("incident", {"short_description": "VPN", "priority": "3"}, "raj.quist")
    world.servicenow.state.update("incident", record["sys_id"], {"priority": "1"}, "raj.quist")
    await open_incident(servicenow)  # the integration's own write, as a real business rule tells it
    await world.servicenow.webhooks.until(lambda: all(item.done for item in world.servicenow.webhooks.deliveries))
    told = [json.loads(request.body) for request in receiver.received]
    assert sorted(body["sys_updated_by"] for body in told) == ["counterseal.integration", "raj.quist", "raj.quist"]
    bodies = {body["event"]: body for body in told if body["sys_updated_by"] == "raj.quist"}
    assert (bodies["insert"]["sys_mod_count"], bodies["insert"]["priority"]) == ("0", "3")
    assert (bodies["update"]["sys_mod_count"], bodies["update"]["priority"]) == ("1", "1")
    assert bodies["insert"]["opened_by"] == seed_id("sys_user", "raj.quist")
    assert len({request.headers["x-counterseal-delivery"] for request in receiver.received}) == 3
    for request in receiver.received:
        signed = request.headers["x-counterseal-timestamp"].encode() + b"." + request.body
        digest = hmac.digest(b"webhook-secret", signed, hashlib.sha256)
        text = digest.hex() if encoding == "hex" else base64.b64encode(digest).decode()
        assert request.headers["x-counterseal-signature"] == f"sha256={text}"


async def test_a_delivery_is_retried_three_times_and_may_be_repeated(world: World, receiver: Any) -> None:
    receiver.answers = [Response(status_code=503)] * 4
    world.servicenow.state.insert("incident", {"short_description": "x"}, "raj.quist")
    delivery = world.servicenow.webhooks.deliveries[0]
    await world.servicenow.webhooks.until(lambda: delivery.done)
    assert delivery.statuses == [503, 503, 503, 503]
    async with httpx.AsyncClient(verify=False, base_url=world.servicenow.url) as client:
        repeated = await client.post("/_sandbox/deliveries", json={"delivery": delivery.delivery_id})
    assert repeated.status_code == 200
    await world.servicenow.webhooks.until(lambda: delivery.done)
    assert delivery.statuses[-1] == 200
    assert len({request.headers["x-counterseal-delivery"] for request in receiver.received}) == 1


async def test_a_refused_delivery_is_not_retried(world: World, receiver: Any) -> None:
    receiver.answers = [Response(status_code=401)]
    world.servicenow.state.insert("incident", {"short_description": "x"}, "raj.quist")
    delivery = world.servicenow.webhooks.deliveries[0]
    await world.servicenow.webhooks.until(lambda: delivery.done)
    assert delivery.statuses == [401]


async def test_other_processes_see_and_steer_it(world: World, receiver: Any) -> None:
    async with httpx.AsyncClient(verify=False, base_url=world.servicenow.url) as client:
        fields = {"short_description": "Printer on fire"}
        made = await client.post("/_sandbox/records/incident", json={"user": "raj.quist", "fields": fields})
        sys_id = made.json()["record"]["sys_id"]
        await client.patch(f"/_sandbox/records/incident/{sys_id}", json={"user": "ana.lee", "fields": {"urgency": "1"}})
        effects = (await client.get("/_sandbox/effects")).json()["effects"]
        assert [(effect["operation"], effect["user"]) for effect in effects] == [
            ("insert", "raj.quist"),
            ("update", "ana.lee"),
        ]
        assert (await client.get("/_sandbox/records/incident")).json()["records"][0]["priority"] == "3"
        bad = await client.post("/_sandbox/records/incident", json={"user": "raj.quist"})
        foreign = await client.post("/_sandbox/records/incident", content=b"{}")
        assert (bad.status_code, foreign.status_code) == (400, 400)
        assert "fields" in bad.json()["error"]
    await receiver.until(lambda: len(receiver.received) == 2)
