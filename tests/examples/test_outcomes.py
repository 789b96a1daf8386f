"""Ends of actions, as card, receipt, run and evidence show them: a yes is compared, and lists end loudly."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from approvals.slack.cards import render
from sandbox.servicenow_access import FieldRule

ROOT = Path(__file__).resolve().parents[2]
ID = "feed0000000000000000000000000001"
PRIORITY = """
workflow: priority
version: 1
steps:
  - id: set
    do: servicenow.incident.update
    with: {sys_id: "${{ trigger.sys_id }}", fields: {priority: "1"}}
"""
BRANCH = (
    PRIORITY.replace("workflow: priority", "workflow: branch")
    + """
    on_failure:
      - {id: note, do: transform.data.apply, with: {value: "${{ error.message }}"}, set: {why: "${{ error.code }}"}}
"""
).replace("steps:", "channels: {why: {}}\nsteps:")
ASKED = """
policy: asked
version: 1
rules:
  - id: writes
    match: {operation: servicenow.incident.update}
    outcome: needs_approval
    approvers: [{group: service-owners, of: 1}]
    because: Somebody looks at it.
  - {id: rest, match: {connector: transform}, outcome: allow, because: Inside.}
"""


async def approved(office: Any, text: str, name: str) -> Any:
    """The run of an approved priority, from 5 to 1, whatever the instance makes of it."""
    office.insert("incident", ID, number="INC1", short_description="VPN down", priority="5", impact="3", urgency="3")
    await office.publish(text, policy=ASKED)
    run_id = await office.start(name, {"sys_id": ID})
    await office.go_on()
    question = await office.question()
    assert (await office.vote("ana.lee", "approve")).status_code in (200, 201)
    await office.go_on()
    return run_id, (await office.get(f"/v1/approvals/{question.id}"))


def protect(office: Any, *fields: str, operation: str = "write") -> None:
    office.world.servicenow.access.fields += tuple(FieldRule("incident", name, operation) for name in fields)


async def test_an_instance_that_says_yes_and_keeps_the_old_value_is_not_believed(office: Any) -> None:
    protect(office, "priority")
    run_id, question = await approved(office, PRIORITY, "priority")
    assert office.record("incident", ID)["priority"] == "5"
    assert await office.status(run_id) == "failed_terminal"
    error = await office.error(run_id)
    assert (error["class"], error["code"], error["sent"]) == ("consistency", "altered", True)
    told = "priority: asked '1', found '5'"
    assert told in error["message"]
    assert (question["state"], told in question["detail"]) == ("altered", True)
    (receipt,) = await office.books.receipts(run=run_id)
    assert receipt.status == "succeeded"
    shown = (await office.get(f"/v1/runs/{run_id}/receipts"))["items"][0]
    assert shown["error"]["code"] == "altered"
    card = render(await office.app.faces.voting.view(office.settings.tenant, UUID(question["approval_id"])))
    assert "Done, but altered" in card.text
    assert "found" in str(card.blocks)
    verified = await office.verified(run_id)
    assert any(row.check == "altered effects" and "priority" in row.detail for row in verified.rows)


async def test_a_retry_of_the_run_does_not_do_it_again(office: Any) -> None:
    protect(office, "priority")
    run_id, _ = await approved(office, PRIORITY, "priority")
    before = len(office.world.servicenow.state.effects)
    answer = await office.http("POST", f"/v1/runs/{run_id}/retry", json={"reason": "again"})
    assert answer.status_code == 200, answer.text
    office.world.servicenow.access.fields = ()
    await office.go_on()
    assert await office.status(run_id) == "failed_terminal"
    assert (await office.error(run_id))["code"] == "altered"
    assert len(office.world.servicenow.state.effects) == before


async def test_a_branch_takes_it(office: Any) -> None:
    protect(office, "priority")
    run_id, question = await approved(office, BRANCH, "branch")
    assert await office.status(run_id) == "succeeded"
    assert await office.channels(run_id) == {"why": "altered"}
    assert question["state"] == "altered"


async def test_a_field_that_nobody_may_read_is_said_to_be_unreadable(office: Any) -> None:
    protect(office, "priority", operation="read")
    run_id, question = await approved(office, PRIORITY, "priority")
    assert office.record("incident", ID)["priority"] == "1"
    assert await office.status(run_id) == "succeeded"
    assert question["state"] == "applied"
    assert "priority" in question["detail"]
    assert "Not readable" in question["detail"]


LEAVER = """
workflow: leaver
version: 1
steps:
  - {id: rights, do: servicenow.record.query, with: {table: u_right, query: "user=cara", fields: [sys_id]}}
  - foreach: ${{ steps.rights.output.records }}
    as: right
    steps:
      - id: revoke
        do: servicenow.record.update
        with: {table: u_right, sys_id: "${{ right.sys_id }}", fields: {active: "false"}}
