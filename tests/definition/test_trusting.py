"""Warnings about rules that trust fields which anyone may write."""

from __future__ import annotations

import pytest

from app.adapters import catalog_of
from app.settings import Settings
from runtime.definition.agents import of_policy

pytestmark = pytest.mark.req("P-14")
POLICY = """
policy: trusts
version: 1
rules:
  - id: own
    match: {operation: servicenow.incident.get}
    when: origin.sys_id.all(o, 'requester' in o || "%s" in o)
    outcome: %s
"""
ANYONE, SYSTEM = "field:http.request.send#/status", "field:bpmn.message.correlate#/process_instance_id"


def warned(label: str, outcome: str = "allow") -> list[str]:
    return of_policy(POLICY % (label, outcome), "p.yaml", catalog_of(Settings()))


@pytest.mark.parametrize("outcome", ["allow", "deny\n    otherwise: allow"])
def test_a_rule_that_lets_out_what_anyone_wrote_is_named(outcome: str) -> None:
    assert len(warned(ANYONE, outcome)) == 1
    (warning,) = warned(ANYONE, outcome)
    assert warning.startswith("p.yaml:7:")
    assert f"rule own lets an action out by {ANYONE}, which anyone may write" in warning


def test_all_of_a_result_is_as_open_as_its_weakest_field() -> None:
    assert warned("field:http.request.send#")


@pytest.mark.parametrize(
    ("label", "outcome"),
    [(SYSTEM, "allow"), (ANYONE, "deny"), ("field:no.such.operation#/x", "allow"), ("tool:http.request.send", "allow")],
)
def test_other_rules_are_not(label: str, outcome: str) -> None:
    assert warned(label, outcome) == []


def test_each_field_is_named_once_in_the_order_of_the_condition() -> None:
    fields = [f"field:http.request.send#/{name}" for name in ("headers", "body", "status", "json")]
    condition = '" in o || "'.join([*fields, SYSTEM, fields[0], fields[2]])
    told = [warning.partition("lets an action out by ")[2].partition(",")[0] for warning in warned(condition)]
    assert told == fields


WORDS = """
policy: words
version: 1
rules:
  - id: own
    match: {operation: servicenow.record.update}
    when: %s
    outcome: allow
"""


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        ("origin.table.all(o, 'mentioned' in o) && origin.sys_id.all(o, 'requester' in o)", "counts mentioned"),
        ("origin.table.all(o, 'requester' in o)", "nothing in it traces sys_id"),
        ("origin.table.all(o, 'requester' in o) && origin.sys_id.all(o, 'requester' in o)", None),
        ("run.workflow == 'w'", None),
    ],
)
def test_a_rule_that_one_common_word_satisfies_or_that_leaves_the_target_free_is_named(
    condition: str, told: str | None
) -> None:
    found = of_policy(WORDS % condition, "p.yaml", catalog_of(Settings()))
    assert len(found) == (told is not None)
    assert all(str(told) in one for one in found)
