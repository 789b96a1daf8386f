"""The outline of a workflow: every kind of node is told, also one that it has never heard of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from app import outlining
from app.outlining import lines, outline
from connectors.catalog import load_catalog
from policy.foresee import foresee
from policy.load import Policy, load_policy
from policy.sets import PolicySet
from runtime.definition.catalog import operation_facts
from runtime.definition.workflow import load_workflow
from runtime.engine.graph import Node, Scope, scopes_of
from runtime.engine.workflow import Workflow

EVERYTHING = """
workflow: everything
version: 1
reference: ${{ trigger.number }}
steps:
  - {id: nap, wait: {for: PT1H}}
  - id: reply
    wait: {signal: answer, correlate: "${{ run.reference }}"}
    timeout: P2D
    on_timeout:
      - {id: late, do: transform.data.apply, with: {value: 1}}
  - id: form
    needs: [nap]
    task: {title: Confirm, form: {type: object, properties: {ok: {type: boolean}}}, assign: {group: leads}}
  - id: again
    while: ${{ false }}
    max: 3
    steps:
      - {id: inner, do: transform.data.apply, with: {value: 1}}
  - id: child
    run: other@2
    on_failure:
      - {id: sorry, do: transform.data.apply, with: {value: 1}}
  - {id: later, continue_with: {workflow: other}}
"""
CALLS = """
workflow: calls
version: 1
reference: x
steps:
  - {id: a, do: transform.data.apply, with: {value: 1}}
  - {id: b, needs: [], do: transform.data.apply, with: {value: 1}}
"""


@pytest.fixture(scope="session")
def of_text() -> Any:
    return lambda text: load_workflow(text, "w.yaml", load_catalog())


def _ids(steps: Any) -> set[str]:
    return {step["id"] for step in steps} | {
        name for step in steps for inner in step.get("inside", {}).values() for name in _ids(inner)
    }


@pytest.mark.req("X-3")
def test_every_node_is_told_once_with_its_kind(of_text: Any) -> None:
    workflow: Workflow = of_text(EVERYTHING)
    told = cast("Any", outline(workflow))
    assert _ids(told["steps"]) == {node.id for node in workflow.graph.root.walk()}
    steps = {step["id"]: step for step in told["steps"]}
    assert {name: step["kind"] for name, step in steps.items()} == {
        "nap": "wait.timer",
        "reply": "wait.signal",
        "form": "task",
        "again": "while",
        "child": "run",
        "later": "continue_with",
    }
    assert {name: list(step.get("inside", ())) for name, step in steps.items() if "inside" in step} == {
        "reply": ["on_timeout"],
        "again": ["steps"],
        "child": ["on_failure"],
    }
    assert (steps["child"]["workflow"], steps["later"]["workflow"]) == ("other@2", "other")
    text = list(lines(told, {"transform": "configured"}))
    assert [line for line in text if "child" in line] == ["  ├─ child  run other@2"]
    assert "  ├─ form  task  [together with reply]" in text


AGENT = """
workflow: agents
version: 1
reference: x
steps:
  - id: helper
    agent:
      model: gpt-4o-mini
      instructions: Help.
      input: ${{ trigger.text }}
      tools:
        - do: servicenow.incident.get
          with: {sys_id: "${{ trigger.sys_id }}"}
        - servicenow.incident.update
        - servicenow.incident.add_work_note
        - slack.message.post
        - ask:
            name: ask_desk
            title: A question
            form: {type: object, properties: {answer: {type: string}}}
            assign: {group: desk}
        - run: owner-check@2
"""
AGENTS_POLICY = """
policy: agents
version: 1
rules:
  - {id: think, match: {connector: model}, when: agent.model == 'gpt-4o-mini', outcome: allow}
  - {id: read, match: {operation: servicenow.incident.get}, when: step.origin == 'agent', outcome: allow}
  - id: named
    match: {operation: servicenow.incident.update}
    when: origin.sys_id.all(o, 'requester' in o)
    outcome: allow
    otherwise: needs_approval
    approvers: [{group: leads}]
  - {id: early, match: {operation: servicenow.incident.add_work_note}, when: agent.turn < 3, outcome: allow}
  - {id: tell, match: {connector: slack}, outcome: allow}
  - {id: never, match: {connector: slack}, when: agent.step == 'helper', outcome: deny}
