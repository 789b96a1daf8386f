"""Pausing on the command line and over HTTP, and where a pause is seen (promise 11)."""

from __future__ import annotations

from typing import Any

import pytest

from app.access import Role


async def test_a_pause_over_http_is_seen_everywhere_and_nothing_goes_out(installation: Any) -> None:
    run_id, approval, _ = await installation.asked()
    client = await installation.client(Role.OPERATOR)
    assert (await client.get("/readyz")).json()["paused"] == []
    body = {"what": "connector", "name": "probe", "reason": "It misbehaves."}
    answer = await client.post("/v1/pauses", json=body)
    assert (answer.status_code, answer.json()) == (
        200,
        {"what": "connector", "name": "probe", "paused": True, "changed": True},
    )
    assert (await client.post("/v1/pauses", json=body)).json()["changed"] is False
    ready = await client.get("/readyz")
    assert (ready.status_code, ready.json()["paused"]) == (200, ["connector probe"])
    (held,) = (await client.get("/v1/pauses")).json()["items"]
    assert (held["what"], held["name"], held["by"], held["reason"]) == ("connector", "probe", "tess", "It misbehaves.")
    said = "connector probe is paused since "
    seen = (await client.get(f"/v1/approvals/{approval}")).json()["paused"]
    assert seen.startswith(said)
    assert seen.endswith("by tess: It misbehaves.")
    approver = await installation.client(Role.APPROVER, subject="ann")
    vote = await approver.post(f"/v1/approvals/{approval}/votes", json={"choice": "approve", "reason": "Fine."})
    assert vote.status_code == 200, vote.text
    await installation.work()
    assert installation.outside.effects == []
    assert [one["name"] for one in (await client.get(f"/v1/runs/{run_id}")).json()["paused"]] == ["probe"]
    assert (await client.get(f"/v1/approvals/{approval}")).json()["paused"].startswith(said)
    assert (await client.post("/v1/pauses/resume", json={"what": "connector", "name": "probe"})).json() == {
        "what": "connector",
        "name": "probe",
        "paused": False,
        "changed": True,
    }
    await installation.app.sweeper().sweep()
    await installation.work()
    assert len(installation.outside.effects) == 1
    assert (await client.get(f"/v1/runs/{run_id}")).json()["paused"] == []
    assert len(await installation.tenant_events("pause.set")) == 1


async def test_every_pause_is_told_to_who_watches_and_why_it_was_lifted_to_who_audits(installation: Any) -> None:
    await installation.publish()
    client = await installation.client(Role.OPERATOR)
    for what, name in (("connector", "probe"), ("workflow", "simple"), ("tenant", "")):
        body = {"what": what, "reason": "Calm."} | ({"name": name} if name else {})
        assert (await client.post("/v1/pauses", json=body)).status_code == 200
    assert set((await client.get("/readyz")).json()["paused"]) == {"connector probe", "workflow simple", "tenant"}
    body = {"what": "connector", "name": "probe", "reason": "It is mended."}
    assert (await client.post("/v1/pauses/resume", json=body)).status_code == 200
    (lifted,) = await installation.tenant_events("pause.lifted")
    assert lifted["data"]["reason"] == "It is mended."


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"what": "workflow", "name": "simpel", "reason": "x"}, 404, "There is no workflow"),
        ({"what": "connector", "name": "prob", "reason": "x"}, 404, "There is no connector"),
        ({"what": "run", "name": "x", "reason": "x"}, 400, "is not an id"),
        ({"what": "galaxy", "name": "x", "reason": "x"}, 422, "what"),
        ({"what": "tenant"}, 422, "reason"),
    ],
)
async def test_what_is_unknown_is_named(installation: Any, body: Any, status: int, words: str) -> None:
    client = await installation.client(Role.ADMIN)
    answer = await client.post("/v1/pauses", json=body)
    assert (answer.status_code, words in answer.text) == (status, True), answer.text


@pytest.mark.parametrize("role", [Role.APPROVER, Role.AUDITOR, Role.TRIGGER])
async def test_who_does_not_operate_pauses_nothing(installation: Any, role: Role) -> None:
    client = await installation.client(role)
    for path in ("/v1/pauses", "/v1/pauses/resume"):
        assert (await client.post(path, json={"what": "tenant", "reason": "x"})).status_code == 403


async def test_another_tenant_sees_no_pause_and_makes_none_here(installation: Any) -> None:
    await installation.publish("other")
    stranger = await installation.client(Role.OPERATOR, tenant="other")
    assert (await stranger.post("/v1/pauses", json={"what": "tenant", "reason": "x"})).status_code == 200
    client = await installation.client(Role.OPERATOR)
    assert (await client.get("/v1/pauses")).json()["items"] == []
    assert (await client.post("/v1/pauses", json={"what": "tenant", "name": "other", "reason": "x"})).status_code == 404


@pytest.fixture
def published(command: Any, tmp_path: Any, outside_world: Any) -> Any:
    import sys

    shared = sys.modules[type(outside_world).__module__]
    for name in ("WORKFLOWS", "POLICY", "PEOPLE"):
        (tmp_path / f"{name}.yaml").write_text(getattr(shared, name).split("---")[0])
    command("directory", "publish", str(tmp_path / "PEOPLE.yaml"))
    command("workflow", "publish", str(tmp_path / "WORKFLOWS.yaml"))
    command("policy", "publish", str(tmp_path / "POLICY.yaml"))
    return command


def test_on_the_command_line(published: Any, outside_world: Any, work_off: Any) -> None:
    command = published
    assert command.json("pause") == []
    assert "is paused: nothing more goes out" in command("pause", "workflow", "simple", "--reason", "An emergency.")
    assert "was paused already" in command("pause", "workflow", "simple", "--reason", "Another.")
    run_id = command.json("run", "start", "simple", "--input", '{"number": "INC1"}')["run_id"]
    work_off(outside_world)
    assert outside_world.effects == []
    shown = command("run", "show", run_id)
    assert "workflow simple: An emergency." in shown
    assert "pause" in shown
    (held,) = command.json("pause")
    assert (held["what"], held["name"], held["reason"]) == ("workflow", "simple", "An emergency.")
    checks = {check["what"]: check for check in command.json("doctor")}
    assert "counterseal resume workflow simple" in checks["paused"]["detail"]
    assert "goes on" in command("resume", "workflow", "simple")
    assert "was not paused" in command("resume", "workflow", "simple")
    command("pause", "workflow", exit_code=2)
    command("pause", "galaxy", exit_code=2)
    command("pause", "tenant", exit_code=2)
    command("pause", "workflow", "simpel", "--reason", "x", exit_code=4)
