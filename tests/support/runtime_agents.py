"""Helpers of tests/runtime that several test files share: from test_agents."""

from __future__ import annotations

APPROVAL = """
policy: some-ask
version: 1
rules:
  - {id: model, match: {connector: model}, outcome: allow, because: It is a test.}
  - {id: read, match: {operation: probe.value.read}, outcome: allow, because: It is a test.}
  - id: ask
    match: {operation: probe.effect.apply}
    outcome: needs_approval
    because: People look at effects.
    approvers: [{group: leads}]
"""
