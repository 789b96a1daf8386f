"""Runs, from their start to their end, by a real worker on a real PostgreSQL."""

from __future__ import annotations

from typing import Any

SEQUENCE = """
workflow: sequence
version: 1
reference: ${{ trigger.number }}
channels:
  names: {reduce: append}
steps:
  - id: first
    do: probe.effect.apply
    with: {name: "${{ trigger.number }}", value: a}
    set: {names: "${{ output.name }}"}
  - id: second
    do: probe.value.read
    with: {name: "${{ steps.first.output.name }}"}
  - if: ${{ steps.second.output.value == 'INC1' }}
    then:
      - id: third
        do: probe.effect.apply
        with: {name: "${{ state.names[0] }}", value: b}
    else:
      - id: other
        do: probe.effect.apply
        with: {name: other, value: c}
"""


async def test_a_sequence_runs_to_its_end(runtime: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(SEQUENCE)
    started = await runtime.start("sequence", {"number": "INC1"})
    assert started.created
    assert await runtime.worker().work_off() == 1
    assert await runtime.status(started.run_id) == "succeeded"
    assert await runtime.steps(started.run_id) == {"first": "succeeded", "second": "succeeded", "third": "succeeded"}
    assert [(call.input["name"], call.input["value"]) for call in runtime.outside.effects] == [
        ("INC1", "a"),
        ("INC1", "b"),
    ]
    assert (await runtime.events(started.run_id))[-1] == "run.closed"
