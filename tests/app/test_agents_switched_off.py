"""Off means off: each way of switching an agent off, at each moment before its effect. Paused: later it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias
from uuid import UUID

import httpx
import pytest

from app import access
from app.access import Role
from app.cli.outcome import Exit
from connectors.catalog import Source
from evidence.chain import Actor
from runtime.requests import declaring, policies
from tests.support.app_stage import PEOPLE, POLICY
from tests.support.outside import Gate

TESTER = Actor("test", "tester")
AGENTS = PEOPLE.replace("groups:", "service_accounts: [{id: Bot, owner: eve}, {id: other, owner: bob}]\ngroups:")
READS_FIRST = """
operations:
  - name: probe.slow.update
    handler: probe:update
    side_effects: external_call
    risk: medium
    summary: "Update {name}"
    target: "record/{name}"
    writes: fields
    diff: {fields: written}
    in_doubt: probe
    input_schema:
      type: object
      required: [name, fields]
      properties: {name: {type: string}, fields: {type: object, properties: {priority: {type: string}}}}
    output_schema: {type: object}
"""
RULES = (
    POLICY.replace("version: 1", "version: 2")
    + "  - {id: slow, match: {operation: probe.slow.update}, outcome: allow}\n"
)
ASKS = {"operation": "probe.danger.apply", "input": {"name": "n1"}}
READS = {"operation": "probe.slow.update", "input": {"name": "n1", "fields": {"priority": "1"}}}


def directory(was: str, now: str) -> Callable[[Any, httpx.AsyncClient], Awaitable[None]]:
    async def publish(installation: Any, bot: httpx.AsyncClient) -> None:
        text = AGENTS.replace(was, now)
        assert text != AGENTS
        await installation.people(text)

    return publish


async def revoke(installation: Any, bot: httpx.AsyncClient) -> None:
    await installation.token(Role.TRIGGER, subject="Bot")  # no token of an agent
    database = installation.app.faces.database
    other = await installation.token(Role.AGENT, subject="Bot")
    for token in (other, bot.headers["Authorization"].removeprefix("Bearer ")):
        assert await access.revoke_token(database, "default", token, TESTER) == 1


async def expire(installation: Any, bot: httpx.AsyncClient) -> None:
    assert await installation.trouble.end_tokens("Bot") == 1


async def pause(installation: Any, bot: httpx.AsyncClient) -> None:
    operator = await installation.client(Role.OPERATOR)
    answer = await operator.post("/v1/pauses", json={"what": "agent", "name": "bot", "reason": "It loops."})
    assert answer.status_code == 200, answer.text


Way: TypeAlias = Callable[[Any, httpx.AsyncClient], Awaitable[None]]
WAYS: dict[str, Way] = {
    "the account is deactivated": directory("owner: eve}", "owner: eve, active: false}"),
    "the account is removed": directory("{id: Bot, owner: eve}, ", ""),
    "its owner is deactivated": directory("name: Eve,", "name: Eve, active: false,"),
    "its last token is revoked": revoke,
    "its last token expires": expire,
    "it is paused": pause,
}


@pytest.fixture
async def bot(installation: Any) -> httpx.AsyncClient:
    await installation.people(AGENTS)
    faces = installation.app.faces
    async with faces.database.transaction("default") as connection:
        sources = [Source("reads_first.yaml", READS_FIRST)]
        await declaring.publish_operations(connection, faces.definitions, "default", sources, TESTER)
    async with faces.database.transaction("default") as connection:
        await policies.publish_policy(connection, faces.definitions, "default", RULES, "policy.yaml", TESTER)
    client: httpx.AsyncClient = await installation.client(Role.AGENT, subject="Bot")
    return client


async def vote(installation: Any, action: str) -> int:
    question = await installation.books.approval(run=UUID(action))
    client = await installation.client(Role.APPROVER, subject="ann")
    body = {"choice": "approve", "reason": "So be it."}
    return int((await client.post(f"/v1/approvals/{question.id}/votes", json=body)).status_code)


async def kept(installation: Any) -> None:
    """Everything that keepers and workers can do."""
    for _ in range(2):
        await installation.app.sweeper().sweep()
        await installation.work()


@pytest.mark.parametrize("moment", ["asked", "approved", "its target is read"])
@pytest.mark.parametrize("way", WAYS)
async def test_nothing_goes_out_of_what_it_has_asked_for(
    installation: Any, bot: httpx.AsyncClient, way: str, moment: str
) -> None:
    late = moment == "its target is read"
    action = (await bot.post("/v1/actions", json=READS if late else ASKS)).json()["id"]
    if late:  # a worker has read the run, and goes on when the agent is off
        gate, read = Gate(), installation.outside.read_before

        async def held(call: Any) -> Any:
            await gate.hold()
            return await read(call)

        installation.outside.read_before = held
        working = asyncio.create_task(installation.app.worker().work_off())
        await gate.reached.wait()
        await WAYS[way](installation, bot)
        gate.opened.set()
        await working
    else:
        await installation.work()
        assert moment == "asked" or await vote(installation, action) == 200
        await WAYS[way](installation, bot)
    await kept(installation)
    assert installation.outside.effects == []
    paused = way == "it is paused"
    if moment == "asked":
        status = (await installation.books.approval(run=UUID(action))).status
        assert status == ("requested" if paused else "superseded")
        assert await vote(installation, action) == (200 if paused else 409)
        await kept(installation)
        assert installation.outside.effects == []
    if not paused:
        assert await installation.status(UUID(action)) == "failed_terminal"
        return
    assert await installation.status(UUID(action)) == "waiting"
    refused = await bot.post("/v1/actions", json={**ASKS, "input": {"name": "n2"}})
    assert (refused.status_code, "It loops." in refused.text, "agent resume Bot" in refused.text) == (409, True, True)
    assert (await bot.post("/v1/actions", json=READS if late else ASKS)).json()["id"] == action  # it is no new one
    operator = await installation.client(Role.OPERATOR)
    assert [one["what"] for one in (await operator.get(f"/v1/runs/{action}")).json()["paused"]] == ["agent"]
    answer = await operator.post("/v1/pauses/resume", json={"what": "agent", "name": "BOT"})
    assert answer.json()["changed"], answer.text
    await kept(installation)
    assert (await installation.status(UUID(action)), len(installation.outside.effects)) == ("succeeded", 1)
    assert await installation.books.bundle(run=UUID(action))  # its evidence, with the pause, is judged and signed


async def test_what_was_refused_to_an_agent_that_was_off_is_asked_anew_when_it_is_on_again(
    installation: Any, bot: httpx.AsyncClient
) -> None:
    first = (await bot.post("/v1/actions", json=ASKS)).json()["id"]
    await installation.people(AGENTS.replace("owner: eve}", "owner: eve, active: false}"))
    await kept(installation)
    await installation.people(AGENTS)
    assert (await bot.get(f"/v1/actions/{first}")).json()["status"] == "denied"
    assert (await bot.post("/v1/actions", json=ASKS)).json()["id"] != first


async def test_who_is_no_agent_is_not_paused_and_another_agent_goes_on(
    installation: Any, bot: httpx.AsyncClient
) -> None:
    operator = await installation.client(Role.OPERATOR)
    for name in ("ann", "nobody"):
        answer = await operator.post("/v1/pauses", json={"what": "agent", "name": name, "reason": "x"})
        assert (answer.status_code, "There is no agent" in answer.text) == (404, True), answer.text
    await pause(installation, bot)
    other = await installation.client(Role.AGENT, subject="other")
    action = (await other.post("/v1/actions", json={**ASKS, "operation": "probe.effect.apply"})).json()["id"]
    await kept(installation)
    assert (await installation.status(UUID(action)), len(installation.outside.effects)) == ("succeeded", 1)
    run = await installation.start("simple", subject="Bot")  # what it starts as a machine is no action of an agent
    await kept(installation)
    assert await installation.status(run) == "succeeded"


async def test_a_revocation_waits_for_what_is_being_intended(installation: Any, bot: httpx.AsyncClient) -> None:
    action = (await bot.post("/v1/actions", json=ASKS)).json()["id"]
    async with installation.engine.transaction() as connection:  # an append with an intent, before its end
        held = "SELECT pg_advisory_xact_lock_shared(hashtextextended('counterseal.intents:default', 0))"
        await connection.execute(held)
        token = bot.headers["Authorization"].removeprefix("Bearer ")
        revoking = asyncio.create_task(access.revoke_token(installation.app.faces.database, "default", token, TESTER))
        lock = "((classid::bigint << 32) | objid::bigint) = hashtextextended('counterseal.intents:default', 0)"
        waits = f"SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND {lock})"
        while not (await installation.one(waits))[0]:
            assert not revoking.done(), "the token was revoked beside an intent"
        assert (await bot.get(f"/v1/actions/{action}")).status_code == 202
    assert await revoking == 1
    assert (await bot.get(f"/v1/actions/{action}")).status_code == 401


def test_the_command_line_pauses_an_agent_and_doctor_says_so(command: Any, tmp_path: Any) -> None:
    people = tmp_path / "people.yaml"
    people.write_text("directory: d\npeople: [{id: ann, name: Ann}]\nservice_accounts: [{id: bot, owner: ann}]\n")
    command("directory", "publish", str(people))
    assert "is paused" in command("agent", "pause", "bot", "--reason", "It loops.")
    assert "It loops." in command("pause")
    assert "counterseal resume agent bot" in command("doctor")
    assert "goes on" in command("agent", "resume", "bot")
    command("agent", "pause", "bott", "--reason", "x", exit_code=Exit.CONFLICT)
    assert "There is no agent 'bott'" in command.said
