"""A login anew: where policy asks for one no door approves without, and it is good for one question of one person."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from app.access import Role
from app.cli.outcome import Exit
from approvals.lists import mark_of
from approvals.quorum import RefusalCode
from evidence.chain import Actor
from runtime.requests import policies
from tests.support.browsing import Browser
from tests.support.trouble import Forger

pytestmark = pytest.mark.req("promise 8")
POLICY = """
policy: tests
version: 2
step_up: {medium: PT5M}
rules:
  - {id: dangers, match: {operation: probe.danger.apply}, outcome: needs_approval, approvers: [{group: leads}]}
"""
CODE = str(RefusalCode.STEP_UP)


class Anew:
    """One installation with a policy that asks for a login anew, and two open questions of tess for the leads."""

    def __init__(self, installation: Any, command: Any) -> None:
        self.installation, self.command = installation, command
        self.tokens: dict[str, str] = {}
        self.asked: list[Any] = []

    async def begin(self) -> None:
        faces = self.installation.app.faces
        await self.installation.publish()
        async with faces.database.transaction("default") as connection:
            arguments = (connection, faces.definitions, "default", POLICY, "policy", Actor("test", "tester"))
            await policies.publish_policy(*arguments)
        for person in ("ann", "bob"):
            self.tokens[person] = await self.installation.token(Role.APPROVER, subject=person)
        for number in ("INC1", "INC2"):
            _, asked, _ = await self.installation.asked(number)
            self.asked += await self.installation.books.approvals(id=asked)

    async def plain(self, door: str) -> str:
        """Approve at a door without a login anew; the code of the refusal."""
        asked = self.asked[0]
        if door == "http":
            client = await self.installation.client()
            headers = {"Authorization": f"Bearer {self.tokens['ann']}"}
            body = {"choice": "approve"}
            answer = await client.post(f"/v1/approvals/{asked.id}/votes", json=body, headers=headers)
            assert f"/console/approvals/{asked.id}" in answer.text
            return str(answer.json()["code"])
        if door == "cli":
            given = ("approval", "approve", str(asked.id), "--as", "ann", "--json")
            told = await asyncio.to_thread(partial(self.command, *given, exit_code=Exit.CONFLICT))
            return str(json.loads(told[told.index("{\n") : told.rindex("}") + 1])["code"])
        if door == "console":
            browser = await Browser.logged_in(self.installation, self.tokens["ann"])
            return await browser.vote(asked.id, asked.action_digest)
        button = {"slack": "approve", "slack list": "list_approve"}[door]
        if button == "list_approve":
            mark = mark_of([(str(asked.id), asked.action_digest, asked.nonce)])
            click = self.installation.click(asked.id, mark[:32], "U0ANN", button)
        else:
            click = self.installation.click(asked.id, asked.nonce)
        assert (await self.installation.slack(click)).status_code == 200
        return str((await self.installation.tenant_events("approval.vote_refused"))[-1]["data"]["code"])


@pytest.fixture
async def anew(installation: Any, command: Any, clean_environment: pytest.MonkeyPatch) -> Anew:
    found = Anew(installation, command)
    await found.begin()
    return found


async def test_no_door_approves_without_a_login_anew_and_its_window_still_rejects(anew: Anew) -> None:
    for door in ("slack", "slack list", "http", "cli", "console"):
        assert (door, await anew.plain(door)) == (door, CODE)
    window = anew.installation.submission(anew.asked[0].id, anew.asked[0].nonce, "approve", "")
    assert "log in there once more" in (await anew.installation.slack(window)).text, "a window of before says it, too"
    assert await anew.installation.books.votes() == []
    with_reason = anew.installation.submission(anew.asked[0].id, anew.asked[0].nonce, "reject", "not today")
    assert "is counted" in (await anew.installation.slack(with_reason)).text, "whoever says no needs no login anew"


async def test_a_login_anew_is_good_for_one_question_of_one_person_for_a_while(anew: Anew, database_url: str) -> None:
    installation, (one, other) = anew.installation, anew.asked
    ann = await Browser.logged_in(installation, anew.tokens["ann"])
    page = (await ann.get(f"/approvals/{one.id}")).text
    assert "Log in again to approve" in page
    assert 'value="approve"' not in page
    login = f"/approvals/{one.id}/login"

    async def log_in(browser: Browser, **fields: str) -> int:
        csrf = (await browser.form(f"/approvals/{one.id}"))["csrf"]
        form = {"csrf": csrf, "digest": one.action_digest, "token": anew.tokens["ann"], **fields}
        return (await browser.post(login, form)).status_code

    assert await log_in(ann, token=anew.tokens["bob"]) == 401, "somebody else's token"
    assert await log_in(ann, token="cs_nothing") == 401
    assert await log_in(ann, digest="0" * 64) == 409, "another action than this question's"
    assert await ann.vote(one.id, one.action_digest) == CODE, "none of these was a login"
    assert await log_in(ann) == 303
    bob = await Browser.logged_in(installation, anew.tokens["bob"])
    again = await Browser.logged_in(installation, anew.tokens["ann"])
    for name, browser, asked in (("another question", ann, other), ("bob", bob, one), ("another browser", again, one)):
        assert (name, await browser.vote(asked.id, asked.action_digest)) == (name, CODE)
    await Forger(database_url).age_logins_anew(timedelta(minutes=6))
    assert await ann.vote(one.id, one.action_digest) == CODE, "after its time"
    assert await log_in(ann) == 303
    answer = await ann.post(f"/approvals/{one.id}", await ann.form(f"/approvals/{one.id}", choice="approve"))
    assert answer.status_code == 303, answer.text
    (line,) = await installation.books.audit(type="approval.voted")
    identity = line.data["identity"]
    assert (identity.keys(), identity["step_up"]["by"]) == ({"session", "step_up"}, "token")
    assert identity["step_up"]["at"] <= line.ts
    await installation.work()
    assert len(installation.outside.effects) == 1
