"""Helpers of tests/store that several test files share: from test_claims."""

from __future__ import annotations

from datetime import timedelta

LEASE = timedelta(seconds=30)


ONE = """
workflow: one
version: 1
reference: ${{ run.id }}
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}}
"""
