"""Helpers of tests/store that several test files share: from test_locks."""

from __future__ import annotations

GATE = """
workflow: gate
version: 1
reference: ${{ run.id }}
steps:
  - {id: ok, approve: {summary: Go on?, approvers: {group: leads}}}
"""
