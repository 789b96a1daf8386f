"""Decisions, terms, explanations, foresights, scopes and mistakes of policies, whole and word for word."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from core.action import Action
from core.errors import DefinitionError
from core.identity import Role
from core.terms import Tier, Unresolved
from policy.evaluate import Decision, build_facts, evaluate, quorums, terms_of
from policy.explain import explain
from policy.facts import FactContext, OperationFacts, declare
from policy.foresee import changed, foresee
from policy.load import Policy, load_policy, scope_of
from policy.model import AppliesDocument, Approver, Escalate, Match, RuleDocument, Ruling
from policy.scope import EVERYTHING, Scope
from policy.sets import BrokenPolicy, PolicySet
from tests.support.whole import as_it_was

pytestmark = pytest.mark.req("U-4")

EXPECTED = Path(__file__).with_name("every_decision.json")
UPDATE, NOTE, RECORD, POST = (
    "servicenow.incident.update",
    "servicenow.incident.add_work_note",
    "servicenow.record.update",
    "slack.message.post",
)
CONTEXT = FactContext(
    "triage", 4, "run-1", "INC1", "ann", "api", "step-1", "", "actor-1", "agent", 3, 5, 7, 9, "", 11, "m1", ("x.y.z",),
    "acme", "main",
)  # fmt: skip


@pytest.fixture(scope="session")
def known(operations: Mapping[str, OperationFacts]) -> Mapping[str, OperationFacts]:
    """The operations, two of which are narrower than a third, and one of another connector than its name says."""
    narrow = {"servicenow.record.update": "action.target.startsWith('incident')"}
    update, note = operations[UPDATE], operations[NOTE]
    return {
        **operations,
        UPDATE: OperationFacts(update.fields, update.before, narrow, arguments=frozenset({"priority", "a.b"})),
        NOTE: OperationFacts(note.fields, generics={RECORD: "true", "gone.record.update": "true"}),
        "crm.person.get": OperationFacts({"id": "string", "limit": "int"}, frozenset({"id"}), connector="people"),
    }


Known = Mapping[str, OperationFacts]


def policy(known: Known, name: str, rules: str, version: int = 1, applies: str = "") -> Policy:
    return load_policy(f"policy: {name}\nversion: {version}\n{applies}\nrules:\n{rules}", f"{name}.yaml", known)


def whole(decision: Decision) -> Any:
    more = {"read": dict(decision.facts_read), "asking": [str(one) for one in decision.asking]}
    return {**decision.to_json(), **more, "in_doubt": to_builtins(decision.in_doubt)}


ONE = f"""
- {{id: low, match: {{operation: {UPDATE}}}, when: "action.fields.priority != '1'", outcome: allow, because: Small.}}
- id: high
  match: {{operation: {UPDATE}}}
  when: action.fields.priority == '1'
  outcome: needs_approval
  tier: high
  approvers: [{{group: leads, of: 2}}, {{slack_group: S0}}]
  remind: [PT2H, PT1H]
  in_doubt: {{approvers: [{{group: ops, of: 3}}]}}
- {{id: never, match: {{operation: {UPDATE}}}, when: "action.target == 'incident:13'", outcome: deny}}
- {{id: notes, match: {{operation: {NOTE}}}, outcome: allow}}
- {{id: records, match: {{operation: {RECORD}}}, outcome: allow, because: Any.}}
- {{id: posts, match: {{connector: slack}}, when: counters.writes_in_run < 3, outcome: allow, otherwise: deny}}
"""
TWO = f"""
- id: ask
  match: {{operation: "servicenow.*"}}
  when: counters.same_in_run > 4
  outcome: needs_approval
  approvers: [{{group: owners}}, {{group: leads}}]
  two_person: true
  escalate: {{after: PT3H, to: {{slack_group: S1}}}}
  expires: PT4H
  because: Twice.
