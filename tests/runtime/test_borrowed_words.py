"""Attacks by somebody who knows the policy, in real runs: each asks people, and the user's own call does not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.agents import Agents, calls, says
from tests.support.runtime_agent_origins import apply, go, read

REQUEST = "Can you please set 'alpha' for me, who asked before?"


async def outcomes(agents: Agents) -> list[tuple[str, str]]:
    found = await agents.runtime.books.decisions(operation="probe.effect.apply")
    return [(str(one.facts["origin.name"]), one.outcome) for one in found]


@pytest.mark.req("P-14")
@pytest.mark.parametrize(
    ("attack", "origin"),
    [
        (calls(apply("who")), "[['mentioned', 'model']]"),
        (calls(apply("Can")), "[['mentioned', 'model']]"),
        (calls(apply("Alpha")), "[['mentioned', 'model']]"),
        (calls(apply("for me")), "[['mentioned', 'model']]"),
    ],
)
async def test_a_borrowed_word_asks_people(agents: Agents, attack: Any, origin: str) -> None:
    await go(agents, attack, says("Done."), text=REQUEST)
    assert await outcomes(agents) == [(origin, "needs_approval")]


@pytest.mark.req("P-14")
@pytest.mark.parametrize("same_turn", [False, True])
async def test_the_users_own_call_with_other_words_around_it_asks_people(agents: Agents, same_turn: bool) -> None:
    own, again = apply("alpha", value="Lunch"), apply("alpha", value="Lunch.")
    turns = [calls(own, again)] if same_turn else [calls(own), calls(again)]
    run = await go(agents, *turns, says("Done."), text=REQUEST)
    assert sorted(await outcomes(agents)) == [
        ("[['model', 'spent']]", "needs_approval"), ("[['requester']]", "allow"),
    ]  # fmt: skip
    assert await agents.runtime.status(run) == "waiting_approval"


@pytest.mark.req("P-14")
async def test_reading_uses_nothing_up(agents: Agents) -> None:
    await go(
        agents,
        calls(read("alpha")),
        calls(read("alpha", value="x")),
        calls(apply("alpha")),
        says("Done."),
        text=REQUEST,
    )
    assert [outcome for _, outcome in await outcomes(agents)] == ["allow"]
