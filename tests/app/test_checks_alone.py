"""Commands that look at documents without a database: what each says of good ones and bad ones, with every option.

``whole_checks_alone.json`` holds, for each command line, its exit code, and what it printed for people and programs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.cli import context
from connectors.catalog import load_catalog
from policy.sets import PolicySet
from runtime.definition.catalog import Definitions
from tests.app.conftest import Command
from tests.support.whole import as_it_was

HERE = Path(__file__).parent
FILES = {
    "docs/good.yaml": """
workflow: good
version: 3
reference: r
steps:
  - {id: a, do: http.request.send, with: {method: GET, url: "https://a.example/"}}
  - {id: b, do: slack.message.post, with: {channel: C1, text: "\\e[2J"}}
""",
    "docs/other.yaml": "workflow: other\nversion: 7\nreference: r\nsteps: [{id: nap, wait: {for: P1D}}]\n",
    "docs/ours.yaml": "workflow: counterseal-mine\nversion: 1\nreference: r\nsteps: [{id: nap, wait: {for: P1D}}]\n",
    "docs/bad.yaml": "workflow: bad\nversion: 1\nsteps: [{id: a, do: no.such.thing}, {id: a, wait: {for: x}}]\n",
    "docs/bytes.yaml": "\udcff",
    "docs/gets.yaml": """
policy: gets
version: 2
rules:
  - {id: get, match: {connector: http}, when: "action.target != 'x'", outcome: allow, because: Harmless.}
  - {id: odd, match: {connector: http}, when: "agent.model == 'm'", outcome: allow}
""",
    "docs/posts.yaml": """
policy: posts
version: 1
rules:
  - {id: post, match: {connector: slack}, when: "true", outcome: needs_approval, approvers: [{group: leads}]}
  - {id: open, match: {operation: servicenow.incident.get}, outcome: allow,
     when: "origin.sys_id.all(o, 'field:http.request.send#/status' in o)"}
""",
    "docs/nobody.yaml": """
policy: nobody
version: 1
rules:
  - {id: post, match: {connector: slack}, outcome: needs_approval, approvers: [{group: laeds}]}
""",
    "docs/people.yaml": "directory: d\nversion: 1\npeople: [{id: ann, name: Ann}]\ngroups: {leads: [ann]}\n",
    "docs/empty.yaml": "directory: d\nversion: 1\npeople: [{id: ann, name: Ann}]\n",
    "docs/get.json": '{"operation": "http.request.send", "input": {"method": "GET", "url": "https://a.example/"}}',
    "docs/odd.json": '{"operation": "http.request.send", "surprise": 1}',
}
GETS, POSTS = ("--policy", "docs/gets.yaml"), ("--policy", "docs/posts.yaml")
# The exit code, and the command line.
LINES: list[tuple[Any, ...]] = [
    (0, "workflow", "check", "docs/good.yaml"),
    (0, "workflow", "check", "docs/good.yaml", "docs/other.yaml", *GETS, *POSTS),
    (0, "workflow", "check", "docs/good.yaml", "--in-force"),
    (0, "workflow", "check", "docs/good.yaml", *GETS, "--in-force", "--json"),
    (2, "workflow", "check", "docs/good.yaml", "--policy", "docs/bad.yaml"),
    (2, "workflow", "check", "docs/bad.yaml", "docs/ours.yaml", "docs/other.yaml"),
    (2, "workflow", "check", "docs/bad.yaml", "docs/ours.yaml", "docs/other.yaml", "--json"),
    (2, "workflow", "check", "docs/bytes.yaml", "docs/none.yaml"),
    (0, "policy", "check", "docs/gets.yaml", "docs/posts.yaml", "--directory", "docs/people.yaml"),
    (0, "policy", "check", "docs/posts.yaml", "docs/gets.yaml", "--directory", "docs/people.yaml", "--json"),
    (2, "policy", "check", "docs/nobody.yaml", "docs/gets.yaml", "--directory", "docs/people.yaml"),
    (2, "policy", "check", "docs/nobody.yaml", "--directory", "docs/empty.yaml"),
    (0, "policy", "check", "docs/nobody.yaml"),
    (2, "policy", "check", "docs/gets.yaml", "--directory", "docs/bad.yaml"),
    (2, "policy", "check", "docs/none.yaml", "--json"),
    (0, "policy", "explain", "docs/get.json"),
    (0, "policy", "explain", "docs/get.json", *GETS, *POSTS),
    (0, "policy", "explain", "docs/get.json", *GETS, "--json"),
    (2, "policy", "explain", "docs/odd.json", *GETS),
    (2, "policy", "explain", "docs/get.json", "--policy", "docs/bad.yaml"),
    (2, "policy", "explain", "docs/none.json", *GETS),
]


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str], clean_environment: pytest.MonkeyPatch, restored_logging: None, tmp_path: Path
) -> Command:
    """The command line in a folder with these documents, where the policy ``posts`` is in force."""
    clean_environment.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_bytes(text.lstrip().encode(errors="surrogateescape"))
    in_force = PolicySet.of(Definitions(load_catalog()).compile_policy(FILES["docs/posts.yaml"], "in force"))

    async def policies_in_force() -> Any:
        return in_force, load_catalog()

    clean_environment.setattr(context, "policies_in_force", policies_in_force)
    return Command(capsys, clean_environment)


def _without_outlines(told: Any) -> Any:
    """The answer without the outlines, which have tests of their own; of these, the verdicts."""
    for one in told if isinstance(told, list) else []:
        if "outline" in one:
            one["outline"] = {name: one["outline"].get(name) for name in ("policies", "foreseen")}
    return told


@pytest.mark.req("X-3")
@pytest.mark.req("U-8")
def test_what_is_right_and_wrong_with_documents_is_said_to_people_and_programs(command: Command) -> None:
    found: dict[str, Any] = {}
    for code, *line in LINES:
        words = [str(word) for word in line]
        out = command(*words, exit_code=int(code))
        told = _without_outlines(json.loads(out)) if "--json" in words else out.splitlines()
        found[" ".join(words)] = [code, told, command.said.splitlines()]
    as_it_was(HERE / "whole_checks_alone.json", found)


def test_an_action_is_denied_where_no_policy_is_in_force(
    command: Command, clean_environment: pytest.MonkeyPatch
) -> None:
    async def none_in_force() -> Any:
        return PolicySet(()), load_catalog()

    clean_environment.setattr(context, "policies_in_force", none_in_force)
    command("policy", "explain", "docs/get.json", exit_code=4)
    words = "No policy is in force, so every action is denied. Publish one, or give --policy FILE."
    assert command.said == f"counterseal: {words}\n"
    assert command.json("workflow", "check", "docs/good.yaml", "--in-force")[0]["outline"]["policies"] == []
    assert "policies" not in command.json("workflow", "check", "docs/good.yaml")[0]["outline"]
