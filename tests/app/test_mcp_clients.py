"""The MCP clients of others against our server, each in a process of its own; `make mcpclients` installs them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from app.access import Role
from tests.support.app_stage import PEOPLE
from tests.support.mcp_clients import PROGRAMS, Driven, driven, is_installed

AGENTS = PEOPLE.replace("groups:", "service_accounts: [{id: bot, owner: eve}]\ngroups:")
SAFE, DANGER, PERSON = "probe_effect_apply", "probe_danger_apply", "probe_danger_person"


async def acted(installation: Any, count: int) -> str:
    """Work until there are so many actions, and the newest is judged."""
    while len(runs := await installation.books.runs()) < count:
        await installation.work()
    await installation.work()
    return str(max(run.id for run in runs))


async def decide(installation: Any, action: str, choice: str) -> None:
    question = await installation.books.approval(run=UUID(action))
    ann = await installation.client(Role.APPROVER, subject="ann")
    vote = {"choice": choice, "reason": "So be it."}
    assert (await ann.post(f"/v1/approvals/{question.id}/votes", json=vote)).status_code == 200
    await installation.work()


async def call(client: Driven, installation: Any, count: int, tool: str, **arguments: str) -> dict[str, Any]:
    client.order(do="call", tool=tool, arguments=arguments)
    await acted(installation, count)
    return await client.told()


@pytest.mark.parametrize("name", PROGRAMS)
async def test_the_client_of_others_is_governed(installation: Any, name: str) -> None:
    if not is_installed(name):
        pytest.skip("the client is not installed: make mcpclients")
    await installation.people(AGENTS)
    token = await installation.token(Role.AGENT, subject="bot")
    async with driven(name, installation.url, token) as client:
        listed = await client.does(do="list")
        assert {SAFE, DANGER, "counterseal_status"} <= {*listed["tools"]}
        assert PERSON not in listed["tools"]
        done = await call(client, installation, 1, SAFE, name="n1")
        assert (done["failed"], done["status"]) == (False, "applied"), done
        denied = await call(client, installation, 2, PERSON, who="n")
        assert (denied["failed"], denied["status"]) == (True, "denied"), denied
        client.order(do="call", tool=DANGER, arguments={"name": "n2"})  # held, or polled as a task, until people decide
        action = await acted(installation, 3)
        await decide(installation, action, "approve")
        approved = await client.told()
        assert (approved["failed"], approved["status"], approved["id"]) == (False, "applied", action), approved
        # Its time is over before anybody has decided: the action goes on, and the same call attaches.
        lost = await client.does(do="call", tool=DANGER, arguments={"name": "n3"}, seconds=2)
        assert "lost" in lost, lost
        action = await acted(installation, 4)
        if name == "fastmcp":
            task = await client.does(do="call", tool=DANGER, arguments={"name": "n3"}, task=True, cancel=True)
            assert (task["id"], task["status"]) == (action, "working"), task
        client.order(do="call", tool=DANGER, arguments={"name": "n3"})
    async with driven(name, installation.url, token) as again:  # the one before was killed while it waited
        lost = await again.does(do="call", tool=DANGER, arguments={"name": "n3"}, seconds=2)
        assert ("lost" in lost, len(await installation.books.runs())) == (True, 4), lost
        await decide(installation, action, "approve")
        over = await again.does(do="call", tool="counterseal_status", arguments={"id": action})
        assert (over["failed"], over["status"]) == (False, "applied"), over
    assert len(installation.outside.effects) == 3
