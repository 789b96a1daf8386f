"""Changing the policies in force, over HTTP and on the command line: told before it is done, and recorded."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from app.access import Role
from app.cli.outcome import Exit
from evidence.chain import Actor
from runtime.requests import publishing
from tests.support.app_stage import PEOPLE

NO = "policy: freeze\nversion: 1\nrules:\n  - {id: no, match: {connector: probe}, outcome: deny, because: Frozen.}\n"


async def in_force(client: Any) -> list[str]:
    found = (await client.get("/v1/policies")).json()["items"]
    return sorted(f"{one['name']}@{one['version']}" for one in found if one["active"])


@pytest.mark.req("Q-16")
async def test_a_change_over_http_is_told_staged_made_and_taken_back(installation: Any) -> None:
    run_id, approval, _ = await installation.asked()
    client = await installation.client(Role.ADMIN, subject="ann")
    told = (await client.post("/v1/policies?dry_run=true", json={"source": NO})).json()
    assert (told["dry_run"], told["changed"]) == (True, True)
    assert told["consequences"]["rules"] == [{"rule": "freeze/no", "what": "is new"}]
    (question,) = told["consequences"]["questions"]
    assert (question["approval"], question["run"], question["outcome"]) == (str(approval), str(run_id), "deny")
    assert {step["after"] for step in told["consequences"]["steps"]} == {"always denied"}
    assert len((await client.get("/v1/policies")).json()["items"]) == 1, "a dry run stores nothing"
    staged = (await client.post("/v1/policies?stage=true", json={"source": NO})).json()
    assert (staged["staged"], staged["consequences"], await in_force(client)) == (True, None, ["tests@1"])
    done = (await client.post("/v1/policies/freeze/1/activate")).json()
    assert done["consequences"] == told["consequences"]
    assert await in_force(client) == ["freeze@1", "tests@1"]
    back = (await client.post("/v1/policies/freeze/retire")).json()
    assert (back["changed"], back["retired"], await in_force(client)) == (True, True, ["tests@1"])
    assert (await client.post("/v1/policies/freeze/retire")).json()["changed"] is False
    missing = await client.post("/v1/policies/freese/retire")
    assert (missing.status_code, "freeze" in missing.text) == (404, True)
    (event,) = await installation.tenant_events("policy.retired")
    assert event["data"]["consequences"]["rules"] == [{"rule": "freeze/no", "what": "falls away"}]


async def test_nobody_else_changes_what_is_in_force(installation: Any) -> None:
    for role in set(Role) - {Role.ADMIN, Role.AGENT}:
        client = await installation.client(role, subject=f"t-{role}")
        for path in ("freeze/retire", "tests/retire", "tests/1/activate"):
            assert (await client.post(f"/v1/policies/{path}")).status_code == 403, (role, path)


async def test_with_policy_approvers_taking_one_away_takes_two(installation: Any) -> None:
    faces = installation.app.faces
    async with faces.database.transaction("default") as connection:
        people = PEOPLE + "  policy_approvers: [ann, bob]\n"
        await publishing.publish_directory(connection, "default", people, "p.yaml", Actor("person", "ann"))
    ann, bob = [await installation.client(Role.ADMIN, subject=name) for name in ("ann", "bob")]
    assert (await ann.post("/v1/policies/tests/retire?dry_run=true")).json()["waits"] is False
    for _ in range(2):
        assert (await ann.post("/v1/policies/tests/retire")).json()["waits"] is True
    assert await in_force(ann) == ["tests@1"]
    # A change in between ends the proposal.
    for client in (ann, bob):
        await client.post("/v1/policies", json={"source": NO})
    assert (await bob.post("/v1/policies/tests/retire")).json()["waits"] is True
    assert (await ann.post("/v1/policies/tests/retire")).json()["changed"] is True
    assert await in_force(ann) == ["freeze@1"]
    assert [event["data"]["by"] for event in await installation.tenant_events("policy.retired")] == ["bob"]


def test_the_command_line_tells_before_it_acts(command: Any, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    shared = sys.modules[type(request.getfixturevalue("outside_world")).__module__]
    simple = shared.WORKFLOWS.split("---")[0]
    files = {"simple": simple, "policy": shared.POLICY, "freeze": NO, "older": NO.replace("version: 1", "version: 2")}
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    at = {name: str(tmp_path / f"{name}.yaml") for name in files}
    command("policy", "publish", at["policy"])
    said = command("workflow", "publish", at["simple"])
    assert "first (probe.effect.apply): always allowed" in said
    told = command("policy", "publish", at["freeze"], "--dry-run")
    assert "rule freeze/no is new" in told
    assert "step first of simple@1 (probe.effect.apply): always allowed → always denied" in told
    assert "nothing was done" in told
    assert len(command.json("policy", "list")) == 1
    command("policy", "publish", at["freeze"], "--stage")
    assert "is active" in command("policy", "activate", "freeze@1")
    assert "always denied" in command("workflow", "check", at["simple"], "--in-force")
    both = command("workflow", "check", at["simple"], "--policy", at["policy"], "--policy", at["freeze"])
    assert "→ always denied (tests/effects, freeze/no)" in both or "→ always denied (freeze/no, tests/effects)" in both
    command("policy", "publish", at["older"])
    assert "it is a rollback" in command("policy", "activate", "freeze@1")
    assert "rule freeze/no falls away" in command("policy", "retire", "freeze")
    assert "was not in force" in command("policy", "retire", "freeze")
    command("policy", "retire", "nothing", exit_code=Exit.CONFLICT)


TRUSTING = """
policy: trusting
version: 1
rules:
  - id: own
    match: {connector: probe}
    when: origin.name.all(o, 'field:http.request.send#/status' in o)
    outcome: allow
