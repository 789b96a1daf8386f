"""Questions about a run on the command line: why it stands still or has failed, by whatever name people know it."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer.main

from app.cli import root
from app.cli.outcome import Exit
from connectors.port import NotSent
from tests.support.trouble import Forger

WORKFLOW = """
workflow: {name}
version: 1
reference: "${{{{ trigger.number }}}}"
steps:
  - {step}
"""
STEPS = {
    "denied": "{id: go, do: probe.effect.apply, with: {name: x}}",
    "asks": "{id: go, do: probe.effect.apply, with: {name: x}}",
    "paced": "{id: go, do: probe.effect.apply, with: {name: x}}",
    "timer": "{id: nap, wait: {for: PT1H}}",
    "signal": "{id: hear, wait: {signal: shipped, correlate: A7, }, timeout: P1D}",
    "fails": "{id: go, do: transform.data.apply, with: {value: '${{ trigger.missing }}'}}",
    "form": "{id: ask, "
    "task: {title: Which size?, assign: {group: ops}, form: {type: object, properties: {n: {type: string}}}}}",
}
POLICY = """
policy: p
version: 1
rules:
  - {id: reads, match: {operation: transform.data.apply}, outcome: allow}
  - {id: paced, match: {connector: probe}, when: run.workflow == 'paced', outcome: allow}
  - {id: night, match: {connector: probe}, when: run.workflow == 'denied', outcome: deny, because: Not at night.}
  - {id: ask, match: {connector: probe}, when: "!(run.workflow in ['denied', 'paced'])", outcome: needs_approval,
     approvers: [{group: ops, of: 1}], grants: {uses: 2, for: PT4H}}
