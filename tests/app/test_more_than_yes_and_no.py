"""Before people decide they ask for more, answer, comment and hand the question on: at every door by the same rules."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from app.access import Role
from app.cli.outcome import Exit
from approvals.model import Choice, VoteChannel
from approvals.slack.blocks import code
from approvals.slack.cards import render
from approvals.slack.members import Clicker
from approvals.slack.windows import Windows
from approvals.talk import Saying
from evidence.chain import Actor
from evidence.verify import verify_bundle
from runtime.requests import policies
from runtime.requests.editing import EditRequest
from runtime.requests.talking import SayRequest
from runtime.requests.voting import VoteRequest
from tests.support.browsing import Browser

pytestmark = pytest.mark.req("U-8")
PEOPLE = """
directory: tests
version: 3
people:
  - {id: ann, name: Ann, slack: U0ANN}
  - {id: bob, name: Bob, slack: U0BOB}
  - {id: eve, name: Eve, slack: U0EVE}
  - {id: tess, name: Tess, slack: U0WHO}
groups: {leads: [ann, bob], others: [eve]}
"""
# What somebody might write so that it reads as a line of ours.
NASTY = "yes\n*Approved by* `Ann` <!channel> <@U0BOB>\u202e ``` *Bob answers:* fine"
ACCOUNTS = {"ann": "U0ANN", "bob": "U0BOB", "eve": "U0EVE", "tess": "U0WHO"}


class Doors:
    """One installation, a question of tess for the leads, and the ways to say something about it."""

    def __init__(self, installation: Any, command: Any, environment: pytest.MonkeyPatch) -> None:
        self.installation, self.command, self.environment = installation, command, environment
        self.tokens: dict[str, str] = {}
        self.run: Any = None
        self.asked: Any = None

    async def begin(self) -> None:
        await self.installation.publish()
        for person in ACCOUNTS:
            self.tokens[person] = await self.installation.token(Role.APPROVER, subject=person)
        await self.installation.people(PEOPLE)
        self.run, asked, _ = await self.installation.asked()
        self.asked = (await self.installation.books.approvals(id=asked))[0]

    async def http(self, who: str, said: str, text: str = "", to: str = "") -> str:
        client = await self.installation.client()
        headers = {"Authorization": f"Bearer {self.tokens[who]}"}
        body = {"said": said, "text": text, "to": to, "digest": self.asked.action_digest}
        answer = await client.post(f"/v1/approvals/{self.asked.id}/said", json=body, headers=headers)
        return str(answer.json()["code"])

    async def cli(self, who: str, said: str, text: str = "", to: str = "") -> str:
        verb = {"asks": "ask", "answers": "answer", "comments": "comment", "hands_on": "hand"}[said]
        given = ["approval", verb, str(self.asked.id), "--text", text, "--as", who, "--json"]
        given += ["--to", to] if to else []
        for expected in (Exit.OK, Exit.CONFLICT):
            try:
                told = await asyncio.to_thread(partial(self.command, *given, exit_code=expected))
            except AssertionError:
                continue
            return str(json.loads(told[told.index("{\n") : told.rindex("}") + 1])["code"])
        raise AssertionError(self.command.said)

    async def console(self, who: str, said: str, text: str = "", to: str = "") -> str:
        browser = await Browser.logged_in(self.installation, self.tokens[who])
        form = await browser.form(f"/approvals/{self.asked.id}", said=said, text=text, to=to)
        csrf = (await browser.form("/inbox"))["csrf"]
        answer = await browser.post(f"/approvals/{self.asked.id}/said", form | {"csrf": csrf, "digest": self.digest})
        return "recorded" if answer.status_code == 303 else answer.text.split('class="id code">')[1].split("<")[0]

    async def page(self, who: str) -> Any:
        browser = await Browser.logged_in(self.installation, self.tokens[who])
        return await browser.get(f"/approvals/{self.asked.id}")

    @property
    def digest(self) -> str:
        return str(self.asked.action_digest)

    async def slack(self, who: str, said: str, text: str = "", to: str = "") -> str:
        asked, user = self.asked, ACCOUNTS[who]
        told = {"a": str(asked.id), "n": asked.nonce, "d": self.digest, "s": said}
        window = {"callback_id": "counterseal.talk", "private_metadata": json.dumps(told)}
        payload = self.installation.submission(asked.id, asked.nonce, "approve", text, user)
        clicker = Clicker(payload["team"]["id"], user)
        payload["view"] |= Windows(SECRET).marked(window, clicker)
        if to:
            payload["view"]["state"]["values"]["to"] = {"to": {"selected_option": {"value": to}}}
        answer = await self.installation.slack(payload, honest=False)
        before = [one["data"]["code"] for one in await self.installation.tenant_events("approval.vote_refused")]
        return (
            "recorded"
            if "Recorded" in answer.text or "Asked" in answer.text or "Handed" in answer.text
            else (before[-1] if before else answer.text)
        )


async def bundle_verifies(installation: Any, run: Any, folder: Path) -> None:
    """The run's evidence is stored, and an auditor's checks of it succeed."""
    auditor = await installation.client(Role.AUDITOR)
    answer = await auditor.get(f"/v1/runs/{run}/evidence")
    assert answer.status_code == 200, answer.text
    path, key = folder / "bundle.zip", folder / "key.pem"
    path.write_bytes(answer.content)
    signer = (await installation.app.faces.outside("default")).signer
    key.write_bytes(signer.public_key.pem)
    assert verify_bundle(path, public_key=key).ok


SECRET = "a-slack-signing-secret"
Door: TypeAlias = Callable[..., Awaitable[str]]


@pytest.fixture
async def doors(installation: Any, command: Any, clean_environment: pytest.MonkeyPatch) -> Doors:
    made = Doors(installation, command, clean_environment)
    await made.begin()
    return made


@pytest.mark.parametrize("door", ["http", "cli", "console", "slack"])
async def test_a_decider_asks_and_the_requester_answers_on_the_card(doors: Doors, door: str, slack_world: Any) -> None:
    say: Door = getattr(doors, door)
    assert await say("tess", "answers", "Because") == "nothing_asked"
    assert await say("eve", "asks", "Why?") == "not_eligible"
    assert await say("tess", "asks", "Why?") == "separation_of_duties"
    assert await say("eve", "comments", "Hm") == "not_eligible"
    assert await say("ann", "asks", "Why today?") == "recorded"
    assert await say("bob", "asks", "And why this?") == "asked_already"
    assert await say("tess", "answers", NASTY) == "recorded"
    assert await say("ann", "comments", "I see") == "recorded"
    assert await say("ann", "hands_on", "your part", "eve") == "not_named"
    assert await say("ann", "hands_on", "your part", "tess") == "not_named"
    assert await say("ann", "hands_on", "your part", "bob") == "recorded"
    await doors.installation.work()
    assert await doors.installation.status(doors.run) == "waiting_approval", "the question stays open"
    client = await doors.installation.client()
    shown = await client.get(
        f"/v1/approvals/{doors.asked.id}", headers={"Authorization": f"Bearer {doors.tokens['ann']}"}
    )
    said = [(one["name"], one["said"], one["to"]) for one in shown.json()["said"]]
    assert said == [("Ann", "asks", ""), ("Tess", "answers", ""), ("Ann", "comments", ""), ("Ann", "hands_on", "bob")]
    view = await doors.installation.app.faces.voting.view("default", doors.asked.id)
    drawn = [line for block in render(view).blocks for line in str(block.get("text", {}).get("text", "")).split("\n")]
    quoted = [line for line in drawn if "Approved by" in line]
    assert quoted == [f"*Tess answers:* {code(NASTY)}"] or not quoted, "an answer is a quotation, or is counted"
    assert not render(view).complete or quoted
    kept = (await doors.installation.app.faces.reader.replay("default", doors.run)).difference
    assert kept is None


async def test_whoever_answers_decides_no_more(doors: Doors, tmp_path: Path, slack_world: Any) -> None:
    client = await doors.installation.client()

    async def vote(who: str) -> str:
        headers = {"Authorization": f"Bearer {doors.tokens[who]}"}
        answer = await client.post(f"/v1/approvals/{doors.asked.id}/votes", json={"choice": "approve"}, headers=headers)
        return str(answer.json()["code"])

    assert await doors.http("ann", "asks", "Why?") == "recorded"
    assert await doors.console("bob", "answers", "Because I say so") == "recorded"
    assert "answered a question about this" in (await doors.page("bob")).text
    assert await vote("bob") == "separation_of_duties"
    assert await vote("ann") == "counted"
    assert await doors.http("ann", "comments", "too late") == "already_decided"
    await doors.installation.work()
    assert await doors.installation.status(doors.run) == "succeeded"
    faces = doors.installation.app.faces
    assert (await faces.reader.replay("default", doors.run)).ok
    await bundle_verifies(doors.installation, doors.run, tmp_path)


DAYS = {"from": "2020-01-01", "until": "2090-12-31"}


async def test_somebody_else_decides_meanwhile_at_every_door(doors: Doors, tmp_path: Path, slack_world: Any) -> None:
    """Eve, who is asked nothing, votes for Ann while Ann's own record says so."""
    client, runs = await doors.installation.client(), []
    bearer = {who: {"Authorization": f"Bearer {token}"} for who, token in doors.tokens.items()}
    path, approves = "/v1/people/ann/delegation", {"choice": "approve"}
    asks = [await doors.installation.asked(f"INC9{number}") for number in range(4)]
    await doors.installation.people(PEOPLE)  # with its text, which each starting run of these tests replaces
    assert (await client.put(path, json=DAYS | {"to": "eve"}, headers=bearer["eve"])).status_code == 403
    assert (await client.put(path, json=DAYS | {"to": "ann"}, headers=bearer["ann"])).status_code == 422
    for (run, asked, nonce), door in zip(asks, ("http", "slack", "console", "cli"), strict=True):
        assert (await client.put(path, json=DAYS | {"to": "eve"}, headers=bearer["ann"])).status_code == 200
        if door == "http":
            answer = await client.post(f"/v1/approvals/{asked}/votes", json=approves, headers=bearer["eve"])
            assert answer.json()["counted"], answer.text
        elif door == "slack":
            await doors.installation.slack(doors.installation.click(asked, nonce, "U0EVE"))
        elif door == "console":
            browser = await Browser.logged_in(doors.installation, doors.tokens["eve"])
            form = await browser.form(f"/approvals/{asked}", choice="approve")
            assert (await browser.post(f"/approvals/{asked}", form)).status_code == 303
        else:
            await asyncio.to_thread(partial(doors.command, "approval", "approve", str(asked), "--as", "eve", "--json"))
        shown = (await client.get(f"/v1/approvals/{asked}", headers=bearer["bob"])).json()
        assert [one["name"] for one in shown["votes"]] == ["Eve for Ann"]
        if door == "cli":  # what Ann takes back before it is used counts no more
            assert (await client.delete(path, headers=bearer["ann"])).status_code == 200
        await doors.installation.work()
        runs.append(await doors.installation.status(run))
    assert runs == ["succeeded"] * 3 + ["waiting_approval"]
    run = asks[0][0]
    assert (await doors.installation.app.faces.reader.replay("default", run)).ok
    (voted,) = await doors.installation.books.events(run, type="approval.voted")
    assert (voted.data["on_behalf"], voted.data["groups"]) == ("ann", ["group:leads"])
    await bundle_verifies(doors.installation, run, tmp_path)


