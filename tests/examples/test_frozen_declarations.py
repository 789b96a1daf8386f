"""A run keeps the declarations that it began with, whatever the files of the process say later (V-4)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

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
}  # fmt: skip
WORKFLOW = """
workflow: frozen
version: 1
steps:
  - {id: go, approve: {summary: Go?, approvers: {group: service-owners}}}
  - {id: act, do: %s, with: %s}
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


async def done(office: Any, crm: Any, which: str) -> bool:
    """Tell if exactly what the run began with has happened."""
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
    office: Any, crm: Any, folder: Path, which: str, later: str
) -> None:
    text, name, given, changed = CASES[which]
    file = folder / "operations" / "own.yaml"
    file.write_text(text)
    office.insert("incident", ID, number="INC1", short_description="VPN down", priority="5")
    await restarted(office, folder, crm[0])
    await office.publish(WORKFLOW % (name, given), policy=POLICY % name)
    run_id = await office.start("frozen", {})
    await office.go_on()
    match later:
        case "changed":
            file.write_text(changed(text))
        case "removed":
            file.unlink()
        case "broken":
            other = CASES["sql" if which != "sql" else "bpmn"]
            file.write_text(other[0].replace(other[1], name))
    await restarted(office, folder, crm[0])
    assert (await office.vote("ana.lee", "approve")).status_code in (200, 201)
    await office.go_on()
    wanted = "waiting" if which == "bpmn" else "succeeded"
    assert (await office.status(run_id), await office.error(run_id)) == (wanted, {})
    assert await done(office, crm, which)
    replayed = await office.app.faces.reader.replay(office.settings.tenant, run_id)
    assert replayed.ok, replayed


async def restarted(office: Any, folder: Path, url: str) -> None:
    """All processes anew, with these files."""
    await office.close()
    known = {**office.settings.model_dump(exclude_unset=True), "definitions_dir": folder, "sql_url": url}
    office.settings = type(office.settings)(**known)
    await office.open()
