"""An agent that asks through the gate over HTTP while workers work: one of its tools is free, one is asked about."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import httpx

from app.access import Role
from core.canonical import digest
from evidence.chain import Actor
from runtime.requests import policies
from tests.support.app_stage import PEOPLE, TOOL_RULES

TESTER = Actor("test", "tester")
AGENTS = PEOPLE.replace("groups:", "service_accounts: [{id: bot, owner: eve}, {id: other, owner: bob}]\ngroups:")
AGENTS += "  operators: [ann]\n"
NONCE, OTHER = "a" * 32, "b" * 64


def call(tool: str = "free", **arguments: Any) -> dict[str, Any]:
    return {"mode": "gate", "tool": tool, "arguments": arguments}


class Bot:
    """An agent that asks through the gate, while workers work."""

    def __init__(self, installation: Any, client: httpx.AsyncClient) -> None:
        self.installation, self.client = installation, client

    async def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        asked = asyncio.create_task(self.client.post(f"/v1/actions{path}", json=body))
        while not asked.done():
            await self.installation.work()
            await asyncio.sleep(0)
        await self.installation.work()
        return await asked

    async def ask(self, wanted: dict[str, Any]) -> str:
        answer = await self.post("", wanted)
        assert answer.json()["digest"] == digest(wanted), answer.text
        return str(answer.json()["id"])

    async def fetch(self, action: str, wanted: dict[str, Any], nonce: str = NONCE, wait: float = 0) -> httpx.Response:
        return await self.post(f"/{action}/permit", {"nonce": nonce, "digest": digest(wanted), "wait": wait})

    async def permit(self, action: str, wanted: dict[str, Any]) -> str:
        found = (await self.fetch(action, wanted, wait=50)).json()
        assert (found["decision"], found["nonce"], found["digest"]) == ("permit", NONCE, digest(wanted)), found
        return str(found["permit"])

    async def report(self, action: str, permit: str, outcome: str, ran: dict[str, Any], **more: Any) -> httpx.Response:
        return await self.post(
            f"/{action}/outcome", {"permit": permit, "outcome": outcome, "digest": digest(ran), **more}
        )

    async def beat(self, action: str, permit: str) -> httpx.Response:
        return await self.post(f"/{action}/heartbeat", {"permit": permit})

    async def status(self, action: str) -> str:
        return str((await self.client.get(f"/v1/actions/{action}")).json()["status"])

    async def out(self, tool: str = "free") -> tuple[str, dict[str, Any], str]:
        """An action whose permit has gone out."""
        wanted = call(tool, n=1)
        action = await self.ask(wanted)
        return action, wanted, await self.permit(action, wanted)

    async def lease_over(self) -> None:
        await self.installation.trouble.make_waits_due("permit")
        await self.installation.app.sweeper().sweep()
        await self.installation.work()


async def agent(installation: Any, subject: str = "bot") -> Bot:
    client = await installation.client(Role.AGENT, subject=subject)
    client.timeout = httpx.Timeout(60)
    return Bot(installation, client)


async def publish(installation: Any, text: str) -> None:
    faces = installation.app.faces
    async with faces.database.transaction("default") as connection:
        await policies.publish_policy(connection, faces.definitions, "default", text, "policy.yaml", TESTER)


async def begun(installation: Any) -> Bot:
    """The agent, its people and the policy about its tools."""
    await installation.people(AGENTS)
    await publish(installation, TOOL_RULES)
    return await agent(installation)


async def vote(installation: Any, action: str, choice: str, person: str = "ann") -> httpx.Response:
    question = (await installation.books.approvals(run=UUID(action)))[-1]
    client = await installation.client(Role.APPROVER, subject=person)
    body = {"choice": choice, "reason": "So be it."}
    answer: httpx.Response = await client.post(f"/v1/approvals/{question.id}/votes", json=body)
    await installation.work()
    return answer