POLICY = """
policy: tests
version: 9
rules:
  - {id: asks, match: {operation: probe.danger.*}, outcome: needs_approval, approvers: [{group: leads}], expires: PT1H}
  - {id: never, match: {operation: probe.danger.*}, when: action.fields.owner == 'eve', outcome: deny}
"""
HANDS = """
workflow: hands
version: 1
reference: ${{ trigger.number }}
steps:
  - {id: danger, do: probe.danger.hand, with: {name: x, fields: {name: lamp, owner: cy}}}
"""


async def by_http(doors: Doors, who: str, values: dict[str, Any]) -> str:
    client, bearer = await doors.installation.client(), {"Authorization": f"Bearer {doors.tokens[who]}"}
    body = {"values": values, "digest": doors.digest}
    return str((await client.post(f"/v1/approvals/{doors.asked.id}/edit", json=body, headers=bearer)).json()["code"])


async def by_cli(doors: Doors, who: str, values: dict[str, Any]) -> str:
    given = ("approval", "edit", str(doors.asked.id), "--values", json.dumps(values), "--as", who, "--json")
    for expected in (Exit.OK, Exit.CONFLICT):
        with contextlib.suppress(AssertionError):
            told = await asyncio.to_thread(partial(doors.command, *given, exit_code=expected))
            return str(json.loads(told[told.index("{\n") : told.rindex("}") + 1])["code"])
    raise AssertionError(doors.command.said)


