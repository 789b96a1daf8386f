"""Evidence that contradicts itself: every face says of which run, why, and what to do; the doctor fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from app.access import Role
from app.cli.outcome import Exit
from tests.support.tampering import Tampering

POLICY = """
policy: tests
version: 1
rules:
  - {id: dangers, match: {operation: probe.danger.apply}, outcome: needs_approval, approvers: [{group: leads}]}
"""
ASKING = """
workflow: asking
version: 1
reference: ${{ trigger.number }}
steps:
  - {id: danger, do: probe.danger.apply, with: {name: "${{ trigger.number }}"}}
"""
PEOPLE = "directory: tests\npeople: [{id: ann, name: Ann}, {id: bob, name: Bob}]\ngroups: {leads: [ann, bob]}\n"
Way = Callable[[Tampering], Coroutine[Any, Any, None]]
# When it is done: an alteration, one that takes it back if there is one, and the check.
ALTERED: dict[str, tuple[Way, Way | None, str]] = {
    "answer": (lambda tamper: tamper.rejected(), None, "approvals"),
    "vote": (lambda tamper: tamper.vote_reason("I was made to"), lambda tamper: tamper.vote_reason(""), "approvals"),
    "target": (
        lambda tamper: tamper.receipt_target("thing/harmless"),
        lambda tamper: tamper.receipt_target("thing/INC1"),
        "book",
    ),
}


@pytest.fixture
def documents(tmp_path: Path) -> dict[str, str]:
    texts = {"asking": ASKING, "policy": POLICY, "people": PEOPLE}
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return {name: str(tmp_path / f"{name}.yaml") for name in texts}


@pytest.mark.parametrize("what", ALTERED)
def test_the_doctor_and_the_run_say_that_it_is_not_signed(
    command: Any, documents: Any, outside_world: Any, work_off: Any, database_url: str, tmp_path: Path,
    what: str,
) -> None:  # fmt: skip
    alter, back, check = ALTERED[what]
    tampering = Tampering(database_url)
    command("workflow", "publish", documents["asking"])
    command("policy", "publish", documents["policy"])
    command("directory", "publish", documents["people"])
    assert "evidence" in {item["what"] for item in command.json("doctor") if item["state"] == "ok"}
    run_id = command.json("run", "start", "asking", "--input", '{"number": "INC1"}')["run_id"]
    work_off(outside_world)
    (waiting,) = command.json("approval", "list")
    command("approval", "approve", waiting["approval_id"], "--as", "ann")
    # The effect is done, the bundle not yet: the worker and the dispatcher are two processes.
    work_off_worker_only(outside_world)
    asyncio.run(alter(tampering))
    work_off(outside_world)
    assert command.json("run", "list")[0]["status"] == "succeeded"
    assert not list(tmp_path.rglob("*.zip"))
    (found,) = [item for item in command.json("doctor", exit_code=Exit.FAILED) if item["what"] == "evidence"]
    assert found["state"] == "broken"
    assert all(words in found["detail"] for words in (run_id, check, f"evidence again {run_id}"))
    assert run_id in command("doctor", exit_code=Exit.FAILED)
    if check == "book":
        command("run", "show", run_id, exit_code=Exit.CONFLICT)
        assert "(action.intended) commits to other values" in command.said
    else:
        assert check in command.json("run", "show", run_id)["run"]["evidence_problem"]
        assert "NOT STORED" in command("run", "show", run_id)
    command("evidence", "get", run_id, "-o", str(tmp_path), exit_code=Exit.CONFLICT)
    assert f"evidence again {run_id}" in command.said
    if back is not None:
        asyncio.run(back(tampering))
        command("evidence", "again", run_id)
        command("evidence", "again", run_id, exit_code=Exit.CONFLICT)
        work_off(outside_world)
        command.json("doctor")
        bundle = command.json("evidence", "get", run_id, "-o", str(tmp_path))["path"]
        command("evidence", "trust")
        assert command.json("evidence", "verify", bundle)["ok"] is True
        command("evidence", "again", run_id, exit_code=Exit.CONFLICT)


def work_off_worker_only(outside: Any) -> None:
    from app.settings import load_settings
    from app.wiring import build
    from connectors.port import Connectors

    async def work() -> None:
        async with build(load_settings(), connectors=Connectors({"probe": outside})) as app:
            await app.worker().work_off()

    asyncio.run(work())


async def test_over_http_altered_lines_are_shown_to_auditors_alone_as_they_are(installation: Any) -> None:
    run_id = await installation.start("simple")
    await installation.app.worker().work_off()
    url = installation.settings.database_url.get_secret_value()
    client = await installation.client(Role.AUDITOR)
    before = (await client.get(f"/v1/runs/{run_id}/audit")).json()["items"]
    await Tampering(url).broken_line(3)
    for path in ("", "/timeline", "/waits", "/steps", "/receipts", "/checkpoints", "/checkpoints/diff?from=0&to=1"):
        answer = await client.get(f"/v1/runs/{run_id}{path}")
        assert (answer.status_code, answer.json()["code"]) == (409, "consistency"), path
        assert "The audit chain is broken: line 4: it is not JSON" in answer.json()["detail"]
    after = (await client.get(f"/v1/runs/{run_id}/audit")).json()["items"]
    assert [line for line in after if line not in before] == [after[3]]
    assert (after[3]["type"], after[3]["line"][:4]) == ("unreadable", "\\xff")


async def test_over_http_a_refused_bundle_is_a_conflict_with_its_reason(installation: Any) -> None:
    run_id = await installation.start("simple")
    await installation.app.worker().work_off()
    url = installation.settings.database_url.get_secret_value()
    await Tampering(url).external_id("e99")
    await installation.app.dispatcher().work_off()
    client = await installation.client(Role.AUDITOR)
    answer = await client.get(f"/v1/runs/{run_id}/evidence")
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (409, "not_signed")
    assert "book: line 5 (action.succeeded)" in problem["detail"]
    assert str(run_id) in problem["remedy"]
    for path in ("", "/steps", "/receipts", "/checkpoints", "/checkpoints/0", "/mutations", "/graph"):
        answer = await client.get(f"/v1/runs/{run_id}{path}")
        assert (answer.status_code, answer.json()["code"]) == (409, "consistency"), path
        assert "line 5 (action.succeeded) commits to other values" in answer.json()["detail"]
    (event,) = await installation.tenant_events("evidence.failed")
    assert event["data"] == {"run": str(run_id), "checks": ["book"]}
    figures = (await (await installation.client(Role.ADMIN)).get("/metrics")).text
    assert 'counterseal_commands{kind="bundle",status="failed"} 1.0' in figures


def test_there_is_nothing_to_write_again_where_nothing_failed(command: Any) -> None:
    command("evidence", "again", "01890000-0000-7000-8000-000000000002", exit_code=Exit.CONFLICT)
    assert "no run" in command.said
