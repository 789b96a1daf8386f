"""A run keeps the declarations that it began with, whatever the files of the process say later (V-4)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from app import definitions
from connectors.hosts import AllowedHost
from sandbox.server import LoopbackServer
from tests.support.databases import Databases

ID = "feed0000000000000000000000000001"
SERVICENOW = """
operations:
  - name: desk.ticket.set
    connector: servicenow
    handler: servicenow:update
    params: {table: incident}
    side_effects: external_call
    risk: low
    summary: Set {sys_id}
    target: "incident/{sys_id}"
    writes: fields
    diff: {fields: written}
    in_doubt: probe
    input_schema:
      type: object
      additionalProperties: false
      required: [sys_id, fields]
      properties:
        sys_id: {type: string}
        fields: {type: object, properties: {priority: {type: string}}}
    output_schema: {type: object}
"""
SQL = """
operations:
  - name: crm.customer.set
    connector: sql
    handler: sql:update
    params: {table: public.customers, key: [id]}
    side_effects: external_call
    risk: low
    summary: Set {id}
    target: "customer/{id}"
    writes: fields
    diff: {fields: written}
    in_doubt: probe
    input_schema:
      type: object
      additionalProperties: false
      required: [id, fields]
      properties:
        id: {type: integer}
        fields: {type: object, additionalProperties: false, properties: {level: {type: string}}}
    output_schema: {type: object}
"""
FIELDS = "        fields: {type: object, additionalProperties: false, properties: {level: {type: string}}}\n"
BPMN = """
operations:
  - name: kyc.papers.ask
    connector: bpmn
    kind: durable
    handler: bpmn:start
    params: {process: document-request}
    side_effects: human_process
    risk: low
    summary: Ask for papers
    target: process/papers
    in_doubt: probe
    input_schema:
      type: object
      additionalProperties: false
      properties: {variables: {type: object, additionalProperties: {type: string}}}
    output_schema: {type: object}
"""
PLAIN = """
operations:
  - name: own.thing.do
    connector: %s
    handler: %s
    params: %s
    side_effects: %s
    risk: low
    summary: Do it
    target: the thing
    in_doubt: idempotent
    input_schema: {type: object, additionalProperties: false, properties: {%s}}
    output_schema: {type: object}
"""
RECORD = "required: [key, value], properties: {key: {type: string}, value: {type: object}}"


def plain(handler: str, params: str, effect: str, given: str = "") -> str:
    return PLAIN % (handler.partition(":")[0], handler, params, effect, given)


def other(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new)


# What each call gives, and another declaration of the same name: one that does something else.
CASES: dict[str, tuple[str, str, str, Callable[[str], str]]] = {
    "servicenow": (
        SERVICENOW,
        "desk.ticket.set",
        f'{{sys_id: {ID}, fields: {{priority: "1"}}}}',
        lambda text: text.replace("{fields: written}", "{fields: written, appended: [priority]}"),
    ),
    "sql": (
        SQL,
        "crm.customer.set",
        "{id: 7, fields: {level: gold}}",
        lambda text: (
            text.replace("sql:update", "sql:delete")
            .replace("    writes: fields\n    diff: {fields: written}\n", "")
            .replace("required: [id, fields]", "required: [id]")
            .replace(FIELDS, "")
        ),
    ),
    "bpmn": (
        BPMN,
        "kyc.papers.ask",
        "{variables: {client: Acme}}",
        lambda text: (
            text.replace("bpmn:start", "bpmn:correlate").replace("    kind: durable\n", "")
            .replace("{process: document-request}", "{message: papers, business_key: x}")
        ),
    ),
    "http": (
        plain("http:send", "{method: GET, url: 'ECHO/first', expect_status: [200]}", "external_call"),
        "own.thing.do", "{}", other("/first", "/second"),
    ),
    "slack": (
        plain("slack:post", "{channel: C0INC, text: first}", "external_call"),
        "own.thing.do", "{}", other("text: first", "text: second"),
    ),
    "records": (
        plain("records:put", "{collection: first}", "internal_db").replace("properties: {}", RECORD),
        "own.thing.do", "{key: k, value: {a: 1}}", other("first", "second"),
    ),
    "transform": (
        plain("transform:apply", "{value: first}", "none"), "own.thing.do", "{}", other("first", "second"),
    ),
    "model": (
        plain("model:complete", "{model: first, prompt: Say.}", "none"), "own.thing.do", "{}", other("first", "second"),
    ),
}  # fmt: skip
RESULTS: dict[str, Callable[[Any], bool]] = {
    "http": lambda result: result["json"] == {"path": "/first"},
    "records": lambda result: result == {"collection": "first", "key": "k"},
    "transform": lambda result: result == {"value": "first"},
    "model": lambda result: result["model"] == "first",
}
WORKFLOW = """
workflow: frozen
version: 1
steps:
  - {id: go, approve: {summary: Go?, approvers: {group: service-owners}}}
  - {id: act, do: %s, with: %s}
