"""Definitions on the command line: check that explains, list, show, retire, schema."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from app.cli import documents, main
from app.cli.outcome import Exit
from app.settings import load_settings

WORKFLOW = """
workflow: branching
version: 1
title: Branches
reference: ${{ trigger.number }}
triggers: {servicenow: {table: incident, events: [insert, update]}}
channels: {seen: {reduce: append, keep: 5}}
caps: {max_writes_per_run: 3}
sla: PT4H
steps:
  - {id: look, do: transform.data.apply, with: {value: 1}}
  - id: left
    needs: [look]
    do: probe.effect.apply
    with: {name: a}
    set: {seen: left}
  - {id: right, needs: [look], do: probe.danger.apply, with: {name: b}}
  - id: choice
    if: ${{ steps.right.status == 'succeeded' }}
    then:
      - id: each
        foreach: ${{ [1, 2] }}
        steps:
          - {id: inner, do: servicenow.incident.get, with: {sys_id: x}}
    else:
      - id: ok
        approve: {summary: Go on?, approvers: {group: leads}}
"""
POLICY = """
policy: general
version: 1
rules:
  - {id: effects, match: {operation: probe.effect.apply}, outcome: allow}
  - {id: named, match: {connector: probe}, when: "action.target == 'x'", outcome: deny}
  - {id: reads, match: {connector: servicenow}, when: "action.target != ''", outcome: allow}
"""


class DefinitionsCommand:
    """Runs the command line in this process and tells how it ended."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.errors = ""
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: str, exit_code: int = 0) -> str:
        self._monkeypatch.setattr(sys, "argv", ["counterseal", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = self._capsys.readouterr()
        self.errors = printed.err
        assert int(ended.value.code or 0) == exit_code, (arguments, printed.out, printed.err)
        assert "Traceback" not in printed.err
        return printed.out

    def json(self, *arguments: str, exit_code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", exit_code=exit_code))


@pytest.fixture
def definitions_command(
    capsys: pytest.CaptureFixture[str],
    clean_environment: Any,
    restored_logging: Any,
    database_url: str,
    definitions_dir: Path,
) -> DefinitionsCommand:
    clean_environment.setenv("COUNTERSEAL_DATABASE_URL", database_url)
    clean_environment.setenv("COUNTERSEAL_DEFINITIONS_DIR", str(definitions_dir))
    clean_environment.setenv("COUNTERSEAL_PERSON", "tess")
    return DefinitionsCommand(capsys, clean_environment)


@pytest.fixture
def branching(tmp_path: Path) -> Path:
    path = tmp_path / "branching.yaml"
    path.write_text(WORKFLOW)
    (tmp_path / "policy.yaml").write_text(POLICY)
    return path


TOLD = """\
branching version 1 · Branches
  starts with  servicenow: incident insert, update
  channels     seen (append, keeps 5)
  writes       at most 3 a run
  sla          PT4H
  connectors   probe (not configured), servicenow (not configured), transform (configured)
  steps
  ├─ look  do transform.data.apply  (none, low risk)
  ├─ left  do probe.effect.apply  (external_call, medium risk)  [together with right]
  ├─ right  do probe.danger.apply  (external_call, high risk)  [together with left]
  └─ choice  if
     ├─ then:
     │  └─ each  foreach
     │     └─ steps:
     │        └─ inner  do servicenow.incident.get  (none, low risk)
     └─ else:
        └─ ok  approve
"""


@pytest.mark.req("X-3")
def test_check_tells_what_a_workflow_would_do(
    definitions_command: DefinitionsCommand, branching: Path, clean_environment: Any
) -> None:
    clean_environment.setenv("COUNTERSEAL_DATABASE_URL", "postgresql://nobody:word@127.0.0.1:9/nothing")
    assert definitions_command("workflow", "check", str(branching)) == (
        f"{branching}: ok (branching version 1)\n" + TOLD
    )
    assert "warning: the connector 'servicenow' is not configured. Set COUNTERSEAL_SERVICENOW_URL." in (
        definitions_command.errors
    )
    assert "transform" not in definitions_command.errors
    (result,) = definitions_command.json("workflow", "check", str(branching))
    assert (result["ok"], result["connectors"]["transform"]) == (True, "configured")
    steps = {step["id"]: step for step in result["outline"]["steps"]}
    assert [steps[name]["stage"] for name in ("look", "left", "right", "choice")] == [1, 2, 2, 3]
    assert (steps["right"]["risk"], steps["right"]["needs"], steps["right"]["answers"]) == ("high", ["look"], "sync")
    assert steps["choice"]["inside"]["else"][0]["kind"] == "approve"


def test_a_connector_that_is_configured_is_no_warning(
    definitions_command: DefinitionsCommand, branching: Path, clean_environment: Any
) -> None:
    clean_environment.setenv("COUNTERSEAL_SERVICENOW_URL", "https://example.service-now.com")
    clean_environment.setenv("COUNTERSEAL_SERVICENOW_USERNAME", "u")
    clean_environment.setenv("COUNTERSEAL_SERVICENOW_PASSWORD", "p")
    (result,) = definitions_command.json("workflow", "check", str(branching))
    assert result["connectors"]["servicenow"] == "configured"
    assert result["connectors"]["probe"].startswith("not configured")


def test_check_tells_what_a_policy_makes_of_it(definitions_command: DefinitionsCommand, branching: Path) -> None:
    policy = str(branching.parent / "policy.yaml")
    told = definitions_command("workflow", "check", str(branching), "--policy", policy)
    assert "transform.data.apply  (none, low risk)  → always denied (no rule)" in told
    assert "probe.effect.apply  (external_call, medium risk)  → it depends: allowed or denied (effects, named)" in told
    assert "probe.danger.apply  (external_call, high risk)  → always denied (named)" in told
    (result,) = definitions_command.json("workflow", "check", str(branching), "--policy", policy)
    verdict = result["outline"]["foreseen"]["inner"]
    assert (verdict["operation"], verdict["verdict"]) == ("servicenow.incident.get", "it depends")
    assert (verdict["outcomes"], verdict["rules"]) == (["deny", "allow"], ["reads"])
    definitions_command("workflow", "check", str(branching), "--policy", str(branching), exit_code=Exit.INPUT)


def test_check_lists_every_problem_and_goes_on_with_the_others(
    definitions_command: DefinitionsCommand, branching: Path
) -> None:
    broken = branching.parent / "broken.yaml"
    broken.write_text(WORKFLOW.replace("probe.danger.apply", "probe.danger.aply").replace("name: a", "nam: a"))
    said = definitions_command("workflow", "check", str(broken), str(branching), exit_code=Exit.INPUT)
    assert f"{branching}: ok" in said
    assert f"{broken}:17:" in definitions_command.errors
    bad, good = definitions_command.json("workflow", "check", str(broken), str(branching), exit_code=Exit.INPUT)
    assert (bad["ok"], good["ok"]) == (False, True)
    assert {problem["line"] for problem in bad["problems"]} == {14, 15, 17}
    assert "Did you mean 'probe.danger.apply'?" in [problem["remedy"] for problem in bad["problems"]]


def test_a_version_is_listed_shown_and_retired(definitions_command: DefinitionsCommand, branching: Path) -> None:
    definitions_command("workflow", "publish", str(branching))
    (row,) = definitions_command.json("workflow", "list")
    assert (row["name"], row["version"], row["retired_at"]) == ("branching", 1, None)
    assert row["connectors"] == ["probe", "servicenow", "transform"]
    assert "probe, servicenow, transform" in definitions_command("workflow", "list")
    for wanted in ("branching", "branching@1"):
        shown = definitions_command.json("workflow", "show", wanted)
        assert (shown["source"], shown["problem"], len(shown["operations"])) == (WORKFLOW, None, 4)
        assert TOLD in definitions_command("workflow", "show", wanted)
    assert definitions_command("workflow", "show", "branching", "--source") == WORKFLOW
    definitions_command("workflow", "retire", "branching", exit_code=Exit.INPUT)
    assert "Give its number" in definitions_command.errors
    assert definitions_command("workflow", "retire", "branching@1") == (
        "workflow branching version 1 is retired; no version is left\n"
    )
    again = definitions_command.json("workflow", "retire", "branching@1")
    assert again == {"name": "branching", "version": 1, "changed": False, "starts_with": None}
    assert definitions_command.json("workflow", "show", "branching")["retired_at"]
    definitions_command("workflow", "publish", str(branching))
    assert "stays retired" in definitions_command.errors
    definitions_command("run", "start", "branching", "--input", '{"number": "1"}', exit_code=Exit.CONFLICT)


def test_without_a_number_the_newest_version_that_is_not_retired_is_shown(
    definitions_command: DefinitionsCommand, branching: Path
) -> None:
    text = branching.read_text()
    for version in (1, 2, 3):
        branching.write_text(text.replace("version: 1\n", f"version: {version}\n", 1))
        definitions_command("workflow", "publish", str(branching))
    assert definitions_command.json("workflow", "show", "branching")["version"] == 3
    for retired, shown in ((3, 2), (1, 2), (2, 3)):
        definitions_command("workflow", "retire", f"branching@{retired}")
        assert definitions_command.json("workflow", "show", "branching")["version"] == shown


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("show", "branching"), Exit.CONFLICT, "There is no workflow 'branching'. Nothing is published"),
        (("retire", "branching@1"), Exit.CONFLICT, "There is no workflow 'branching'."),
        (("show", "branching@x"), Exit.INPUT, "names no workflow"),
        (("show", "branching@0"), Exit.INPUT, "names no workflow"),
        (("retire", ""), Exit.INPUT, "names no workflow"),
        (("check", "/nowhere.yaml", "--policy", "/nowhere.yaml"), Exit.INPUT, "cannot be read"),
    ],
)
def test_mistakes_are_told(definitions_command: Any, arguments: tuple[str, ...], code: int, said: str) -> None:
    definitions_command("workflow", *arguments, exit_code=code)
    assert said in definitions_command.errors


