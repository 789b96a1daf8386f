"""Rules with ``otherwise``: the same rule gives another outcome where its condition is false."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from core.errors import DefinitionError
from policy.evaluate import build_facts, evaluate
from policy.explain import explain
from policy.facts import FactContext, OperationFacts
from policy.foresee import Verdict, changed, foresee
from policy.load import Policy, load_policy
from policy.model import Ruling
from policy.sets import PolicySet
from runtime.definition.schemas import SchemaName, schema_text

Load = Callable[[str], Policy]
ASKS = "\n    approvers: [{group: leads, of: 2}]\n    tier: high"
pytestmark = pytest.mark.req("U-4")


def rule(when: str, outcome: str, otherwise: str, more: str = "", operation: str = "servicenow.incident.update") -> str:
    return f"""
  - id: only-state
    match: {{operation: {operation}}}
    when: "{when}"
    outcome: {outcome}
    otherwise: {otherwise}{more}
"""


STATE = "action.changed.all(f, f == 'state')"


@pytest.mark.parametrize(
    ("outcome", "otherwise", "fields", "found"),
    [
        ("allow", "needs_approval", {"state": "6"}, Ruling.ALLOW),
        ("allow", "needs_approval", {"priority": "1"}, Ruling.NEEDS_APPROVAL),
        ("needs_approval", "allow", {"state": "6"}, Ruling.NEEDS_APPROVAL),
        ("needs_approval", "allow", {"priority": "1"}, Ruling.ALLOW),
        ("needs_approval", "deny", {"priority": "1"}, Ruling.DENY),
        ("deny", "needs_approval", {"priority": "1"}, Ruling.NEEDS_APPROVAL),
    ],
)
def test_one_of_the_two_outcomes_holds(
    load: Load, update: Any, context: FactContext, outcome: str, otherwise: str, fields: Any, found: Ruling
) -> None:
    action = update(fields)
    decision = evaluate(
        PolicySet.of(load(rule(STATE, outcome, otherwise, ASKS))), build_facts(action, context), action.operation
    )
    assert decision.outcome is found
    assert [(one.id, one.outcome) for one in decision.rules] == [("only-state", found)]
    assert (decision.approval is not None) == (found is Ruling.NEEDS_APPROVAL)
    if decision.approval is not None:
        assert [group.of for group in decision.approval.approvers] == [2]


@pytest.mark.parametrize("when", ["action.fields.state == '6'", "action.fields.state == '6' // and no more"])
def test_an_error_denies_once(load: Load, update: Any, context: FactContext, when: str) -> None:
    action = update({"priority": "1"})
    decision = evaluate(
        PolicySet.of(load(rule(when, "allow", "needs_approval", ASKS))), build_facts(action, context), action.operation
    )
    assert decision.outcome is Ruling.DENY
    assert [error.rule for error in decision.errors] == ["only-state"]
    assert "!(" not in decision.errors[0].message
    assert len(decision.reasons) == 1
    action = update({"state": "5"})
    policy = load(rule(when, "allow", "needs_approval", ASKS))
    assert (
        evaluate(PolicySet.of(policy), build_facts(action, context), action.operation).outcome is Ruling.NEEDS_APPROVAL
    )


def test_the_strictest_of_all_rules_wins_all_the_same(load: Load, update: Any, context: FactContext) -> None:
    other = "  - {id: never, match: {operation: '*'}, when: \"'priority' in action.changed\", outcome: deny}\n"
    policy = load(rule(STATE, "allow", "needs_approval", ASKS) + other)
    action = update({"priority": "1"})
    decision = evaluate(PolicySet.of(policy), build_facts(action, context), action.operation)
    assert decision.outcome is Ruling.DENY
    assert [one.id for one in decision.rules] == ["only-state", "never"]


def test_an_explanation_shows_which_of_the_two_held(load: Load, update: Any, context: FactContext) -> None:
    explained = explain(
        PolicySet.of(load(rule(STATE, "allow", "needs_approval", ASKS))), update({"priority": "1"}), context
    )
    assert [(one.id, one.outcome, one.fired) for one in explained.rules] == [
        ("only-state", Ruling.ALLOW, False),
        ("only-state", Ruling.NEEDS_APPROVAL, True),
    ]
    assert explained.rules[1].when == f"!({STATE}\n)"


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("  - {id: a, match: {operation: '*'}, outcome: allow, otherwise: deny}", "no meaning without 'when'"),
        (rule("true", "allow", "allow"), "'otherwise' is what 'outcome' is"),
        (rule("true", "allow", "perhaps"), "is not accepted"),
        (rule("true", "allow", ""), "no value"),
        (rule("true", "allow", "needs_approval"), "nobody could approve"),
        (rule("true", "allow", "deny", ASKS), "has no meaning with outcome"),
        (rule("true) || (false", "allow", "deny"), "only-state"),
    ],
)
def test_mistakes(load: Load, rules: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=message.replace("(", r"\(")):
        load(rules)


@pytest.mark.parametrize(
    ("keys", "valid"),
    [
        ({"when": "true", "outcome": "allow", "otherwise": "deny"}, True),
        ({"when": "true", "outcome": "allow", "otherwise": "needs_approval", "approvers": [{"group": "a"}]}, True),
        ({"when": "true", "outcome": "allow", "otherwise": "needs_approval"}, False),
        ({"when": "true", "outcome": "allow", "otherwise": "deny", "approvers": [{"group": "a"}]}, False),
        ({"outcome": "allow", "otherwise": "deny"}, False),
        ({"outcome": "allow"}, True),
    ],
)
def test_the_published_schema_agrees(keys: dict[str, Any], valid: bool) -> None:
    document = {"policy": "p", "version": 1, "rules": [{"id": "a", "match": {"operation": "*"}, **keys}]}
    validator = Draft202012Validator(json.loads(schema_text(SchemaName.POLICY)))
    assert validator.is_valid(document) == valid


def test_a_rule_for_one_operation_holds_for_what_can_do_the_same() -> None:

    generic = "servicenow.record.update"
    operations = {
        "servicenow.incident.update": OperationFacts({}, generics={generic: "action.target.startsWith('incident/')"}),
        generic: OperationFacts({}),
    }
    text = "policy: test\nversion: 1\nrules:\n" + rule("action.reversible", "allow", "deny")
    policy = load_policy(text + f"  - {{id: all, match: {{operation: {generic}}}, outcome: allow}}\n", "t", operations)
    for target, reversible, found in (
        ("incident/1", False, Ruling.DENY),
        ("incident/1", True, Ruling.ALLOW),
        ("problem/1", False, Ruling.ALLOW),
    ):
        facts = {"action.operation": generic, "action.target": target, "action.reversible": reversible}
        assert evaluate(PolicySet.of(policy), facts, generic).outcome is found


@pytest.mark.parametrize(
    ("when", "more", "verdict", "outcomes"),
    [
        (STATE, "", Verdict.DEPENDS, (Ruling.NEEDS_APPROVAL, Ruling.ALLOW)),
        ("run.workflow == 'triage'", "", Verdict.ALLOWED, (Ruling.ALLOW,)),
        ("run.workflow == 'other'", "", Verdict.ASKS, (Ruling.NEEDS_APPROVAL,)),
        (STATE, "  - {id: b, match: {operation: '*'}, outcome: deny}\n", Verdict.DENIED, (Ruling.DENY,)),
    ],
)
def test_one_of_the_two_is_foreseen(
    load: Load, when: str, more: str, verdict: Verdict, outcomes: tuple[Ruling, ...]
) -> None:
    policies = PolicySet.of(load(rule(when, "allow", "needs_approval", ASKS) + more))
    foreseen = foresee(policies, "triage", "servicenow.incident.update", {"run.workflow": "triage"})
    assert (foreseen.verdict, foreseen.outcomes) == (verdict, outcomes)
    assert len(foreseen.rules) == len(set(foreseen.rules))


def test_a_change_of_either_outcome_is_seen(load: Load) -> None:
    before, *after = (
        PolicySet.of(load(rule(STATE, *outcomes, ASKS)))
        for outcomes in (("allow", "needs_approval"), ("deny", "needs_approval"), ("needs_approval", "allow"))
    )
    for policies in after:
        assert [kind for _, kind in changed(before, policies)] == ["changes"]
    assert list(changed(before, before)) == []