- {{id: fine, match: {{operation: "{UPDATE}"}}, when: "action.fields.state == '2'", outcome: allow}}
"""


def test_decisions_are_made_as_they_were(known: Known, update: Callable[..., Action]) -> None:
    one, two = policy(known, "one", ONE, 3), policy(known, "two", TWO, 2, "applies: {workflows: [tri*, other]}")
    actions = {
        "small": update({"priority": "3", "state": "2"}),
        "urgent": update({"priority": "1", "state": "2"}),
        "forbidden": update({"priority": "3", "state": "2"}, target="incident:13"),
        "without a fact": update({"state": "2"}),
        "note": update({"work_notes": "x"}, operation=NOTE),
        "record": update({"fields": "x"}, operation=RECORD, target="incident:13"),
        "record of something else": update({"fields": "x"}, operation=RECORD, target="problem:1"),
        "post": update({"text": "x"}, operation=POST),
        "get": update({}, operation="servicenow.incident.get"),
        "unknown": update({}, operation="servicenow.incident.delete"),
    }
    sets = {
        "none": PolicySet(),
        "one": PolicySet.of(one, None),
        "both": PolicySet.of(two, one),
        "broken": PolicySet.of(one, BrokenPolicy("d" * 64, "It is no YAML.")),
    }
    found: dict[str, Any] = {}
    for (kind, policies), (name, action) in product(sets.items(), actions.items()):
        facts = build_facts(action, CONTEXT)
        found[f"{kind}: {name}"] = whole(evaluate(policies, facts, action.operation))
    other = FactContext(run_workflow="elsewhere", same_in_run=5)
    facts = build_facts(actions["small"], other)
    found["both, elsewhere"] = whole(evaluate(sets["both"], facts, UPDATE))
    found["both, said to be elsewhere"] = whole(
        evaluate(sets["both"], build_facts(actions["small"], CONTEXT), UPDATE, "x")
    )
    found["both, facts of another"] = whole(evaluate(sets["both"], facts, NOTE))
    empty = policy(
        known,
        "empty",
        f"- {{id: none, match: {{operation: {UPDATE}}}, when: action.before.state == null, outcome: allow}}\n"
        f"- {{id: bare, match: {{operation: {UPDATE}}}, when: action.fields.state == '', outcome: allow}}",
    )
    for value in (None, ""):
        facts = build_facts(update({"state": value}, {"state": value}), CONTEXT)
        found[f"facts of {value!r}"] = whole(evaluate(PolicySet.of(empty), facts, UPDATE))
    found["explained"] = {name: explain(sets["both"], action, CONTEXT).to_json() for name, action in actions.items()}
    found["explained elsewhere"] = explain(sets["both"], actions["small"], other).to_json()
    found["explained by one"] = explain(sets["one"], actions["without a fact"], CONTEXT).to_json()
    as_it_was(EXPECTED, found)


def test_facts_are_those_of_their_names(update: Callable[..., Action]) -> None:
    before = {"priority": "3", "state": None, "gone": 1}
    action = update({"priority": "1", "state": None, "new": "x"}, before, shaped=("updater:bob",), system="s1")
    found = {
        "published": build_facts(action, CONTEXT, {"origin.priority": [["model"]]}),
        "added": build_facts(update({"a": 1}), FactContext(step_added_by="bob", run_requested_by="ann")),
        "of an agent": build_facts(update({}, connector="other"), FactContext(step_added_by="bob", agent_step="s")),
        "nothing there": build_facts(update({"a": None, "b": 1}, {}), FactContext()),
        "nothing read": build_facts(Action(**{**to_values(action), "before": None}), FactContext()),
    }
    as_it_was(EXPECTED.with_name("every_fact.json"), found)


def to_values(action: Action) -> dict[str, Any]:
    return {name: getattr(action, name) for name in action.__struct_fields__}


def rule(**more: Any) -> RuleDocument:
    given: dict[str, Any] = {"id": "r", "match": Match(operation="*"), "outcome": Ruling.NEEDS_APPROVAL}
    return RuleDocument(**{**given, "approvers": (Approver(group="g"),), **more})


def escalated(after: str, **group: str) -> Escalate:
    return Escalate.model_validate({"after": after, "to": group})


def test_terms_are_as_strict_as_each_rule() -> None:
    late, early = (escalated(f"PT{many}H", group=f"e{many}") for many in (3, 2))
    slack = escalated("PT2H", slack_group="S0")
    cases: dict[str, list[RuleDocument]] = {
        "usual": [rule()],
        "tiers": [rule(tier=Tier.LOW), rule(tier=Tier.HIGH), rule(tier=Tier.MEDIUM)],
        "low": [rule(tier=Tier.LOW)],
        "high": [rule(tier=Tier.HIGH)],
        "high, but ask": [rule(tier=Tier.HIGH, unresolved=Unresolved.ASK)],
        "high, but one asks": [rule(tier=Tier.HIGH, unresolved=Unresolved.ASK), rule()],
        "low, but deny": [rule(tier=Tier.LOW, unresolved=Unresolved.DENY), rule(unresolved=Unresolved.ASK)],
        "two persons": [rule(), rule(two_person=True)],
        "allowed by both": [rule(allow=(Role.EDITOR, Role.REQUESTER)), rule(allow=(Role.REQUESTER,))],
        "allowed by one": [rule(allow=(Role.EDITOR,)), rule()],
        "times": [rule(expires="PT4H", fresh_for="PT2H"), rule(expires="PT3H", fresh_for="PT5H")],
        "reminders": [rule(remind=("PT3H", "PT1H")), rule(remind=("PT2H", "PT1H"), expires="PT3H")],
        "escalations": [rule(escalate=late), rule(escalate=early)],
        "escalation in time": [rule(escalate=late), rule(expires="PT3H")],
        "escalation just in time": [rule(escalate=late), rule(expires="PT3H1S")],
        "days and hours": [
            rule(
                expires="P5DT6H",
                fresh_for="P2DT1H",
                remind=("P1DT1H", "PT30M", "P4D"),
                escalate=escalated("P3DT3H", group="late"),
            )
        ],
        "escalation to Slack": [rule(escalate=slack), rule(escalate=late)],
        "groups": [
            rule(approvers=(Approver(group="a", of=2), Approver(slack_group="a"), Approver(group="b"))),
            rule(approvers=(Approver(group="b", of=3), Approver(group="a"))),
        ],
    }
    as_it_was(EXPECTED.with_name("every_term.json"), {name: terms_of(rules).to_json() for name, rules in cases.items()})
    assert quorums(()) == ()


MISTAKES = {
    "no rules": ("", "rules: []"),
    "taken id": (
        "",
        "rules:\n- {id: a, match: {connector: slack}, outcome: deny}\n- {id: a, match: {connector: x}, outcome: deny}",
    ),
    "unknown connector": ("", "rules:\n- {id: a, match: {connector: slak}, outcome: deny}"),
    "unknown operation": ("", "rules:\n- {id: a, match: {operation: slack.message.pst}, outcome: deny}"),
    "another connector's": (
        "",
        "rules:\n- {id: a, match: {connector: slack, operation: http.*}, outcome: deny}",
    ),
    "connector that is a name's beginning": ("", "rules:\n- {id: a, match: {connector: crm}, outcome: deny}"),
    "otherwise without when": ("", "rules:\n- {id: a, match: {connector: slack}, outcome: deny, otherwise: allow}"),
    "otherwise the same": (
        "",
        "rules:\n- {id: a, match: {connector: slack}, when: 'true', outcome: deny, otherwise: deny}",
    ),
    "in doubt of nothing": (
        "",
        "rules:\n- {id: a, match: {connector: slack}, outcome: deny, in_doubt: {approvers: [{group: g}]}}",
    ),
    "terms of nothing": (
        "",
        (
            "rules:\n- {id: a, match: {connector: slack}, outcome: allow, tier: low, approvers: [], two_person: true, "
            "allow: [editor], "
            "unresolved: ask, expires: PT1H, fresh_for: PT1H, remind: [PT1M], escalate: {after: PT1M, to: {group: g}}}"
        ),
    ),
    "no approvers": ("", "rules:\n- {id: a, match: {connector: slack}, outcome: needs_approval}"),
    "no approvers in a list": (
        "",
        "rules:\n- {id: a, match: {connector: slack}, outcome: needs_approval, approvers: []}",
    ),
    "no approvers otherwise": (
        "",
        "rules:\n- {id: a, match: {connector: slack}, when: 'true', outcome: allow, otherwise: needs_approval}",
    ),
    "late": (
        "",
        (
            "rules:\n- {id: a, match: {connector: slack}, outcome: needs_approval, approvers: [{group: g}], "
            "expires: PT2H, remind: [PT1H, PT2H, PT3H], escalate: {after: PT2H, to: {group: g}}}"
        ),
    ),
    "in braces": ("", "rules:\n- {id: a, match: {connector: slack}, when: '${{ true }}', outcome: deny}"),
    "in braces inside": (
        "",
        "rules:\n- {id: a, match: {connector: slack}, when: '1 == 1 && ${{ true }}', outcome: deny}",
    ),
    "not a condition": ("", "rules:\n- {id: a, match: {connector: slack}, when: action.target, outcome: deny}"),
    "an unknown fact": (
        "",
        "rules:\n- {id: a, match: {connector: slack}, when: action.fields.txt == 'x', outcome: deny}",
    ),
    "nothing is left": (
        "applies: {operations: [http.*]}",
        "rules:\n- {id: a, match: {connector: slack}, outcome: deny}",
    ),
    "applies to nothing": ("applies: {}", "rules:\n- {id: a, match: {connector: slack}, outcome: deny}"),
    "applies to unknowns": (
        "applies: {operations: [htp.*, slack.*], connectors: [slak, slack], workflows: [any]}",
        "rules:\n- {id: a, match: {connector: slack}, outcome: deny}",
    ),
    "applies to the beginnings of names": (
        "applies: {operations: [slack.*, slack.*, slack.message, htp.*], connectors: [slack, people, slac]}",
        "rules:\n- {id: a, match: {connector: slack}, outcome: deny}",
    ),
    "several after one that asks": (
        "",
        (
            "rules:\n- {id: a, match: {connector: slack}, outcome: needs_approval, approvers: [{group: g}]}\n"
            "- {id: b, match: {connector: slack}, outcome: deny, tier: low}\n"
            "- {id: a, match: {connector: slack}, outcome: needs_approval, approvers: [{group: g}], remind: [P99D]}\n"
            "- {id: c, match: {connector: slack}, outcome: deny, otherwise: needs_approval, approvers: [{group: g}]}\n"
            "- {id: b, match: {connector: slack}, when: 'true', outcome: deny, otherwise: deny, tier: low}\n"
            "- {id: d, match: {connector: slack}, when: 'true', outcome: deny, in_doubt: {approvers: [{group: g}]}}"
        ),
    ),
    "unknown connector of an operation": (
        "",
        (
            "rules:\n- {id: a, match: {connector: slack}, outcome: deny}\n"
            "- {id: b, match: {connector: slak, operation: slack.*}, outcome: deny}\n"
            "- {id: c, match: {connector: slack, operation: slack.message.pst}, outcome: deny}"
        ),
    ),
}


def test_mistakes_are_named_as_they_were(known: Known) -> None:
    found: dict[str, Any] = {}
    for name, (applies, rules) in MISTAKES.items():
        with pytest.raises(DefinitionError) as caught:
            load_policy(f"policy: p\nversion: 1\n{applies}\n{rules}\n", "p.yaml", known)
        found[name] = [
            f"{one.file}:{one.line}:{one.column} {one.message} {one.remedy}".strip() for one in caught.value.problems
        ]
    as_it_was(EXPECTED.with_name("every_mistake.json"), found)


SCOPES = {
    "workflows": AppliesDocument(workflows=("tri*", "other")),
    "connectors": AppliesDocument(connectors=("servicenow",)),
    "people": AppliesDocument(connectors=("people",)),
    "operations": AppliesDocument(operations=(UPDATE, "slack.*")),
    "generic": AppliesDocument(operations=(RECORD,)),
    "narrow": AppliesDocument(operations=(NOTE,)),
    "both": AppliesDocument(connectors=("slack",), operations=("*.message.*",)),
    "neither": AppliesDocument(connectors=("slack",), operations=("http.*",)),
}


def test_scopes_reach_what_they_reached(known: Known) -> None:
    scopes = {name: Scope.of(applies, known) for name, applies in SCOPES.items()}
    found: dict[str, Any] = {
        name: {
            f"{operation} in {workflow}": [
                scope.covers(workflow, operation),
                scope.reaches(operation),
                scope.holds(operation),
            ]
            for operation in (UPDATE, NOTE, RECORD, POST, "crm.person.get", "http.request.send", "slackx.a.b")
            for workflow in ("triage", "other", "others", "")
        }
        for name, scope in scopes.items()
    }
    texts = {
        "no YAML": "a: [", "a list": "[]", "nothing": "", "no scope": "policy: p", "a wrong scope": "applies: {x: 1}",
        "an empty scope": "applies: {}", "a scope": "policy: 7\napplies: {workflows: [a*]}",
    }  # fmt: skip
    for name, text in texts.items():
        scope = scope_of(text, "p.yaml", known)
        found[f"unreadable: {name}"] = [scope == EVERYTHING, scope.covers("abc", UPDATE), scope.covers("b", UPDATE)]
    found["declared"] = dict(
        sorted(declare(known[name] for name in (UPDATE, "crm.person.get", "http.request.send")).items())
    )
    as_it_was(EXPECTED.with_name("every_scope.json"), found)


FORESEEN = {
    "allow": f"- {{id: a, match: {{operation: {RECORD}}}, outcome: allow}}",
    "ask": f"- {{id: a, match: {{operation: {RECORD}}}, outcome: needs_approval, approvers: [{{group: g}}]}}",
    "deny": f"- {{id: a, match: {{operation: {RECORD}}}, outcome: deny}}",
    "maybe allow": f"- {{id: a, match: {{operation: {RECORD}}}, when: counters.writes_in_run > 3, outcome: allow}}",
    "maybe deny": f"- {{id: a, match: {{operation: {RECORD}}}, when: counters.writes_in_run > 3, outcome: deny}}",
    "maybe deny, else allow": (
        f"- {{id: a, match: {{operation: {RECORD}}}, when: counters.writes_in_run > 3, "
        "outcome: deny, otherwise: allow}"
    ),
    "maybe allow, else ask": (
        f"- {{id: a, match: {{operation: {RECORD}}}, when: counters.writes_in_run > 3, outcome: allow, "
        "otherwise: needs_approval, approvers: [{group: g}]}"
    ),
    "in this workflow": f"- {{id: a, match: {{operation: {RECORD}}}, when: run.workflow == 'triage', outcome: allow}}",
    "in another workflow": f"- {{id: a, match: {{operation: {RECORD}}}, when: run.workflow == 'x', outcome: allow}}",
    "of a narrower one alone": f"- {{id: a, match: {{operation: {NOTE}}}, outcome: deny}}",
    "of a narrower one that asks": (
        f"- {{id: a, match: {{operation: {NOTE}}}, outcome: needs_approval, approvers: [{{group: g}}]}}"
    ),
    "of another": f"- {{id: a, match: {{operation: {POST}}}, outcome: allow}}",
}


def test_outcomes_are_foreseen_as_they_were(known: Known) -> None:
    named = {name: policy(known, f"p{at}", rules) for at, (name, rules) in enumerate(FORESEEN.items())}
    found: dict[str, Any] = {}
    beside = ("allow", "maybe deny", "maybe allow, else ask", "of a narrower one that asks")
    for (one, first), two in product(named.items(), beside):
        policies = PolicySet.of(first, named[two] if one != two else None)
        told = foresee(policies, "triage", RECORD, {"run.workflow": "triage"})
        found[f"{one} + {two}"] = [str(told.verdict), told.words, told.to_json()["outcomes"], list(told.rules)]
    found["none"] = foresee(PolicySet(), "triage", RECORD, {}).to_json()
    broken = PolicySet.of(named["allow"], BrokenPolicy("d", "x"))
    found["broken"] = foresee(broken, "triage", RECORD, {}).to_json()
    found["unknown"] = foresee(PolicySet.of(named["allow"]), "triage", "x.y.z", {}).to_json()
    as_it_was(EXPECTED.with_name("every_foresight.json"), found)


def test_what_changes_is_named(known: Known) -> None:
    lines = [
        f"- {{id: {name}, match: {{operation: {RECORD}}}, when: counters.writes_in_run > {more}, outcome: allow}}"
        for name, more in (("a", 1), ("b", 1), ("c", 1), ("b", 2))
    ]
    before = PolicySet.of(policy(known, "p", "\n".join(lines[:2])), policy(known, "q", lines[0]))
    after = PolicySet.of(
        policy(known, "p", "\n".join([lines[2], lines[3]]), 2),
        policy(known, "q", lines[0], 2, "applies: {workflows: [x]}"),
    )
    assert [*changed(before, after)] == [
        ("p/a", "falls away"),
        ("p/b", "changes"),
        ("p/c", "is new"),
        ("q/a", "changes"),
    ]
    assert [*changed(before, before)] == []
