"""Deny outranks needs_approval outranks allow; whatever is not certain is a denial."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.action import Action
from core.canonical import canonical_bytes
from core.identity import Role
from core.terms import Escalation, GroupQuorum, GroupSource, Tier
from policy.evaluate import Decision, build_facts, deny, evaluate
from policy.explain import explain
from policy.facts import FactContext, OperationFacts
from policy.load import Policy, load_policy
from policy.model import Ruling
from policy.sets import PolicySet

OPERATION = "servicenow.incident.update"
UPDATE = "match: {operation: servicenow.incident.update}"
RANK = {Ruling.ALLOW: 0, Ruling.NEEDS_APPROVAL: 1, Ruling.DENY: 2}
Load = Callable[[str], Policy]
Update = Callable[..., Action]


def decide(policy: Policy | None, action: Action, context: FactContext | None = None) -> Decision:
    return evaluate(
        PolicySet.of(policy),
        build_facts(action, context or FactContext(run_workflow="incident-triage")),
        action.operation,
    )


def test_rules_that_know_a_fact_under_different_types_each_keep_theirs(load: Load, update: Update) -> None:
    name = "servicenow.incident.query"
    policy = load(
        f"- {{id: whole, match: {{operation: {name}}}, when: action.fields.limit != 3, outcome: allow}}\n"
        "- {id: any, match: {operation: '*'}, when: action.fields.limit == 'all', outcome: deny}\n"
        f"- {{id: risk, match: {{operation: {name}}}, when: action.risk == 'medium', outcome: allow}}"
    )
    assert len(PolicySet.of(policy).applying("", name).groups) == 2
    decision = decide(policy, update({"limit": 5}, operation=name))
    assert ([rule.id for rule in decision.rules], decision.errors) == (["whole", "risk"], ())
    decision = decide(policy, update({"limit": "all"}, operation=name))
    assert ([rule.id for rule in decision.rules], [error.rule for error in decision.errors]) == (
        ["any", "risk"],
        ["whole"],
    )
    assert decision.outcome is Ruling.DENY


@pytest.mark.req("Q-16")
def test_whoever_any_rule_names_is_asked_about_a_doubt(load: Load, update: Update) -> None:
    """Also by a rule that is outranked: its author has said who knows."""
    policy = load(
        f"- {{id: night, {UPDATE}, outcome: allow, in_doubt: {{approvers: [{{group: night}}, {{group: ops}}]}}}}\n"
        f"- {{id: ask, {UPDATE}, outcome: needs_approval, approvers: [{{group: leads}}], "
        "in_doubt: {approvers: [{slack_group: S0IT}, {group: ops, of: 2}]}}\n"
        f"- {{id: other, {UPDATE}, when: counters.writes_in_run > 9, outcome: allow, "
        "in_doubt: {approvers: [{group: nobody}]}}"
    )
    decision = decide(policy, update({"state": "2"}))
    assert decision.outcome is Ruling.NEEDS_APPROVAL
    slack = GroupQuorum("S0IT", 1, GroupSource.SLACK_GROUP)
    assert decision.in_doubt == (GroupQuorum("night"), GroupQuorum("ops", 2), slack)


def test_rules_that_agree_about_the_facts_are_one_program(load: Load) -> None:
    policy = load(
        "".join(f"- {{id: r{n}, {UPDATE}, when: action.fields.state == '{n}', outcome: allow}}\n" for n in "123")
    )
    ((rules, _),) = PolicySet.of(policy).applying("", OPERATION).groups
    assert [named.id for named in rules] == ["r1", "r2", "r3"]


def test_a_denial_of_a_cap_names_the_policies_and_what_was_read() -> None:
    decision = deny("cap:max_writes_per_run", "It is full.", ("0" * 64,), {"action.operation": OPERATION})
    assert (decision.outcome, decision.policies) == (Ruling.DENY, ("0" * 64,))
    assert decision.facts_read == {"action.operation": OPERATION}


def test_of_two_rules_an_approval_is_fresh_for_the_shorter_time(load: Load, update: Update) -> None:
    rules = [
        f"- {{id: {name}, {UPDATE}, outcome: needs_approval, approvers: [{{group: g}}], fresh_for: {fresh}}}"
        for name, fresh in (("a", "PT2H"), ("b", "PT1H"), ("c", "PT3H"))
    ]
    decision = decide(load("\n".join(rules)), update({"state": "2"}))
    assert decision.approval is not None
    assert decision.approval.fresh_seconds == 3600


class TestOutcomes:
    @pytest.mark.req("Q-16")
    @pytest.mark.parametrize("outcomes", [("allow",), ("allow", "needs_approval"), ("allow", "needs_approval", "deny")])
    def test_the_strictest_fired_rule_wins(self, load: Load, update: Update, outcomes: tuple[str, ...]) -> None:
        rules = [
            f"- {{id: r-{outcome}, {UPDATE}, outcome: {outcome}"
            + (", approvers: [{group: g}]}" if outcome == "needs_approval" else "}")
            for outcome in outcomes
        ]
        for ordered in (rules, rules[::-1]):
            decision = decide(load("\n".join(ordered)), update({"state": "2"}))
            assert decision.outcome == outcomes[-1]
            assert {rule.id for rule in decision.rules} == {f"r-{outcome}" for outcome in outcomes}
            assert (decision.approval is not None) == (decision.outcome is Ruling.NEEDS_APPROVAL)
            assert decision.reasons

    @pytest.mark.req("U-4")
    def test_no_policy_denies(self, update: Update) -> None:
        decision = decide(None, update({"state": "2"}))
        assert (decision.outcome, decision.policies) == (Ruling.DENY, ())
        assert decision.reasons == ("There is no policy for it, so nothing is allowed.",)

    @pytest.mark.req("U-4")
    def test_nothing_fired_denies(self, load: Load, update: Update) -> None:
        policy = load(f"- {{id: a, {UPDATE}, when: 'false', outcome: allow}}")
        decision = decide(policy, update({"state": "2"}))
        assert (decision.outcome, decision.rules, decision.errors) == (Ruling.DENY, (), ())
        assert "No rule of the policy test (version 3) allows servicenow.incident.update." in decision.reasons
        assert decision.policies == (policy.named,)

    @pytest.mark.req("U-4")
    def test_an_operation_that_the_policy_does_not_know_is_denied(self, load: Load, update: Update) -> None:
        policy = load("- {id: a, match: {operation: '*'}, outcome: allow}")
        decision = decide(policy, update({}, operation="servicenow.incident.delete"))
        assert decision.outcome is Ruling.DENY
        assert [rule.id for rule in decision.rules] == ["policy:unknown_operation"]
        assert decide(policy, update({})).outcome is Ruling.ALLOW

    @pytest.mark.req("U-4")
    def test_facts_of_another_operation_are_denied(self, load: Load, update: Update) -> None:
        policy = load("- {id: a, match: {operation: '*'}, outcome: allow}")
        facts = build_facts(update({}), FactContext())
        assert evaluate(PolicySet.of(policy), facts, "slack.message.post").outcome is Ruling.DENY
        assert evaluate(PolicySet.of(policy), {}, OPERATION).outcome is Ruling.DENY

    def test_a_denial_by_a_cap_reads_like_any_other(self) -> None:
        decision = deny("cap:max_writes_per_run", "This run may write 10 times at most.")
        assert decision.outcome is Ruling.DENY
        assert decision.rules[0].id == "cap:max_writes_per_run"
        assert decision.reasons == ("This run may write 10 times at most.",)


class TestErrorsDeny:
    @pytest.mark.req("U-4")
    @pytest.mark.parametrize(
        "when",
        [
            "action.fields.priority == '1'",  # a field that the action does not write
            "action.before.priority == '1'",
            "10 / counters.writes_in_run > 1",
            "action.changed[7] == 'x'",
            "action.before.state",  # not a bool
            "int(action.fields.state) > 1",
            "action.before.state.deeper == 1",
        ],
    )
    def test_an_error_in_one_rule_denies_and_names_it(self, load: Load, update: Update, when: str) -> None:
        policy = load(
            f'- {{id: fine, {UPDATE}, outcome: allow}}\n- {{id: broken, {UPDATE}, when: "{when}", outcome: allow}}'
        )
        decision = decide(policy, update({"state": "open"}, {"state": "x"}))
        assert decision.outcome is Ruling.DENY
        assert [error.rule for error in decision.errors] == ["broken"]
        assert decision.reasons[0].startswith("Rule broken could not be evaluated: ")
        assert [rule.id for rule in decision.rules] == ["fine"]

    def test_every_error_is_named_in_the_order_of_the_rules(self, load: Load, update: Update) -> None:
        broken = f"{UPDATE}, when: \"action.fields.priority == '1'\", outcome: allow"
        policy = load("".join(f"- {{id: {name}, {broken}}}\n" for name in ("c", "a", "b")))
        decision = decide(policy, update({"state": "2"}))
        assert [error.rule for error in decision.errors] == ["c", "a", "b"]
        told: Any = decision.to_json()
        assert [error["rule"] for error in told["errors"]] == ["c", "a", "b"]
        assert {name: told[name] for name in ("outcome", "rules", "approval")} == {
            "outcome": "deny", "rules": [], "approval": None,
        }  # fmt: skip
        assert told["policies"] == [policy.named.to_json()]
        assert told["reasons"] == list(decision.reasons)

    @pytest.mark.req("U-4")
    def test_an_error_in_a_deny_rule_is_not_skipped(self, load: Load, update: Update) -> None:
        policy = load(
            f"- {{id: fine, {UPDATE}, outcome: allow}}\n"
            f"- {{id: guard, {UPDATE}, when: \"action.fields.priority == '1'\", outcome: deny}}"
        )
        assert decide(policy, update({"state": "2"})).outcome is Ruling.DENY
        assert decide(policy, update({"state": "2", "priority": "3"})).outcome is Ruling.ALLOW

    @pytest.mark.req("U-4")
    def test_a_fact_of_another_type_denies_by_the_rules_that_read_it(self, load: Load, update: Update) -> None:
        policy = load(
            f"- {{id: a, {UPDATE}, when: \"action.fields.state == '2'\", outcome: allow}}\n"
            f"- {{id: b, {UPDATE}, when: action.reversible, outcome: allow}}"
        )
        decision = decide(policy, update({"state": 2}))
        assert decision.outcome is Ruling.DENY
        assert [(error.rule, "is an int" in error.message) for error in decision.errors] == [("a", True)]
        assert [rule.id for rule in decision.rules] == ["b"]

    @pytest.mark.req("U-4")
    def test_deep_data_denies(self, load: Load, update: Update) -> None:
        deep: Any = "x"
        for _ in range(10_000):
            deep = {"k": deep}
        policy = load(f"- {{id: a, {UPDATE}, when: action.before.state != '1', outcome: allow}}")
        decision = decide(policy, update({}, {"state": deep}))
        assert decision.outcome is Ruling.DENY
        assert "nested deeper" in decision.errors[0].message

    def test_a_guard_keeps_a_missing_field_from_being_an_error(self, load: Load, update: Update) -> None:
        policy = load(
            f"- {{id: a, {UPDATE}, outcome: deny, "
            "when: \"'priority' in action.present && action.fields.priority == '1'\"}\n"
            f"- {{id: b, {UPDATE}, outcome: allow}}"
        )
        assert decide(policy, update({"state": "2"})).outcome is Ruling.ALLOW
        assert decide(policy, update({"priority": "1"})).outcome is Ruling.DENY


class TestApprovalTerms:
    @pytest.mark.req("Q-3")
    def test_several_rules_add_up(self, load: Load, update: Update) -> None:
        policy = load(
            f"""
