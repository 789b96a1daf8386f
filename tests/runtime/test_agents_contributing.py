"""The people whom an agent has heard: whose answer keeps them from deciding on what it does next, and whose not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.agents import Agents, call, calls, says
from tests.support.runtime_agents import APPROVAL

pytestmark = pytest.mark.req("P-14")
FIRST = calls(call("probe_effect_apply", {"name": "a"}, "one"))
NEXT = calls(call("probe_effect_apply", {"name": "b"}, "two"))
ASK = calls(call("ask_desk", {"question": "Which?"}, "one"))


async def test_the_only_approver_who_rejected_a_call_decides_on_the_next_one(agents: Agents) -> None:
    runtime: Any = agents.runtime
    run = await agents.go(FIRST, NEXT, says("Done."), policy=APPROVAL)
    await runtime.person("lee", ("leads",))
    await runtime.vote("lee", "reject")
    await runtime.go_on()
    assert await runtime.status(run) == "waiting_approval"
    assert "because" in json.loads(agents.results()["one"])["reason"], "the model is told why"
    (asked,) = await runtime.books.approvals(open=True)
    assert "lee" not in json.dumps(asked.card["shaped_by"])
    told = await runtime.vote("lee", "approve")
    await runtime.go_on()
    assert await runtime.status(run) == "succeeded", told
    assert [effect.input["name"] for effect in runtime.outside.effects] == ["b"]
    await runtime.at_rest()


async def test_whoever_answered_a_question_of_the_agent_decides_on_none_of_its_calls(agents: Agents) -> None:
    runtime: Any = agents.runtime
    run = await agents.go(ASK, NEXT, says("Done."), policy=APPROVAL)
    for person in ("lee", "max"):
        await runtime.person(person, ("leads", "desk"))
    await runtime.complete("lee", {"answer": "b"})
    await runtime.go_on()
    assert await runtime.status(run) == "waiting_approval"
    await runtime.vote("lee", "approve")
    await runtime.go_on()
    assert await runtime.status(run) == "waiting_approval", "it was their answer"
    await runtime.vote("max", "approve")
    await runtime.go_on()
    assert await runtime.status(run) == "succeeded"
    await runtime.at_rest()
