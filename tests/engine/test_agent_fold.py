"""Checks that a run holds nothing of which of an agent's calls was over first."""

from __future__ import annotations

from itertools import permutations
from uuid import UUID

import pytest

from runtime.engine.book.fold import of_agents
from runtime.engine.model.agent_state import Agent, Called, CallResult, Stage
from runtime.engine.model.graph import NO_GRAPH
from runtime.engine.model.run import Run
from runtime.engine.replay.replay import unopened

CALLS = {1: Called("cc", came="open"), 2: Called("aa", came="open"), 3: Called("bb", came="open")}
ENDS = {1: CallResult.DENIED, 2: CallResult.REJECTED, 3: CallResult.EXPIRED}


def ended(order: tuple[int, ...]) -> Run:
    run = unopened(UUID(int=1), b"k" * 32, NO_GRAPH)
    run.state.agents["a"] = Agent(stage=Stage.CALLS, turn=1, calls=CALLS).copy()
    for number in order:
        of_agents.ended(run, f"a/1/{number}", ENDS[number], {"code": str(ENDS[number])})
    return run


@pytest.mark.req("P-14")
@pytest.mark.req("P-2")
def test_the_order_in_which_calls_end_is_not_kept() -> None:
    first, *others = [ended(order).state.to_json() for order in permutations(CALLS)]
    assert all(other == first for other in others)
    assert ended((1, 2, 3)).state.agents["a"].barred == ["aa", "bb", "cc"]
