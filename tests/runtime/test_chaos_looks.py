"""The questions of ``make chaos`` to the books find an effect that nothing let out, and one left in doubt."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from chaos.agents import broken, misled
from chaos.checks import LEFT, NEVER
from chaos.eyes import DOUBTS, Eyes, proposed
from connectors.port import InDoubt
from tests.support.agents import call, calls, says
from tests.support.trouble import Forger

EFFECT = """
workflow: effect
version: 1
reference: ${{ run.id }}
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}}
"""
UNJUDGED = NEVER["effects without a decision or an approval"]
UNSETTLED = LEFT["receipts without an outcome"]


@pytest.fixture
async def eyes(database_url: str) -> AsyncIterator[Eyes]:
    found = Eyes(database_url)
    yield found
    await found.close()


@pytest.mark.tampers
async def test_an_effect_without_a_decision_is_found(runtime: Any, database_url: str, eyes: Eyes) -> None:
    run_id = await runtime.go(EFFECT)
    assert (await eyes.one(UNJUDGED), await eyes.one(UNSETTLED)) == (0, 0)
    await Forger(database_url).journal_text(run_id, '"outcome":"allow"', '"outcome":"deny"', column="lines")
    assert await eyes.one(UNJUDGED) == 1


async def test_an_action_in_doubt_is_found_with_what_was_to_be_done(runtime: Any, eyes: Eyes) -> None:
    runtime.outside.script["a"] = [InDoubt("timeout")]
    run_id = await runtime.go(EFFECT)
    receipt = await runtime.books.receipt()
    assert receipt.status == "in_doubt"
    (doubt,) = await eyes.all(DOUBTS)
    assert (doubt["run_id"], doubt["step"], doubt["receipt"]) == (run_id, "a", str(receipt.id))
    assert proposed(doubt)["input"] == {"name": "a"}
    assert await eyes.one(UNSETTLED) == 1
    await runtime.wait_is_due()
    assert (await eyes.one(UNSETTLED), await eyes.all(DOUBTS)) == (0, [])


AGENT = """
workflow: agent
version: 1
reference: one
steps:
  - id: look
    agent: {model: script-given, instructions: Do it., input: Look after one, tools: [probe.effect.apply]}
"""


async def test_a_model_that_is_asked_twice_is_found(agents: Any, eyes: Eyes) -> None:
    await agents.go(calls(call("probe_effect_apply", {"name": "a"})), says("Done."), workflow=AGENT)
    asked = agents.model.completions
    assert len(asked) == 2
    assert await misled(eyes, asked) == []
    assert await misled(eyes, [*asked, asked[1]]) == ["one: its model was asked 2 times in turn 2, which was begun 1"]


def test_a_call_with_two_results_is_found() -> None:
    lines = [
        {"step": "look/1", "type": "step.started", "data": {}},
        {"step": "look/1", "type": "step.succeeded", "data": {}},
        {"step": "look/1", "type": "agent.answered", "data": {"calls": [["x", ""], ["x", "limit"]]}},
    ]
    ends: Any = [{"step": "look/1/1", "type": kind, "data": {}} for kind in ("step.failed", "step.succeeded")]
    again = {"step": "look/1", "type": "step.started", "data": {}}
    assert [*broken("r", lines, Counter())] == ["look/1/1 has 0 results"]
    assert [*broken("r", [*lines, *ends[:1]], Counter())] == []
    assert [*broken("r", [*lines, *ends], Counter())] == ["look/1/1 has 2 results"]
    assert [*broken("r", [*lines, again, ends[0]], Counter())] == [
        "look/1 was begun again, although its answer was recorded"
    ]
