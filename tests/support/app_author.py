"""Helpers of tests/app that several test files share: from test_author."""

from __future__ import annotations

FLOW = """
workflow: NAME
version: VERSION
reference: ${{ trigger.number }}
steps:
  - {id: said, wait: {signal: said, correlate: "${{ trigger.number }}"}}
"""


def flow(version: int = 1, name: str = "written") -> dict[str, str]:
    return {"source": FLOW.replace("NAME", name).replace("VERSION", str(version))}