async def by_console(doors: Doors, who: str, values: dict[str, Any]) -> str:
    browser = await Browser.logged_in(doors.installation, doors.tokens[who])
    form = {"csrf": (await browser.form("/inbox"))["csrf"], "digest": doors.digest}
    form |= {"f.name": "lamp", "f.owner": "cy"} | {f"f.{name}": value for name, value in values.items()}
    answer = await browser.post(f"/approvals/{doors.asked.id}/edit", form)
    return "edited" if answer.status_code == 303 else answer.text.split('class="id code">')[1].split("<")[0]


async def by_slack(doors: Doors, who: str, values: dict[str, Any]) -> str:
    asked, user = doors.asked, ACCOUNTS[who]
    told = {"a": str(asked.id), "n": asked.nonce, "d": doors.digest}
    payload = doors.installation.submission(asked.id, asked.nonce, "approve", "", user)
    window = {"callback_id": "counterseal.edit", "private_metadata": json.dumps(told)}
    payload["view"] |= Windows(SECRET).marked(window, Clicker(payload["team"]["id"], user))
    given = {"name": "lamp", "owner": "cy"} | values
    payload["view"]["state"] = {"values": {name: {name: {"value": value}} for name, value in given.items()}}
    answer = await doors.installation.slack(payload, honest=False)
    if "Edited." in answer.text:
        return "edited"
    codes = {"may not decide this": "not_eligible", "nothing was edited": "unchanged", "void": "changed"}
    return next((code for words, code in codes.items() if words in answer.text), answer.text)


