"""Helpers of tests/engine that several test files share: from test_agent_runs."""

from __future__ import annotations

from tests.support.agents import agent, call, calls

ASK = """
policy: asks
version: 1
rules:
  - {id: model, match: {connector: model}, outcome: allow, because: It is a test.}
  - {id: read, match: {operation: probe.value.read}, outcome: allow, because: It is a test.}
  - id: effects
    match: {operation: probe.effect.apply}
    outcome: needs_approval
    because: People look at effects.
    approvers: [{group: owners}]
  - id: mails
    match: {operation: probe.mail.send}
    outcome: needs_approval
    because: People look at mails.
    approvers: [{group: owners}]
"""


READ, APPLY = "probe_value_read", "probe_effect_apply"


ONE = calls(call(APPLY, {"name": "a", "value": "1"}, "one"))


BOTH = calls(call(APPLY, {"name": "a"}, "one"), call("ask_desk", {"question": "Why?"}, "two"))


SHAPE = "result: {type: object, required: [n], properties: {n: {type: integer}}, additionalProperties: false}"


WITHIN = agent().replace("        - probe.value.read\n", "        - {run: check@1, with: {name: ada}}\n")


LOOP = """
workflow: agents
version: 1
channels: {found: {reduce: append}}
steps:
  - foreach: ${{ trigger.names }}
    as: name
    max_parallel: 2
    steps:
      - id: triage
        agent: {model: script-given, instructions: Do it., input: "${{ name }}", tools: [probe.value.read],
                limits: {turns: 1}}
        set: {found: "${{ output.text }}"}
        on_failure: [{set: {found: "${{ error.code }}"}}]
"""
