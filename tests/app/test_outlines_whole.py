"""Outlines, whole: what a workflow's author is told before it runs, as programs read it and as people do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app import outlining
from app.outlining import lines, outline
from connectors.catalog import load_catalog
from policy.load import load_policy
from policy.sets import PolicySet
from runtime.definition.catalog import operation_facts
from runtime.definition.workflow import load_workflow
from tests.app.test_definitions_outline import AGENT, AGENTS_POLICY, EVERYTHING
from tests.support.whole import Named, as_it_was

EXPECTED = Path(__file__).with_name("whole_outlines.json")
FULL = """
workflow: full
version: 7
title: All that an outline tells
reference: ${{ trigger.number }}
triggers: {servicenow: {table: incident, events: [update, insert]}}
channels:
  last: {}
  log: {reduce: append, keep: 9, ledger: true}
  count: {reduce: sum, initial: 0}
caps: {max_writes_per_run: 0, max_runs_per_min: 6}
sla: P1DT12H
steps:
  - {id: read, do: servicenow.incident.get, with: {sys_id: "${{ trigger.sys_id }}"}}
  - {id: told, needs: [read], do: slack.message.post, with: {channel: C1, text: "${{ raw('x') }}"}}
  - {id: note, needs: [read], do: servicenow.incident.add_work_note, with: {sys_id: s, work_notes: n}}
  - {id: third, needs: [read], do: transform.data.apply, with: {value: 1}}
  - {id: fourth, needs: [read], do: transform.data.apply, with: {value: 1}}
  - {id: case, needs: [told, note, third, fourth], do: bpmn.process.start, with: {process: p}, timeout: P1D}
  - if: ${{ trigger.x == '1' }}
    then:
      - {id: mend, do: servicenow.incident.update, with: {sys_id: s, fields: {state: "2"}}}
      - foreach: ${{ trigger.all }}
        as: one
        steps:
          - {id: each, do: transform.data.apply, with: {value: 1}}
    else:
      - {id: ask, approve: {summary: Go on?, approvers: {group: leads}, quorum: 2}}
  - {id: end, needs: [read, case, told], run: other}
"""
POLICIES = (
    """
policy: first
version: 3
rules:
  - {id: reads, match: {operation: servicenow.incident.get}, outcome: allow}
  - {id: posts, match: {connector: slack}, outcome: needs_approval, approvers: [{group: leads}]}
  - {id: one, match: {connector: servicenow}, when: action.risk == 'medium', outcome: deny}
  - {id: two, match: {connector: servicenow}, when: action.target == 'x', outcome: deny}
  - {id: three, match: {connector: servicenow}, when: action.target == 'y', outcome: allow}
  - {id: four, match: {connector: servicenow}, when: action.target == 'z', outcome: allow}
  - {id: five, match: {connector: servicenow}, when: action.target == 'w', outcome: allow}
""",
    "policy: second\nversion: 1\nrules:\n  - {id: data, match: {connector: transform}, outcome: allow}\n",
)


@pytest.mark.req("X-3")
def test_an_outline_is_told_as_it_was() -> None:
    catalog, found = load_catalog(), dict[str, Any]()
    for name, text, policies in (
        ("full", FULL, None),
        ("full under policies", FULL, POLICIES),
        ("full under none", FULL, ()),
        ("everything", EVERYTHING, None),
        ("an agent", AGENT, (AGENTS_POLICY,)),
    ):
        workflow = load_workflow(text, f"{name}.yaml", catalog)
        judging = None
        if policies is not None:
            facts = operation_facts(catalog)
            judging = PolicySet([load_policy(one, "p.yaml", facts) for one in policies])
        told: Any = outline(workflow, judging)
        states = {connector: f"state of {connector}" for connector in workflow.connectors}
        found[name] = {"lines": [*lines(told, states)], "told": told}
    as_it_was(EXPECTED, Named()(found))


@pytest.mark.parametrize(
    ("keep", "words"), [(None, "n (append)"), (1, "n (append, keeps 1)"), (2, "n (append, keeps 2)")]
)
def test_what_a_channel_keeps_is_told_if_it_keeps_a_part(keep: int | None, words: str) -> None:
    assert outlining._channel({"name": "n", "reduce": "append", "keep": keep}) == words