"""


@pytest.mark.req("P-14")
def test_an_agent_is_told_with_its_tools_and_what_becomes_of_their_calls(of_text: Any) -> None:
    policies = PolicySet([load_policy(AGENTS_POLICY, "p.yaml", operation_facts(load_catalog()))])
    told = cast("Any", outline(of_text(AGENT), policies))
    tools = {tool["id"]: tool for tool in told["steps"][0]["inside"]["tools"]}
    assert {name: tool["kind"] for name, tool in tools.items()} == {
        "helper/servicenow_incident_get": "do",
        "helper/servicenow_incident_update": "do",
        "helper/servicenow_incident_add_work_note": "do",
        "helper/slack_message_post": "do",
        "helper/ask_desk": "ask",
        "helper/owner-check_2": "run",
    }
    assert {name: one["words"] for name, one in told["foreseen"].items()} == {
        "helper": "always allowed",
        "helper/servicenow_incident_get": "always allowed",
        "helper/servicenow_incident_update": "it depends: allowed or asks people",
        "helper/servicenow_incident_add_work_note": "it depends: allowed or denied",
        "helper/slack_message_post": "always denied",
    }
    text = [line.lstrip(" │├└─") for line in lines(told, {"model": "", "servicenow": "", "slack": ""})]
    assert "helper  agent gpt-4o-mini  → always allowed (think)" in text
    get = "helper/servicenow_incident_get  do servicenow.incident.get  with sys_id fixed  (none, low risk)"
    assert f"{get}  → always allowed (read)" in text
    assert "helper/owner-check_2  run owner-check@2" in text


@dataclass(frozen=True)
class _SagaNode:
    """A kind of node that does not exist."""

    id: str
    needs: tuple[str, ...]
    undo: Scope
    ways: Mapping[str, Scope] = field(default_factory=dict)


def test_a_node_that_is_unknown_is_told_by_its_own_names(of_text: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    workflow: Workflow = of_text(CALLS)
    first, second = workflow.graph.root.nodes
    saga = cast("Node", _SagaNode("saga", ("a",), Scope((first,)), {"on_full_moon": Scope((second,))}))

    def scopes(node: Any) -> tuple[Scope, ...]:
        return (node.undo, *node.ways.values(), Scope(())) if isinstance(node, _SagaNode) else scopes_of(node)

    monkeypatch.setattr(outlining, "scopes_of", scopes)
    told = cast("Any", outline(replace(workflow, graph=replace(workflow.graph, root=Scope((first, saga))))))
    found = told["steps"][1]
    assert (found["kind"], found["stage"], list(found["inside"])) == ("_saga", 2, ["undo", "on_full_moon"])


def test_stages_say_what_starts_together(of_text: Any) -> None:
    told = cast("Any", outline(of_text(CALLS)))
    assert [step["stage"] for step in told["steps"]] == [1, 1]
    many = CALLS + "".join(
        f"  - {{id: s{n}, needs: [], do: transform.data.apply, with: {{value: 1}}}}\n" for n in range(5)
    )
    line = list(lines(cast("Any", outline(of_text(many))), {"transform": "configured"}))[-1]
    assert line.endswith("[together with a, b, s0 and 3 more]")


RULES = {
    "nothing matches": ([], ["deny"]),
    "one that always fires": ([("allow", "")], ["allow"]),
    "the strongest that always fires": ([("allow", ""), ("needs_approval", "")], ["needs_approval"]),
    "a condition may fire or not": ([("allow", "c")], ["deny", "allow"]),
    "a stronger condition": ([("allow", ""), ("deny", "c")], ["deny", "allow"]),
    "a weaker condition changes nothing": ([("deny", ""), ("allow", "c")], ["deny"]),
    "two conditions": ([("allow", "c"), ("needs_approval", "c")], ["deny", "needs_approval", "allow"]),
}


def _policy_of(rules: list[tuple[str, str]]) -> Policy:
    text = "policy: p\nversion: 1\nrules:\n  - {id: other, match: {connector: slack}, outcome: allow}\n"
    for number, (outcome, when) in enumerate(rules):
        condition = ", when: \"action.target == 'x'\"" if when else ""
        asked = ", approvers: [{group: g}]" if outcome == "needs_approval" else ""
        text += f"  - {{id: r{number}, match: {{connector: transform}}, outcome: {outcome}{condition}{asked}}}\n"
    return load_policy(text, "p.yaml", operation_facts(load_catalog()))


@pytest.mark.parametrize("case", RULES)
def test_what_a_policy_makes_of_an_operation_in_general(case: str) -> None:
    rules, outcomes = RULES[case]
    found = foresee(PolicySet.of(_policy_of(rules)), "w", "transform.data.apply", {})
    assert found.outcomes == tuple(outcomes)
    assert found.rules == tuple(f"r{number}" for number in range(len(rules)))
