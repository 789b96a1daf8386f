"""A rule about an operation also restrains the operations that can do the same, by what their declarations say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from connectors.catalog import Source, load_catalog
from connectors.proposal import build_action
from policy.evaluate import build_facts, evaluate
from policy.explain import explain
from policy.facts import FactContext
from policy.load import load_policy
from policy.sets import PolicySet
from runtime.definition.catalog import operation_facts
from runtime.definition.edges import Generics

CATALOG = load_catalog()
FACTS = operation_facts(CATALOG)
INCIDENT, RECORD = "servicenow.incident.update", "servicenow.record.update"
NOTE, GET = "servicenow.incident.add_work_note", "servicenow.incident.get"
ANY = "- {id: any, match: {operation: servicenow.record.*}, outcome: allow}\n"


def rule(operation: str, outcome: str, when: str = "", **more: Any) -> str:
    condition = f', when: "{when}"' if when else ""
    asks = ", approvers: [{group: g}]" if outcome == "needs_approval" else ""
    return f"- {{id: special, match: {{operation: {operation}}}, outcome: {outcome}{condition}{asks}}}\n"


def judged(rules: str, operation: str, **values: Any) -> str:
    policy = load_policy(f"policy: p\nversion: 1\nrules:\n{rules}", "p.yaml", FACTS)
    action = build_action(CATALOG.get(operation), {"sys_id": "46d44a", **values})
    return str(evaluate(PolicySet.of(policy), build_facts(action, FactContext()), operation).outcome)


CLOSES = "'state' in action.changed && action.fields.state == '7'"


@pytest.mark.parametrize("outcome", ["deny", "needs_approval"])
def test_what_a_rule_says_of_incidents_holds_for_the_table_incident(outcome: str) -> None:
    rules = ANY + rule(INCIDENT, outcome, CLOSES)
    closing, other = {"state": "7"}, {"state": "2"}
    assert judged(rules, RECORD, table="incident", fields=closing) == outcome
    assert judged(rules, RECORD, table="incident", fields=other) == "allow"
    assert judged(rules, RECORD, table="problem", fields=closing) == "allow"
    assert judged(rules, RECORD, table="incident_task", fields=closing) == "allow"


def test_it_lets_nothing_out_by_itself() -> None:
    for outcome in ("allow", "needs_approval"):
        assert judged(rule(INCIDENT, outcome), RECORD, table="incident", fields={"state": "2"}) == "deny"


def test_reading_has_siblings_as_well() -> None:
    rules = ANY + rule(GET, "deny")
    assert judged(rules, "servicenow.record.get", table="incident") == "deny"
    assert judged(rules, "servicenow.record.get", table="problem") == "allow"
    assert judged(ANY + rule("servicenow.incident.query", "deny"), "servicenow.record.get", table="incident") == "allow"


def test_of_an_operation_that_writes_one_field_the_rule_holds_where_that_field_is_written() -> None:
    rules = ANY + "- {id: own, match: {operation: servicenow.incident.update}, outcome: allow}\n" + rule(NOTE, "deny")
    assert judged(rules, INCIDENT, fields={"work_notes": "x"}) == "deny"
    assert judged(rules, INCIDENT, fields={"state": "2"}) == "allow"
    assert judged(rules, RECORD, table="incident", fields={"work_notes": "x"}) == "deny"
    assert judged(rules, RECORD, table="problem", fields={"work_notes": "x"}) == "allow"


def test_a_rule_about_the_generic_operation_says_nothing_of_the_specific_one() -> None:
    own = "- {id: own, match: {operation: servicenow.incident.update}, outcome: allow}\n"
    assert judged(own + rule(RECORD, "deny"), INCIDENT, fields={"state": "2"}) == "allow"


def test_an_explanation_shows_the_rule_where_it_holds() -> None:
    text = f"policy: p\nversion: 1\nrules:\n{ANY}{rule(INCIDENT, 'deny', CLOSES)}"
    policy = load_policy(text, "p.yaml", FACTS)
    values: Any = {"table": "incident", "sys_id": "46d44a", "fields": {"state": "7"}}
    found = explain(PolicySet.of(policy), build_action(CATALOG.get(RECORD), values), FactContext())
    special = next(one for one in found.rules if one.id == "special")
    assert (special.matched, special.fired, found.decision.outcome) == (True, True, "deny")
    assert special.facts["action.target"] == "incident/46d44a"


def test_siblings_follow_from_the_declarations_alone() -> None:
    assert FACTS[INCIDENT].generics == {RECORD: "action.target.startsWith('incident/')"}
    notes = "action.target.startsWith('incident/') && ('work_notes' in action.present)"
    assert FACTS[NOTE].generics == {INCIDENT: notes, RECORD: notes}
    assert FACTS["servicenow.incident.query"].generics == {"servicenow.record.query": "action.target == 'incident'"}
    assert FACTS[RECORD].generics == {}
    assert FACTS["http.request.send"].generics == {}


def own(name: str, handler: str, target: str, **more: Any) -> dict[str, Any]:
    """A declaration of an installation, as it is written."""
    inputs = {"type": "object", "properties": {"sys_id": {"type": "string"}, "fields": {"type": "object"}}}
    if handler == "slack:post":
        inputs["properties"] = {"channel": {"type": "string"}, "text": {"type": "string"}}
    base: dict[str, Any] = {
        "name": name,
        "handler": handler,
        "target": target,
        "side_effects": "external_call",
        "risk": "low",
        "summary": "s",
        "in_doubt": "probe",
        "input_schema": {**inputs, "required": [*inputs["properties"]]},
        "output_schema": {"type": "object"},
    }
    return base | more


def test_a_declaration_of_an_installation_opens_no_way_around_the_rules_about_a_packaged_one() -> None:
    """One under its connector's name is a packaged one's sibling by its target; one under another name always is."""
    table = {"writes": "fields", "params": {"table": "problem"}}
    declared = [
        own("crm.ticket.update", "servicenow:update", "ticket/{sys_id}", connector="servicenow", **table),
        own("servicenow.problem.update", "servicenow:update", "problem/{sys_id}", **table),
        own("crm.any.update", "servicenow:update", "{sys_id}/{sys_id}", connector="servicenow"),
        own("slack.alert.post", "slack:post", "alert"),
        own("alerts.alert.post", "slack:post", "alert", connector="slack"),
    ]
    catalog = load_catalog([Source("own.yaml", json.dumps({"operations": declared}))])
    found = {name: Generics(catalog).of(operation) for name, operation in catalog.operations.items()}
    incidents = "action.target.startsWith('incident/')"
    notes = f"{incidents} && ('work_notes' in action.present)"
    assert {name: generics for name, generics in found.items() if generics} == {
        INCIDENT: {RECORD: incidents, "crm.ticket.update": "true", "crm.any.update": "true"},
        NOTE: {INCIDENT: notes, RECORD: notes, "crm.ticket.update": "true", "crm.any.update": "true"},
        RECORD: {"crm.ticket.update": "true", "crm.any.update": "true"},
        GET: {"servicenow.record.get": incidents},
        "servicenow.incident.query": {"servicenow.record.query": "action.target == 'incident'"},
        "crm.ticket.update": dict.fromkeys((RECORD, "crm.any.update"), "action.target.startsWith('ticket/')"),
        "servicenow.problem.update": dict.fromkeys((RECORD, "crm.any.update"), "action.target.startsWith('problem/')"),
        "slack.message.post": {"slack.alert.post": "true", "alerts.alert.post": "true"},
    }


def test_targets_are_compared_by_their_forms_and_not_by_what_resembles_them() -> None:
    """A point is a point, and the beginning of a target is not all of it."""
    targets = {"dotted": "a.b/{sys_id}", "other": "axb/{sys_id}", "short": "a.b", "deep": "a.b/{sys_id}/c"}
    declared = [
        own(f"crm.{name}.update", "servicenow:update", target, connector="servicenow")
        for name, target in targets.items()
    ]
    catalog = load_catalog([Source("own.yaml", json.dumps({"operations": declared}))])
    found = {name: Generics(catalog).of(catalog.operations[f"crm.{name}.update"]) for name in targets}
    assert found == {
        "dotted": {RECORD: "action.target.startsWith('a.b/')"},
        "other": {RECORD: "action.target.startsWith('axb/')"},
        "short": {},
        "deep": {
            RECORD: "action.target.startsWith('a.b/')",
            "crm.dotted.update": "action.target.startsWith('a.b/')",
        },
    }
