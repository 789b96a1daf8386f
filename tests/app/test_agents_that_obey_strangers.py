"""Agents that do what strangers tell them: huge numbers, bursts, and calls that are held, at both doors."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from app.access import Role
from runtime.store import actions
from tests.support.app_stage import PEOPLE

AGENTS = PEOPLE.replace("groups:", "service_accounts: [{id: bot, owner: eve}, {id: other, owner: bob}]\ngroups:")
WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


async def agent(installation: Any, subject: str) -> httpx.AsyncClient:
    made: httpx.AsyncClient = await installation.client(Role.AGENT, subject=subject)
    return made


async def until_one_waits(connection: Any) -> None:
    for _ in range(100_000):
        if await connection.fetchval(WAITING):
            return
        await asyncio.sleep(0)


@pytest.mark.parametrize("door", ["mcp", "http"])
async def test_what_one_agent_asks_for_at_once_holds_one_connection(installation: Any, door: str) -> None:
    await installation.people(AGENTS)
    faces, bot, other = installation.app.faces, await agent(installation, "bot"), await agent(installation, "other")

    async def ask(number: int) -> int:
        given = {"name": f"n{number}"}
        if door == "http":
            body: dict[str, Any] = {"operation": "probe.danger.apply", "input": given}
            return (await bot.post("/v1/actions", json=body)).status_code
        called = {"name": "probe_danger_apply", "arguments": given, "_meta": {"counterseal/wait": 0}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": called}
        return (await bot.post("/mcp", json=body)).status_code

    async with faces.database.transaction("default") as connection:
        await actions.take_turn(connection, "default", "bot")  # another process has the turn of this agent
        asked = [asyncio.create_task(ask(number)) for number in range(12)]
        await until_one_waits(connection)
        for _ in range(5):
            assert (await other.get("/v1/actions")).status_code == 200
        assert await connection.fetchval(WAITING) == 1
    assert {*await asyncio.gather(*asked)} == {202 if door == "http" else 200}
