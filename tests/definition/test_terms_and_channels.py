"""The terms of gates, and the values of channels before their first write."""

from __future__ import annotations

from typing import Any

from core.documents import load_document
from policy.evaluate import terms_of
from policy.model import RuleDocument

TERMS = """
approvers: [{group: leads, of: 2}, {slack_group: S0ITLEADS}]
two_person: true
tier: high
expires: PT8H
remind: [PT4H, PT1H]
escalate: {after: PT6H, to: {slack_group: S0DUTY}}
"""
GATE = """
workflow: w
version: 1
channels: {a: {reduce: append}, b: {reduce: union}, c: {reduce: merge}, d: {reduce: sum}, e: {reduce: max}, f: {}}
steps:
  - id: ok
    approve:
      summary: Go?
""" + TERMS.strip().replace("\n", "\n      ").join(["      ", "\n"])


def test_a_gate_takes_the_terms_of_a_rule(compiled: Any) -> None:
    keys: Any = load_document(TERMS, "terms.yaml").value
    more = {"id": "r", "match": {"connector": "slack"}, "outcome": "needs_approval"}
    rule = RuleDocument.model_validate({**keys, **more})
    terms = compiled(GATE).graph.leaf("ok").terms
    assert terms == terms_of([rule]).to_json()
    assert [group["group"] for group in terms["approvers"]] == ["leads", "S0ITLEADS"]
    assert terms["escalate"]["to"]["group"] == "S0DUTY"


def test_a_reminder_after_the_end_is_refused(problems_of: Any) -> None:
    late = GATE.replace("PT4H, PT1H", "P1D").replace("PT6H", "PT9H")
    assert [problem.message for problem in problems_of(late)] == [
        "It reminds when the approval has expired already.",
        "It escalates when the approval has expired already.",
    ]


def test_a_single_group_may_have_its_quorum_beside_it(compiled: Any) -> None:
    text = GATE.replace("[{group: leads, of: 2}, {slack_group: S0ITLEADS}]", "{group: leads}\n      quorum: 3")
    (group,) = compiled(text).graph.leaf("ok").terms["approvers"]
    assert (group["group"], group["of"]) == ("leads", 3)


def test_a_quorum_belongs_to_a_single_group(problems_of: Any) -> None:
    (problem,) = problems_of(GATE + "      quorum: 2\n")
    assert "say how many of each group by `of`" in problem.message


def test_an_approver_is_one_group(problems_of: Any) -> None:
    (problem,) = problems_of(GATE.replace("{slack_group: S0ITLEADS}", "{slack_group: S0ITLEADS, group: leads}"))
    assert "name exactly one of group, slack_group" in problem.message


def test_reducers_that_add_start_with_something_to_add_to(compiled: Any) -> None:
    channels = compiled(GATE).graph.channels
    assert {name: channel.initial for name, channel in channels.items()} == {
        "a": [],
        "b": [],
        "c": {},
        "d": 0,
        "e": None,
        "f": None,
    }
    assert compiled(GATE.replace("sum}", "sum, initial: 7}")).graph.channels["d"].initial == 7
