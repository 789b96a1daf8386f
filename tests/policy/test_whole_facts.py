"""The facts of an action, the decision over them and its explanation: whole, with values that differ everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from core.action import Action, Risk, SideEffects
from core.terms import Tier
from policy.evaluate import build_facts, evaluate, quorums, terms_of
from policy.explain import explain
from policy.facts import BASE_FACTS, FactContext, OperationFacts
from policy.foresee import foresee
from policy.load import Policy, load_policy
from policy.model import PolicyDocument, RuleDocument
from policy.sets import BrokenPolicy, PolicySet
from tests.support.whole import as_it_was

EXPECTED = Path(__file__).with_name("whole_facts.json")
UPDATE = "servicenow.incident.update"
ACTION = Action(
    operation=UPDATE,
    input={"sys_id": "46d", "fields": {"state": "7", "priority": "1", "work_notes": "x"}},
    fields={"state": "7", "priority": "1", "work_notes": "x"},
    target="incident/46d",
    target_version="4",
    before={"state": "2", "priority": "1"},
    risk=Risk.HIGH,
    side_effects=SideEffects.HUMAN_PROCESS,
    reversible=True,
    summary="s",
    reverse={"operation": UPDATE, "input": {}},
    system="https://acme as svc",
    shaped=("updater:person:ann", "editor:person:bob"),
)
CONTEXT = FactContext(
    **{name: f"its.{name}" for name in FactContext.__struct_fields__ if name != "agent_read"}
    | {
        "run_version": 2,
        "writes_in_run": 3,
        "same_in_run": 4,
        "refused_in_run": 5,
        "asked_in_run": 6,
        "agent_turn": 7,
        "agent_read": ("a.b.c", "d.e"),
    }
)
FIRST = """policy: first
version: 3
applies: {workflows: [its.run_*], connectors: [servicenow]}
rules:
  - id: closes
    match: {operation: servicenow.incident.*}
    when: action.fields.state == '7' && counters.asked_in_run == 6
    outcome: needs_approval
    otherwise: allow
    tier: high
    approvers: [{group: leads, of: 2}, {slack_group: S0OPS}]
    two_person: true
    allow: [requester, editor]
    expires: PT4H
    fresh_for: PT5H
    remind: [PT2H, PT1H]
    escalate: {after: PT3H, to: {group: managers}}
    because: It closes.
    in_doubt: {approvers: [{group: doubters, of: 3}, {slack_group: S0DOUBT}]}
  - {id: other, match: {connector: servicenow}, when: "agent.model == 'none'", outcome: deny, because: Not so.}
  - {id: reads, match: {connector: servicenow}, when: "'x' in action.changed", outcome: allow}
"""
SECOND = """policy: second
version: 1
rules:
  - id: also
    match: {operation: servicenow.*}
    outcome: needs_approval
    approvers: [{group: leads}, {group: owners, of: 4}]
    allow: [editor]
    expires: PT6H
    fresh_for: PT1H
    remind: [PT1H, PT3H]
    in_doubt: {approvers: [{group: doubters}]}
  - {id: fails, match: {operation: slack.*}, when: "action.target.charAt(900) == 'x'", outcome: allow}