result: "${{ steps.act.output }}"
"""
POLICY = """
policy: named
version: 1
rules:
  - {id: own, match: {operation: %s}, outcome: allow, because: It is ours.}
"""


@pytest.fixture
async def crm(databases: Databases) -> Any:
    with databases.made("crm") as url:
        connection = await asyncpg.connect(url)
        await connection.execute("CREATE TABLE customers (id int PRIMARY KEY, level text)")
        await connection.execute("INSERT INTO customers VALUES (7, 'iron')")
        yield url, connection
        await connection.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "definitions" / "operations").mkdir(parents=True)
    return tmp_path / "definitions"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the path that was asked for."""
    head = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]}
    await send(head)
    await send({"type": "http.response.body", "body": json.dumps({"path": scope["path"]}).encode()})


@pytest.fixture
async def echoing() -> Any:
    async with LoopbackServer(echo) as server:
        yield server.url


async def done(office: Any, crm: Any, which: str, run_id: UUID) -> bool:
    """Tell if exactly what the run began with has happened."""
    if which in RESULTS:
        return RESULTS[which]((await office.get(f"/v1/runs/{run_id}"))["result"])
    if which == "slack":
        return [one.text for one in office.world.slack.state.messages("C0INC")] == ["first"]
    if which == "servicenow":
        return office.record("incident", ID)["priority"] == "1"
    if which == "sql":
        return await crm[1].fetchval("SELECT level FROM customers WHERE id = 7") == "gold"
    bpmn = office.world.bpmn
    auth = (bpmn.config.username, bpmn.config.password)
    async with httpx.AsyncClient(base_url=f"{bpmn.url}/engine-rest", auth=auth, trust_env=False) as client:
        (process,) = (await client.get("/process-instance")).json()
    return str(process["definitionId"]).startswith("document-request:")


@pytest.mark.req("V-4")
@pytest.mark.parametrize("later", ["changed", "removed", "broken", "the same"])
@pytest.mark.parametrize("which", [*CASES])
async def test_a_waiting_run_acts_by_the_declaration_that_it_began_with(
    office: Any, crm: Any, echoing: str, folder: Path, which: str, later: str
) -> None:
    text, name, given, changed = CASES[which]
    text = text.replace("ECHO", echoing)
    file = folder / "operations" / "own.yaml"
    file.write_text(text)
    office.insert("incident", ID, number="INC1", short_description="VPN down", priority="5")
    await restarted(office, folder, crm[0], echoing)
    await office.publish(WORKFLOW % (name, given), policy=POLICY % name)
    run_id = await office.start("frozen", {})
    await office.go_on()
    match later:
        case "changed":
            file.write_text(changed(text))
        case "removed":
            file.unlink()
        case "broken":
            another = CASES["sql" if which != "sql" else "bpmn"]
            file.write_text(another[0].replace(another[1], name))
    await restarted(office, folder, crm[0], echoing)
    assert (await office.vote("ana.lee", "approve")).status_code in (200, 201)
    await office.go_on()
    wanted = "waiting" if which == "bpmn" else "succeeded"
    assert (await office.status(run_id), await office.error(run_id)) == (wanted, {})
    assert await done(office, crm, which, run_id)
    replayed = await office.app.faces.reader.replay(office.settings.tenant, run_id)
    assert replayed.ok, replayed


async def restarted(office: Any, folder: Path, url: str, host: str) -> None:
    """All processes anew, with these files."""
    await office.close()
    known = {**office.settings.model_dump(exclude_unset=True), "definitions_dir": folder, "sql_url": url}
    known["http_hosts"] = (AllowedHost.of(f"{host.partition('//')[2]}/private"),)
    office.settings = type(office.settings)(**known)
    await office.open()
    await definitions.prepare(office.app.faces)


@pytest.mark.req("V-4")
async def test_two_workers_with_different_folders_do_the_same_thing(
    office: Any, crm: Any, echoing: str, folder: Path, tmp_path: Path
) -> None:
    text, name, given, changed = CASES["http"]
    text = text.replace("ECHO", echoing)
    folders = {"changed": changed(text), "empty": None}
    for where, content in folders.items():
        (tmp_path / where / "operations").mkdir(parents=True)
        if content is not None:
            (tmp_path / where / "operations" / "own.yaml").write_text(content)
    (folder / "operations" / "own.yaml").write_text(text)
    await restarted(office, folder, crm[0], echoing)
    await office.publish(WORKFLOW.replace("frozen", "pair") % (name, given), policy=POLICY % name)
    runs = []
    for where in folders:
        runs.append(await office.start("pair", {}))
        await office.go_on()
        await restarted(office, tmp_path / where, crm[0], echoing)
        assert (await office.vote("ana.lee", "approve")).status_code in (200, 201)
        await office.go_on()
    results = [(await office.get(f"/v1/runs/{run}"))["result"]["json"] for run in runs]
    assert results == [{"path": "/first"}, {"path": "/first"}]
