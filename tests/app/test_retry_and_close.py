"""Going on with failed runs, and runs that wait for more steps: over HTTP and on the command line, the same answers."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from app.access import Role
from app.cli.outcome import Exit
from connectors.port import Refused

NOBODY = "00000000-0000-0000-0000-000000000007"
TWO = """
workflow: two
version: 1
reference: ${{ trigger.number }}
steps:
  - {id: one, do: probe.effect.apply, with: {name: one}}
  - {id: two, do: probe.effect.apply, with: {name: two}}
"""
ABOVE = """
workflow: above
version: 1
reference: ${{ trigger.number }}
steps:
  - {id: c, run: two, with: {number: "${{ trigger.number }}-in"}}
"""
MORE = {"steps": [{"id": "more", "do": "probe.effect.apply", "with": {"name": "more"}}]}


def soon() -> str:
    return (datetime.now(UTC) + timedelta(hours=1)).isoformat()


async def post(client: Any, run_id: Any, verb: str, **body: Any) -> tuple[int, dict[str, Any]]:
    answer = await client.post(f"/v1/runs/{run_id}/{verb}", json=body)
    return answer.status_code, answer.json()


@pytest.fixture
async def two(installation: Any) -> Any:
    await installation.add(TWO)
    await installation.add(ABOVE)
    return installation


async def failed(two: Any, workflow: str = "two") -> UUID:
    """A run whose second step was refused, with its evidence."""
    two.outside.script["two"] = [Refused("no", "not today")]
    run_id: UUID = await two.parked(workflow)
    await two.work()
    assert await two.status(run_id) == "failed_terminal"
    return run_id


def names(outside: Any) -> list[str]:
    return [call.input["name"] for call in outside.effects]


@pytest.mark.req("X-18", "U-8")
async def test_a_failed_run_goes_on_over_http_once(two: Any) -> None:
    run_id, client = await failed(two), await two.client(Role.OPERATOR)
    status, answer = await post(client, run_id, "retry", reason="It is mended.")
    assert (status, answer) == (200, {"run_id": str(run_id), "status": "running"})
    status, again = await post(client, run_id, "retry", reason="It is mended.")
    assert (status, again["code"]) == (409, "consistency")
    assert "The run is running" in again["detail"]
    assert "cancel it" in again["remedy"]
    await two.work()
    shown = (await client.get(f"/v1/runs/{run_id}")).json()
    assert (shown["status"], names(two.outside)) == ("succeeded", ["one", "two"])
    status, done = await post(client, run_id, "retry", reason="Once more.")
    assert (status, done["code"]) == (409, "consistency")
    assert "The run is succeeded; only one that has failed can be retried." in done["detail"]
    assert done["remedy"] == "Start another run."


@pytest.mark.req("X-18", "U-8")
async def test_a_retry_is_refused_with_its_reason_and_remedy(two: Any) -> None:
    two.outside.script["two"] = [Refused("no", "not today")]
    run_id, client = await two.start("two"), await two.client(Role.OPERATOR)
    await two.app.worker().work_off()
    status, early = await post(client, run_id, "retry", reason="Now.")
    assert (status, early["remedy"]) == (409, "Try again soon.")
    assert "evidence" in early["detail"]
    await two.work()
    for body in ({}, {"reason": ""}, {"reason": "  "}, {"reason": "a" * 2001}, {"reason": "a\x00"}, {"reason": 1}):
        status, wrong = await post(client, run_id, "retry", **body)
        assert (status in (400, 422), "reason" in str(wrong)) == (True, True), wrong
    trigger = await two.client(Role.TRIGGER, Role.APPROVER, Role.AUDITOR)
    assert (await post(trigger, run_id, "retry", reason="Now."))[0] == 403
    elsewhere = await two.client(Role.OPERATOR, tenant="other")
    for who, unknown in ((client, NOBODY), (elsewhere, run_id)):
        status, missing = await post(who, unknown, "retry", reason="Now.")
        assert (status, "There is no run" in missing["detail"]) == (404, True), missing
    assert await two.status(run_id) == "failed_terminal"


@pytest.mark.req("X-18", "V-11")
async def test_a_run_within_is_gone_on_with_by_the_run_above(two: Any) -> None:
    client = await two.client(Role.OPERATOR)
    run_id = await failed(two, "above")
    (within,) = [run.id for run in await two.books.runs() if run.id != run_id]
    status, answer = await post(client, within, "retry", reason="Now.")
    assert (status, str(run_id) in answer["detail"]) == (409, True)
    assert "Retry that one" in answer["remedy"]
    assert (await post(client, run_id, "retry", reason="Now."))[0] == 200
    await two.work()
    assert await two.status(run_id) == "succeeded"


@pytest.mark.req("V-6", "U-8")
async def test_an_open_run_waits_for_more_over_http_until_it_is_closed(two: Any) -> None:
    starter, client = await two.client(Role.TRIGGER), await two.client(Role.OPERATOR)
    body = {"workflow": "two", "input": {"number": "O1"}, "open": True, "until": soon(), "idempotency_key": "o1"}
    run_id = (await starter.post("/v1/runs", json=body)).json()["run_id"]
    again = await starter.post("/v1/runs", json=body)
    assert (again.status_code, again.json()["run_id"]) == (200, run_id)
    await two.work()
    shown = await client.get(f"/v1/runs/{run_id}")
    assert (shown.json()["status"], shown.json()["waiting_for"]) == ("waiting", "more steps")
    status, refused = await post(client, run_id, "retry", reason="Now.")
    assert (status, "The run is waiting" in refused["detail"]) == (409, True)
    extended = await client.post(f"/v1/runs/{run_id}/steps", json=MORE, headers={"If-Match": shown.headers["etag"]})
    assert extended.status_code == 201, extended.text
    await two.work()
    assert (await post(starter, run_id, "close"))[0] == 403
    assert (await post(client, NOBODY, "close"))[0] == 404
    assert (await post(client, run_id, "close", reason="a" * 2001))[0] == 422
    status, closed = await post(client, run_id, "close", reason="Nothing more.")
    assert (status, closed) == (200, {"run_id": run_id, "status": "succeeded"})
    status, twice = await post(client, run_id, "close")
    assert (status, twice["code"]) == (409, "consistency")
    assert (twice["detail"], twice["remedy"]) == ("The run is succeeded: it waits for no more steps.", "It has ended.")
    assert names(two.outside) == ["one", "two", "more"]
    status, never = await post(client, await two.start("simple"), "close")
    assert (status, "It was not started open" in never["remedy"]) == (409, True)


@pytest.mark.req("V-6")
@pytest.mark.parametrize(
    ("more", "where"),
    [
        ({"open": True, "until": "tomorrow"}, "until"),
        ({"open": True, "until": "2020-01-01T00:00:00Z"}, "until"),
        ({"open": True, "until": "9999-12-31T23:59:59Z"}, "until"),
        ({"open": True, "until": "0001-01-01T00:00:00+14:00"}, "until"),
        ({"until": "2099-01-01T00:00:00Z"}, "until"),
        ({"open": "perhaps"}, "open"),
    ],
)
async def test_a_start_that_cannot_be_open_says_where(two: Any, more: dict[str, Any], where: str) -> None:
    client = await two.client(Role.TRIGGER)
    answer = await client.post("/v1/runs", json={"workflow": "two", "input": {"number": "O2"}, **more})
    assert (answer.status_code in (400, 422), where in str(answer.json())) == (True, True), answer.text


@pytest.fixture
def published(command: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """The command line of an installation with these workflows."""
    shared = sys.modules[type(request.getfixturevalue("outside_world")).__module__]
    for name, text in {"two": TWO, "above": ABOVE, "policy": shared.POLICY, "people": shared.PEOPLE}.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    command("workflow", "publish", str(tmp_path / "two.yaml"), str(tmp_path / "above.yaml"))
    command("policy", "publish", str(tmp_path / "policy.yaml"))
    command("directory", "publish", str(tmp_path / "people.yaml"))
    return command


def started(command: Any, *more: str) -> str:
    return str(command.json("run", "start", "two", "--input", json.dumps({"number": "C1"}), *more)["run_id"])


@pytest.mark.req("X-18", "U-8")
def test_a_failed_run_goes_on_on_the_command_line(published: Any, outside_world: Any, work_off: Any) -> None:
    command, run_id = published, started(published)
    outside_world.script["two"] = [Refused("no", "not today")]
    command("run", "retry", run_id, "--reason", "Now.", exit_code=Exit.CONFLICT)
    assert "The run is queued; only one that has failed can be retried." in command.said
    work_off(outside_world)
    command("run", "retry", run_id, exit_code=Exit.INPUT)
    assert "--reason" in command.said
    command("run", "retry", run_id, "--reason", " ", exit_code=Exit.INPUT)
    assert "Say why the run may go on now." in command.said
    assert command.json("run", "retry", run_id, "--reason", "Mended.") == {"run_id": run_id, "status": "running"}
    command("run", "retry", run_id, "--reason", "Mended.", exit_code=Exit.CONFLICT)
    assert "The run is running" in command.said
    work_off(outside_world)
    assert command.json("run", "show", run_id)["run"]["status"] == "succeeded"
    assert names(outside_world) == ["one", "two"]


@pytest.mark.req("V-6", "U-8")
def test_an_open_run_on_the_command_line(published: Any, outside_world: Any, work_off: Any, tmp_path: Path) -> None:
    command, run_id = published, started(published, "--open", "--until", soon())
    work_off(outside_world)
    shown = command.json("run", "show", run_id)["run"]
    assert (shown["status"], shown["waiting_for"]) == ("waiting", "more steps")
    (tmp_path / "more.yaml").write_text(json.dumps(MORE))
    command("run", "extend", run_id, str(tmp_path / "more.yaml"), "--if-version", str(shown["version"]))
    closed = command.json("run", "close", run_id, "--reason", "Nothing more.")
    assert closed == {"run_id": run_id, "status": "running"}
    command("run", "close", run_id, exit_code=Exit.CONFLICT)
    assert "closed or canceled already" in command.said
    work_off(outside_world)
    assert command.json("run", "show", run_id)["run"]["status"] == "succeeded"
    assert names(outside_world) == ["one", "two", "more"]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (["retry", NOBODY, "--reason", "Now."], Exit.CONFLICT, "There is no run"),
        (["retry", "odd", "--reason", "Now."], Exit.INPUT, "RUN: No run has the reference"),
        (["close", NOBODY], Exit.CONFLICT, "There is no run"),
        (["close", "odd"], Exit.INPUT, "RUN: No run has the reference"),
        (["start", "two", "--open", "--until", "soon"], Exit.INPUT, "--until: 'soon' is no moment in RFC 3339"),
        (["start", "two", "--open", "--until", "2020-01-01T00:00:00Z"], Exit.INPUT, "until: is past"),
        (["start", "two", "--until", "2099-01-01T00:00:00Z"], Exit.INPUT, "Start the run with `open`"),
    ],
)
def test_mistakes_on_the_command_line_say_what_is_wrong(
    published: Any, arguments: list[str], exit_code: Exit, said: str
) -> None:
    given = ["--input", '{"number": "C2"}'] if arguments[0] == "start" else []
    published("run", *arguments, *given, exit_code=exit_code)
    assert said in published.said
