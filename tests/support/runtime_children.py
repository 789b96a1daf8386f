"""Helpers of tests/runtime that several test files share: from test_children."""

from __future__ import annotations

from typing import Any

CHILD = """
workflow: check
version: 1
reference: ${{ trigger.name }}
channels: {seen: {}, mine: {initial: child}}
result: {who: "${{ state.seen }}", status: "${{ steps.look.status }}"}
steps:
  - {id: look, do: probe.effect.apply, with: {name: "${{ trigger.name }}"}, set: {seen: "${{ trigger.name }}"}}
"""


WAITING = CHILD.replace("steps:\n", "steps:\n  - {id: go, wait: {signal: go, correlate: x}}\n")


PARENT = """
workflow: parent
version: 1
channels: {got: {}, mine: {initial: parent}}
steps:
  - {id: child, run: check%s, with: {name: "${{ trigger.name }}"}, set: {got: "${{ output }}"}%s}
  - {id: after, do: probe.effect.apply, with: {name: after}}
"""


async def begun(runtime: Any, child: str = CHILD, how: tuple[str, str] = ("", "")) -> Any:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(child)
    await runtime.publish(PARENT % how)
    started = await runtime.start("parent", {"name": "ada"})
    await runtime.worker().work_off()
    return started.run_id


async def child_of(runtime: Any) -> Any:
    return await runtime.books.run(workflow="check")
