"""A run's past on the command line: `run show --at`, `run diff`, `run replay`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from app.cli.outcome import Exit
from tests.support.trouble import Forger

WORKFLOW = """
workflow: counting
version: 1
reference: ${{ trigger.number }}
channels: {seen: {reduce: append, initial: []}, words: {}}
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}, set: {seen: "${{ output.applied }}"}}
  - {id: b, do: probe.effect.apply, with: {name: b}, set: {words: "${{ trigger.words }}"}}
"""
POLICY = """
policy: all
version: 1
rules: [{id: all, match: {connector: probe}, outcome: allow}]
"""


@pytest.fixture
def counted(command: Any, outside_world: Any, work_off: Any, tmp_path: Path) -> str:
    for name, text in (("workflow", WORKFLOW), ("policy", POLICY)):
        (tmp_path / f"{name}.yaml").write_text(text)
        command(name, "publish", str(tmp_path / f"{name}.yaml"))
    given = '{"number": "INC1", "words": "red \\u001b[31m"}'
    run_id: str = command.json("run", "start", "counting", "--input", given)["run_id"]
    work_off(outside_world)
    assert command.json("run", "show", run_id)["run"]["status"] == "succeeded"
    return run_id


@pytest.mark.req("P-9")
def test_a_past_state_is_shown(command: Any, counted: str) -> None:
    assert command.json("run", "show", counted, "--at", "0")["state"]["open"] == ["a"]
    shown = command.json("run", "show", counted, "--at", "1")
    assert (shown["superstep"], shown["state"]["channels"]["seen"]) == (1, [1])
    for number in ("0", "1", "2"):
        printed = command("run", "show", counted, "--at", number)
        assert "channels" in printed
        assert "\x1b" not in printed
    assert "0 to 2" in (command("run", "show", counted, "--at", "3", exit_code=Exit.CONFLICT) or command.said)
    command("run", "show", str(uuid4()), "--at", "0", exit_code=Exit.CONFLICT)


@pytest.mark.req("P-9")
def test_two_states_are_compared(command: Any, counted: str) -> None:
    found = {change["path"]: change for change in command.json("run", "diff", counted, "0", "1")}
    assert found["/channels/seen/0"] == {"op": "add", "path": "/channels/seen/0", "before": None, "after": 1}
    assert "/channels/seen/0" in command("run", "diff", counted, "0", "1")
    assert command.json("run", "diff", counted, "1", "1") == []
    command("run", "diff", counted, "0", "7", exit_code=Exit.CONFLICT)
    command("run", "diff", "no-id", "0", "1", exit_code=Exit.INPUT)


def test_a_run_is_replayed_and_a_difference_ends_with_1(command: Any, counted: str, database_url: str) -> None:
    assert (
        command("run", "replay", counted)
        == "3 checkpoints derived again, all equal; every row is what the book says.\n"
    )
    report = command.json("run", "replay", counted)
    assert (report["ok"], report["equal"], report["difference"]) == (True, 3, None)
    asyncio.run(Forger(database_url).told_value("values", {"seen": 8}))
    words = "(step.succeeded) commits to other values"
    assert words in command("run", "replay", counted, exit_code=Exit.FAILED)
    assert words in command.json("run", "replay", counted, exit_code=Exit.FAILED)["difference"]
    for show in ((), ("--at", "0")):
        command("run", "show", counted, *show, exit_code=Exit.CONFLICT)
        assert words in command.said
    command("run", "diff", counted, "0", "1", exit_code=Exit.CONFLICT)
    asyncio.run(Forger(database_url).purged())
    assert "payloads_removed_at" in command("run", "show", counted)
    assert "nothing can be derived again" in command("run", "replay", counted, exit_code=Exit.FAILED)
    command("run", "replay", str(uuid4()), exit_code=Exit.CONFLICT)
