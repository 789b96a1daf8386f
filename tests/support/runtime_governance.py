"""Helpers of tests/runtime that several test files share: from test_governance."""

from __future__ import annotations

EFFECT = """
workflow: effect
version: 1
reference: ${{ run.id }}
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}}
"""


ALLOW = "policy: allow\nversion: 1\nrules: [{id: all, match: {connector: probe}, outcome: allow}]\n"
