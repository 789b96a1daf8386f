"""An agent is a step (P-14): its turns and calls are steps of their own, and each call has one result."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from runtime.requests.views import RunReader
from tests.support.agents import Agents, call, calls, says
from tests.support.runtime_agents import APPROVAL


@pytest.mark.req("P-14")
async def test_an_agent_calls_and_answers(agents: Agents) -> None:
    run = await agents.go(
        calls(call("probe_value_read", {"name": "a"}), call("probe_effect_apply", {"name": "b", "value": "1"})),
        says("All done."),
    )
    runtime = agents.runtime
    assert await runtime.error(run) is None
    assert await runtime.status(run) == "succeeded"
    assert await agents.found(run) == {"text": "All done."}
    assert await runtime.steps(run) == {
        "triage": "succeeded",
        "triage/1": "succeeded",
        "triage/1/1": "succeeded",
        "triage/1/2": "succeeded",
        "triage/2": "succeeded",
    }
    assert [effect.input["name"] for effect in runtime.outside.effects] == ["b"]
    assert len(agents.asked) == 2, "the model is called once a turn"
    assert [message["role"] for message in agents.asked[1]] == ["system", "user", "assistant", "tool", "tool"]
    await runtime.at_rest()
    await runtime.history(run)


@pytest.mark.req("P-14")
async def test_two_approvals_of_one_turn_across_days_and_restarts(agents: Agents) -> None:
    made = [call("probe_effect_apply", {"name": name, "value": "1"}, name) for name in ("a", "b")]
    run = await agents.go(calls(*made), says("One of them."), policy=APPROVAL + "    expires: P7D\n")
    runtime: Any = agents.runtime
    await runtime.person("lee", ("leads",))
    cards = {approval.step: approval.id for approval in await runtime.books.approvals(open=True)}
    assert set(cards) == {"triage/1/1", "triage/1/2"}
    again = runtime.restarted()
    await again.vote("lee", "approve", on=cards["triage/1/1"])
    await again.go_on()
    await again.trouble.begin_waits_earlier(timedelta(days=3))
    await again.time_passes()
    await again.sweep()
    later = again.restarted()
    assert (await later.status(run), len(agents.asked)) == ("waiting_approval", 1)
    await later.vote("lee", "reject", on=cards["triage/1/2"])
    await later.restarted().go_on()
    assert await runtime.status(run) == "succeeded"
    assert {approval.id for approval in await runtime.books.approvals()} == {*cards.values()}, "two cards, and no third"
    assert [effect.input["name"] for effect in runtime.outside.effects] == ["a"]
    told = agents.results()
    assert (set(told), json.loads(told["b"])["status"]) == ({"a", "b"}, "rejected")
    assert len(agents.asked) == 2, "the model is called once a turn"
    report = await RunReader(runtime.faces, later.definitions).replay("acme", run)
    assert report.ok, report.difference
    await runtime.at_rest()


@pytest.mark.req("P-14")
async def test_two_approvals_of_one_turn_one_rejected(agents: Agents) -> None:
    run = await agents.go(
        calls(
            call("probe_effect_apply", {"name": "a", "value": "1"}, "one"),
            call("probe_effect_apply", {"name": "b", "value": "2"}, "two"),
            call("probe_value_read", {"name": "c"}, "three"),
        ),
        says("One of them."),
        policy=APPROVAL,
    )
    runtime: Any = agents.runtime
    assert await runtime.status(run) == "waiting_approval"
    asked = {approval.step: approval.id for approval in await runtime.books.approvals(open=True)}
    assert set(asked) == {"triage/1/1", "triage/1/2"}
    await runtime.person("lee", ("leads",))
    await runtime.vote("lee", "approve", on=asked["triage/1/1"])
    await runtime.go_on()
    assert len(agents.asked) == 1
    again = runtime.restarted()
    await again.vote("lee", "reject", on=asked["triage/1/2"])
    await again.go_on()
    assert await runtime.status(run) == "succeeded"
    assert [effect.input["name"] for effect in runtime.outside.effects] == ["a"]
    told = agents.results()
    assert set(told) == {"one", "two", "three"}
    assert json.loads(told["two"])["status"] == "rejected"
    assert "because" in told["two"], "the person's reason is told"
    assert len(agents.asked) == 2
    await runtime.at_rest()
