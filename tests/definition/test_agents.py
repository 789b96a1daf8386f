"""Agents in documents: what the check of a workflow says about their tools, limits and results."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.catalog import load_catalog
from core.errors import DefinitionError
from runtime.definition.workflow import load_workflow
from runtime.engine.model.agent_node import AgentNode, Limits

pytestmark = pytest.mark.req("P-14")
CATALOG = load_catalog()
TEXT = """
workflow: w
version: 1
channels: {turns: {reduce: union}, kept: {reduce: union, keep: 3}, plain: {}, begun: {reduce: union, initial: [1]},
           empty: {reduce: union, initial: []}}
steps:
  - id: triage
    agent:
      model: gpt-4o-mini
      instructions: Triage.
      input: ${{ trigger.text }}
      %s
"""
UPDATE = "servicenow.incident.update"
ASK = "{name: a, title: t, form: {type: object, properties: {x: {type: string}}}, assign: {group: g}}"


def agent(*more: str) -> AgentNode:
    node: Any = load_workflow(TEXT % "\n      ".join(more), "w.yaml", CATALOG).graph.leaves["triage"]
    return node


def test_an_agent_has_limits_that_nobody_wrote() -> None:
    node = agent(f"tools: [{UPDATE}]")
    assert node.limits == Limits(12, 40, 5, 3, 100_000)
    assert list(node.tools) == ["servicenow_incident_update"]
    assert (node.fails_at_limit, node.fails_if_denied, node.timeout) == (False, False, None)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("tools: [no.such.operation]", "no.such.operation"),
        (f"tools: [{UPDATE}, {{do: {UPDATE}, with: {{sys_id: x}}}}]", "both called 'servicenow_incident_update'"),
        (f"tools: [{{do: {UPDATE}, with: {{strange: x}}}}]", "fixes 'strange', which is no input"),
        (f"tools: [{{do: {UPDATE}, run: w@1}}]", "exactly one of do, ask, run"),
        ("tools: [{ask: {name: a, title: t, form: {type: string}, assign: {group: g}}}]", "form"),
        ("result: {type: nothing}", "no JSON Schema"),
        ("result: {$ref: 'https://x.example/s.json'}", "leaves the document"),
        ("result: {type: object, properties: {a: {x-evidence: everything}}}", "x-evidence is 'everything'"),
        ("result: {type: object, properties: {a: {x-secret: perhaps}}}", "x-secret must be true or false"),
        ("limits: {turns: 0}", "turns"),
        ("limits: {cost: much}", "cost"),
        ("remember: {channel: x}", "no channel 'x'"),
        ("remember: {channel: kept}", "no `keep` of its own"),
        ("remember: {channel: plain}", "folded by replace"),
        ("remember: {channel: begun}", "an `initial` value"),
        ("remember: {channel: empty}", "an `initial` value"),
        (f"tools: [{{ask: {ASK}, name: b}}]", "`with` and `name` belong to a tool"),
        (f"tools: [{{ask: {ASK}, with: {{x: 1}}}}]", "`with` and `name` belong to a tool"),
        (f"tools: [{{ask: {ASK}, run: w}}]", "exactly one of do, ask, run"),
        ("tools: [{name: b}]", "exactly one of do, ask, run"),
        ("tools: [{ask: " + ASK.replace("title: t", "title: '${{ z }}'") + "}]", "w.yaml:12:31: undeclared"),
        ("tools: [{ask: " + ASK.replace("type: string", "type: list") + "}]", "w.yaml:12:79: "),
        ("remember: {channel: turns, turns: 0}", "turns"),
    ],
)
def test_a_wrong_agent_is_refused_with_its_place(more: str, words: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        agent(more)
    assert words in str(raised.value)
    assert "w.yaml:" in str(raised.value)


def test_a_limit_of_cost_needs_a_known_price() -> None:
    assert agent('limits: {cost: "1.00"}').limits.cost == "1.00"
    with pytest.raises(DefinitionError, match="price of 'nobody-knows' is not known"):
        load_workflow(TEXT.replace("gpt-4o-mini", "nobody-knows") % 'limits: {cost: "1.00"}', "w.yaml", CATALOG)


def test_the_turns_that_are_remembered_bound_the_channel() -> None:
    more = "remember: {channel: turns, turns: 7}"
    workflow = load_workflow(TEXT % more, "w.yaml", CATALOG)
    assert (workflow.graph.channels["turns"].keep, workflow.graph.channels["begun"].keep) == (7, None)
    with pytest.raises(DefinitionError, match="carries the turns of agents, so no step sets it"):
        load_workflow(TEXT % more + "  - {id: s, set: {turns: 1}}\n", "w.yaml", CATALOG)
