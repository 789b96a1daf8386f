"""Steps that only write: state and the run's reference are set without an operation, and nothing is judged."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.catalog import load_catalog
from core.errors import DefinitionError
from runtime.definition.workflow import load_workflow

pytestmark = pytest.mark.req("X-8")

SETS = """
workflow: sets
version: 1
channels: {seen: {reduce: append, ledger: true}, level: {}}
steps:
  - set: {level: "${{ trigger.level }}", seen: one}
  - reference: "case ${{ state.level }}"
  - {id: named, set: {seen: "${{ run.reference }}"}}
  - {id: after, needs: [named], set: {seen: "${{ steps.named.status }}"}}
"""


async def test_state_and_reference_are_set_by_steps_of_their_own_and_no_policy_is_asked(runtime: Any) -> None:
    run = await runtime.go(SETS, {"level": 2}, policy=None)
    assert await runtime.status(run) == "succeeded"
    state = await runtime.state(run)
    assert state["channels"] == {"level": 2, "seen": ["one", "case 2", "succeeded"]}
    assert (await runtime.books.run(run)).reference == "case 2"
    told = await runtime.events(run)
    assert "decision.made" not in told
    assert told.count("step.succeeded") == 4
    assert [entry.value for entry in await runtime.books.entries()] == ["one", "case 2", "succeeded"]
    await runtime.history(run)
    await runtime.at_rest()


async def test_a_fault_of_a_set_step_fails_it_or_takes_its_branch(runtime: Any) -> None:
    text = (
        "workflow: sets\nversion: 1\nchannels: {why: {}}\nsteps:\n"
        "  - {id: s, set: {why: '${{ trigger.none }}'}, on_failure: [{set: {why: '${{ error.class }}'}}]}\n"
        "  - {id: t, set: {why: '${{ trigger.none }}'}}\n"
    )
    run = await runtime.go(text, {}, policy=None)
    assert await runtime.status(run) == "failed_terminal"
    assert (await runtime.state(run))["channels"] == {"why": "expression"}
    assert (await runtime.error(run))["step"] == "t"


async def test_what_stays_inside_is_not_judged(runtime: Any) -> None:
    packaged = load_catalog()
    operation = packaged.get("transform.data.apply")
    assert operation.stays_inside
    assert not any(packaged.get(name).stays_inside for name in packaged.operations if name != operation.name)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("{set: {none: 1}}", "no channel 'none'"),
        ("{set: {a: '${{ output.x }}'}}", "output"),
        ("{set: {a: 1}, timeout: PT1H}", "'timeout' does not belong"),
        ("{id: x}", "exactly one of"),
        ("{set: {a: 1}, with: {b: 1}}", "'with' does not belong"),
    ],
)
async def test_what_a_set_step_cannot_have_is_refused(runtime: Any, step: str, words: str) -> None:
    text = f"workflow: w\nversion: 1\nchannels: {{a: {{}}}}\nsteps:\n  - {step}\n"
    with pytest.raises(DefinitionError) as raised:
        load_workflow(text, "w.yaml", runtime.catalog)
    assert words in str(raised.value)
