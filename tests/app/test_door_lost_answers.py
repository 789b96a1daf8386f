"""The commits of the door of agents, each lost and landed without an answer; three days between question and vote."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx
import pytest

from app.access import Role
from core.db import Connection, Database
from evidence.chain import Actor
from runtime.requests import policies
from tests.support.app_stage import PEOPLE, POLICY

TESTER = Actor("test", "tester")
AGENTS = PEOPLE.replace("groups:", "service_accounts: [{id: bot, owner: eve}]\ngroups:")
DANGER = {"operation": "probe.danger.apply", "input": {"name": "n1"}}
KEY = {"Idempotency-Key": "k1"}


@pytest.fixture
async def bot(installation: Any) -> httpx.AsyncClient:
    await installation.people(AGENTS)
    client: httpx.AsyncClient = await installation.client(Role.AGENT, subject="bot")
    client.timeout = httpx.Timeout(60)
    return client


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """The next transaction of a tenant is cut off before its commit, or after it."""
    whole, wanted = Database.transaction, list[str]()

    @asynccontextmanager
    async def transaction(database: Database, *given: Any, **named: Any) -> AsyncIterator[Connection]:
        end = wanted.pop() if wanted and given else ""
        async with whole(database, *given, **named) as connection:
            yield connection
            if end == "lost":
                raise ConnectionResetError("cut off before the commit")
        if end == "landed":
            raise ConnectionResetError("cut off after the commit")

    monkeypatch.setattr(Database, "transaction", transaction)
    return wanted.append


async def vote(installation: Any, action: str) -> None:
    question = await installation.books.approval(run=UUID(action), status="requested")
    client = await installation.client(Role.APPROVER, subject="ann")
    body = {"choice": "approve", "reason": "So be it."}
    assert (await client.post(f"/v1/approvals/{question.id}/votes", json=body)).status_code == 200


@pytest.mark.parametrize("end", ["lost", "landed"])
@pytest.mark.parametrize("door", ["begin", "attach", "withdraw"])
async def test_a_request_without_an_answer_is_sent_again_and_counts_once(
    installation: Any, bot: httpx.AsyncClient, cut: Callable[[str], None], door: str, end: str
) -> None:
    first = None if door == "begin" else (await bot.post("/v1/actions", json=DANGER)).json()["id"]
    await installation.work()

    async def send() -> httpx.Response:
        if door == "withdraw":
            return await bot.delete(f"/v1/actions/{first}")
        return await bot.post("/v1/actions", json=DANGER, headers=KEY)

    cut(end)
    assert (await send()).status_code in (500, 503)
    again = await send()
    await installation.work()
    if door == "withdraw":
        assert again.status_code == (409 if end == "landed" else 200)
        assert (await bot.get(f"/v1/actions/{first}")).json()["status"] == "canceled"
    else:
        assert first in (None, again.json()["id"])
        assert (await bot.post("/v1/actions", json={**DANGER, "input": {"name": "n2"}}, headers=KEY)).status_code == 409
        await vote(installation, again.json()["id"])
        await installation.work()
    (run,) = await installation.books.runs()
    assert len(await installation.books.approvals()) == 1
    assert len(installation.outside.effects) == (0 if door == "withdraw" else 1)
    report = await installation.app.faces.reader.replay("default", run.id)
    assert report.ok, report.difference


async def test_approved_after_three_days_and_a_restart_of_everything_it_is_done_once(
    installation: Any, bot: httpx.AsyncClient, serve: Any
) -> None:
    text, faces = POLICY.replace("version: 1", "version: 2").replace("PT1H", "P7D"), installation.app.faces
    async with faces.database.transaction("default") as connection:
        await policies.publish_policy(connection, faces.definitions, "default", text, "policy.yaml", TESTER)
    action = (await bot.post("/v1/actions", json=DANGER, headers=KEY)).json()["id"]
    await installation.work()
    await installation.trouble.leave_questions_alone(timedelta(days=3))
    later = await serve()
    for _ in range(2):
        await later.app.sweeper().sweep()
        await later.work()
    client = await later.client(Role.AGENT, subject="bot")
    assert (await client.post("/v1/actions", json=DANGER, headers=KEY)).json()["status"] == "pending"
    await vote(later, action)
    await later.work()
    answer = (await client.post("/v1/actions", json=DANGER, headers=KEY)).json()
    assert (answer["id"], answer["status"]) == (action, "applied")
    assert (len(later.outside.effects), installation.outside.effects) == (1, [])
