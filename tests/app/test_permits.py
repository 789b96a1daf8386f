"""The gate: an agent carries its tool out by a permit, once; whatever is not reported as it was let out is in doubt."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import httpx
import pytest

from app.access import Role
from core.canonical import digest
from evidence.chain import Actor
from runtime.requests import policies
from tests.support.app_stage import PEOPLE, POLICY

TESTER = Actor("test", "tester")
AGENTS = PEOPLE.replace("groups:", "service_accounts: [{id: bot, owner: eve}, {id: other, owner: bob}]\ngroups:")
RULES = (
    POLICY.replace("version: 1", "version: 2")
    + """  - id: free-tools
    match: {operation: agent.tool.call}
    when: action.fields.tool == 'free'
    outcome: allow
    because: It is free.
  - id: other-tools
    match: {operation: agent.tool.call}
    when: action.fields.tool == 'send'
    outcome: needs_approval
    tier: high
    approvers: [{group: leads, of: 1}]
    expires: PT1H
    because: Somebody reads it first.
"""
)
NONCE, OTHER = "a" * 32, "b" * 64


def call(tool: str = "free", **arguments: Any) -> dict[str, Any]:
    return {"mode": "gate", "tool": tool, "arguments": arguments}


class Bot:
    """An agent that asks through the gate."""

    def __init__(self, installation: Any, client: httpx.AsyncClient) -> None:
        self.installation, self.client = installation, client

    async def ask(self, wanted: dict[str, Any]) -> str:
        answer = await self.client.post("/v1/actions", json=wanted)
        assert answer.json()["digest"] == digest(wanted), answer.text
        await self.installation.work()
        return str(answer.json()["id"])

    async def fetch(self, action: str, wanted: dict[str, Any], nonce: str = NONCE, wait: float = 0) -> httpx.Response:
        body = {"nonce": nonce, "digest": digest(wanted), "wait": wait}
        return await self.client.post(f"/v1/actions/{action}/permit", json=body)

    async def permit(self, action: str, wanted: dict[str, Any]) -> str:
        waiting = asyncio.create_task(self.fetch(action, wanted, wait=50))
        while not waiting.done():
            await self.installation.work()
            await asyncio.sleep(0)
        found = (await waiting).json()
        assert (found["decision"], found["nonce"], found["digest"]) == ("permit", NONCE, digest(wanted)), found
        return str(found["permit"])

    async def report(self, action: str, permit: str, outcome: str, ran: dict[str, Any], **more: Any) -> httpx.Response:
        body = {"permit": permit, "outcome": outcome, "digest": digest(ran), **more}
        answer = await self.client.post(f"/v1/actions/{action}/outcome", json=body)
        await self.installation.work()
        return answer

    async def status(self, action: str) -> str:
        return str((await self.client.get(f"/v1/actions/{action}")).json()["status"])


async def agent(installation: Any, subject: str = "bot") -> Bot:
    return Bot(installation, await installation.client(Role.AGENT, subject=subject))


@pytest.fixture
async def bot(installation: Any) -> Bot:
    await installation.people(AGENTS)
    faces = installation.app.faces
    async with faces.database.transaction("default") as connection:
        await policies.publish_policy(connection, faces.definitions, "default", RULES, "policy.yaml", TESTER)
    return await agent(installation)


async def vote(installation: Any, action: str, choice: str, person: str = "ann") -> httpx.Response:
    question = (await installation.books.approvals(run=UUID(action)))[-1]
    client = await installation.client(Role.APPROVER, subject=person)
    body = {"choice": choice, "reason": "So be it."}
    answer: httpx.Response = await client.post(f"/v1/approvals/{question.id}/votes", json=body)
    await installation.work()
    return answer


async def test_what_is_let_out_waits_for_its_agent(installation: Any, bot: Bot) -> None:
    wanted = call("free", amount=1)
    action = await bot.ask(wanted)
    assert (await bot.status(action), await installation.books.receipts()) == ("approved", [])
    permit = await bot.permit(action, wanted)
    (receipt,) = await installation.books.receipts()
    assert (receipt.status, await bot.status(action)) == ("intended", "executing")
    answer = await bot.report(action, permit, "succeeded", wanted, output={"sent": 1})
    assert answer.status_code == 200, answer.text
    done = (await bot.client.get(f"/v1/actions/{action}")).json()
    assert (done["status"], done["output"]) == ("applied", {"sent": 1})
    assert await installation.books.bundle(run=UUID(action))