@pytest.mark.parametrize("edit", [by_http, by_cli, by_console, by_slack])
async def test_an_edit_is_judged_anew_and_voids_what_was_said(
    doors: Doors, edit: Callable[..., Awaitable[str]], tmp_path: Path, slack_world: Any
) -> None:
    installation, faces = doors.installation, doors.installation.app.faces
    async with faces.database.transaction("default") as connection:
        await policies.publish_policy(connection, faces.definitions, "default", POLICY, "p", Actor("test", "tester"))
    await installation.add(HANDS)
    installation.outside.records["x"] = {"version": 1, "fields": {"name": "lamp", "owner": "nobody"}}
    runs = [await installation.parked("hands", f"INC7{number}") for number in range(2)]
    await installation.people(PEOPLE)
    (doors.asked,) = await installation.books.approvals(run=runs[1])
    assert await edit(doors, "tess", {"owner": "eve"}) == "edited", "whoever asked may edit; the rule denies it"
    await installation.work()
    assert await installation.status(runs[1]) == "failed_terminal"
    (doors.asked,) = await installation.books.approvals(run=runs[0])
    old = doors.asked
    assert await edit(doors, "eve", {"owner": "bob"}) == "not_eligible"
    assert await edit(doors, "ann", {}) == "unchanged"
    assert await edit(doors, "ann", {"owner": "bob"}) == "edited"
    assert await edit(doors, "bob", {"owner": "dan"}) == "changed", "the question is void with the edit"
    await installation.slack(installation.click(old.id, old.nonce, "U0BOB"))  # a late click on the old card
    assert await installation.books.votes(approval=old.id) == []
    await installation.work()
    doors.asked = next(one for one in await installation.books.approvals(run=runs[0], open=True))
    client = await installation.client()
    bearer = {who: {"Authorization": f"Bearer {token}"} for who, token in doors.tokens.items()}
    shown = (await client.get(f"/v1/approvals/{doors.asked.id}", headers=bearer["bob"])).json()["card"]
    assert shown["edits"] == [{"field": "owner", "was": "cy", "now": "bob"}]
    assert {"name": "Ann", "did": "edited this (danger)", "note": ""} in shown["shaped_by"]
    path = f"/v1/approvals/{doors.asked.id}/votes"
    assert (await client.post(path, json={"choice": "approve"}, headers=bearer["ann"])).json()["code"] == (
        "separation_of_duties"
    )
    assert (await client.post(path, json={"choice": "approve"}, headers=bearer["bob"])).json()["code"] == "counted"
    await installation.work()
    assert await installation.status(runs[0]) == "succeeded"
    assert installation.outside.effects[-1].input["fields"] == {"name": "lamp", "owner": "bob"}
    assert (await faces.reader.replay("default", runs[0])).ok
    await bundle_verifies(installation, runs[0], tmp_path)


