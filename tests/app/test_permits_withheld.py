"""Changes between an agent's first fetch and its permit: it gets the same permit again, or none, and never a second.

Each change meets four actions at once: one that is let out and not fetched, one that is fetched and not intended yet,
one whose intent is recorded, and one whose permit has gone out: its answer may be lost, or its agent acts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import UUID

import pytest

from app import access
from app.access import Role
from core.canonical import digest
from evidence.chain import Actor
from runtime.requests import permits
from runtime.requests.permits import Fetched, Permits
from tests.support.app_stage import TOOL_RULES
from tests.support.gated import AGENTS, NONCE, TESTER, Bot, agent, begun, call, publish, vote

pytestmark = pytest.mark.req("promise 1", "promise 2", "promise 11")
Change: TypeAlias = Callable[[Any, dict[str, str]], Awaitable[None]]
FIRST, INTENDED, OUT, LATE = "let out", "intended", "handed out", "fetched"


def policy(*changes: tuple[str, str]) -> Change:
    async def change(installation: Any, actions: dict[str, str]) -> None:
        text = TOOL_RULES.replace("version: 2", "version: 3")
        for was, now in changes:
            assert was in text
            text = text.replace(was, now)
        await publish(installation, text)

    return change


def people(was: str, now: str) -> Change:
    async def change(installation: Any, actions: dict[str, str]) -> None:
        assert was in AGENTS
        await installation.people(AGENTS.replace(was, now))

    return change


def pause(**what: str) -> Change:
    async def change(installation: Any, actions: dict[str, str]) -> None:
        client = await installation.client(Role.OPERATOR)
        answer = await client.post("/v1/pauses", json={**what, "reason": "Look first."})
        assert answer.status_code < 300, answer.text

    return change


async def resume(installation: Any, actions: dict[str, str]) -> None:
    client = await installation.client(Role.OPERATOR)
    for one in (await client.get("/v1/pauses")).json()["items"]:
        what = {name: one[name] for name in ("what", "name") if one[name]}
        assert (await client.post("/v1/pauses/resume", json=what)).status_code < 300
    await installation.app.sweeper().sweep()


async def cancel(installation: Any, actions: dict[str, str]) -> None:
    client = await installation.client(Role.OPERATOR)
    for action in actions.values():
        assert (await client.post(f"/v1/runs/{action}/cancel", json={"reason": "enough"})).status_code < 300


async def revoke(installation: Any, actions: dict[str, str]) -> None:
    for one in await installation.all("SELECT token_hash FROM tokens WHERE subject = 'bot'"):
        assert await access.revoke_token(installation.app.faces.database, "default", one["token_hash"], TESTER) == 1


async def expire(installation: Any, actions: dict[str, str]) -> None:
    assert await installation.trouble.end_tokens("bot")


ASKS = "outcome: needs_approval\n    tier: high\n    approvers: [{group: leads, of: 1}]\n    expires: PT1H"
PERMITS = ("permit", "permit")
# By the tool that is asked for, and by what changes: the answer to a fetch before the intent, and after it. What waits
# because people have paused it goes on when they resume it.
CHANGES: dict[str, tuple[str, Change, str, str]] = {
    "nothing": ("send", policy(), "permit", "permit"),
    "a policy that decides the same": ("send", policy(("Somebody reads", "Somebody really reads")), "permit", "permit"),
    "a policy that allows it": ("send", policy((f"'send'\n    {ASKS}", "'send'\n    outcome: allow")), *PERMITS),
    "a policy that denies": ("free", policy(("== 'free'", "== 'none'")), "deny", "deny"),
    "a policy that denies what was approved": ("send", policy(("== 'send'", "== 'none'")), "deny", "deny"),
    "a policy that asks": ("free", policy(("'free'\n    outcome: allow", f"'free'\n    {ASKS}")), "wait", "deny"),
    "a policy that asks others": ("send", policy(("{group: leads, of: 1}", "{group: leads, of: 2}")), "wait", "deny"),
    "who voted has left": ("send", people("leads: [ann, bob]", "leads: [bob]"), "wait", "deny"),
    "the agent is deactivated": ("free", people("bot, owner: eve", "bot, active: false, owner: eve"), "deny", "deny"),
    "the agent is taken out": ("free", people("{id: bot, owner: eve}, ", ""), "deny", "deny"),
    "its owner is deactivated": ("free", people("name: Eve,", "name: Eve, active: false,"), "deny", "deny"),
    "its last token is revoked": ("send", revoke, "deny", "deny"),
    "its last token expires": ("free", expire, "deny", "deny"),
    "it is canceled": ("free", cancel, "deny", "deny"),
    "the tenant is paused": ("send", pause(what="tenant"), "wait", "wait"),
    "the agent is paused": ("free", pause(what="agent", name="bot"), "wait", "wait"),
    "all agents' tools are paused": ("free", pause(what="connector", name="agent"), "wait", "wait"),
}  # fmt: skip


class Case:
    """Four actions of an agent, each at its moment."""

    def __init__(self, installation: Any, bot: Bot, tool: str) -> None:
        faces = installation.app.faces
        self.installation, self.bot, self.tool = installation, bot, tool
        self.desk = Permits(faces.database, faces.definitions, 300, 14400)
        self.actions: dict[str, str] = {}

    def asked(self, moment: str) -> dict[str, Any]:
        return call(self.tool, moment=moment)

    async def fetch(self, moment: str) -> Fetched:
        """A fetch that has been let in before: its answer is given now."""
        who = permits.Agent("default", "bot", Actor("token", "bot"), UUID(self.actions[moment]))
        return await self.desk.fetch(who, NONCE, digest(self.asked(moment)))

    async def begin(self) -> dict[str, str | None]:
        for moment in (FIRST, INTENDED, OUT, LATE):
            self.actions[moment] = await self.bot.ask(self.asked(moment))
            if self.tool == "send":
                assert (await vote(self.installation, self.actions[moment], "approve")).status_code == 200
        for moment in (INTENDED, OUT):
            assert (await self.fetch(moment)).decision == "wait"
        await self.installation.work()
        out = {OUT: (await self.fetch(OUT)).permit}
        assert out[OUT] is not None
        assert (await self.fetch(LATE)).decision == "wait"  # and no worker has come to it yet
        return out

    async def intents(self, moment: str) -> int:
        return int((await self.installation.books.event_types(UUID(self.actions[moment]))).count("action.intended"))


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_before_the_permit_withholds_it_and_the_same_one_comes_again(
    installation: Any, change: str
) -> None:
    tool, happens, before, after = CHANGES[change]
    bot = await begun(installation)
    case = Case(installation, bot, tool)
    out = await case.begin()
    await happens(installation, case.actions)
    for _ in range(2):
        for moment in case.actions:
            found, wanted = await case.fetch(moment), before if moment in (FIRST, LATE) else after
            for _ in range(2):  # what waits goes on, or stays; nothing else becomes of it
                await installation.work()
                found = found if found.decision == wanted else await case.fetch(moment)
            assert (found.decision, found.permit is not None) == (wanted, wanted == "permit"), (moment, found)
            assert out.setdefault(moment, found.permit) in (found.permit, out[moment])
            assert await case.intents(moment) == int(moment not in (FIRST, LATE) or before == "permit")
        if "pause" not in change:
            break
        await resume(installation, case.actions)
        await installation.work()
        before = after = "permit"
        out = {moment: permit for moment, permit in out.items() if permit is not None}
    assert len({*filter(None, out.values())}) == len([*filter(None, out.values())]), "each action has its own"
    if await bot.status(case.actions[OUT]) == "executing":
        answer = await bot.report(case.actions[OUT], str(out[OUT]), "succeeded", case.asked(OUT))
        assert answer.json()["status"] == "applied", "it was let out, and its report counts"


@pytest.mark.parametrize("path", ["permit", "look", "mcp"])
async def test_a_token_that_is_revoked_while_its_holder_waits_gets_nothing(installation: Any, path: str) -> None:
    """The agent has another one, so it is not off: a thief who waits with the old one is."""
    bot, wanted = await begun(installation), call("free" if path == "permit" else "send", n=1)
    action = await bot.ask(wanted)
    await installation.token(Role.AGENT, subject="bot")
    body = {"nonce": NONCE, "digest": digest(wanted), "wait": 50}
    call_ = {"name": "counterseal_status", "arguments": {"id": action, "wait": 50}}
    ways = {
        "permit": ("POST", f"/v1/actions/{action}/permit", body),
        "look": ("GET", f"/v1/actions/{action}?wait=50", None),
        "mcp": ("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call_}),
    }
    waiting, (method, there, sent) = installation.app.faces.waiting, ways[path]
    stream = {"Accept": "text/event-stream"} if path == "mcp" else {}
    asked = asyncio.create_task(bot.client.request(method, there, json=sent, headers=stream))
    while not waiting.count:
        assert not asked.done()
        await bot.status(action)  # it asks, and lets the other one begin to wait
    token = bot.client.headers["Authorization"].removeprefix("Bearer ")
    assert await access.revoke_token(installation.app.faces.database, "default", token, TESTER) == 1
    if path == "permit":
        await installation.work()  # its intent wakes whoever waits
    else:
        other = await agent(installation)
        assert (await other.client.delete(f"/v1/actions/{action}")).status_code in (200, 202)
        await installation.work()
    answer = await asked
    assert (answer.status_code == 401) if path != "mcp" else ("it was revoked" in answer.text), answer.text
    assert '"permit":' not in answer.text
    assert "canceled" not in answer.text


async def test_a_permit_whose_lease_is_as_good_as_over_does_not_go_out(installation: Any) -> None:
    bot = await begun(installation)
    action, asked, _ = await bot.out("free")
    lease = (await bot.fetch(action, asked)).json()["lease_seconds"]
    await installation.trouble.bring_waits_nearer(timedelta(seconds=lease))
    assert (await bot.fetch(action, asked)).json()["decision"] == "deny"
