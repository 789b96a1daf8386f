"""Deciders must be able to decide: a question that nobody could ever decide is not published, the rest is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from app import definitions
from app.access import Role
from app.cli.outcome import Exit
from app.faces import build_faces
from app.settings import Settings
from core.errors import ConfigurationError, DefinitionError
from runtime.definition.people import of_policy, of_workflow

GROUPS = {
    "leads": frozenset({"ann", "bob", "cid"}),
    "duty": frozenset({"dan"}),
    "pair": frozenset({"ann", "bob"}),
    "same": frozenset({"ann", "bob"}),
    "empty": frozenset[str](),
}
RULE = "  - {id: ask, match: {connector: probe}, outcome: needs_approval, %s}\n"
FLOW = "workflow: flow\nversion: 1\nreference: x\nsteps:\n  - {id: ask, %s}\n"
PEOPLE = "directory: d\nversion: 1\npeople: [{id: ann, name: Ann}, {id: bob, name: Bob}]\ngroups: {leads: [ann, bob]}\n"


def _policy(*terms: str) -> str:
    return "policy: asks\nversion: 1\nrules:\n" + "".join(RULE % one for one in terms)


CAN = [
    "approvers: [{group: leads, of: 3}]",
    "approvers: [{group: leads, of: 2}, {group: duty}], two_person: true",
    "approvers: [{group: pair, of: 2}, {group: same, of: 2}]",
    "approvers: [{slack_group: S0ITLEADS, of: 9}], two_person: true",
    "approvers: [{group: duty}, {slack_group: S0ITLEADS}], two_person: true",
    "approvers: [{group: leads}], escalate: {after: PT1H, to: {slack_group: S0ITLEADS}}",
]
CANNOT = [
    ("approvers: [{group: laeds}]", "rule ask: the directory has nobody in a group 'laeds'", "Did you mean 'leads'?"),
    ("approvers: [{group: empty}]", "the directory has nobody in a group 'empty'", "Known here: duty"),
    ("approvers: [{group: duty, of: 9}]", "it asks for 9 of the group 'duty', which has 1.", "Ask for 1 at most"),
    ("approvers: [{group: leads}, {group: duty, of: 2}]", "it asks for 2 of the group 'duty', which has 1.", "more"),
    ("approvers: [{group: duty}], two_person: true", "two_person asks for 2 different people", "Leave two_person out"),
    (
        "approvers: [{group: pair, of: 2}, {group: same}], two_person: true",
        "asks for 3 different people, a seat each, of 'pair' and 'same', which have 2 between them",
        "more people",
    ),
    (
        "approvers: [{group: leads}], escalate: {after: PT1H, to: {group: nobody}}",
        "rule ask: its escalation: the directory has nobody in a group 'nobody'",
        "Known here",
    ),
    (
        "approvers: [{group: leads, of: 2}], two_person: true, escalate: {after: PT1H, to: {group: duty}}",
        "its escalation: two_person asks for 2 different people",
        "Leave",
    ),
    (
        "approvers: [{group: leads}], in_doubt: {approvers: [{group: duty, of: 2}]}",
        "rule ask: in doubt: it asks for 2 of the group 'duty', which has 1.",
        "Ask for 1 at most",
    ),
]


@pytest.mark.parametrize("terms", CAN)
def test_a_rule_that_somebody_can_decide_is_no_problem(terms: str) -> None:
    assert of_policy(_policy(terms), "p.yaml", GROUPS).problems == []


@pytest.mark.parametrize(("terms", "message", "remedy"), CANNOT)
def test_a_rule_that_nobody_can_decide_is_named_with_its_numbers(terms: str, message: str, remedy: str) -> None:
    (problem,) = of_policy(_policy(CAN[0], terms).replace("ask,", "first,", 1), "p.yaml", GROUPS).problems
    assert (problem.file, problem.line) == ("p.yaml", 5)
    assert problem.message.startswith("policy asks version 1, rule ask: ")
    assert message in problem.message
    assert remedy in problem.remedy


@pytest.mark.parametrize(
    ("terms", "stuck"),
    [
        ("approvers: [{group: leads, of: 3}]", "ann, bob, cid"),
        ("approvers: [{group: leads, of: 2}]", ""),
        ("approvers: [{group: duty}]", "dan"),
        ("approvers: [{group: duty}], allow: [requester]", ""),
        ("approvers: [{group: duty}], escalate: {after: PT1H, to: {group: leads}}", ""),
        ("approvers: [{group: leads}, {group: pair}], two_person: true", ""),
        ("approvers: [{group: pair}, {group: same}], two_person: true", "ann, bob"),
    ],
)
def test_a_requester_whose_own_requests_nobody_could_decide_is_a_warning(terms: str, stuck: str) -> None:
    found = of_policy(_policy(terms), "p.yaml", GROUPS)
    assert found.problems == []
    assert [f"nobody could decide what {stuck} requested" in one for one in found.warnings] == ([True] if stuck else [])


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("approve: {summary: Go?, approvers: {group: laeds}}", "nobody in a group 'laeds'"),
        ("approve: {summary: Go?, approvers: {group: duty}, quorum: 2}", "it asks for 2 of the group 'duty'"),
        ("approve: {summary: Go?, approvers: {group: duty}, two_person: true}", "two_person asks for 2"),
        ("task: {title: T, form: {type: object}, assign: {group: laeds}}", "nobody in a group 'laeds'"),
        ("wait: {signal: s}, timeout: PT1H, on_timeout: {escalate: laeds}", "nobody in a group 'laeds'"),
    ],
)
def test_gates_tasks_and_escalations_of_workflows_are_looked_at(step: str, message: str) -> None:
    (problem,) = of_workflow(FLOW % step, "f.yaml", GROUPS).problems
    assert problem.message.startswith("workflow flow version 1: ")
    assert message in problem.message
    assert problem.line == 5
    assert of_workflow(FLOW % step.replace("laeds", "leads").replace("duty", "leads"), "f", GROUPS).problems == []


def _file(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_the_command_line_refuses_warns_and_checks(command: Any, tmp_path: Path) -> None:
    people = _file(tmp_path, "d.yaml", PEOPLE)
    good = _file(tmp_path, "good.yaml", _policy("approvers: [{group: leads}]"))
    bad = _file(tmp_path, "bad.yaml", _policy("approvers: [{group: laeds}]").replace("version: 1", "version: 2"))
    flow = _file(tmp_path, "flow.yaml", FLOW % "approve: {summary: Go?, approvers: {group: laeds}}")

    # Without a directory it is a warning.
    (told,) = command.json("policy", "publish", good)
    assert "the tenant has no directory yet" in told["warnings"][0]
    (told,) = command.json("directory", "publish", people)
    assert told["warnings"] == []
    command("policy", "publish", bad, exit_code=Exit.INPUT)
    assert f"{bad}:4:" in command.said
    assert "Did you mean 'leads'?" in command.said
    command("workflow", "publish", flow, exit_code=Exit.INPUT)
    assert [one["version"] for one in command.json("policy", "list")] == [1], "nothing of it was published"
    assert command.json("workflow", "list") == []

    command("policy", "check", bad)
    command("policy", "check", bad, "--directory", people, exit_code=Exit.INPUT)
    assert "Did you mean 'leads'?" in command.said
    (checked,) = command.json("policy", "check", good, "--directory", people)
    assert (checked["ok"], checked["warnings"]) == (True, [])

    # People leave: that is published, and said.
    left = _file(tmp_path, "left.yaml", PEOPLE.replace("leads: [ann, bob]", "others: [ann, bob]"))
    command("directory", "publish", left)
    assert "warning: asks@1:4:" in command.said
    assert "nobody in a group 'leads'" in command.said


async def test_http_answers_with_every_problem_or_with_warnings(installation: Any) -> None:
    client = await installation.client(Role.ADMIN)
    bad = await client.post("/v1/policies", json={"source": _policy("approvers: [{group: laeds}]"), "file": "p.yaml"})
    assert bad.status_code == 422
    (problem,) = bad.json()["problems"]
    assert (problem["line"], problem["remedy"]) == (4, "Did you mean 'leads'?")
    good = await client.post("/v1/policies", json={"source": _policy("approvers: [{group: leads, of: 2}]")})
    assert good.status_code == 201
    assert "nobody could decide what ann, bob requested" in good.json()["warnings"][0]


@pytest.mark.req("X-2")
async def test_a_start_refuses_or_warns_as_for_any_invalid_definition(
    settings: Settings, definitions_dir: Path
) -> None:
    (definitions_dir / "policies").mkdir()
    _file(definitions_dir, "directory.yaml", PEOPLE)
    _file(definitions_dir, "policies/p.yaml", _policy("approvers: [{group: leads, of: 9}]"))
    strict = settings.model_copy(update={"definitions_mode": "strict"})
    words = "it asks for 9 of the group 'leads', which has 2"
    async with build_faces(strict) as faces:
        with pytest.raises(ConfigurationError, match=words):
            await definitions.prepare(faces)
    async with build_faces(settings) as faces:
        with capture_logs() as logs:
            await definitions.prepare(faces)
        assert any(words in entry.get("reason", "") for entry in logs)
        async with faces.database.transaction("default") as connection:
            assert await connection.fetchval("SELECT policy_digests FROM tenants") == []
            assert await connection.fetchval("SELECT count(*) FROM people") == 2


def test_what_is_no_policy_is_told_as_such() -> None:
    with pytest.raises(DefinitionError):
        of_policy("policy: 7", "p.yaml", GROUPS)
