"""Signals, tasks and extensions on the command line: the same verbs as over HTTP, with exit codes as documented."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from app.cli.outcome import Exit

WAITING = """
workflow: waiting
version: 1
reference: ${{ trigger.number }}
result: ${{ steps.paid.output }}
steps:
  - id: paid
    wait: {signal: paid, correlate: "${{ run.reference }}"}
  - id: last
    do: probe.effect.apply
    with: {name: last}
"""
FORM = """
workflow: signing
version: 1
reference: ${{ trigger.number }}
result: ${{ steps.sign.output }}
steps:
  - id: sign
    task:
      title: "Confirm ${{ trigger.number }}"
      form:
        type: object
        required: [owner, share]
        properties:
          owner: {type: string, title: The owner}
          share: {type: number, minimum: 0, maximum: 100}
          kinds: {type: array, items: {type: string, enum: [person, trust]}}
          sure: {type: boolean}
      assign: {group: leads}
"""
EXTRA = """
steps:
  - id: extra
    do: probe.effect.apply
    with: {name: extra}
before: [last]
"""


@pytest.fixture
def published(command: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """The command line of an installation with these workflows, a policy and people; ``start`` starts one."""
    shared = sys.modules[type(request.getfixturevalue("outside_world")).__module__]
    for name, text in {"waiting": WAITING, "signing": FORM, "policy": shared.POLICY, "people": shared.PEOPLE}.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    command("workflow", "publish", str(tmp_path / "waiting.yaml"), str(tmp_path / "signing.yaml"))
    command("policy", "publish", str(tmp_path / "policy.yaml"))
    command("directory", "publish", str(tmp_path / "people.yaml"))
    return command


def started(command: Any, workflow: str, number: str) -> str:
    return str(command.json("run", "start", workflow, "--input", json.dumps({"number": number}))["run_id"])


@pytest.mark.req("X-16", "X-17")
def test_a_run_that_waits_is_signaled(published: Any, outside_world: Any, work_off: Any, tmp_path: Path) -> None:
    command, run_id = published, started(published, "waiting", "A 1")
    work_off(outside_world)
    (wait,) = command.json("run", "waits", run_id)
    assert (wait["kind"], wait["status"], wait["correlation_key"]) == ("signal", "waiting", "paid:A 1")
    assert "paid:A 1" in command("run", "waits", run_id)
    key = wait["correlation_key"]
    stale = command.json("signal", "send", key, "--token", "guessed", exit_code=Exit.CONFLICT)
    assert stale["code"] == "stale"
    moved = command.json("signal", "send", key, "--version", "99", exit_code=Exit.CONFLICT)
    assert moved["code"] == "stale"
    (tmp_path / "paid.json").write_text('{"amount": 1.5}')
    sent = command.json("signal", "send", key, "--output", f"@{tmp_path}/paid.json", "--token", wait["token"])
    assert (sent["code"], sent["repeated"], sent["run_id"]) == ("delivered", False, run_id)
    for more in (("--token", wait["token"]), ("--version", str(wait["version"]))):
        again = command.json("signal", "send", key, *more, exit_code=Exit.OK)
        assert (again["code"], again["run_id"]) == ("already_ended", run_id)
    work_off(outside_world)
    shown = command.json("run", "show", run_id)["run"]
    assert (shown["status"], shown["result"]) == ("succeeded", {"amount": 1.5})
    assert command.json("run", "waits", run_id) == []
    assert [item["status"] for item in command.json("run", "waits", run_id, "--all")] == ["completed"]


def test_a_signal_is_kept_repeated_or_an_error(published: Any, outside_world: Any, work_off: Any) -> None:
    command = published
    early = command.json(
        "signal",
        "send",
        "paid:E",
        "--error",
        "declined",
        "--message",
        "No money",
        "--id",
        "bank-9",
        exit_code=Exit.KEPT,
    )
    assert (early["code"], early["repeated"], early["id"]) == ("kept", False, "bank-9")
    run_id = started(command, "waiting", "E")
    work_off(outside_world)
    work_off(outside_world)
    shown = command.json("run", "show", run_id)["run"]
    assert (shown["status"], shown["error"]["code"]) == ("failed_terminal", "declined")
    again = command.json("signal", "send", "paid:E", "--error", "declined", "--message", "No money", "--id", "bank-9")
    assert (again["code"], again["repeated"]) == ("delivered", True)


@pytest.mark.req("X-9", "P-12")
def test_a_task_is_completed_by_a_person_field_by_field(published: Any, outside_world: Any, work_off: Any) -> None:
    command, run_id = published, started(published, "signing", "C1")
    work_off(outside_world)
    (listed,) = command.json("task", "list", "--group", "leads")
    assert command.json("task", "list", "--group", "others") == []
    assert (listed["title"], listed["state"], listed["run_id"]) == ("Confirm C1", "open", run_id)
    task = listed["task_id"]
    page = command("task", "show", task)
    assert "Confirm C1" in page
    assert "kinds" in page
    assert command.json("task", "show", task)["form"]["required"] == ["owner", "share"]
    wrong = command.json(
        "task", "complete", task, "--as", "ann", "-f", "owner=Acme", "-f", "share=many", "-f", "sure=maybe",
        exit_code=Exit.INPUT,
    )  # fmt: skip
    assert {problem["where"] for problem in wrong["problems"]} == {"share", "sure"}
    command("task", "complete", task, "--as", "ann", "-f", "share=101", exit_code=Exit.INPUT)
    assert "owner: It is missing." in command.said
    assert "share: The number is too large." in command.said
    refused = command.json("task", "complete", task, "--as", "eve", "-f", "owner=Eve", exit_code=Exit.CONFLICT)
    assert refused["code"] == "not_assigned"
    fields = ["owner=A=B", "share=12.5", "kinds=person", "kinds=trust", "sure=yes"]
    given = [word for field in fields for word in ("-f", field)]
    assert "Recorded" in command("task", "complete", task, "--as", "ann", *given)
    work_off(outside_world)
    value = {"owner": "A=B", "share": 12.5, "kinds": ["person", "trust"], "sure": True}
    assert command.json("run", "show", run_id)["run"]["result"] == value
    over = command.json("task", "complete", task, "--as", "bob", "--value", "{}", exit_code=Exit.CONFLICT)
    assert over["code"] == "completed"
    assert command.json("task", "complete", task, "--as", "ann", "--value", json.dumps(value))["accepted"]
    (done,) = command.json("task", "list", "--state", "all")
    assert (done["state"], done["completed_by"]) == ("completed", "Ann")
    assert command("task", "list") == ""


@pytest.mark.req("V-6")
def test_a_run_is_extended_at_the_version_that_was_seen(
    published: Any, outside_world: Any, work_off: Any, tmp_path: Path
) -> None:
    command, run_id = published, started(published, "waiting", "X")
    work_off(outside_world)
    (tmp_path / "extra.yaml").write_text(EXTRA)
    version = command.json("run", "show", run_id)["run"]["version"]
    extend = ("run", "extend", run_id, str(tmp_path / "extra.yaml"), "--if-version")
    command(*extend, str(version + 1), exit_code=Exit.CONFLICT)
    assert "moved on" in command.said
    made = command.json(*extend, str(version))
    assert made == {"number": 1, "steps": ["extra"], "version": version + 1}
    command("signal", "send", "paid:X")
    work_off(outside_world)
    assert [call.input["name"] for call in outside_world.effects] == ["extra", "last"]


NOBODY = "00000000-0000-0000-0000-000000000007"


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (["signal", "send", "k", "--output", "{"], Exit.INPUT, "--output: is not JSON"),
        (["signal", "send", "k", "--output", "@/nowhere.json"], Exit.INPUT, "/nowhere.json: cannot be read"),
        (["signal", "send", "k", "--output", "1", "--error", "e"], Exit.INPUT, "--error: goes without --output"),
        (["signal", "send", "k", "--message", "m"], Exit.INPUT, "--message: goes with --error"),
        (["signal", "send", ""], Exit.INPUT, "key: is empty"),
        (["signal", "send", "k", "--id", "i" * 201], Exit.INPUT, "id: is empty or longer"),
        (["signal", "send"], Exit.INPUT, "Missing argument"),
        (["task", "list", "--state", "odd"], Exit.INPUT, "--state: 'odd' is not a state."),
        (["task", "show", "odd"], Exit.INPUT, "TASK: is not an id"),
        (["task", "show", NOBODY], Exit.CONFLICT, "There is no task"),
        (["task", "complete", NOBODY, "--value", "{}"], Exit.CONFLICT, "There is no task"),
        (["task", "complete", NOBODY, "-f", "a=b"], Exit.CONFLICT, "There is no task"),
        (["task", "complete", NOBODY, "--value", "[]"], Exit.INPUT, "--value: is not a JSON object"),
        (["task", "complete", NOBODY, "--value", "{}", "-f", "a=b"], Exit.INPUT, "--value: goes without --field"),
        (["run", "waits", NOBODY], Exit.CONFLICT, "There is no run"),
        (["run", "waits", "odd"], Exit.INPUT, "RUN: No run has the reference"),
        (["run", "extend", NOBODY, "/nowhere.yaml", "--if-version", "1"], Exit.INPUT, "/nowhere.yaml: cannot be read"),
        (["run", "extend", NOBODY, "/dev/null", "--if-version", "1"], Exit.INPUT, "the document is empty"),
        (["run", "extend", NOBODY, "/dev/null", "--if-version", "0"], Exit.INPUT, "--if-version"),
    ],
)
def test_mistakes_about_waits_say_what_is_wrong(command: Any, arguments: list[str], exit_code: Exit, said: str) -> None:
    command(*arguments, exit_code=exit_code)
    assert said in command.said


def test_fields_are_typed_as_name_and_value(published: Any, outside_world: Any, work_off: Any) -> None:
    command = published
    started(command, "signing", "F")
    work_off(outside_world)
    task = command.json("task", "list")[0]["task_id"]
    command("task", "complete", task, "--as", "ann", "-f", "owner", exit_code=Exit.INPUT)
    assert "'owner' is not NAME=VALUE" in command.said
    command("task", "complete", task, "--as", "ann", "-f", "owner=a", "-f", "owner=b", exit_code=Exit.INPUT)
    assert "is given twice" in command.said
    unknown = command.json("task", "complete", task, "--as", "ann", "-f", "odd=1", exit_code=Exit.INPUT)
    assert "odd" in {problem["where"] for problem in unknown["problems"]}