result: {truncated: "${{ steps.rights.output.truncated }}"}
"""
ALLOWED = """
policy: allowed
version: 1
rules: [{id: all, match: {operation: "*"}, outcome: allow, because: It is a test.}]
"""


async def test_a_leaver_keeps_none_of_120_rights(office: Any) -> None:
    office.world.servicenow.list_max = 50
    for number in range(120):
        office.insert("u_right", f"{number * 7919 % 1009:032x}", user="cara", active="true")
    await office.publish(LEAVER, policy=ALLOWED)
    run_id = await office.start("leaver", {})
    await office.go_on()
    assert await office.status(run_id) == "succeeded"
    assert await office.result(run_id) == {"truncated": False}
    rows = office.world.servicenow.state.tables["u_right"].values()
    assert [row for row in rows if row["active"] != "false"] == []


async def test_run_show_tells_the_whole_run_and_a_list_says_that_there_is_more(office: Any, cli: Any) -> None:
    for number in range(301):
        office.insert("u_right", f"{number:032x}", user="cara", active="true")
    await office.publish(LEAVER, policy=ALLOWED)
    run_id = await office.start("leaver", {})
    await office.go_on()
    code, shown, _ = await cli("run", "show", str(run_id), "--json")
    assert code == 0
    told = json.loads(shown)
    receipts = await office.books.receipts(run=run_id)
    assert (len(told["receipts"]), len(told["steps"])) == (301, 302) == (len(receipts), 302)
    types = [line["type"] for line in told["timeline"]]
    assert len(types) > 1000
    assert types[-1] == "run.closed"
    assert [line["seq"] for line in told["timeline"]] == [*range(len(types))]
    await office.start("leaver", {})
    code, shown, said = await cli("run", "list", "--json", "--limit", "1")
    assert (code, len(json.loads(shown)), "truncated: true; 1 are shown" in said) == (0, 1, True)
    code, shown, said = await cli("run", "list", "--json", "--limit", "2")
    assert (code, len(json.loads(shown)), said) == (0, 2, "")


@pytest.fixture
def cli(office: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A command of an operator: its exit code, and what it says on both streams."""
    settings = office.settings
    monkeypatch.setenv("COUNTERSEAL_DATABASE_URL", settings.database_url.get_secret_value())
    monkeypatch.setenv("COUNTERSEAL_HOME", str(settings.home))
    monkeypatch.setenv("COUNTERSEAL_AUTO_MIGRATE", "false")

    async def run(*words: str) -> tuple[int, str, str]:
        program = "import sys; from app.cli import main; sys.argv = ['counterseal', *sys.argv[1:]]; main()"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
        )
        out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()

    return run


async def test_a_hidden_field_is_not_readable_on_the_card_and_not_empty(office: Any) -> None:
    protect(office, "priority", operation="read")
    office.insert("incident", ID, number="INC1", short_description="VPN down", priority="5")
    await office.publish(PRIORITY, policy=ASKED)
    await office.start("priority", {"sys_id": ID})
    await office.go_on()
    question = await office.question()
    shown = await office.get(f"/v1/approvals/{question.id}")
    (change,) = shown["card"]["changes"]
    assert {"field": "priority", "before": None, "after": "1", "unreadable": True}.items() <= change.items()
    blocks = str(render(await office.app.faces.voting.view(office.settings.tenant, question.id)).blocks)
    assert "_not readable_ → " in blocks
    assert "not set" not in blocks
