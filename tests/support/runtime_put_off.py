"""Helpers of tests/runtime that several test files share: from test_put_off."""

from __future__ import annotations

ASKS = "workflow: w\nversion: 1\nreference: r\nsteps:\n  - {id: p, do: kyc.papers.request, with: {name: ann%s}}\n"