"""


@pytest.mark.req("P-14")
def test_publishing_warns_of_trust_in_what_anyone_may_write(command: Any, tmp_path: Path) -> None:
    path = tmp_path / "trusting.yaml"
    path.write_text(TRUSTING)
    (checked,) = command.json("policy", "check", str(path))
    (words,) = checked["warnings"]
    assert "rule own lets an action out by field:http.request.send#/status" in words
    for more in (("--dry-run",), ("--stage",), ()):
        (told,) = command.json("policy", "publish", str(path), *more)
        assert told["warnings"] == [words]
    path.write_text(TRUSTING.replace("version: 1", "version: 2"))
    command("policy", "publish", str(path))
    assert f"warning: {words}" in command.said
    command("policy", "activate", "trusting@1")
    assert "warning: trusting@1:" in command.said


@pytest.mark.req("Q-21")
def test_a_bundle_has_the_text_of_every_policy_that_judged(
    command: Any, tmp_path: Path, outside_world: Any, work_off: Any
) -> None:
    shared = sys.modules[type(outside_world).__module__]
    also = shared.POLICY.replace("policy: tests", "policy: also")
    elsewhere = NO.replace("version: 1\n", "version: 1\napplies: {workflows: [others]}\n")
    texts = {"simple": shared.WORKFLOWS.split("---")[0], "tests": shared.POLICY, "also": also, "freeze": elsewhere}
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    command("workflow", "publish", str(tmp_path / "simple.yaml"))
    for name in ("tests", "also", "freeze"):
        command("policy", "publish", str(tmp_path / f"{name}.yaml"))
    run_id = command.json("run", "start", "simple", "--input", '{"number": "INC9"}')["run_id"]
    work_off(outside_world)
    bundle = command.json("evidence", "get", run_id, "-o", str(tmp_path))["path"]
    command("evidence", "trust")
    assert command.json("evidence", "verify", bundle)["ok"] is True
    with zipfile.ZipFile(bundle) as archive:
        found = {
            name: archive.read(name).decode()
            for name in archive.namelist()
            if name.endswith(".yaml") and "policy/" in name
        }
    assert {name.rpartition("/")[2]: text for name, text in found.items()} == {
        "also-1.yaml": also,
        "tests-1.yaml": shared.POLICY,
    }
    assert command.json("run", "replay", run_id)["difference"] is None
