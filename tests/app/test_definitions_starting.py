"""Starting a version that is retired, unknown or unreadable: told with what there is; the others start all the same."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from app.access import Role
from app.cli import main
from tests.support.asking import owning

EXTRA = "workflow: extra\nversion: 1\nreference: x\nsteps:\n  - {id: a, do: probe.effect.apply, with: {name: x}}\n"


async def _publish(client: Any, number: int) -> None:
    answer = await client.post("/v1/workflows", json={"source": EXTRA.replace("version: 1", f"version: {number}")})
    assert answer.status_code == 201


async def test_what_cannot_be_started_is_told_with_what_can(installation: Any) -> None:
    client = await installation.client(Role.ADMIN)
    for number in (1, 2, 3):
        await _publish(client, number)
    await client.post("/v1/workflows/extra/3/retire")
    wanted = [("extra", 3), ("extra", 9), ("extar", None)]
    answers = [await client.post("/v1/runs", json={"workflow": name, "version": version}) for name, version in wanted]
    assert [answer.status_code for answer in answers] == [409, 404, 404]
    assert [answer.json()["remedy"] for answer in answers] == [
        "New runs can have: 2, 1.",
        "Published: 3 (retired), 2, 1.",
        "Did you mean 'extra'?",
    ]
    run = (await client.post("/v1/runs", json={"workflow": "extra"})).json()["run_id"]
    assert (await client.get(f"/v1/runs/{run}")).json()["workflow_version"] == 2


@pytest.mark.req("Q-1")
async def test_a_key_finds_its_run_whatever_has_become_of_the_workflow(installation: Any) -> None:
    client = await installation.client(Role.ADMIN)
    await _publish(client, 1)
    start = {"workflow": "extra", "idempotency_key": "k1"}
    run = (await client.post("/v1/runs", json=start)).json()["run_id"]
    await client.post("/v1/workflows/extra/1/retire")
    again = await client.post("/v1/runs", json=start)
    assert (again.status_code, again.json()["run_id"], again.json()["created"]) == (200, run, False)
    assert (await client.post("/v1/runs", json=start | {"idempotency_key": "k2"})).status_code == 409
    demanding = EXTRA.replace("version: 1", "version: 2").replace("reference: x", "reference: ${{ trigger.number }}")
    assert (await client.post("/v1/workflows", json={"source": demanding})).status_code == 201
    again = await client.post("/v1/runs", json=start)
    assert (again.status_code, again.json()["run_id"]) == (200, run)
    assert (await client.post("/v1/runs", json=start | {"idempotency_key": "k2"})).status_code == 400


@pytest.mark.req("X-2")
async def test_a_workflow_that_cannot_be_read_does_not_stop_the_others(installation: Any) -> None:
    client = await installation.client(Role.ADMIN)
    await _publish(client, 1)
    async with owning(installation.engine) as connection:
        await connection.execute("UPDATE workflows SET source = 'workflow: extra' WHERE name = 'extra'")
    event = {"table": "incident", "event": "insert", "number": "INC7", "sys_id": "s7", "sys_mod_count": "0"}
    answer = await installation.webhook(event)
    assert (answer.status_code, len(answer.json()["runs"])) == (202, 1)


def test_a_schema_is_a_command(
    clean_environment: pytest.MonkeyPatch, restored_logging: None, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, code in ((["schema", "policy"], 0), (["schema", "nothing"], 4)):
        clean_environment.setattr(sys, "argv", ["counterseal", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert int(ended.value.code or 0) == code
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        if code == 0:
            assert json.loads(printed.out)["$id"] == "urn:counterseal:schema:policy"
