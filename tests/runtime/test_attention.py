"""People's attention is bounded: open questions of a turn, a run and a requester, and calls that keep failing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from connectors.port import Refused
from tests.support.agents import Agents, agent, call, calls, says
from tests.support.runtime_again import approved_by
from tests.support.runtime_agents import APPROVAL
from tests.support.runtime_refusals_hold import asked, office, started

pytestmark = pytest.mark.req("promise 12")


LIMITED = "limits: {calls: 100, turns: 30}"


def bounded(bounds: str) -> str:
    return approved_by("leads", 1).replace("}]}", "}], questions: " + bounds + "}")


def of_agent(bounds: str = "") -> str:
    asks = "    outcome: needs_approval\n"
    return APPROVAL.replace(asks, f"{asks}    questions: {bounds}\n") if bounds else APPROVAL


def statuses(agents: Agents) -> list[str]:
    return [json.loads(said).get("status", "done") for said in agents.results().values()]


@pytest.mark.parametrize(("bounds", "most"), [("", 5), ("{turn: 2}", 2), ("{turn: 8}", 8)])
async def test_a_turn_of_an_agent_asks_so_many_and_its_model_is_told_of_the_rest(
    agents: Agents, bounds: str, most: int
) -> None:
    turn = calls(*(call("probe_effect_apply", {"name": f"n{n}"}, f"c{n}") for n in range(12)))
    await agents.go(turn, says("Done."), policy=of_agent(bounds), workflow=agent(more=LIMITED))
    runtime = agents.runtime
    await runtime.go_on()
    opened = await asked(runtime)
    assert len(opened) == most
    await runtime.person("olga", ("owners", "leads", "desk"))
    for question in opened:
        assert (await runtime.vote("olga", "approve", on=question.id)).counted
    await runtime.go_on()
    assert sorted(statuses(agents)) == ["done"] * most + ["refused"] * (12 - most)
    assert len(runtime.outside.effects) == most


@pytest.mark.parametrize(("bounds", "most"), [("", 20), ("{run: 3}", 3)])
async def test_a_run_asks_so_many_at_once_and_its_steps_wait_for_a_slot(runtime: Any, bounds: str, most: int) -> None:
    many = "workflow: many\nversion: 1\nreference: ${{ run.id }}\nsteps:\n" + "".join(
        f"  - {{id: a{number}, needs: [], do: probe.effect.apply, with: {{name: n{number}}}}}\n"
        for number in range(most + 2)
    )
    await office(runtime, many, policy=bounded(bounds) if bounds else "")
    await started(runtime, "raj", "1", "many", {})
    assert len(await asked(runtime)) == most
    for question in await asked(runtime):
        assert (await runtime.vote("lea", "approve", on=question.id)).counted
    await runtime.worker().work_off()
    await runtime.trouble.make_waits_due("retry")
    await runtime.sweep()
    await runtime.worker().work_off()
    assert len(await asked(runtime)) == 2, "nothing is lost"


async def test_a_requester_has_so_many_open_in_the_tenant(runtime: Any) -> None:
    await office(runtime, policy=bounded("{requester: 2}"))
    for number in range(4):
        await started(runtime, "raj", str(number), trigger={"n": number})
    assert len(await asked(runtime)) == 2
    await started(runtime, "ben", "b")
    assert len(await asked(runtime)) == 3, "another requester has a bound of their own"
    assert (await runtime.vote("lea", "approve", on=(await asked(runtime))[0].id)).counted
    await runtime.trouble.make_waits_due("retry")
    await runtime.sweep()
    await runtime.worker().work_off()
    assert len(await asked(runtime)) == 3


@pytest.mark.parametrize(("bounds", "most"), [("", 3), ("{failures: 1}", 1)])
async def test_a_call_that_keeps_failing_says_so_and_is_asked_about_so_often(
    agents: Agents, bounds: str, most: int
) -> None:
    turns = [calls(call("probe_effect_apply", {"name": "a"}, f"c{number}")) for number in range(8)]
    runtime = agents.runtime
    runtime.outside.script["a"] = [Refused("400", "It is closed.") for _ in range(9)]
    await agents.go(*turns, says("I give up."), policy=of_agent(bounds), workflow=agent(more=LIMITED))
    await runtime.person("olga", ("owners", "leads", "desk"))
    cards = []
    while opened := await asked(runtime):
        cards.append(opened[0].card["evidence"])
        assert (await runtime.vote("olga", "approve", on=opened[0].id)).counted
        await runtime.go_on()
    assert len(cards) == most
    assert [card.count("It is closed.") for card in cards] == [*range(most)]
    assert statuses(agents).count("refused") == 8 - most