async def test_they_race_at_the_database_and_each_question_has_one_decision(
    doors: Doors, tmp_path: Path, slack_world: Any
) -> None:
    """The same race as in memory (tests/engine/test_people_race.py), on PostgreSQL, with every request at once."""
    installation, faces = doors.installation, doors.installation.app.faces
    async with faces.database.transaction("default") as connection:
        policy = POLICY.replace("approvers: [{group: leads}]", "approvers: [{group: leads, of: 2}], two_person: true")
        await policies.publish_policy(connection, faces.definitions, "default", policy, "p", Actor("test", "tester"))
    await installation.add(HANDS)
    installation.outside.records["x"] = {"version": 1, "fields": {"name": "lamp", "owner": "nobody"}}
    runs = [await installation.parked("hands", f"INC6{number}") for number in range(6)]
    away = ", delegate: {to: eve, from: 2020-01-01, until: 2090-12-31}}"
    await installation.people(PEOPLE.replace("slack: U0BOB}", f"slack: U0BOB{away}"))
    for run in runs:
        (asked,) = await installation.books.approvals(run=run)
        votes = [VoteRequest("default", asked.id, who, Choice.APPROVE, "", VoteChannel.CLI) for who in ("ann", "eve")]
        say = [("ann", Saying.ASKS, ""), ("tess", Saying.ANSWERS, ""), ("ann", Saying.HANDS_ON, "bob")]
        said = [SayRequest("default", asked.id, who, one, "w", VoteChannel.CLI, to=to) for who, one, to in say]
        edit = EditRequest("default", asked.id, "bob", {"owner": "bob"}, VoteChannel.CLI)
        every: list[Any] = [*map(faces.voting.vote, votes), *map(faces.talking.say, said), faces.editing.edit(edit)]
        await asyncio.gather(*every[::-1] if runs.index(run) % 2 else every)
        await installation.work()
        events = await installation.books.events(run)
        decided = [one.data["approval"] for one in events if one.type == "approval.decided"]
        edited = {one.data["approval"] for one in events if one.type == "approval.edited"}
        assert len(decided) == len({*decided})
        assert not edited & {*decided}
        assert sum(one.type == "action.intended" for one in events) == len(decided) <= 1
        assert (await faces.reader.replay("default", run)).ok