def test_what_steers_a_terminal_is_not_printed(definitions_command: DefinitionsCommand, branching: Path) -> None:
    branching.write_text(WORKFLOW.replace("title: Branches", 'title: "A\\e[31m red one"'))
    told = definitions_command("workflow", "check", str(branching))
    assert "\x1b" not in told
    assert "A\\x1b[31m red one" in told


def test_schemas_are_printed(restored_logging: Any) -> None:
    tree = typer.Typer()
    tree.command()(documents.schema)
    printed = CliRunner().invoke(tree, ["workflow"])
    assert json.loads(printed.stdout)["$id"] == "urn:counterseal:schema:workflow"
    refused = CliRunner().invoke(tree, ["nothing"])
    assert "workflow, policy, directory, operations" in str(refused.exception)


@pytest.mark.req("X-3")
async def test_standing_agrees_with_what_is_built(clean_environment: Any) -> None:
    """Compare for whatever connectors an installation gets: `check` names exactly these."""
    from app import adapters, definitions

    settings = load_settings(slack_bot_token="xoxb-x", slack_signing_secret="s" * 20)
    catalog = adapters.catalog_of(settings)
    names = {operation.connector for operation in catalog.operations.values()}
    standing = await definitions.connector_states(settings, names)
    connectors = adapters.connectors_of(settings)
    await connectors.aclose()
    assert {name for name, words in standing.items() if words == "configured"} == set(connectors)
    assert "slack" in connectors
