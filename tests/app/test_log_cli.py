"""The commands of a tenant's log: sign it, hand its key on, compare it, and the evidence of a period."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from app.cli.outcome import Exit
from app.settings import load_settings

YEARS = ("--from", "2020-01-01T00:00:00Z", "--to", "2999-01-01T00:00:00Z")


def state_of(command: Any, what: str) -> str:
    return str({row["what"]: row["state"] for row in command.json("doctor")}[what])


def test_a_log_is_signed_compared_handed_on_and_shown(
    command: Any, work_off: Any, outside_world: Any, tmp_path: Path, clean_environment: Any
) -> None:
    policy, settings = tmp_path / "policy.yaml", load_settings()
    policy.write_text("policy: p\nversion: 1\nrules: [{id: no, match: {connector: records}, outcome: deny}]\n")
    command("evidence", "monitor", exit_code=Exit.CONFIGURATION)
    command("policy", "publish", str(policy))
    (signed,) = command.json("log", "sign", "--once")["signed"]
    assert signed["size"] > 0, "no keeper has ordered the leaves yet: the signer does"
    work_off(outside_world)
    assert (signed["log"], command.json("log", "sign", "--once")["signed"]) == ("counterseal/default", [])
    kept, first = tmp_path / "kept", command("log", "key").strip()
    shutil.copy(settings.log_path / "default" / "checkpoint", kept)
    assert command("log", "key", "--tenant", "default").startswith("counterseal/default+")
    assert "They tell the same." in command("evidence", "monitor", "--after", str(kept))
    assert (state_of(command, "log"), state_of(command, "monitor")) == ("ok", "ok")
    # The key is handed on: the old one signs nothing more, and whoever trusts it trusts the next one.
    following = tmp_path / "next.pem"
    note = command.json("log", "rotate", str(following))["note"]
    work_off(outside_world)
    command("log", "sign", "--once", exit_code=Exit.CONFIGURATION)
    command("log", "rotate", str(tmp_path / "other.pem"), exit_code=Exit.CONFLICT)
    clean_environment.setenv("COUNTERSEAL_LOG_KEY", str(following))
    assert command.json("log", "sign", "--once")["signed"][0]["size"] > signed["size"]
    trusting = ("--log-key", first, "--rotation", note, "--after", str(kept))
    assert command.json("evidence", "monitor", *trusting)["problems"] == []
    # The evidence of a period, checked by somebody who has the files and the first key.
    folder = tmp_path / "period"
    told = command.json("evidence", "period", *YEARS, "-o", str(folder), "--seed", "x")
    assert (told["runs"], told["amiss"]) == (0, [])
    assert command.json("evidence", "check-period", str(folder), *trusting)["problems"] == []
    (folder / "leaves.jsonl").write_bytes(b"".join((folder / "leaves.jsonl").read_bytes().splitlines(True)[1:]))
    command("evidence", "check-period", str(folder), *trusting, exit_code=Exit.FAILED)
    command("evidence", "period", *YEARS, "-o", str(folder), exit_code=Exit.INPUT)
    command("evidence", "period", *YEARS, "-o", str(tmp_path / "p"), "--reconcile", exit_code=Exit.CONFIGURATION)
    # A signer that has lost its memory signs nothing, until it is taught a checkpoint that somebody trusts.
    shutil.rmtree(settings.log_memory_path)
    assert "the memory" in command.json("log", "sign", "--once", exit_code=Exit.FAILED)["refused"][0]
    work_off(outside_world)
    taught = command.json("log", "sign", "--once", "--learn", str(settings.log_path / "default" / "checkpoint"))
    assert [one["log"] for one in taught["signed"]] == ["counterseal/default"]


@pytest.mark.parametrize(
    "given",
    [
        ("evidence", "monitor", "--log-key", "nonsense+1+2"),
        ("evidence", "monitor", "--after", "/no/such/file"),
        ("evidence", "period", "--from", "2026-01-02T00:00:00Z", "--to", "2026-01-01T00:00:00Z", "-o", "x"),
        ("evidence", "period", "--from", "yesterday", "--to", "2026-01-01T00:00:00Z", "-o", "x"),
        ("log", "witness", "a name", "--log-key", "x", "--folder", "x"),
        ("log", "witness", "name", "--log-key", "x", "--folder", "x", "--kind", "rsa"),
    ],
)
def test_what_is_not_usable_is_said(command: Any, given: tuple[str, ...]) -> None:
    command(*given, exit_code=Exit.INPUT)
