"""Policies live side by side: all that apply are evaluated, and the strictest outcome wins."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from itertools import permutations
from typing import Any

import pytest

from core.errors import DefinitionError
from policy import sets
from policy.evaluate import Decision, build_facts, evaluate
from policy.explain import explain
from policy.facts import FactContext, OperationFacts
from policy.foresee import Verdict, changed, foresee
from policy.load import Policy, load_policy, scope_of
from policy.model import STRENGTH, AppliesDocument, Ruling
from policy.scope import Scope
from policy.sets import BrokenPolicy, PolicySet
from runtime.definition.catalog import Definitions
from tests.engine.governing import CATALOG

UPDATE, POST, RECORD = "servicenow.incident.update", "slack.message.post", "servicenow.record.update"
Named = Callable[..., Policy]


@pytest.fixture
def named(operations: Mapping[str, OperationFacts]) -> Named:
    """A policy of this name, scope and rules, each as (id, outcome, more)."""

    def _named(name: str, *rules: tuple[str, str, str], applies: str = "", match: str = "operation: '*'") -> Policy:
        text = f"policy: {name}\nversion: 1\n" + (f"applies: {applies}\n" if applies else "") + "rules:\n"
        for rule, outcome, more in rules:
            group = (
                f", approvers: [{{group: {name}}}]" if outcome == "needs_approval" and "approvers" not in more else ""
            )
            text += f"  - {{id: {rule}, match: {{{match}}}, outcome: {outcome}{group}{more}}}\n"
        return load_policy(text, f"{name}.yaml", operations)

    return _named


def judged(update: Any, *members: Any, workflow: str = "triage", operation: str = UPDATE, **fields: Any) -> Decision:
    action = update(fields or {"state": "2"}, operation=operation)
    return evaluate(PolicySet(members), build_facts(action, FactContext(run_workflow=workflow)), operation)


@pytest.mark.req("U-4")
def test_one_policy_that_does_not_know_an_operation_is_enough_to_deny_it(
    named: Named, update: Any, operations: Mapping[str, OperationFacts]
) -> None:
    """A policy of an older release, which had no such operation, was never asked about it."""
    text = "policy: {}\nversion: 1\n{}rules:\n  - {{id: all, match: {{operation: '*'}}, outcome: allow}}\n"
    fewer = {name: facts for name, facts in operations.items() if name != UPDATE}
    older = load_policy(text.format("older", ""), "older.yaml", fewer)
    elsewhere = load_policy(text.format("elsewhere", "applies: {workflows: [other]}\n"), "elsewhere.yaml", fewer)
    newer = named("newer", ("all", "allow", ""))
    for members in permutations([older, newer]):
        decision = judged(update, *members)
        assert [rule.id for rule in decision.rules] == ["policy:unknown_operation"]
        assert decision.reasons == (f"A policy does not know the operation {UPDATE}.",)
        assert decision.policies == (newer.named, older.named)
        assert foresee(PolicySet(members), "triage", UPDATE, {}).verdict is Verdict.DENIED
        assert foresee(PolicySet(members), "triage", POST, {}).verdict is Verdict.ALLOWED
    assert judged(update, elsewhere, newer).outcome is Ruling.ALLOW


@pytest.mark.req("U-4")
@pytest.mark.parametrize("condition", ["", ", when: 'size(run.id) > 0'"])
def test_a_rule_about_one_table_decides_nothing_of_the_others(condition: str) -> None:
    """One of its two outcomes always holds for its own table, and none of them for another one."""
    halves = ", when: \"action.fields.state == '7'\", otherwise: deny"
    text = "policy: {}\nversion: 1\nrules: [{{id: {}, match: {{operation: {}}}, outcome: {}}}]\n"
    asks = f"needs_approval, approvers: [{{group: g}}]{halves}"
    own, narrow = (
        Definitions(CATALOG).compile_policy(text.format(*given), "p.yaml")
        for given in (("own", "all", RECORD, f"allow{condition}"), ("narrow", "halves", UPDATE, asks))
    )
    foreseen = foresee(PolicySet([own, narrow]), "w", RECORD, {})
    every = (Ruling.DENY, Ruling.NEEDS_APPROVAL, Ruling.ALLOW)
    assert (foreseen.verdict, foreseen.outcomes) == (Verdict.DEPENDS, every)
    assert foreseen.words == "it depends: allowed or asks people or denied"
    assert foreseen.rules == ("narrow/halves", "own/all")
    assert foresee(PolicySet([narrow]), "w", RECORD, {}).verdict is Verdict.DENIED, "it lets nothing out by itself"
    alone = foresee(PolicySet([narrow]), "w", UPDATE, {})
    assert (alone.verdict, alone.outcomes) == (Verdict.DEPENDS, (Ruling.DENY, Ruling.NEEDS_APPROVAL))


@pytest.mark.req("U-4")
@pytest.mark.parametrize(
    ("target", "condition", "verdict"),
    [
        (None, "", Verdict.DEPENDS),
        ("incident/1", "", Verdict.DENIED),
        ("problem/1", "", Verdict.ALLOWED),
        ("incident/1", ", when: 'size(run.id) > 0'", Verdict.DEPENDS),
        ("problem/1", ", when: 'size(run.id) > 0'", Verdict.ALLOWED),
    ],
)
def test_a_rule_without_a_condition_about_one_table_is_sure_of_that_table_alone(
    operations: Mapping[str, OperationFacts], target: str | None, condition: str, verdict: Verdict
) -> None:
    narrower = OperationFacts(
        operations[UPDATE].fields, operations[UPDATE].before, {RECORD: "action.target.startsWith('incident/')"}
    )
    text = f"policy: p\nversion: 1\nrules:\n- {{id: a, match: {{operation: {RECORD}}}, outcome: allow}}\n"
    text += f"- {{id: b, match: {{operation: {UPDATE}}}, outcome: deny{condition}}}\n"
    policies = PolicySet([load_policy(text, "p.yaml", {**operations, UPDATE: narrower})])
    fixed = {} if target is None else {"action.target": target}
    assert foresee(policies, "w", RECORD, fixed).verdict is verdict
    assert foresee(policies, "w", UPDATE, fixed).verdict is Verdict.DENIED


@pytest.mark.req("U-4")
@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ((("a", "deny", ""),), "always denied"),
        ((("a", "deny", "?"),), "always denied"),
        ((("a", "deny", "?"), ("b", "deny", "?")), "always denied"),
        ((("a", "deny", "?"), ("b", "deny", "")), "always denied"),
        ((("a", "deny", "?"), ("b", "allow", "")), "it depends: allowed or denied"),
        ((("a", "deny", "?"), ("b", "allow", "?")), "it depends: allowed or denied"),
        ((("a", "deny", ""), ("b", "allow", "")), "always denied"),
        ((("a", "allow", ""),), "always allowed"),
        ((("a", "allow", "?"),), "it depends: allowed or denied"),
        ((("a", "needs_approval", ""), ("b", "allow", "?")), "it depends: asks people"),
        ((("a", "needs_approval", "?"), ("b", "allow", "")), "it depends: allowed or asks people"),
        ((("a", "needs_approval", "?"),), "it depends: asks people or denied"),
    ],
)
def test_what_no_condition_changes_is_foreseen_for_certain(named: Named, rules: Any, words: str) -> None:
    """A question mark stands for a condition that nothing decides before a run."""
    condition = ", when: 'size(run.id) > 3'"
    policy = named("p", *((rule, outcome, condition if when else "") for rule, outcome, when in rules))
    assert foresee(PolicySet([policy]), "w", UPDATE, {}).words == words


@pytest.mark.req("U-4")
def test_what_fired_and_failed_is_told_in_the_order_of_policies_and_then_of_rules(named: Named, update: Any) -> None:
    first = named("a", ("x", "allow", ""), ("y", "needs_approval", ""), ("z", "needs_approval", ""))
    second = named("b", ("x", "needs_approval", ""), ("w", "allow", ""))
    for members in permutations([first, second]):
        decision = judged(update, *members)
        assert [rule.id for rule in decision.rules] == ["a/x", "a/y", "a/z", "b/x", "b/w"]
        assert [reason.split()[1] for reason in decision.reasons] == ["a/y", "a/z", "b/x"]
        assert [policy.name for policy in decision.asking] == ["a", "b"]
    fails = ", when: \"action.target.charAt(900) == 'x'\""
    first = named("a", ("x", "allow", ""), ("y", "allow", fails), ("z", "allow", fails))
    decision = judged(update, named("b", ("x", "allow", fails), ("w", "allow", fails)), first)
    assert [error.rule for error in decision.errors] == ["a/y", "a/z", "b/x", "b/w"]


@pytest.mark.req("U-4")
def test_rules_that_take_a_fact_for_different_types_are_told_in_their_order_all_the_same(
    named: Named, operations: Mapping[str, OperationFacts], update: Any
) -> None:
    """Two programs, one order: of all operations `limit` is a text or a number, of one it is a text."""
    matched = {"d": "http.request.send", "c": "'*'", "b": "http.request.send", "a": "'*'"}
    every, foreseen = [f"{policy}/{rule}" for policy in ("one", "two") for rule in matched], list[tuple[str, ...]]()

    def told(condition: str) -> Decision:
        rules = [
            f'  - {{id: {name}, match: {{operation: {match}}}, when: "{condition}", outcome: allow}}'
            for name, match in matched.items()
        ]
        texts = ("\n".join([f"policy: {name}", "version: 1", "rules:", *rules]) for name in ("two", "one"))
        members = [load_policy(text, "p.yaml", operations) for text in texts]
        applying = PolicySet(members).applying("triage", "http.request.send")
        assert [[rule.id[-1] for rule in group] for group, _ in applying.groups] == [["d", "b"] * 2, ["c", "a"] * 2]
        foreseen.append(foresee(PolicySet(members), "triage", "http.request.send", {}).rules)
        return judged(update, *members, operation="http.request.send", limit="x")

    fired = told("action.fields.limit == 'x'")
    assert ([rule.id for rule in fired.rules], fired.errors) == (every, ())
    assert [reason.split()[1] for reason in fired.reasons] == every
    assert [policy.name for policy in fired.asking] == ["one", "two"]
    assert foreseen[-1] == tuple(every)
    failed = told("action.fields.limit == 'x' && action.target.charAt(900) == 'x'")
    assert ([error.rule for error in failed.errors], failed.rules) == (every, ())
    assert [reason.split()[1] for reason in failed.reasons] == every


@pytest.mark.req("U-4")
def test_the_strictest_outcome_of_all_policies_wins_in_any_order(named: Named, update: Any) -> None:
    every = [
        named(f"p-{outcome.replace('_', '-')}", ("r", outcome, "")) for outcome in ("allow", "needs_approval", "deny")
    ]
    for count, outcome in ((1, "allow"), (2, "needs_approval"), (3, "deny")):
        for members in permutations(every[:count]):
            decision = judged(update, *members)
            assert decision.outcome == outcome
            assert [policy.name for policy in decision.policies] == sorted(one.name for one in every[:count])
            assert len(decision.rules) == count


@pytest.mark.req("Q-16")
def test_several_that_ask_add_up(named: Named, update: Any) -> None:
    one = named("one", ("ask", "needs_approval", ", tier: low, approvers: [{group: leads, of: 2}], expires: PT8H"))
    other = named("other", ("ask", "needs_approval", ", tier: high, approvers: [{group: leads}, {group: risk}]"))
    decision = judged(update, one, other)
    assert decision.approval is not None
    assert (str(decision.approval.tier), decision.approval.expires_seconds) == ("high", 8 * 3600)
    assert {(each.group, each.of) for each in decision.approval.approvers} == {("leads", 2), ("risk", 1)}
    assert [rule.id for rule in decision.rules] == ["one/ask", "other/ask"]
    assert decision.asking == (one.named, other.named)


@pytest.mark.req("U-4")
def test_an_error_in_any_of_them_denies(named: Named, update: Any) -> None:
    fails = named("fails", ("bad", "allow", ", when: 1 / counters.writes_in_run == 1"))
    decision = judged(update, named("ok", ("r", "allow", "")), fails)
    assert (decision.outcome, [error.rule for error in decision.errors]) == (Ruling.DENY, ["fails/bad"])


@pytest.mark.parametrize(
    ("applies", "workflow", "operation", "outcome"),
    [
        ("{workflows: [tri*]}", "triage", UPDATE, "deny"),
        ("{workflows: [tri*]}", "other", UPDATE, "allow"),
        ("{workflows: [other, triage]}", "triage", POST, "deny"),
        ("{connectors: [slack]}", "triage", UPDATE, "allow"),
        ("{connectors: [slack]}", "triage", POST, "deny"),
        ("{operations: [servicenow.incident.*]}", "triage", UPDATE, "deny"),
        ("{operations: [servicenow.incident.*]}", "triage", POST, "allow"),
        ("{connectors: [slack], operations: [servicenow.incident.*, slack.*]}", "triage", UPDATE, "allow"),
        ("{workflows: [other], connectors: [slack]}", "triage", POST, "allow"),
        ("", "anything", POST, "deny"),
    ],
)
def test_a_policy_applies_to_what_it_says(
    named: Named, update: Any, applies: str, workflow: str, operation: str, outcome: str
) -> None:
    allows, denies = named("allows", ("r", "allow", "")), named("denies", ("r", "deny", ""), applies=applies)
    decision = judged(update, allows, denies, workflow=workflow, operation=operation)
    assert decision.outcome == outcome
    assert (denies.named in decision.policies) == (outcome == "deny")
    # By itself it lets nothing out, and without any that applies nothing goes out.
    assert judged(update, denies, workflow=workflow, operation=operation).outcome == "deny"


def test_a_scope_restrains_its_rules(operations: Mapping[str, OperationFacts], named: Named, update: Any) -> None:
    allows = named("p", ("r", "allow", ""), applies="{operations: [slack.*]}")
    assert judged(update, allows, operation=POST).outcome == "allow"
    assert judged(update, allows, operation=UPDATE).outcome == "deny"


def test_a_generic_operation_is_restrained_through_the_scope(
    operations: Mapping[str, OperationFacts], update: Any
) -> None:
    """A denial within `applies` holds for what can do the same, and an allowance does not."""
    known = {
        **operations,
        UPDATE: OperationFacts(
            operations[UPDATE].fields, operations[UPDATE].before, {RECORD: "action.target.startsWith('incident/')"}
        ),
    }
    scoped = (
        "policy: {0}\nversion: 1\napplies: {{operations: [servicenow.incident.update]}}\nrules:\n"
        "  - {{id: r, match: {{operation: servicenow.*}}, outcome: {0}}}\n"
    )
    everything = "policy: all\nversion: 1\nrules:\n  - {id: r, match: {operation: '*'}, outcome: allow}\n"
    denies = load_policy(scoped.format("deny"), "d.yaml", known)
    allows = load_policy(scoped.format("allow"), "a.yaml", known)
    free = load_policy(everything, "e.yaml", known)

    def outcome(target: str, *members: Policy) -> str:
        facts = build_facts(update({"state": "2"}, operation=RECORD, target=target), FactContext())
        return str(evaluate(PolicySet(members), facts, RECORD).outcome)

    assert outcome("incident/1", denies, free) == "deny"
    assert outcome("other/1", denies, free) == "allow"
    assert outcome("incident/1", allows) == "deny"


@pytest.mark.req("U-4")
@pytest.mark.parametrize(
    ("text", "denied", "free"),
    [
        ("policy: p\nversion: 1\napplies: {connectors: [slack]}\nrules: [nonsense]\n", POST, UPDATE),
        ("policy: p\nversion: 1\nrules: [nonsense]\n", UPDATE, None),
        ("policy: p\napplies: {connectors: [slack], colour: red}\nrules: []\n", UPDATE, None),
        ("policy: p\napplies: {}\n", UPDATE, None),
        ("rules: [", UPDATE, None),
    ],
)
def test_one_that_cannot_be_read_denies_what_it_applies_to(
    operations: Mapping[str, OperationFacts], named: Named, update: Any, text: str, denied: str, free: str | None
) -> None:
    broken = BrokenPolicy("0" * 64, "It is broken.", scope_of(text, "p.yaml", operations))
    allows = named("allows", ("r", "allow", ""))
    decision = judged(update, allows, broken, operation=denied)
    assert (decision.outcome, [rule.id for rule in decision.rules]) == ("deny", ["policy:unreadable"])
    assert decision.policies == ()
    if free is not None:
        assert judged(update, allows, broken, operation=free).outcome == "allow"


@pytest.mark.req("U-4")
def test_one_that_cannot_be_read_denies_in_the_workflows_that_it_names(
    operations: Mapping[str, OperationFacts], named: Named, update: Any
) -> None:
    text = "policy: p\nversion: 1\napplies: {workflows: [other-*]}\nrules: [nonsense]\n"
    broken = BrokenPolicy("0" * 64, "It is broken.", scope_of(text, "p.yaml", operations))
    outcomes = [judged(update, named("a", ("r", "allow", "")), broken, workflow=name) for name in ("other-1", "triage")]
    assert [str(decision.outcome) for decision in outcomes] == ["deny", "allow"]


@pytest.mark.parametrize(
    ("applies", "words"),
    [
        ("{}", "name workflows, connectors or operations"),
        ("{connectors: [slak]}", "Did you mean 'slack'?"),
        ("{operations: [slack.mesage.*]}", "no operation matches"),
        ("{workflows: []}", "applies"),
        ("{connectors: [model]}", "leaves none of the operations"),
        ("{colour: [red]}", "colour"),
    ],
)
def test_a_scope_that_means_nothing_is_refused(named: Named, applies: str, words: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        named("p", ("r", "allow", ""), applies=applies, match="operation: slack.*")
    assert words in str(refused.value)


def test_an_explanation_names_the_policy_of_each_rule(named: Named, update: Any) -> None:
    members = [named("a", ("r", "allow", "")), named("b", ("r", "deny", ""))]
    told = explain(
        PolicySet([*members, named("c", ("r", "deny", ""), applies="{connectors: [slack]}")]),
        update({"state": "2"}),
        FactContext(),
    )
    assert [(rule.id, rule.fired) for rule in told.rules] == [("a/r", True), ("b/r", True)]
    assert [str(one) for one in told.decision.policies] == ["a@1", "b@1"]


def test_what_changes_between_two_sets_is_named(named: Named) -> None:
    before = PolicySet([named("a", ("x", "allow", ""), ("y", "deny", "")), named("b", ("z", "deny", ""))])
    after = PolicySet(
        [
            named("a", ("x", "deny", ""), ("w", "deny", "")),
            named("b", ("z", "deny", ""), applies="{connectors: [slack]}"),
        ]
    )
    assert dict(changed(before, after)) == {
        "a/w": "is new", "a/x": "changes", "a/y": "falls away", "b/z": "changes",
    }  # fmt: skip
    assert list(changed(before, before)) == []


CONDITIONS = (
    "", "run.workflow == 'triage'", "run.workflow != 'triage'", "action.target == 'incident:42'",
    "run.workflow == 'triage' && action.reversible", "run.workflow != 'triage' && 1 / counters.writes_in_run == 1",
    "run.workflow == 'triage' || counters.writes_in_run > 3", "1 / counters.writes_in_run == 1",
    "step.origin == 'extension'",
)  # fmt: skip
FIXED = {"action.operation": UPDATE, "run.workflow": "triage", "step.origin": "workflow"}
VERDICTS = {Verdict.DENIED: Ruling.DENY, Verdict.ASKS: Ruling.NEEDS_APPROVAL, Verdict.ALLOWED: Ruling.ALLOW}


def test_what_is_foreseen_is_said_in_words(named: Named) -> None:
    sometimes = ", when: \"action.fields.state == '2'\""
    policies = PolicySet([named("p", ("r1", "allow", ""), ("r2", "deny", sometimes))])
    assert foresee(policies, "triage", UPDATE, {}).to_json() == {
        "verdict": "it depends", "words": "it depends: allowed or denied", "outcomes": ["deny", "allow"],
        "rules": ["r1", "r2"],
    }  # fmt: skip
    assert foresee(PolicySet([named("p", ("r1", "allow", ""))]), "triage", UPDATE, {}).words == str(Verdict.ALLOWED)


def test_nothing_is_foreseen_that_some_action_contradicts(named: Named, update: Any) -> None:
    """Random policies: `always` holds for every action, and what is possible includes whatever happens."""
    chance, seen = random.Random(7), dict.fromkeys(Verdict, 0)
    for _ in range(250):
        members = []
        for name in ("a", "b")[: chance.randint(1, 2)]:
            rules = []
            for number in range(chance.randint(1, 3)):
                when = chance.choice(CONDITIONS)
                rules.append((f"r{number}", str(chance.choice(STRENGTH)), f', when: "{when}"' if when else ""))
            members.append(named(name, *rules, applies=chance.choice(("", "", "{workflows: [other]}"))))
        policies = PolicySet(members)
        foreseen = foresee(policies, "triage", UPDATE, FIXED)
        seen[foreseen.verdict] += 1
        for writes, reversible, target in [(0, True, "x"), (1, False, "incident:42"), (5, True, "incident:42")]:
            action = update({"state": "2"}, reversible=reversible, target=target)
            context = FactContext(run_workflow="triage", writes_in_run=writes, run_step="s")
            decision = evaluate(policies, build_facts(action, context), UPDATE)
            if foreseen.verdict is not Verdict.DEPENDS:
                assert decision.outcome is VERDICTS[foreseen.verdict]
            assert decision.outcome in foreseen.outcomes or decision.errors
    assert all(count > 10 for count in seen.values()), seen


def test_a_scope_reaches_operations_of_a_connector_whatever_they_are_called() -> None:
    facts = {"customers.update": OperationFacts({}, connector="sql"), "slack.message.post": OperationFacts({})}
    scope = Scope.of(AppliesDocument(connectors=("sql",)), facts)
    assert (scope.reaches("customers.update"), scope.reaches("slack.message.post")) == (True, False)


@pytest.mark.parametrize("specific", ["mail.letter.send", "mail.note.send"])
def test_a_scope_reaches_what_can_do_any_of_several(specific: str) -> None:
    kin = {
        name: OperationFacts({}, generics={"mail.any.send": "true"}) for name in ("mail.letter.send", "mail.note.send")
    }
    scope = Scope.of(AppliesDocument(operations=(specific,)), {**kin, "mail.any.send": OperationFacts({})})
    assert [scope.reaches(name) for name in (*kin, "mail.any.send")] == [*(name == specific for name in kin), True]


def test_a_rule_matches_operations_by_the_connector_that_performs_them(
    operations: Mapping[str, OperationFacts], update: Any
) -> None:
    """An installation may call an operation as it likes, and declare the connector."""
    own = {"customers.update": OperationFacts({}, connector="sql"), "sql.orders.read": OperationFacts({})}
    known = {**operations, **own}
    text = "policy: p\nversion: 1\nrules:\n  - {{id: r, match: {{connector: {0}}}, outcome: allow}}\n"
    policy = load_policy(text.format("sql"), "p.yaml", known)
    assert policy.rules[0].operations == own.keys()
    assert judged(update, policy, operation="customers.update").outcome == "allow"
    with pytest.raises(DefinitionError, match="there is no connector 'customers'"):
        load_policy(text.format("customers"), "p.yaml", known)


@pytest.mark.req("U-4")
@pytest.mark.parametrize(
    ("outcome", "rules"), [("allow", ["a/own"]), ("needs_approval", ["a/own", "b/kin"]), ("deny", ["a/own", "b/kin"])]
)
def test_a_rule_restrains_what_can_do_the_same_and_allows_it_nothing(
    operations: Mapping[str, OperationFacts], update: Any, outcome: str, rules: list[str]
) -> None:
    fields, before = operations[UPDATE].fields, operations[UPDATE].before
    known = {**operations, UPDATE: OperationFacts(fields, before, {RECORD: "action.target.startsWith('incident/')"})}

    def policy(name: str, rule: str, operation: str, outcome: str) -> Policy:
        asked = ", approvers: [{group: g}]" if outcome == "needs_approval" else ""
        rules = f"  - {{id: {rule}, match: {{operation: {operation}}}, outcome: {outcome}{asked}}}\n"
        return load_policy(f"policy: {name}\nversion: 1\nrules:\n{rules}", f"{name}.yaml", known)

    own, kin = policy("a", "own", RECORD, "allow"), policy("b", "kin", UPDATE, outcome)
    facts = build_facts(update({"state": "2"}, operation=RECORD, target="incident/1"), FactContext())
    decision = evaluate(PolicySet([own, kin]), facts, RECORD)
    assert (str(decision.outcome), [rule.id for rule in decision.rules]) == (outcome, rules)
    assert evaluate(PolicySet([kin]), facts, RECORD).outcome == "deny"


LETTER, MAIL = "mail.letter.send", "mail.any.send"


def posted(rules: str, letter: OperationFacts, mail: OperationFacts) -> Policy:
    return load_policy(f"policy: p\nversion: 1\nrules:\n{rules}", "p.yaml", {LETTER: letter, MAIL: mail})


@pytest.mark.req("U-4")
@pytest.mark.parametrize(("limit", "outcome"), [(5, "allow"), ("x", "deny")])
def test_a_restraint_takes_a_fact_for_what_either_operation_takes_it_for(
    update: Any, limit: object, outcome: str
) -> None:
    rules = (
        f"- {{id: own, match: {{operation: {MAIL}}}, outcome: allow}}\n"
        f"- {{id: kin, match: {{operation: {LETTER}}}, when: action.fields.limit == 'x', outcome: deny}}\n"
    )
    policy = posted(
        rules, OperationFacts({"limit": "string"}, generics={MAIL: "true"}), OperationFacts({"limit": "int"})
    )
    decision = judged(update, policy, operation=MAIL, limit=limit)
    assert (str(decision.outcome), decision.errors) == (outcome, ())


@pytest.mark.req("P-14")
def test_a_restraint_traces_values_if_its_own_condition_reads_where_they_come_from() -> None:
    to = frozenset({"to"})
    letter = OperationFacts({}, generics={MAIL: "['requester'] in origin.to"}, arguments=to)
    rules = "- {id: own, match: {operation: mail.*.send}, outcome: allow}\n"
    restrained = f"- {{id: kin, match: {{operation: {LETTER}}}, outcome: deny}}\n"
    plain, traced = (posted(text, letter, OperationFacts({}, arguments=to)) for text in (rules, rules + restrained))
    assert [plain.traces, traced.traces] == [False, True]
    assert [PolicySet([traced]).applying("w", operation).traces for operation in (LETTER, MAIL)] == [False, True]


@pytest.mark.req("P-14")
@pytest.mark.parametrize(
    ("when", "traces"),
    [
        ("true", False),
        ("action.risk == 'low'", False),
        ("origin.name.all(o, 'requester' in o)", True),
        ("'unknown' in carries.name", True),
        ("action.risk == 'low' && origin.name.all(o, 'requester' in o)", True),
    ],
)
def test_a_set_traces_values_if_a_rule_of_one_policy_reads_where_they_come_from(when: str, traces: bool) -> None:
    rule, effect = "{id: r, match: {operation: probe.effect.apply}, outcome: allow", "probe.effect.apply"
    texts = [
        f"policy: {name}\nversion: 1\nrules:\n  - {rule}{more}}}\n"
        for name, more in (("a", ""), ("b", f', when: "{when}"'))
    ]
    plain, other = (Definitions(CATALOG).compile_policy(text, "p.yaml") for text in texts)
    assert (plain.traces, other.traces) == (False, traces)
    for members in permutations((plain, other)):
        found = PolicySet(members)
        assert found.traces is traces
        assert found.applying("w", effect).traces is traces
    assert PolicySet().traces is False


def test_a_set_remembers_the_more_pairs_the_fewer_its_rules_are(named: Named, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large policy in many workflows would else fill a process's memory."""
    monkeypatch.setattr(sets, "PAIRED_RULES_MAX", 12)
    for rules, remembered in ((3, 3), (5, 2), (50, 1)):
        found = PolicySet.of(named("p", *((f"r{number}", "allow", "") for number in range(rules))))
        pairs = [found.applying(f"w{number}", UPDATE) for number in range(remembered)]
        assert all(found.applying(f"w{number}", UPDATE) is pair for number, pair in enumerate(pairs))
        found.applying("one more", UPDATE)
        assert found.applying("w0", UPDATE) is not pairs[0]
