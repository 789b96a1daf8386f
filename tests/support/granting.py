"""A policy that lets approvers allow more in advance, and a workflow that uses it."""

POLICY = """
policy: tests
version: 2
rules:
  - id: dangers
    match: {operation: probe.danger.apply}
    outcome: needs_approval
    approvers: [{group: leads}]
    grants: {uses: 2, for: PT4H}
"""
WORKFLOW = """
workflow: often
version: 1
reference: ${{ trigger.number }}
steps:
  - {id: a, do: probe.danger.apply, with: {name: x}}
  - {id: b, do: probe.danger.apply, with: {name: x}}
  - {id: go, wait: {signal: go, correlate: "${{ trigger.number }}"}}
  - {id: c, do: probe.danger.apply, with: {name: x}}
"""
