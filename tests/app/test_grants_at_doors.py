"""A grant is given, shown and taken back at every door: Slack, HTTP, the command line, the console."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

import pytest

from app.access import Role
from evidence.chain import Actor
from runtime.requests import policies, publishing
from tests.support.browsing import Browser
from tests.support.granting import POLICY, WORKFLOW

pytestmark = pytest.mark.req("Q-3")


class Doors:
    """One installation, a run with an open question, and the ways to it."""

    def __init__(self, installation: Any, command: Any, tokens: dict[str, str], browser: Any) -> None:
        self.installation, self.command, self.tokens, self.browser = installation, command, tokens, browser
        self.run = ""
        self.asked: Any = None

    async def http(self, method: str, path: str, body: Any = None, who: str = "ann") -> Any:
        client = await self.installation.client()
        return await client.request(method, path, json=body, headers={"Authorization": f"Bearer {self.tokens[who]}"})

    async def cli(self, *words: str) -> Any:
        said = await asyncio.to_thread(partial(self.command, *words, "--json"))
        return json.loads(said[said.index("{\n") if "{\n" in said else said.index("[") :])


Way: TypeAlias = Callable[[Doors], Awaitable[Any]]


async def by_slack(doors: Doors) -> None:
    installation, asked = doors.installation, doors.asked
    told = {"a": str(asked.id), "n": asked.nonce, "p": 0, "l": True}
    entered = {name: {name: {"type": "radio_buttons", "selected_option": {"value": value}}}
               for name, value in (("choice", "approve"), ("grant", "2:14400"))}  # fmt: skip
    payload = installation.submission(asked.id, asked.nonce, "approve", "")
    payload["view"] |= {"callback_id": "counterseal.review", "private_metadata": json.dumps(told)}
    payload["view"]["state"] = {"values": entered}
    answer = await installation.slack(payload)
    assert "is counted" in answer.text, answer.text


async def by_http(doors: Doors) -> None:
    body = {"choice": "approve", "grant": {"uses": 2, "for": "PT1H"}}
    answer = await doors.http("POST", f"/v1/approvals/{doors.asked.id}/votes", body)
    assert answer.json()["counted"], answer.text


async def by_cli(doors: Doors) -> None:
    approve = ("approval", "approve", str(doors.asked.id), "--as", "ann")
    assert (await doors.cli(*approve, "--grant-uses", "2", "--grant-for", "PT1H"))["counted"]


async def by_console(doors: Doors) -> None:
    more = {"grant": "more", "grant_uses": "2", "grant_hours": "1"}
    form = await doors.browser.form(f"/approvals/{doors.asked.id}", choice="approve", **more)
    answer = await doors.browser.post(f"/approvals/{doors.asked.id}", form)
    assert answer.status_code == 303, answer.text


async def back_by_http(doors: Doors, grant: str) -> None:
    path = f"/v1/runs/{doors.run}/grants/{grant}/revoke"
    assert (await doors.http("POST", path, {"reason": "no more"})).status_code == 204
    assert (await doors.http("POST", path, {"reason": "no more"})).status_code == 409


async def back_by_cli(doors: Doors, grant: str) -> None:
    assert (await doors.cli("grant", "show", doors.run, grant))["used"] == 1
    assert (await doors.cli("grant", "revoke", doors.run, grant, "--reason", "no more"))["state"] == "revoked"


async def back_by_console(doors: Doors, grant: str) -> None:
    page = (await doors.browser.get(f"/runs/{doors.run}")).text
    assert "1 of 2 used" in page
    assert f'in advance, by the grant <span class="id">{grant}</span>' in page
    form = await doors.browser.form(f"/runs/{doors.run}", grant=grant, reason="no more")
    answer = await doors.browser.post(f"/runs/{doors.run}/revoke", form)
    assert answer.status_code == 303, answer.text


@pytest.mark.parametrize(
    ("give", "take"),
    [(by_slack, back_by_http), (by_http, back_by_cli), (by_cli, back_by_console), (by_console, back_by_http)],
)
async def test_it_is_given_and_taken_back(
    installation: Any, command: Any, clean_environment: pytest.MonkeyPatch, give: Way, take: Any
) -> None:
    faces, tester = installation.app.faces, Actor("test", "tester")
    async with faces.database.transaction("default") as connection:
        await policies.publish_policy(connection, faces.definitions, "default", POLICY, "policy", tester)
        await publishing.publish_workflow(connection, faces.definitions, "default", WORKFLOW, "w", tester)
    every = (Role.APPROVER, Role.TRIGGER, Role.OPERATOR)
    tokens = {name: await installation.token(*every, subject=name) for name in ("ann", "tess")}
    doors = Doors(installation, command, tokens, await Browser.logged_in(installation, tokens["ann"]))
    started = await doors.http("POST", "/v1/runs", {"workflow": "often", "input": {"number": "1"}}, "tess")
    doors.run = started.json()["run_id"]
    await installation.work()
    doors.asked = await installation.books.approval(open=True)
    await give(doors)
    await installation.work()
    assert len(installation.outside.effects) == 2, "the second one was allowed in advance"
    (grant,) = (await doors.http("GET", f"/v1/runs/{doors.run}/grants")).json()["items"]
    assert (grant["state"], grant["used"], grant["by"], grant["of"]["target"]) == ("open", 1, ["ann"], "thing/x")
    receipts = (await doors.http("GET", f"/v1/runs/{doors.run}/receipts")).json()["items"]
    assert [one["request"]["grant"] for one in receipts] == [None, grant["grant"]]
    await take(doors, grant["grant"])
    await doors.http("POST", "/v1/signals/go:1", {"output": {}}, "tess")
    await installation.work()
    assert len(installation.outside.effects) == 2
    assert (await installation.books.approval(open=True)).step == "c"