- id: a
  {UPDATE}
  outcome: needs_approval
  tier: low
  approvers: [{{group: owners, of: 1}}, {{slack_group: S0IT, of: 2}}]
  allow: [requester, updater]
  expires: P2D
  remind: [PT1H, PT20H]
  escalate: {{after: PT12H, to: {{slack_group: S0OPS}}}}
- id: b
  {UPDATE}
  outcome: needs_approval
  tier: high
  approvers: [{{group: owners, of: 3}}, {{group: S0IT}}, {{slack_group: S0IT, of: 1}}]
  two_person: true
  expires: PT8H
  remind: [PT4H, PT1H]
  escalate: {{after: PT6H, to: {{group: managers}}}}
  because: It matters.
- {{id: c, {UPDATE}, outcome: allow}}
"""
        )
        decision = decide(policy, update({"state": "2"}))
        terms = decision.approval
        assert terms is not None
        assert terms.tier is Tier.HIGH
        assert terms.approvers == (
            GroupQuorum("owners", 3, GroupSource.GROUP),
            GroupQuorum("S0IT", 2, GroupSource.SLACK_GROUP),
            GroupQuorum("S0IT", 1, GroupSource.GROUP),
        )
        assert (terms.two_person, terms.allow) == (True, ())
        assert terms.expires_seconds == 8 * 3600
        assert terms.remind_seconds == (3600, 4 * 3600)
        assert terms.escalate == Escalation(6 * 3600, GroupQuorum("managers"))
        assert decision.reasons == ("Rule a asks for an approval.", "It matters.")
        assert canonical_bytes(decision.to_json())

    def test_whoever_has_no_time_left_is_not_reminded_and_nobody_is_asked_instead(
        self, load: Load, update: Update
    ) -> None:
        needs = f"{UPDATE}, outcome: needs_approval, approvers: [{{group: g}}]"
        policy = load(
            f"- {{id: a, {needs}, expires: PT4H}}\n"
            f"- {{id: b, {needs}, expires: PT8H, remind: [PT3H, PT4H, PT5H],"
            " escalate: {after: PT4H, to: {group: h}}}\n"
        )
        terms = decide(policy, update({"state": "2"})).approval
        assert terms is not None
        assert (terms.expires_seconds, terms.remind_seconds, terms.escalate) == (4 * 3600, (3 * 3600,), None)

    @pytest.mark.req("Q-3")
    @pytest.mark.parametrize("order", [(2, 3), (3, 2)])
    def test_of_two_escalations_the_first_to_come_is_asked(
        self, load: Load, update: Update, order: tuple[int, int]
    ) -> None:
        needs = f"{UPDATE}, outcome: needs_approval, approvers: [{{group: g}}], expires: PT8H"
        policy = load(
            "".join(
                f"- {{id: r{hours}, {needs}, escalate: {{after: PT{hours}H, to: {{group: h{hours}}}}}}}\n"
                for hours in order
            )
        )
        terms = decide(policy, update({"state": "2"})).approval
        assert terms is not None
        assert terms.escalate == Escalation(2 * 3600, GroupQuorum("h2"))

    @pytest.mark.parametrize(
        ("rules", "allowed", "unresolved"),
        [
            (["tier: high, allow: [requester]"], (Role.REQUESTER,), "deny"),
            (["tier: high, unresolved: ask"], (), "ask"),
            (["tier: low, unresolved: deny"], (), "deny"),
            (["tier: high, unresolved: ask", "tier: low, allow: [requester, updater]"], (), "deny"),
            (["tier: low, allow: [form_filler, updater]", "allow: [updater]"], (Role.UPDATER,), "ask"),
        ],
    )
    def test_rules_together_allow_what_each_of_them_allows(
        self, load: Load, update: Update, rules: list[str], allowed: tuple[Role, ...], unresolved: str
    ) -> None:
        needs = f"{UPDATE}, outcome: needs_approval, approvers: [{{group: g}}]"
        policy = load("".join(f"- {{id: r{n}, {needs}, {rule}}}\n" for n, rule in enumerate(rules)))
        terms = decide(policy, update({})).approval
        assert terms is not None
        assert (terms.allow, terms.unresolved) == (allowed, unresolved)

    def test_what_holds_without_being_written(self, load: Load, update: Update) -> None:
        policy = load(f"- {{id: a, {UPDATE}, outcome: needs_approval, approvers: [{{group: g}}]}}")
        terms = decide(policy, update({})).approval
        assert terms is not None
        assert terms.to_json() == {
            "tier": "medium",
            "approvers": [{"group": "g", "of": 1, "source": "group"}],
            "two_person": False,
            "allow": [],
            "unresolved": "ask",
            "expires_seconds": 24 * 3600,
            "remind_seconds": [],
            "escalate": None,
            "fresh_seconds": 24 * 3600,
        }


class TestFacts:
    def test_every_fact_can_be_read(self, load: Load, update: Update, context: FactContext) -> None:
        checks = (
            "action.operation == 'servicenow.incident.update' && action.connector == 'servicenow'",
            "action.target == 'incident:42' && action.risk == 'medium' && action.side_effects == 'external_call'",
            "action.reversible && action.changed == ['state'] && action.present == ['state', 'category']",
            "action.fields.state == '2' && action.before.state == '1'",
            "action.before.category == action.fields.category",
            "run.workflow == 'triage' && run.version == 4 && run.id == 'r1' && run.reference == ''",
            "run.requested_by == 'ann' && run.trigger == '' && run.step == ''",
            "actor.id == '' && actor.kind == 'agent' && counters.writes_in_run == 0",
            "tenant.id == 'acme' && tenant.workspace == ''",
        )
        policy = load(f'- {{id: a, {UPDATE}, when: "{" && ".join(checks)}", outcome: allow}}')
        action = update({"state": "2", "category": "x"}, {"state": "1", "category": "x"})
        decision = decide(policy, action, context)
        assert decision.outcome is Ruling.ALLOW, decision.reasons

    def test_only_what_rules_read_is_recorded(self, load: Load, update: Update) -> None:
        policy = load(
            f"- {{id: a, {UPDATE}, when: 'counters.writes_in_run < 3', outcome: allow}}\n"
            f"- {{id: b, {UPDATE}, when: \"'state' in action.present && action.fields.state == '6'\", outcome: deny}}\n"
            "- {id: c, match: {connector: slack}, when: 'tenant.id == action.fields.channel', outcome: deny}"
        )
        decision = decide(policy, update({"priority": "2"}))
        read = {"action.operation": OPERATION, "action.present": ["priority"], "counters.writes_in_run": 0}
        assert decision.facts_read == read
        again = evaluate(PolicySet.of(policy), decision.facts_read, OPERATION)
        assert (again.outcome, again.rules) == (decision.outcome, decision.rules)

    def test_rules_of_one_action_may_see_different_fields(self, load: Load, update: Update) -> None:
        """Give `limit` as it is, an int to one operation and text to another, to a rule that sees both."""
        policy = load(
            "- {id: wide, match: {operation: '*'}, outcome: deny, "
            "when: \"'limit' in action.present && action.fields.limit == 5\"}\n"
            "- {id: narrow, match: {operation: servicenow.incident.query}, outcome: allow, "
            "when: action.fields.limit < 10}"
        )
        query = "servicenow.incident.query"
        assert decide(policy, update({"limit": 6}, operation=query)).outcome is Ruling.ALLOW
        assert decide(policy, update({"limit": 5}, operation=query)).outcome is Ruling.DENY


class TestItOperations:
    @pytest.fixture
    def policy(self, operations: Mapping[str, OperationFacts]) -> Policy:
        path = Path(__file__).parents[2] / "examples/policies/it-operations.yaml"
        return load_policy(path.read_text(), path.name, operations)

    @pytest.mark.req("Q-22")
    def test_reversible_writes_are_allowed_under_a_cap(self, policy: Policy, update: Update) -> None:
        action = update({"assigned_to": "beth", "work_notes": "Assigned."}, {"assigned_to": "", "work_notes": ""})
        assert (
            decide(policy, action, FactContext(run_workflow="incident-triage", writes_in_run=9)).outcome is Ruling.ALLOW
        )
        assert (
            decide(policy, action, FactContext(run_workflow="incident-triage", writes_in_run=10)).outcome is Ruling.DENY
        )
        irreversible = update({"assigned_to": "beth"}, {"assigned_to": ""}, reversible=False)
        assert decide(policy, irreversible).outcome is Ruling.DENY

    @pytest.mark.req("Q-16")
    @pytest.mark.parametrize(
        ("fields", "outcome", "rule"),
        [
            ({"priority": "1", "assigned_to": "beth"}, "needs_approval", "priority"),
            ({"comments": "We are on it."}, "needs_approval", "customer-comments"),
            ({"state": "6", "priority": "1"}, "deny", "people-close"),
            ({"short_description": "x"}, "deny", None),
        ],
    )
    def test_incidents(self, policy: Policy, update: Update, fields: Any, outcome: str, rule: str | None) -> None:
        decision = decide(policy, update(fields, dict.fromkeys(fields, "old")))
        assert (decision.outcome, decision.errors) == (outcome, ())
        assert rule in [*(fired.id for fired in decision.rules), None]

    @pytest.mark.parametrize(
        ("operation", "side_effects", "outcome"),
        [
            ("servicenow.incident.get", "none", "allow"),
            ("servicenow.record.query", "none", "allow"),
            ("servicenow.incident.add_work_note", "external_call", "allow"),
            ("servicenow.record.update", "external_call", "needs_approval"),
            ("slack.message.post", "external_call", "allow"),
            ("http.request.send", "external_call", "needs_approval"),
            ("model.chat.complete", "external_call", "allow"),
        ],
    )
    def test_the_other_operations(
        self, policy: Policy, update: Update, operation: str, side_effects: str, outcome: str
    ) -> None:
        action = update({}, operation=operation, side_effects=side_effects)
        assert decide(policy, action).outcome == outcome
        if side_effects != "none":
            assert (
                decide(policy, action, FactContext(run_workflow="incident-triage", writes_in_run=50)).outcome
                is Ruling.DENY
            )


def test_an_explanation_shows_every_rule(load: Load, update: Update, context: FactContext) -> None:
    policy = load(
        f"- {{id: a, {UPDATE}, when: action.reversible, outcome: allow}}\n"
        f"- {{id: b, {UPDATE}, when: \"action.fields.priority == '1'\", outcome: deny}}\n"
        "- {id: c, match: {connector: slack}, outcome: deny}"
    )
    explanation = explain(PolicySet.of(policy), update({"state": "2"}), context)
    first, second, third = explanation.rules
    assert (first.matched, first.fired, first.error, first.facts) == (True, True, None, {"action.reversible": True})
    assert (second.matched, second.fired, second.missing) == (True, False, ("action.fields.priority",))
    assert second.error is not None
    assert (third.matched, third.fired, third.when) == (False, False, None)
    assert explanation.decision.outcome is Ruling.DENY
    assert canonical_bytes(explanation.to_json())


CONDITIONS = (
    "action.reversible",
    "action.risk == 'high'",
    "'state' in action.changed",
    "action.fields.state == '6'",
    "action.before.priority == '1'",
    "counters.writes_in_run > 3",
    "action.changed.all(f, f in ['state', 'assigned_to'])",
    "10 / counters.writes_in_run > 4",
    "true",
)
RULES = st.tuples(st.sampled_from(CONDITIONS), st.sampled_from(["allow", "needs_approval", "deny"]))
FIELD_VALUES = st.one_of(st.sampled_from(["1", "6", "x", ""]), st.integers(0, 3), st.none(), st.just([["deep"]]))
ACTION_FIELDS = st.dictionaries(st.sampled_from(["state", "priority", "assigned_to", "unknown"]), FIELD_VALUES)


def as_rule(index: int, rule: tuple[str, str]) -> str:
    approvers = ", approvers: [{group: g}]" if rule[1] == "needs_approval" else ""
    return f'- {{id: r{index}, {UPDATE}, when: "{rule[0]}", outcome: {rule[1]}{approvers}}}'


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    rules=st.lists(RULES, min_size=1, max_size=5),
    extra=RULES,
    fields=ACTION_FIELDS,
    before=ACTION_FIELDS,
    writes=st.integers(0, 5),
)
@pytest.mark.req("U-4")
def test_evaluation_is_total_and_a_stricter_rule_never_permits_more(
    load: Load,
    update: Update,
    rules: list[tuple[str, str]],
    extra: tuple[str, str],
    fields: Any,
    before: Any,
    writes: int,
) -> None:
    action, context = update(fields, before), FactContext(writes_in_run=writes)
    base = decide(load("\n".join(as_rule(n, rule) for n, rule in enumerate(rules))), action, context)
    more = decide(load("\n".join(as_rule(n, rule) for n, rule in enumerate([*rules, extra]))), action, context)
    assert base.reasons
    assert more.reasons
    if extra[1] == "deny":
        assert RANK[more.outcome] >= RANK[base.outcome]
    if base.errors:
        assert more.outcome is Ruling.DENY
    if more.outcome is Ruling.ALLOW:
        assert {rule.outcome for rule in more.rules} == {Ruling.ALLOW}
