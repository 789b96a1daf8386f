"""Helpers of tests/app that several test files share: from conftest."""

from __future__ import annotations

import getpass

WEBHOOK_SECRET = "a-webhook-secret-of-tests"


POLICY = """
policy: tests
version: 1
rules:
  - id: effects
    match: {operation: probe.effect.apply}
    outcome: allow
    because: It is a test.
  - id: cases
    match: {operation: probe.case.open}
    outcome: allow
    because: It is a test.
  - id: dangers
    match: {operation: probe.danger.apply}
    outcome: needs_approval
    tier: high
    approvers: [{group: leads, of: 1}]
    expires: PT1H
    because: Danger needs a person.
"""


# Whoever runs the tests starts runs on the command line.
PEOPLE = f"""
directory: tests
people:
  - {{id: ann, name: Ann, slack: U0ANN}}
  - {{id: bob, name: Bob, slack: U0BOB}}
  - {{id: eve, name: Eve, slack: U0EVE}}
  - {{id: tess, name: Tess, os: {getpass.getuser()}}}
groups:
  leads: [ann, bob]
"""
# Of the tools that agents carry out themselves one is free, and people read what another one sends.
TOOL_RULES = (
    POLICY.replace("version: 1", "version: 2")
    + """  - id: free-tools
    match: {operation: agent.tool.call}
    when: action.fields.tool == 'free'
    outcome: allow
    because: It is free.
  - id: other-tools
    match: {operation: agent.tool.call}
    when: action.fields.tool == 'send'
    outcome: needs_approval
    tier: high
    approvers: [{group: leads, of: 1}]
    expires: PT1H
    because: Somebody reads it first.
"""
)
