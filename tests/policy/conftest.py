"""The operations of an installation, and a way to ask one policy about one action."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from core.action import Action, Risk, SideEffects
from core.canonical import JsonObject
from policy.facts import FactContext, OperationFacts
from policy.load import Policy, load_policy

INCIDENT_FIELDS = (
    "priority", "urgency", "impact", "state", "assigned_to", "assignment_group", "short_description", "category",
    "subcategory", "work_notes", "close_notes", "close_code", "comments",
)  # fmt: skip


@pytest.fixture(scope="session")
def operations() -> Mapping[str, OperationFacts]:
    text = {"sys_id": "string"}
    return {
        "servicenow.incident.get": OperationFacts(text),
        "servicenow.incident.query": OperationFacts({"query": "string", "limit": "int"}),
        "servicenow.incident.update": OperationFacts(
            dict.fromkeys(INCIDENT_FIELDS, "string"), frozenset(INCIDENT_FIELDS)
        ),
        "servicenow.incident.add_work_note": OperationFacts({"work_notes": "string"}),
        "servicenow.record.get": OperationFacts(text),
        "servicenow.record.query": OperationFacts({"limit": "int"}),
        "servicenow.record.update": OperationFacts({"fields": "dyn"}),
        "slack.message.post": OperationFacts({"text": "string", "channel": "string"}),
        "http.request.send": OperationFacts({"url": "string", "amount": "int", "limit": "string"}),
        "model.chat.complete": OperationFacts({"tokens": "int"}),
        "transform.data.apply": OperationFacts({}),
    }


@pytest.fixture
def load(operations: Mapping[str, OperationFacts]) -> Callable[[str], Policy]:
    """Load a policy of which only the rules are given."""

    def _load(rules: str) -> Policy:
        return load_policy(f"policy: test\nversion: 3\nrules:\n{rules}", "test.yaml", operations)

    return _load


@pytest.fixture
def update() -> Callable[..., Action]:
    """An incident update of these fields, over these values as read before."""

    def _update(fields: JsonObject, before: JsonObject | None = None, **changes: Any) -> Action:
        values: dict[str, Any] = {
            "operation": "servicenow.incident.update",
            "input": {"sys_id": "42", "fields": fields},
            "fields": fields,
            "target": "incident:42",
            "target_version": "7",
            "before": {} if before is None else before,
            "risk": Risk.MEDIUM,
            "side_effects": SideEffects.EXTERNAL_CALL,
            "reversible": True,
            "summary": "Update INC42",
        }
        return Action(**{**values, **changes})

    return _update


@pytest.fixture
def context() -> FactContext:
    return FactContext(
        run_workflow="triage", run_version=4, run_id="r1", run_requested_by="ann", actor_kind="agent", tenant_id="acme"
    )