"""
NIGHTLY = """
workflow: nightly
version: 1
reference: nightly
triggers: {schedule: {cron: 0 18 * * FRI, timezone: Europe/Berlin, workspace: main}}
steps: [{id: nap, wait: {for: PT1H}}]
"""

BOLD = re.compile(r"\x1b\[[0-9;]*m")

# The kind of run, and what `why` says of it.
SAID: dict[str, tuple[str, ...]] = {
    "denied": ("was denied at go", "because    Not at night.", "Nothing was changed by it", "run retry {run}"),
    "asks": ("waits for people", "1 of ops (Ann, Bob) (go), since ", ", until ", "approval show "),
    "timer": ("timer for INC1 waits.", "waits for  time: ", "(nap)"),
    "signal": ("the signal shipped:A7 (hear)", "run waits {run}"),
    "fails": ("failed at go", "trigger.missing", "Publish a repaired version"),
    "form": ("a form (ask)", "task list"),
}


@pytest.fixture
def begun(command: Any, tmp_path: Path, outside_world: Any, work_off: Any) -> Any:
    """Starts runs of these kinds, each with a reference of its own, and does what can be done."""
    people = tmp_path / "people.yaml"
    people.write_text(
        "directory: d\nversion: 1\npeople:\n  - {id: ann, name: Ann}\n  - {id: bob, name: Bob}\n"
        "groups: {ops: [ann, bob]}\n"
    )
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    command("directory", "publish", str(people))
    command("policy", "publish", str(policy))

    def begin(*kinds: str, reference: str = "INC1") -> list[str]:
        runs = []
        for kind in kinds:
            file = tmp_path / f"{kind}.yaml"
            file.write_text(WORKFLOW.format(name=kind, step=STEPS[kind]))
            command("workflow", "publish", str(file))
            runs.append(command.json("run", "start", kind, "--input", f'{{"number": "{reference}"}}')["run_id"])
        work_off(outside_world)
        return runs

    return begin


@pytest.mark.parametrize("kind", [*SAID])
def test_why_says_what_happened_and_who_must_do_what(command: Any, begun: Any, kind: str) -> None:
    (run,) = begun(kind)
    said = command("why", "INC1")
    for words in SAID[kind]:
        assert words.format(run=run) in said
    told = command.json("why", run)
    assert told["run_id"] == run
    (listed,) = command.json("run", "list")
    assert listed["why"], "the list says it in a few words"


# What has happened before, and what each command says of the step that waits.
MERELY: dict[str, tuple[list[Any], dict[str, str], dict[str, tuple[str, ...]]]] = {
    "rate": (
        [],
        {"COUNTERSEAL_RATES": '{"probe": 1}'},
        {
            "why": (
                "paced for INC1 waits.",
                "its turn at probe (rates) (go), since ",
                ", until ",
                "counterseal doctor",
            ),
            "run show": ("step.retry_scheduled (rate)", "rate: probe takes at most 1 calls a minute"),
            "run list": ("its turn at probe (rates)",),
            "waiting": ("its turn at probe (rates)", "INC1", "go"),
            "doctor": ("probe: 1 of 1 calls in the last minute; 1 step waits, since ",),
        },
    ),
    "busy": (
        [NotSent("429 of the target", 60.0)],
        {},
        {
            "why": ("paced for INC1 waits.", "probe, which asks for no calls (Retry-After) (go), since", ", until "),
            "run show": ("step.retry_scheduled (busy)", "busy: probe asks for no calls until "),
            "waiting": ("probe, which asks for no calls (Retry-After)",),
            "doctor": ("probe asks for no calls until ", "; 2 steps wait, since "),
        },
    ),
}


@pytest.mark.parametrize("cause", MERELY)
def test_a_step_that_merely_waits_has_failed_nowhere(
    command: Any, begun: Any, clean_environment: Any, outside_world: Any, cause: str
) -> None:
    answers, settings, said = MERELY[cause]
    for name, value in settings.items():
        clean_environment.setenv(name, value)
    outside_world.script["x"] = [*answers]
    begun("paced", "paced")
    (waits, *_) = [row["run_id"] for row in command.json("run", "list", "--status", "waiting")]
    for what, words in said.items():
        shown = command(*what.split(), *([waits] if what in ("why", "run show") else []), exit_code=None)
        assert [one for one in words if one not in shown] == [], shown
        assert what == "doctor" or ("tries again" not in shown and "failed" not in shown), shown


def test_what_has_waited_the_longest_is_named_first_with_whom_it_waits_for(command: Any, begun: Any) -> None:
    runs = begun("asks", "timer", "signal", "form")
    rows = command.json("waiting")
    assert [row["run_id"] for row in rows] == runs
    said = [row["waits_for"] for row in rows]
    assert said[0] == "1 of ops (Ann, Bob)"
    assert said[1].startswith("time: ")
    assert said[2:] == ["the signal shipped:A7", "ops: a form"]
    assert [row["run_id"] for row in command.json("waiting", "--limit", "2")] == runs[:2]


def test_a_pause_is_the_reason_why_a_run_waits(command: Any, begun: Any, outside_world: Any, work_off: Any) -> None:
    command("pause", "tenant", "--reason", "Month-end close.")
    assert command.said == "", "no line of the log stands beside a command's own words"
    begun("asks")
    assert "because    tenant is paused: Month-end close." in command("why", "INC1")
    assert "counterseal resume tenant" in command("why", "INC1")


def test_a_run_is_meant_by_its_reference_or_the_beginning_of_its_id(command: Any, begun: Any) -> None:
    one, two = begun("timer", "signal")
    assert command.json("run", "show", one[:18])["run"]["run_id"] == one
    for text, words in {"INC1": f"several runs: {two}", "INC2": "No run has the reference", "zz zz": "No run"}.items():
        command("run", "show", text, exit_code=Exit.INPUT)
        assert words in command.said
    (three,) = begun("fails", reference="INC3")
    assert [row["run_id"] for row in command.json("run", "list", "--status", "failed")] == [three]


@pytest.mark.parametrize("width", [80, 120])
def test_every_list_can_be_read_on_a_terminal(
    command: Any, begun: Any, clean_environment: Any, width: int, tmp_path: Path, work_off: Any, database_url: str
) -> None:
    """No line of a table is wider than the terminal, and ids can be given to other commands."""
    runs = begun("denied", "asks", "form")
    (tmp_path / "nightly.yaml").write_text(NIGHTLY)
    command("workflow", "publish", str(tmp_path / "nightly.yaml"))
    command("token", "create", "--subject", "ann", "--role", "admin")
    (question,) = command.json("approval", "list")
    command("approval", "approve", question["approval_id"], "--as", "ann", "--reason", "Seen.", "--grant-uses", "2")
    begun("asks", reference="INC2")
    asyncio.run(Forger(database_url).failed_message("bundle"))
    clean_environment.setenv("COLUMNS", str(width))
    clean_environment.setenv("TERM", "xterm")
    clean_environment.setattr("sys.stdout.isatty", lambda: True)
    groups = getattr(typer.main.get_command(root), "commands", {}).items()
    every = [(name, group) for name, group in groups] + [
        (f"{name} {inner}", one) for name, group in groups for inner, one in getattr(group, "commands", {}).items()
    ]
    lists = [tuple(name.split()) for name, one in every if (one.help or "").startswith("List ")]
    assert len(lists) > 11
    month = (datetime.now(UTC) + timedelta(days=30)).isoformat()
    command("deny", "probe.danger.apply", "--until", month, "--reason", "An emergency, and a long one.")
    command("pause", "workflow", "form", "--reason", "Month-end close, as every month, until the books are done.")
    lists += [("queue", "status"), ("audit", "tenant"), ("run", "show", runs[1]), ("run", "waits", runs[2])]
    lists += [("pause",), ("deny",), ("directory", "show"), ("evidence", "find")]
    for what in lists:
        arguments = (*what, runs[1]) if what[0] == "grant" else what
        lines = BOLD.sub("", command(*arguments)).splitlines()
        assert lines, f"{arguments} has nothing to show"
        table = [line for line in lines if not line.startswith(("evidence", "state", "data"))]
        assert max(map(len, table)) <= width, arguments
    listed = command("run", "list")
    assert all(run[:18] in listed for run in runs)
    assert "INC1" in listed
    clean_environment.setenv("COLUMNS", "30")
    assert all(run in command("run", "list") for run in runs), "what has no room for a table is told line by line"
