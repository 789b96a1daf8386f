"""The package of agents against the real server, over real HTTP: each end of a governed call, as both sides see it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import httpx
import pytest

from app.access import Role
from counterseal_agents import Closed, Gate, Pending, Refused, govern
from counterseal_agents.contract import Terms
from evidence.chain import Actor
from runtime.requests import policies
from tests.support import agents_commands as commands
from tests.support.agents_stage import How
from tests.support.app_stage import PEOPLE, TOOL_RULES

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
# A process of the agent that is killed in the body of its tool.
KILLED = """
import os, signal
from counterseal_agents import govern
govern(lambda n: os.kill(os.getpid(), signal.SIGKILL), tool="free")(1)
"""
AGENTS = PEOPLE.replace("groups:", "service_accounts: [{id: bot, owner: eve}]\ngroups:")


@dataclass
class Bot:
    """An agent, and the installation that it asks."""

    installation: Any
    client: httpx.AsyncClient


@pytest.fixture
async def bot(installation: Any) -> Bot:
    await installation.people(AGENTS)
    faces = installation.app.faces
    async with faces.database.transaction("default") as connection:
        tester = Actor("test", "tester")
        await policies.publish_policy(connection, faces.definitions, "default", TOOL_RULES, "policy.yaml", tester)
    return Bot(installation, await installation.client(Role.AGENT, subject="bot"))


async def vote(bot: Bot, action: str, choice: str) -> None:
    question = (await bot.installation.books.approvals(run=UUID(action)))[-1]
    person = await bot.installation.client(Role.APPROVER, subject="ann")
    voted = await person.post(f"/v1/approvals/{question.id}/votes", json={"choice": choice, "reason": "So be it."})
    assert voted.is_success, voted.text
    await bot.installation.work()


@pytest.mark.parametrize("host", ["claude", "codex"])
async def test_the_hook_of_a_command_line_agent_asks_the_server_and_tells_it_what_ran(
    bot: Bot, host: str, tmp_path: Path
) -> None:
    how = How(str(bot.client.base_url), tmp_path / "effects", terms=Terms(wait=20.0, timeout=30.0), token=token(bot))
    with commands.program(host, how) as program:

        async def called(tool: str, given: dict[str, Any]) -> str:
            return await working(bot, asyncio.to_thread(program.called, tool, given))

        assert await called("free", {"amount": 5}) == "paid 5"
        assert (await ends(bot))[-1][1:] == ("applied", ["succeeded"])
        assert "is denied" in await called("unknown", {"amount": 5})
        assert (await ends(bot))[-1][1:] == ("denied", [])

        how.change = ("after", {"amount": 1_000_000})  # another hook, after our yes
        assert "with another input than was let out" in await called("free", {"amount": 6})
        assert (await ends(bot))[-1][1:] == ("in_doubt", ["in_doubt"])
        how.change, how.terms = None, Terms(wait=0.0, timeout=30.0)
    with commands.program(host, how) as program:
        assert "Call it again later" in await called("send", {"amount": 7})
        await vote(bot, (await ends(bot))[-1][0], "approve")
        assert await called("send", {"amount": 7}) == "paid 7"
        assert (await ends(bot))[-1][1:] == ("applied", ["succeeded"])
    assert [one["amount"] for one in how.ran] == [5, 1_000_000, 7]


def token(bot: Bot) -> str:
    return str(bot.client.headers["Authorization"]).removeprefix("Bearer ")


async def working(bot: Bot, work: Awaitable[T]) -> T:
    """Work while this goes on."""
    task = asyncio.ensure_future(work)
    while not task.done():
        await bot.installation.work()
        await asyncio.sleep(0)
    await bot.installation.work()
    return await task


async def ends(bot: Bot) -> list[tuple[str, str, list[str]]]:
    """Each action of the agent, the oldest first: its id, its status, and what its receipts say."""
    found = (await bot.client.get("/v1/actions")).json()["items"]
    receipts = await bot.installation.books.receipts()
    said = {one["id"]: [other.status for other in receipts if str(other.run) == one["id"]] for one in found}
    return [(one["id"], one["status"], said[one["id"]]) for one in reversed(found)]


async def test_each_end_of_a_governed_call_is_the_same_on_both_sides(bot: Bot) -> None:
    ran: list[Any] = []
    gate = Gate(str(bot.client.base_url), token(bot), terms=Terms(wait=0.0, timeout=30.0, pause=0.02))

    async def send(n: Any, to: str = "José\u2028") -> dict[str, Any]:
        ran.append(n)
        return {"sent": n}

    waiting = Gate(str(bot.client.base_url), token(bot), terms=Terms(wait=30.0, timeout=30.0, pause=0.02))
    assert await working(bot, govern(send, gate=waiting, tool="free")(1.5)) == {"sent": 1.5}
    assert [(status, receipts) for _, status, receipts in await ends(bot)] == [("applied", ["succeeded"])]

    for _ in range(2):  # the second time it is attached to the same question
        with pytest.raises(Pending, match="Call it again later"):
            await working(bot, govern(send, gate=gate)(2))
    _, (action, status, receipts) = await ends(bot)
    assert (status, receipts, ran) == ("pending", [], [1.5])
    await vote(bot, action, "approve")
    assert await working(bot, govern(send, gate=gate)(2)) == {"sent": 2}
    assert (await ends(bot))[-1] == (action, "applied", ["succeeded"])

    with pytest.raises(Pending):
        await working(bot, govern(send, gate=gate)(3))
    await vote(bot, (await ends(bot))[-1][0], "reject")
    for tool, why in (("send", "rejected"), ("unknown", "denied")):
        with pytest.raises(Refused, match=why):
            await working(bot, govern(send, gate=waiting, tool=tool)(3))
        assert (await ends(bot))[-1][1:] == (why, [])

    before = await ends(bot)
    for number in (1e20, 2.0**53, 2**53, float("nan")):  # none of them has one form that both sides would keep
        with pytest.raises((Closed, Refused)):
            await working(bot, govern(send, gate=waiting, tool="free")(number))
    assert (ran, await ends(bot)) == ([1.5, 2], before)
    assert await working(bot, govern(send, gate=waiting, tool="free")(1e21)) == {"sent": 1e21}
    assert [one[1:] for one in await ends(bot)][len(before) :] == [("applied", ["succeeded"])]


async def test_a_process_that_is_killed_in_the_body_leaves_a_doubt_and_no_second_permit(bot: Bot) -> None:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "packages" / "agents")])
    environment = {
        **os.environ, "PYTHONPATH": paths, "COUNTERSEAL_AGENT_TOKEN": token(bot),
        "COUNTERSEAL_AGENT_URL": str(bot.client.base_url),
    }  # fmt: skip
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, env=environment)
    assert await working(bot, killed.wait()) == -9
    ((action, status, receipts),) = await ends(bot)
    assert (status, receipts) == ("executing", ["intended"])
    await bot.installation.trouble.make_waits_due("permit")
    await bot.installation.app.sweeper().sweep()
    await bot.installation.work()
    assert await ends(bot) == [(action, "in_doubt", ["in_doubt"])]

    def repeated(n: int) -> None:
        raise AssertionError("It ran a second time.")

    gate = Gate(str(bot.client.base_url), token(bot), terms=Terms(wait=0.0, timeout=30.0, pause=0.02))
    with pytest.raises(Refused):
        await working(bot, asyncio.to_thread(govern(repeated, gate=gate, tool="free"), 1))
    assert await ends(bot) == [(action, "in_doubt", ["in_doubt"])]
