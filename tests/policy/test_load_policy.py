"""Mistakes of a policy's author: each is refused when it loads, at its place, with what would be right."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from core.errors import DefinitionError
from policy.facts import BASE_FACTS, OperationFacts, declare
from policy.load import Policy, load_policy
from policy.model import PolicyDocument

UPDATE = "match: {operation: servicenow.incident.update}"


@pytest.mark.parametrize(
    ("rules", "line", "message"),
    [
        (f"- {{id: a, {UPDATE}, outcome: alow}}", 4, r'"alow" is not accepted. One of deny, needs_approval, allow'),
        (f"- {{id: a, {UPDATE}, outcom: deny}}", 4, r"unknown key 'outcom'\. Did you mean 'outcome'\?"),
        (f"- {{id: a, {UPDATE}}}", 4, r"rules\[0\]: the key 'outcome' is missing"),
        (
            "- id: a\n  match: {operation: servicenow.incident.updat}\n  outcome: deny",
            5,
            "mean 'servicenow.incident.up",
        ),
        ("- id: a\n  match: {connector: slak}\n  outcome: deny", 5, "no connector 'slak'. Did you mean 'slack'"),
        ("- id: a\n  match: {connector: slack, operation: http.*}\n  outcome: deny", 5, "in connector 'slack'"),
        ("- id: a\n  match: {}\n  outcome: deny", 5, "name an operation or a connector"),
        (f"- {{id: a, {UPDATE}, outcome: allow}}\n- {{id: a, {UPDATE}, outcome: deny}}", 5, "'a' is taken"),
        (f"- id: a\n  {UPDATE}\n  outcome: needs_approval", 6, "nobody could approve"),
        (f"- id: a\n  {UPDATE}\n  outcome: needs_approval\n  approvers: []", 7, "nobody could approve"),
        (f"- id: a\n  {UPDATE}\n  outcome: deny\n  tier: high", 7, "'tier' has no meaning with outcome deny"),
        (
            f"- id: a\n  {UPDATE}\n  outcome: deny\n  in_doubt: {{approvers: [{{group: ops}}]}}",
            7,
            "'in_doubt' has no meaning",
        ),
        (f"- id: a\n  {UPDATE}\n  outcome: allow\n  in_doubt: {{approvers: []}}", 7, "at least 1"),
        (f"- id: a\n  {UPDATE}\n  outcome: allow\n  two_person: false", 7, "'two_person' has no meaning"),
        (f"- id: a\n  {UPDATE}\n  outcome: allow\n  when: action.fields.pririty == '1'", 7, "'action.fields.priority'"),
        (f"- id: a\n  {UPDATE}\n  outcome: allow\n  when: action.fields.priority == 1", 7, "no matching overload"),
        (f"- id: a\n  {UPDATE}\n  outcome: allow\n  when: action.fields.priority", 7, "type string, not bool"),
        (f"- id: a\n  {UPDATE}\n  outcome: allow\n  when: '${{{{ true }}}}'", 7, "an expression already"),
        (f"- id: a\n  {UPDATE}\n  outcome: allow\n  when: has(action.fields.state)", 7, "action.present"),
        (f"- id: a\n  {UPDATE}\n  outcome: allow\n  when: true\n  when: false", 8, "'when' is here twice"),
        (f"- id: a\n  {UPDATE}\n  outcome: allow\n  when: noww > timestamp('2026-01-01T00:00:00Z')", 7, "'now'"),
    ],
)
def test_mistakes(load: Callable[[str], Policy], rules: str, line: int, message: str) -> None:
    with pytest.raises(DefinitionError, match=message) as caught:
        load(rules)
    assert any(problem.line == line and problem.file == "test.yaml" for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ("approvers: [{group: a, slack_group: b}]", "exactly one of group, slack_group"),
        ("approvers: [{group: a, of: 0}]", "greater than or equal to 1"),
        ("approvers: [{group: a}]\n  expires: P1M", "'P1M' is not an ISO 8601 duration"),
        ("approvers: [{group: a}]\n  expires: PT2H\n  remind: [PT1H, PT2H]", "expired already"),
        ("approvers: [{group: a}]\n  escalate: {after: P2D, to: {group: b}}", "expired already"),
        ("approvers: [{group: a}]\n  expires: PT2H\n  escalate: {after: PT2H, to: {group: b}}", "expired already"),
        ("approvers: [{group: a}]\n  escalate: {after: PT1H}", "the key 'to' is missing"),
        ("approvers: [{group: a}]\n  escalate: {after: PT1H, to: {}}", "exactly one of group, slack_group"),
        ("approvers: [{group: a}]\n  tier: severe", "One of low, medium, high"),
        ('approvers: [{group: a}]\n  two_person: "yes"', "valid boolean"),
    ],
)
@pytest.mark.req("Q-3")
def test_mistakes_in_approval_terms(load: Callable[[str], Policy], terms: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        load(f"- id: a\n  {UPDATE}\n  outcome: needs_approval\n  {terms}")


def test_every_problem_is_reported_at_once(load: Callable[[str], Policy]) -> None:
    with pytest.raises(DefinitionError) as caught:
        load(f"- {{id: a, {UPDATE}, outcome: allow, when: nope}}\n- {{id: b, match: {{connector: x}}, outcome: deny}}")
    assert [problem.line for problem in caught.value.problems] == [4, 5]


RULES = {
    "asks": "outcome: needs_approval, approvers: [{group: g}]",
    "asks nobody": "outcome: needs_approval",
    "asks late": "outcome: needs_approval, approvers: [{group: g}], expires: PT1H, remind: [PT2H]",
    "terms of nothing": "outcome: allow, tier: high",
    "the same": "outcome: deny, when: size(run.id) > 0, otherwise: deny",
    "doubt of nothing": "outcome: deny, when: size(run.id) > 0, otherwise: deny, in_doubt: {approvers: [{group: g}]}",
}
TOLD = {
    "asks": [],
    "asks nobody": ["nobody could approve"],
    "asks late": ["reminds when the approval has expired already"],
    "terms of nothing": ["'tier' has no meaning with outcome allow"],
    "the same": ["'otherwise' is what 'outcome' is"],
    "doubt of nothing": ["'otherwise' is what 'outcome' is", "'in_doubt' has no meaning with outcome deny"],
}


@pytest.mark.parametrize("first", RULES)
@pytest.mark.parametrize("second", RULES)
def test_a_fault_of_one_rule_hides_none_of_another(load: Callable[[str], Policy], first: str, second: str) -> None:
    rules = (("a", first), ("b", "asks"), ("c", second), ("a", "asks"))
    text = "\n".join(f"- {{id: {name}, {UPDATE}, {RULES[kind]}}}" for name, kind in rules)
    with pytest.raises(DefinitionError) as caught:
        load(text)
    found = [(one.line, one.message.removeprefix("rule a: ").removeprefix("rule c: ")) for one in caught.value.problems]
    wanted = [*((4, said) for said in TOLD[first]), *((6, said) for said in TOLD[second]), (7, "the id 'a' is taken")]
    assert len(found) == len(wanted)
    assert [line for line, _ in sorted(found)] == [line for line, _ in wanted]
    for line, said in wanted:
        assert any(at == line and message.startswith(said) for at, message in found), said


@pytest.mark.parametrize(
    "text", ["", "policy: p", "policy: p\nversion: 1\nrules: []", "policy: p\nversion: 0\nrules: []", "[]", "a: [", "x"]
)
@pytest.mark.req("U-4")
def test_a_policy_that_says_nothing_does_not_load(operations: Mapping[str, OperationFacts], text: str) -> None:
    with pytest.raises(DefinitionError):
        load_policy(text, "test.yaml", operations)


def test_the_digest_is_that_of_the_exact_text(operations: Mapping[str, OperationFacts]) -> None:
    text = f"policy: p\nversion: 1\nrules: [{{id: a, {UPDATE}, outcome: allow}}]  # é\n"
    policy = load_policy(text, "p.yaml", operations)
    assert policy.digest == hashlib.sha256(text.encode()).hexdigest()
    assert (policy.name, policy.version, policy.text) == ("p", 1, text)
    assert load_policy(text + "\n", "p.yaml", operations).digest != policy.digest


def test_a_rule_sees_the_fields_of_all_operations_that_it_matches(load: Callable[[str], Policy]) -> None:
    load("- {id: a, match: {operation: http.request.send}, when: action.fields.amount > 5, outcome: allow}")
    with pytest.raises(DefinitionError, match="undeclared"):
        load("- {id: a, match: {connector: slack}, when: action.fields.amount > 5, outcome: allow}")
    load("- {id: a, match: {operation: '*'}, when: action.fields.amount > 5, outcome: allow}")


def test_conflicting_and_unwritable_fields() -> None:
    declared = declare(
        [
            OperationFacts({"limit": "int", "x": "string", "my-field": "string", "a.b": "string", "in": "int"}),
            OperationFacts({"limit": "string", "x": "string"}, frozenset({"state", "no-name"})),
            OperationFacts({"limit": "int"}),
        ]
    )
    fields = {name: kind for name, kind in declared.items() if name.startswith(("action.fields.", "action.before."))}
    assert fields == {"action.fields.limit": "dyn", "action.fields.x": "string", "action.before.state": "dyn"}


def test_rules_share_a_program_because_no_fact_begins_like_another(operations: Mapping[str, OperationFacts]) -> None:
    declared = declare(operations.values())
    assert not [(a, b) for a in declared for b in declared if b.startswith(f"{a}.")]
    assert {name.split(".")[0] for name in declared} == {name.split(".")[0] for name in BASE_FACTS}


def test_the_published_schema_names_what_is_accepted() -> None:
    rule = PolicyDocument.model_json_schema()["$defs"]["RuleDocument"]
    assert rule["additionalProperties"] is False
    assert rule["properties"]["expires"]["pattern"].startswith("^P")


def test_the_example_policy_loads(operations: Mapping[str, OperationFacts]) -> None:
    path = Path(__file__).parents[2] / "examples/policies/it-operations.yaml"
    policy = load_policy(path.read_text(), path.name, operations)
    assert policy.name == "it-operations"


@pytest.mark.req("Q-3")
def test_a_reminder_and_an_escalation_come_a_second_before_the_end(load: Callable[[str], Policy]) -> None:
    terms = "expires: PT2H\n  remind: [PT1H59M59S]\n  escalate: {after: PT1H59M59S, to: {group: b}}"
    load(f"- id: a\n  {UPDATE}\n  outcome: needs_approval\n  approvers: [{{group: a}}]\n  {terms}")
