"""The command line: exit codes as documented, JSON where it is asked for, never a traceback for a user's mistake."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from app.cli.outcome import CODES, Exit
from app.http import problems


@pytest.fixture
def documents(tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    """The documents of these tests, as files."""
    shared = sys.modules[type(request.getfixturevalue("outside_world")).__module__]
    simple, asking = shared.WORKFLOWS.split("---")
    texts = {"simple": simple, "asking": asking, "policy": shared.POLICY, "people": shared.PEOPLE}
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return {name: str(tmp_path / f"{name}.yaml") for name in texts}


def test_the_main_job_from_the_command_line(
    command: Any, documents: Any, outside_world: Any, tmp_path: Path, work_off: Any
) -> None:
    command("workflow", "publish", documents["simple"], documents["asking"])
    command("policy", "publish", documents["policy"])
    command("directory", "publish", documents["people"])
    assert [item["name"] for item in command.json("workflow", "list")] == ["asking", "simple"]
    started = command.json("run", "start", "asking", "--input", '{"number": "INC9"}', "--key", "k")
    assert (started["created"], started["reference"]) == (True, "INC9")
    assert command.json("run", "start", "asking", "--input", '{"number": "INC9"}', "--key", "k")["created"] is False
    run_id = started["run_id"]
    work_off(outside_world)
    command("evidence", "get", run_id, "-o", str(tmp_path), exit_code=Exit.CONFLICT)
    (waiting,) = command.json("approval", "list")
    approval = waiting["approval_id"]
    assert (waiting["masked"], command.json("approval", "show", approval)["masked"]) == (True, True)
    assert command.json("approval", "show", approval, "--as", "ann")["masked"] is False
    assert command.json("approval", "approve", approval, exit_code=Exit.CONFLICT)["code"] == "separation_of_duties"
    assert command.json("approval", "approve", approval, "--as", "ann")["counted"] is True
    assert command.json("approval", "approve", approval, "--as", "ann", exit_code=Exit.CONFLICT)["counted"] is False
    work_off(outside_world)
    shown = command.json("run", "show", run_id)
    assert (shown["run"]["status"], len(shown["receipts"]), len(outside_world.effects)) == ("succeeded", 1, 1)
    assert "succeeded" in command("run", "show", run_id)
    assert [run["run_id"] for run in command.json("run", "list", "--status", "succeeded")] == [run_id]
    bundle = command.json("evidence", "get", run_id, "-o", str(tmp_path))["path"]
    unknown = command.json("evidence", "verify", bundle, exit_code=Exit.UNKNOWN_KEY)
    assert (unknown["ok"], unknown["trusted"]) == (True, False)
    command("evidence", "trust")
    assert command.json("evidence", "verify", bundle, "--run", run_id)["trusted"] is True
    key = tmp_path / "public.pem"
    command("evidence", "key", "-o", str(key))
    assert command("evidence", "key") == key.read_text()
    assert "by your key" in command("evidence", "verify", bundle, "--key", str(key))
    damaged = tmp_path / "damaged.zip"
    data = bytearray(Path(bundle).read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    command("evidence", "verify", str(damaged), exit_code=Exit.FAILED)
    command("run", "cancel", run_id, exit_code=Exit.CONFLICT)


def test_a_waiting_run_is_rejected_and_another_canceled(
    command: Any, documents: Any, outside_world: Any, work_off: Any
) -> None:
    command("workflow", "publish", documents["asking"])
    command("policy", "publish", documents["policy"])
    command("directory", "publish", documents["people"])
    first, second = (
        command.json("run", "start", "asking", "--input", f'{{"number": "INC{n}"}}')["run_id"] for n in (1, 2)
    )
    work_off(outside_world)
    by_run = {item["run_id"]: item["approval_id"] for item in command.json("approval", "list")}
    command("approval", "reject", by_run[first], "--as", "bob", exit_code=Exit.INPUT)
    command("approval", "resolve", by_run[first], "maybe", "--reason", "x", exit_code=Exit.INPUT)
    command("approval", "reject", by_run[first], "--as", "bob", "--reason", "no")
    assert command.json("run", "cancel", second, "--reason", "enough")["status"] == "canceled"
    work_off(outside_world)
    statuses = {run["run_id"]: run["status"] for run in command.json("run", "list")}
    assert statuses == {first: "failed_terminal", second: "canceled"}
    assert command("approval", "list") == ""
    assert outside_world.effects == []


MISTAKES: list[tuple[tuple[str, ...], int]] = [
    (("nonsense",), Exit.INPUT),
    (("run",), Exit.INPUT),
    (("run", "show"), Exit.INPUT),
    (("run", "show", "nonsense"), Exit.INPUT),
    (("run", "show", "01890000-0000-7000-8000-000000000002"), Exit.CONFLICT),
    (("run", "list", "--status", "nonsense"), Exit.INPUT),
    (("run", "start", "nowhere"), Exit.CONFLICT),
    (("run", "start", "nowhere", "--input", "{"), Exit.INPUT),
    (("run", "start", "nowhere", "--input", "@/nowhere.json"), Exit.INPUT),
    (("run", "cancel", "01890000-0000-7000-8000-000000000002"), Exit.CONFLICT),
    (("approval", "approve", "nonsense"), Exit.INPUT),
    (("approval", "approve", "01890000-0000-7000-8000-000000000002"), Exit.CONFLICT),
    (("approval", "list", "--status", "nonsense"), Exit.INPUT),
    (("evidence", "get", "01890000-0000-7000-8000-000000000002", "-o", "x"), Exit.CONFLICT),
    (("evidence", "verify", "/nowhere.zip"), Exit.INPUT),
    (("workflow", "check", "/nowhere.yaml"), Exit.INPUT),
    (("workflow", "publish", "/nowhere.yaml"), Exit.INPUT),
    (("policy", "publish", "/nowhere.yaml"), Exit.INPUT),
    (("policy", "activate", "ops@99999999999"), Exit.INPUT),
    (("policy", "explain", "/nowhere.json"), Exit.INPUT),
    (("token", "create", "--subject", "a b", "--role", "admin"), Exit.INPUT),
    (("token", "create", "--subject", "ann", "--role", "king"), Exit.INPUT),
    (("token", "create", "--subject", "ann", "--role", "admin", "--expires", "soon"), Exit.INPUT),
    (("token", "create", "--subject", "ann", "--role", "admin", "--tenant", "No"), Exit.INPUT),
    (("token", "revoke", "nonsense"), Exit.INPUT),
    (("token", "revoke", "0123456789"), Exit.CONFLICT),
    (("tenant", "set", "No Tenant"), Exit.INPUT),
    (("demo", "--aws", "azure"), Exit.INPUT),
]


def test_mistakes_end_with_the_documented_code_and_one_clear_line(command: Any) -> None:
    for arguments, code in MISTAKES:
        command(*arguments, exit_code=code)


def test_a_mistake_is_answered_with_its_place_and_the_remedy(command: Any, documents: Any) -> None:
    command("workflow", "publish", documents["simple"])
    token = ("token", "create", "--subject", "ann", "--role", "admin")
    for arguments, code, words in (
        (("run", "start", "simple", "--version", "99"), Exit.CONFLICT, "There is no workflow 'simple' version 99."),
        (("run", "start", "simple", "--workspace", "a b; --"), Exit.INPUT, "--workspace: 'a b; --' is no name. Use"),
        (("run", "start", "simple", "--input", '{"a":"\\u0000"}'), Exit.INPUT, "--input.a: holds a character"),
        ((*token, "--tenant", "nowhere"), Exit.CONFLICT, "`counterseal tenant create nowhere` creates it."),
        ((*token, "--expires", "soon"), Exit.INPUT, "--expires: "),
        ((*token, "--tenant", "No Tenant"), Exit.INPUT, "--tenant: 'No Tenant' is no name."),
    ):
        command(*arguments, exit_code=code)
        assert words in command.said, command.said
        assert command.said.startswith("counterseal: ")
        assert command.said.count("\n") == 1
    assert command.json("run", "list") == command.json("token", "list") == []


def test_what_people_wrote_cannot_steer_the_terminal(
    command: Any, documents: Any, outside_world: Any, clean_environment: Any, work_off: Any
) -> None:
    command("workflow", "publish", documents["asking"])
    command("policy", "publish", documents["policy"])
    command("directory", "publish", documents["people"])
    run_id = command.json("run", "start", "asking", "--input", '{"number": "INC1"}')["run_id"]
    work_off(outside_world)
    approval = command.json("approval", "list")[0]["approval_id"]
    command("approval", "reject", approval, "--as", "bob", "--reason", "no \u202e\x9b31m thanks")
    for arguments in (("run", "show", run_id), ("approval", "show", approval)):
        printed = command(*arguments)
        assert "no \\u202e\\x9b31m thanks" in printed
        assert all(char.isprintable() or char in "\n\t" for char in printed)
    assert "rejected at danger by bob: no " in command("run", "show", run_id)


def test_settings_and_reach_have_codes_of_their_own(command: Any, clean_environment: Any) -> None:
    clean_environment.setenv("COUNTERSEAL_PORT", "x")
    command("run", "list", exit_code=Exit.CONFIGURATION)
    clean_environment.delenv("COUNTERSEAL_PORT")
    clean_environment.setenv("COUNTERSEAL_DATABASE_URL", "postgresql://nobody:word@127.0.0.1:9/nothing")
    command("run", "list", exit_code=Exit.UNAVAILABLE)
    clean_environment.setenv("COUNTERSEAL_HOST", "256.0.0.1")
    command("db", "upgrade", exit_code=Exit.UNAVAILABLE)


def test_a_program_that_asks_for_json_gets_errors_as_json(command: Any, tmp_path: Path) -> None:
    command("run", "show", "INC404", "--json", exit_code=Exit.INPUT)
    told = json.loads(command.said)["error"]
    assert (told["code"], told["where"]) == ("input", "RUN")
    assert told["message"]
    assert told["remedy"]
    (tmp_path / "w.yaml").write_text("workflow: w\nversion: 1\nsteps:\n  - {id: a, do: no.such.thing}\n")
    command("workflow", "publish", str(tmp_path / "w.yaml"), "--json", exit_code=Exit.INPUT)
    (problem,) = json.loads(command.said)["error"]["problems"]
    assert (problem["line"], problem["file"].endswith("w.yaml")) == (4, True)


def test_every_error_of_the_tree_has_an_exit_code() -> None:
    assert set(CODES) == set(problems.STATUS)


def test_tokens_are_made_listed_and_revoked(command: Any, documents: Any) -> None:
    command("directory", "publish", documents["people"])
    made = command.json(
        "token", "create", "--subject", "ann", "--role", "approver", "--role", "auditor", "--expires", "P1D"
    )
    assert made["token"].startswith("cst_")
    assert command("token", "create", "--subject", "bob", "--role", "admin").startswith("cst_")
    listed = command.json("token", "list")
    assert [(item["subject"], item["roles"]) for item in listed] == [
        ("ann", ["approver", "auditor"]),
        ("bob", ["admin"]),
    ]
    assert listed[0]["expires_at"] is not None
    assert made["token"] not in json.dumps(listed)
    command("token", "revoke", made["token"])
    command("token", "revoke", listed[1]["token"])
    assert all(item["revoked_at"] for item in command.json("token", "list"))


def test_a_tenants_caps_are_set_and_kept(command: Any) -> None:
    arguments = ("--max-concurrency", "3", "--max-runs-per-min", "60", "--max-writes-per-run", "5", "--weight", "2.5")
    shown = command.json("tenant", "create", "acme", *arguments)
    assert (shown["max_concurrency"], shown["max_runs_per_min"], shown["max_writes_per_run"]) == (3, 60, 5)
    assert command.json("tenant", "set", "acme") == shown


def test_documents_are_checked_with_their_places_and_without_a_database(
    command: Any, clean_environment: Any, documents: Any, tmp_path: Path, capsys: Any
) -> None:
    clean_environment.setenv("COUNTERSEAL_DATABASE_URL", "postgresql://nobody:word@127.0.0.1:9/nothing")
    command("workflow", "check", documents["simple"], documents["asking"])
    command("policy", "check", documents["policy"])
    broken = tmp_path / "broken.yaml"
    broken.write_text("policy: p\nversion: 1\nrules: 7\n")
    (result,) = command.json("policy", "check", str(broken), exit_code=Exit.INPUT)
    assert result["problem"].startswith(f"{broken}:3:")


def test_a_policy_is_explained_on_a_described_action(command: Any, documents: Any, tmp_path: Path) -> None:
    action = tmp_path / "action.json"
    danger = {"operation": "probe.danger.apply", "input": {"name": "x"}}
    action.write_text(json.dumps({**danger, "run": {"writes_in_run": 3}}))
    command("policy", "explain", str(action), exit_code=Exit.CONFLICT)
    offline = command.json("policy", "explain", str(action), "--policy", documents["policy"])
    assert (offline["decision"]["outcome"], [rule["fired"] for rule in offline["rules"]]) == (
        "needs_approval",
        [False, False, True],
    )
    command("policy", "publish", documents["policy"])
    assert command.json("policy", "explain", str(action)) == offline
    assert "needs_approval" in command("policy", "explain", str(action))
    for wrong in ({"operation": 7}, {"operation": "no.such.thing"}, {"operation": "probe.danger.apply", "x": 1}):
        action.write_text(json.dumps(wrong))
        command("policy", "explain", str(action), exit_code=Exit.INPUT)
    action.write_text(json.dumps({**danger, "run": {"clock": "now"}}))
    command("policy", "explain", str(action), exit_code=Exit.INPUT)


def test_the_doctor_says_what_is_missing_and_what_is_broken(
    command: Any, clean_environment: Any, documents: Any
) -> None:
    checks = {item["what"]: item["state"] for item in command.json("doctor")}
    assert checks["database's TLS"] == "ok", "the server of tests is on this machine"
    assert checks["database"] == checks["schema"] == checks["queue"] == checks["evidence store"] == "ok"
    assert (
        checks["policy"] == checks["slack cards"] == checks["connector servicenow"] == checks["webhooks"] == "missing"
    )
    assert checks["connector bpmn"] == "missing"
    command("policy", "publish", documents["policy"])
    command("workflow", "publish", documents["simple"])
    clean_environment.setenv("COUNTERSEAL_SLACK_TOKEN", "typo")
    checks = {item["what"]: item["state"] for item in command.json("doctor")}
    assert (checks["policy"], checks["workflow simple@1"], checks["settings"]) == ("ok", "ok", "warning")
    clean_environment.setenv("COUNTERSEAL_SLACK_BOT_TOKEN", "xoxb-test")
    clean_environment.setenv("COUNTERSEAL_SLACK_API_URL", "http://127.0.0.1:9/api/")
    clean_environment.setenv("COUNTERSEAL_BPMN_URL", "http://127.0.0.1:9/engine-rest")
    checks = {item["what"]: item["state"] for item in command.json("doctor", exit_code=Exit.FAILED)}
    assert checks["slack cards"] == checks["connector slack"] == checks["connector bpmn"] == "broken"
    clean_environment.setenv("COUNTERSEAL_DATABASE_URL", "postgresql://nobody:word@127.0.0.1:9/nothing")
    clean_environment.setenv("COUNTERSEAL_HOME", documents["simple"])  # a file, in which no bundle can be stored
    checks = {item["what"]: item["state"] for item in command.json("doctor", exit_code=Exit.FAILED)}
    assert checks["database"] == checks["evidence store"] == "broken"


def test_the_schema_is_upgraded_and_is_so_already(command: Any) -> None:
    result = command.json("db", "upgrade")
    assert result["before"] == result["after"]


def test_help_documents_the_exit_codes(command: Any) -> None:
    printed = command("--help")
    assert "Exit codes" in printed
    for name in ("up", "serve", "work", "keep", "demo", "doctor", "evidence", "approval"):
        assert name in printed