"""


@pytest.fixture
def policies(operations: Mapping[str, OperationFacts]) -> Callable[..., PolicySet]:
    def load(*texts: str) -> PolicySet:
        return PolicySet([load_policy(text, "p.yaml", operations) for text in texts])

    return load


@pytest.mark.req("U-4")
def test_what_is_judged_and_what_comes_of_it(policies: Callable[..., PolicySet]) -> None:
    both, found = policies(SECOND, FIRST), dict[str, Any]()
    facts = build_facts(ACTION, CONTEXT, {"origin.sys_id": [["requester"]]})
    assert {*BASE_FACTS} - {*facts} == set()
    found["facts"] = facts
    fresh = Action(**{name: getattr(ACTION, name) for name in ACTION.__struct_fields__} | {"before": None})
    found["facts without a pre-read"] = build_facts(fresh, FactContext(run_workflow="w", agent_step="a"))
    found["changes"] = to_builtins([ACTION.changes, fresh.changes])
    first, broken = policies(FIRST), BrokenPolicy("d", "It is broken.")
    for name, members, workflow in (
        ("both", both, None),
        ("first alone", first, None),
        ("second alone", policies(SECOND), None),
        ("elsewhere", both, "elsewhere"),
        ("first elsewhere", first, "elsewhere"),
        ("none", PolicySet(), None),
        ("one that cannot be read", PolicySet([*both.members, broken]), None),
    ):
        decision = evaluate(members, facts, UPDATE, workflow)
        more = {"facts read": {**decision.facts_read}, "asking": list(map(str, decision.asking))}
        found[name] = decision.to_json() | more | {"in doubt": to_builtins(decision.in_doubt)}
        found[f"{name}, foreseen"] = foresee(members, workflow or CONTEXT.run_workflow, UPDATE, {}).to_json()
    found["other facts"] = evaluate(both, facts, "slack.message.post").to_json()
    found["explained"] = explain(both, ACTION, CONTEXT).to_json()
    found["explained, first alone"] = explain(first, fresh, CONTEXT).to_json()
    as_it_was(EXPECTED, to_builtins(found))


def rule(**more: Any) -> RuleDocument:
    base = {"id": "r", "match": {"connector": "probe"}, "outcome": "needs_approval", "approvers": [{"group": "g"}]}
    document = {"policy": "p", "version": 1, "rules": [base | more]}
    return PolicyDocument.model_validate(document).rules[0]


def test_terms_of_several_rules_are_the_strictest_of_each() -> None:
    low = rule(tier="low", allow=["requester", "editor", "updater"], unresolved="ask", expires="PT9H", fresh_for="PT8H")
    high = rule(tier="high", allow=["updater", "editor"], expires="PT7H", remind=["PT6H", "PT1H"], two_person=True)
    other = rule(approvers=[{"group": "g", "of": 3}, {"slack_group": "g"}], remind=["PT1H", "PT8H"], allow=["editor"])
    told = terms_of([low, other, high]).to_json()
    assert told == terms_of([high, other, low]).to_json() | {"approvers": told["approvers"]}
    assert told == {
        "tier": "high",
        "approvers": [
            {"group": "g", "of": 3, "source": "group"},
            {"group": "g", "of": 1, "source": "slack_group"},
        ],
        "two_person": True,
        "allow": ["editor"],
        "unresolved": "deny",
        "expires_seconds": 7 * 3600,
        "remind_seconds": [3600, 6 * 3600],
        "escalate": None,
        "fresh_seconds": 8 * 3600,
    }
    assert terms_of([low, rule(unresolved="deny")]).unresolved == "deny"
    assert terms_of([rule(tier="high", unresolved="ask"), low]).unresolved == "ask"
    assert terms_of([rule()]).tier is Tier.MEDIUM


def test_the_first_escalation_that_comes_in_time_is_the_one() -> None:
    late = rule(expires="PT5H", escalate={"after": "PT4H", "to": {"group": "late"}})
    soon = rule(expires="PT9H", escalate={"after": "PT3H", "to": {"slack_group": "S0SOON"}})
    never = rule(expires="PT9H", escalate={"after": "PT8H", "to": {"group": "never"}})
    for rules in ([late, soon, never], [never, soon, late]):
        told: Any = terms_of(rules).to_json()["escalate"]
        assert told == {
            "after_seconds": 3 * 3600,
            "to": {"group": "S0SOON", "of": 1, "source": "slack_group"},
            "covers": [],
        }
    assert terms_of([rule(expires="PT8H"), never]).escalate is None, "it would have come when all was over"


def test_each_group_is_asked_for_its_largest_number() -> None:
    parts = rule(approvers=[{"group": "a", "of": 2}, {"group": "b"}, {"group": "a"}, {"slack_group": "a", "of": 5}])
    assert [(one.key, one.of) for one in quorums(parts.approvers)] == [
        ("group:a", 2),
        ("group:b", 1),
        ("slack_group:a", 5),
    ]


def test_a_policy_is_known_by_its_text(policies: Callable[..., PolicySet]) -> None:
    [one], [other] = policies(FIRST).policies, policies(f"{FIRST}# more\n").policies
    assert isinstance(one, Policy)
    assert (one.name, one.version, str(one.named)) == ("first", 3, "first@3")
    assert (one.digest == other.digest, len(one.digest)) == (False, 64)
    assert one.named.to_json() == {"name": "first", "version": 3, "digest": one.digest}
