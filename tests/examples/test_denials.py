"""Denials without a detour: what an example policy denies to automation, no other operation of the catalog does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from connectors.catalog import load_catalog
from connectors.port import Before
from connectors.proposal import build_action
from policy.evaluate import Decision, build_facts, evaluate
from policy.facts import FactContext
from policy.sets import PolicySet
from runtime.definition.catalog import Definitions

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "policies"
CATALOG = load_catalog()
SYS_ID = "46d44a5d"


COMPILE = Definitions(CATALOG).compile_policy
# All that the examples have, in force together.
POLICIES = PolicySet([COMPILE(path.read_text(encoding="utf-8"), path.stem) for path in sorted(FOLDER.glob("*.yaml"))])


def decided(policy: str, operation: str, values: dict[str, Any], **context: Any) -> Decision:
    """The decision about a call in a workflow of this policy, over a record that held something else in every field."""
    context.setdefault("run_workflow", {"it-operations": "incident-triage"}.get(policy, policy))
    fields = values.get("fields", {})
    before = Before(dict.fromkeys(fields, "old"), "1") if isinstance(fields, dict) and fields else None
    action = build_action(CATALOG.operations[operation], values, before)
    return evaluate(POLICIES, build_facts(action, FactContext(**context)), operation)


def incident(**fields: str) -> dict[str, Any]:
    return {"sys_id": SYS_ID, "fields": fields}


def record(table: str, **fields: str) -> dict[str, Any]:
    return {"table": table, "sys_id": SYS_ID, "fields": fields}


@pytest.mark.parametrize(
    ("operation", "values"),
    [
        ("servicenow.incident.update", incident(state="6")),
        ("servicenow.incident.update", incident(state="7", priority="1")),
        ("servicenow.incident.update", incident(state="7\n")),
        ("servicenow.incident.update", incident(state=" 7")),
        ("servicenow.incident.update", incident(state="8", comments="Canceled.")),
        ("servicenow.incident.update", incident(incident_state="7", priority="1")),
        ("servicenow.incident.update", incident(active="false", comments="Over.")),
        ("servicenow.record.update", record("incident", state="7")),
        ("servicenow.record.update", record("incident", incident_state="7")),
        ("servicenow.record.update", record("incident", active="false")),
        ("servicenow.record.update", record("task", state="7")),
        (
            "http.request.send",
            {"method": "PATCH", "url": "https://acme.Service-Now.com/api/now/table/incident/1", "json": {"state": "7"}},
        ),
    ],
)
def test_incidents_are_closed_by_people(operation: str, values: dict[str, Any]) -> None:
    decision = decided("it-operations", operation, values)
    assert (decision.outcome, decision.errors) == ("deny", ())
    assert any(rule.own_id.startswith("people-close") for rule in decision.rules), "denied, and not for want of a rule"


@pytest.mark.parametrize(
    ("operation", "values", "outcome"),
    [
        ("servicenow.incident.update", incident(assigned_to="ann"), "allow"),
        ("servicenow.incident.update", incident(state="2", priority="1"), "needs_approval"),
        ("servicenow.record.update", record("cmdb_ci_server", state="7"), "needs_approval"),
        ("servicenow.record.update", record("incident_task", state="3"), "needs_approval"),
        ("servicenow.record.get", {"table": "incident", "sys_id": SYS_ID}, "allow"),
        ("http.request.send", {"method": "GET", "url": "https://status.example.com/"}, "needs_approval"),
    ],
)
def test_what_was_possible_still_is(operation: str, values: dict[str, Any], outcome: str) -> None:
    decision = decided("it-operations", operation, values)
    assert (decision.outcome, decision.errors) == (outcome, ())


@pytest.mark.parametrize(
    ("policy", "values", "context"),
    [
        ("access-request", record("u_entitlement", u_role="admin"), {"run_workflow": "access-request"}),
        ("client-onboarding", record("core_company", name="X"), {"run_workflow": "client-onboarding"}),
        ("client-onboarding", record("customer_account", u_status="active"), {"run_workflow": "client-onboarding"}),
    ],
)
def test_the_other_policies_leave_no_second_way(policy: str, values: dict[str, Any], context: dict[str, Any]) -> None:
    """Deny every operation that writes in ServiceNow, by a rule or for want of one."""
    writing = [
        name
        for name, operation in CATALOG.operations.items()
        if operation.has_effect and name.startswith("servicenow.")
    ]
    assert {"servicenow.incident.update", "servicenow.record.update"} <= set(writing)
    for name in writing:
        accepted = CATALOG.operations[name].input_schema["properties"]
        given = {key: item for key, item in values.items() if key in accepted}
        given |= {"work_notes": "x"} if "work_notes" in accepted else {}
        assert decided(policy, name, given, **context).outcome == "deny", name


@pytest.mark.req("P-14")
@pytest.mark.parametrize(
    ("operation", "values"),
    [
        ("servicenow.record.update", record("incident", state="7")),
        ("http.request.send", {"method": "POST", "url": "https://mail.example.com/"}),
        ("slack.message.post", {"channel": "C0INC", "text": "x"}),
    ],
)
def test_an_agent_that_triages_has_no_second_way(operation: str, values: dict[str, Any]) -> None:
    assert decided("agent-triage", operation, values, agent_step="triage").outcome == "deny"


@pytest.mark.req("P-14")
@pytest.mark.parametrize(
    "fields", [{"state": "6"}, {"state": " 7"}, {"incident_state": "7"}, {"active": "false"}, {"state": "8"}]
)
def test_an_agent_that_triages_closes_nothing(fields: dict[str, str]) -> None:
    decision = decided("agent-triage", "servicenow.incident.update", incident(**fields), agent_step="triage")
    assert decision.outcome == "deny"
    assert any(rule.own_id == "people-close" for rule in decision.rules), "denied, and not for want of a fact"
