"""Helpers of tests/runtime that several test files share: from test_agents_waiting."""

from __future__ import annotations

from typing import Any


async def doubted(runtime: Any) -> None:
    """Let so much time pass that people are asked about what was sent."""
    await runtime.time_passes()
    await runtime.trouble.make_waits_due("retry")
    await runtime.sweep()
    await runtime.worker().work_off()
