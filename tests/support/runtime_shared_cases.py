"""Helpers of tests/runtime that several test files share: from test_shared_cases."""

from __future__ import annotations

from typing import Any
from uuid import UUID

CASE = """
workflow: case
version: 1
reference: ${{ trigger.number }}
channels: {papers: {}, by: {}}
steps:
  - id: open
    do: probe.case.share
    with: {name: t}
    timeout: P2D
    set: {papers: "${{ output.papers }}", by: "${{ signal.by }}"}
  - {id: after, do: probe.effect.apply, with: {name: "${{ run.id }}"}}
"""


async def begun(runtime: Any, count: int = 3) -> list[UUID]:
    """Runs that share one case, which the first one has begun and the others have joined."""
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(CASE)
    runs = [await another(runtime, str(number)) for number in range(count)]
    assert [await runtime.status(run) for run in runs] == ["waiting"] * count
    assert len(runtime.outside.effects) == 1
    return runs


async def another(runtime: Any, ref: str) -> UUID:
    run: UUID = (await runtime.start("case", {"number": "INC1"}, ref=ref)).run_id
    await runtime.worker().work_off()
    return run
