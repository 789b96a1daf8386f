"""A run is followed on the command line until it ends or waits for people; each sees the questions that are theirs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from app.cli import context, watching
from app.cli.outcome import Exit

WORKFLOW = """
workflow: {name}
version: 1
reference: "${{{{ trigger.number }}}}"
steps:
  - {step}
"""
APPLY = "do: probe.effect.apply, with: {name: x}"
FORM = "{title: Which?, assign: {group: ops}, form: {type: object, properties: {n: {type: string}}}}"
STEPS = {
    "fails": "{id: go, do: transform.data.apply, with: {value: '${{ trigger.missing }}'}}",
    "asks": f"{{id: go, {APPLY}}}",
    "leads": f"{{id: go, {APPLY}}}",
    "parent": "{id: sub, run: asks@1, with: {number: C1}}",
    "form": f"{{id: ask, task: {FORM}}}",
    "signal": "{id: hear, wait: {signal: shipped, correlate: A7}, timeout: P1D}",
}
POLICY = """
policy: p
version: 1
rules:
  - {id: reads, match: {operation: transform.data.apply}, outcome: allow}
  - {id: ops, match: {connector: probe}, when: run.workflow != 'leads', outcome: needs_approval,
     approvers: [{group: ops, of: 2}]}
  - {id: leads, match: {connector: probe}, when: run.workflow == 'leads', outcome: needs_approval,
     approvers: [{group: leads, of: 1}]}
"""
PEOPLE = """
directory: d
version: 1
people:
  - {id: tess, name: Tess}
  - {id: ann, name: Ann}
  - {id: bob, name: Bob}
  - {id: cy, name: Cy, delegate: {to: bob, from: 2020-01-01, until: 2099-12-31}}
  - {id: gone, name: Gone, active: false}
groups: {ops: [tess, ann, bob, gone], leads: [cy]}
"""


@pytest.fixture
def begin(command: Any, tmp_path: Path, outside_world: Any, work_off: Any) -> Any:
    """Starts runs of these kinds, and does what can be done."""
    for kind, text in {"directory": PEOPLE, "policy": POLICY}.items():
        (tmp_path / f"{kind}.yaml").write_text(text)
        command(kind, "publish", str(tmp_path / f"{kind}.yaml"))

    def begun(*kinds: str) -> list[str]:
        for kind in ("asks", *kinds):
            (tmp_path / f"{kind}.yaml").write_text(WORKFLOW.format(name=kind, step=STEPS[kind]))
            command("workflow", "publish", str(tmp_path / f"{kind}.yaml"))
        runs = [command.json("run", "start", kind, "--input", f'{{"number": "{kind}-1"}}')["run_id"] for kind in kinds]
        for _ in range(3):
            work_off(outside_world)
        return runs

    return begun


@pytest.mark.parametrize(
    ("kind", "before", "exit_code", "said"),
    [
        ("signal", ("signal", "send", "shipped:A7"), Exit.OK, "is done."),
        ("fails", (), Exit.FAILED, "run retry"),
        ("signal", ("run", "cancel", "{run}"), Exit.CONFLICT, "was canceled."),
        ("asks", (), Exit.PEOPLE, "approval show"),
        ("form", (), Exit.PEOPLE, "task list"),
        ("parent", (), Exit.PEOPLE, "counterseal why"),
        ("asks", ("pause", "run", "{run}", "--reason", "enough"), Exit.PEOPLE, "counterseal resume run"),
    ],
)
def test_a_run_is_followed_to_its_end_or_to_people(
    command: Any,
    begin: Any,
    kind: str,
    before: tuple[str, ...],
    exit_code: Exit,
    said: str,
    outside_world: Any,
    work_off: Any,
) -> None:
    (run,) = begin(kind)
    if before:
        command(*(word.format(run=run) for word in before))
        work_off(outside_world)
    told = command("run", "watch", run, exit_code=exit_code).splitlines()
    facts = command.json("run", "show", run)["timeline"]
    assert [line.split()[1] for line in told[: len(facts)]] == [fact["type"] for fact in facts]
    assert said in "\n".join(told[len(facts) :])
    lines = [*map(json.loads, command("run", "watch", run, "--json", exit_code=exit_code).splitlines())]
    assert lines[:-1] == facts
    assert (lines[-1]["exit"], lines[-1]["run_id"]) == (exit_code, run)


def test_each_fact_is_told_once_while_the_run_moves(
    command: Any, begin: Any, outside_world: Any, work_off: Any
) -> None:
    (run,) = begin("signal")
    told: list[int] = []
    looks = iter((("signal", "send", "shipped:A7"), ("doctor",)))

    async def wait() -> None:
        counts.append(len(told))
        words = next(looks)
        await asyncio.to_thread(command, *words)
        await asyncio.to_thread(work_off, outside_world)

    async def followed() -> Exit:
        async with context.faces() as faces:
            code, _ = await watching.follow(faces, UUID(run), lambda fact: told.append(fact["seq"]), wait)
            return code

    counts: list[int] = []
    assert asyncio.run(followed()) is Exit.OK
    assert told == [*range(len(told))]
    assert 0 < counts[0] < len(told), "what had happened was told before the wait, the rest after it"


def test_mine_are_those_that_i_may_decide(command: Any, begin: Any, clean_environment: Any) -> None:
    runs = begin("asks", "leads")
    everything = {row["reference"]: row for row in command.json("approval", "list")}
    assert {name: row["groups"] for name, row in everything.items()} == {"asks-1": ["ops"], "leads-1": ["leads"]}

    def mine(person: str) -> set[str]:
        clean_environment.setenv("COUNTERSEAL_PERSON", person)
        return {row["reference"] for row in command.json("approval", "list", "--mine")}

    # Tess requested both; Bob decides for Cy meanwhile; Gone is inactive, and nobody knows Eve.
    wanted = {"tess": set(), "ann": {"asks-1"}, "bob": {"asks-1", "leads-1"}, "cy": {"leads-1"}}
    assert {person: mine(person) for person in (*wanted, "gone", "eve")} == {**wanted, "gone": set(), "eve": set()}
    command("approval", "approve", everything["asks-1"]["approval_id"], "--as", "ann")
    command("approval", "approve", everything["leads-1"]["approval_id"], "--as", "bob")
    assert (mine("ann"), mine("bob"), mine("cy")) == (set(), {"asks-1"}, set()), "what is answered is not asked"
    command("approval", "list", "--mine", "--status", "all", exit_code=Exit.INPUT)
    clean_environment.setenv("COLUMNS", "80")
    clean_environment.setenv("TERM", "xterm")
    clean_environment.setattr("sys.stdout.isatty", lambda: True)
    head, *lines = command("approval", "list").splitlines()
    assert all(word in head for word in ("reference", "groups"))
    assert max(map(len, lines)) <= 80
    assert "asks-1" in "".join(lines)
    facts = [line for line in command("run", "watch", runs[0], exit_code=Exit.PEOPLE).splitlines() if line[0] == "2"]
    assert max(map(len, facts)) <= 80
