"""Broken glass: who may lets an action out alone, loudly and for a while; the next use waits for a review of it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from app import doctor
from app.access import Role
from app.cli.outcome import Exit
from app.doctor import State
from approvals.model import ApprovalKind, Choice, Vote, VoteChannel
from approvals.quorum import RefusalCode
from core.terms import BreakGlass, GroupQuorum, Terms, Tier
from evidence.chain import Actor
from evidence.verify import verify_bundle
from runtime.engine.book.instructions import GivenApproval
from runtime.requests import policies
from runtime.store import glass as glass_rows
from tests.support.browsing import Browser

pytestmark = pytest.mark.req("promise 1")
PEOPLE = """
directory: tests
version: 4
people:
  - {id: ann, name: Ann, slack: U0ANN}
  - {id: tess, name: Tess, slack: U0WHO}
  - {id: bob, name: Bob, slack: U0BOB}
  - {id: eve, name: Eve, slack: U0EVE}
groups: {leads: [ann], on-call: [tess, bob], security: [eve, tess], operators: [eve]}
"""
RULE = "{id: dangers, match: {operation: probe.danger.apply}, outcome: needs_approval, approvers: [{group: leads}]"
GLASS = "break_glass: {by: on-call, for: PT30M, review: security}"
DENIES = "{id: never, match: {operation: probe.danger.apply}, outcome: deny}"


class Emergency:
    """One installation whose policy knows an emergency, and the ways to break the glass and to review that."""

    def __init__(self, installation: Any, command: Any) -> None:
        self.installation, self.command = installation, command
        self.tokens: dict[str, str] = {}
        self.version = 1

    async def begin(self) -> None:
        await self.installation.publish()
        for person in ("ann", "tess", "bob", "eve"):
            self.tokens[person] = await self.installation.token(Role.APPROVER, Role.OPERATOR, subject=person)
        await self.installation.people(PEOPLE)
        await self.policy(f"{RULE}, {GLASS}}}")

    async def policy(self, *rules: str) -> None:
        self.version += 1
        text = f"policy: tests\nversion: {self.version}\nrules:\n" + "".join(f"  - {rule}\n" for rule in rules)
        faces = self.installation.app.faces
        async with faces.database.transaction("default") as connection:
            given = (connection, faces.definitions, "default", text, "policy", Actor("test", "tester"))
            await policies.publish_policy(*given)

    async def ask(self, number: str) -> Any:
        _, asked, _ = await self.installation.asked(number)
        (found,) = await self.installation.books.approvals(id=asked)
        return found

    async def http(self, who: str, asked: UUID, verb: str, reason: str = "the site is down") -> Any:
        client = await self.installation.client()
        headers = {"Authorization": f"Bearer {self.tokens[who]}"}
        return await client.post(f"/v1/approvals/{asked}/{verb}", json={"reason": reason}, headers=headers)

    async def cli(self, who: str, asked: UUID, verb: str, exit_code: Exit = Exit.OK) -> str:
        given = ("approval", verb, str(asked), "--reason", "the site is down", "--as", who, "--json")
        return str(await asyncio.to_thread(partial(self.command, *given, exit_code=exit_code)))

    async def console(self, who: str, asked: UUID, verb: str, reason: str = "the site is down") -> Any:
        browser = await Browser.logged_in(self.installation, self.tokens[who])
        form = await browser.form(f"/approvals/{asked}", reason=reason)
        return await browser.post(f"/approvals/{asked}/{verb}", form)


async def bundle_verifies(installation: Any, run: UUID, folder: Path) -> None:
    """The run's evidence is stored, and an auditor's checks of it succeed."""
    auditor = await installation.client(Role.AUDITOR)
    answer = await auditor.get(f"/v1/runs/{run}/evidence")
    assert answer.status_code == 200, answer.text
    path, key = folder / "bundle.zip", folder / "key.pem"
    path.write_bytes(answer.content)
    key.write_bytes((await installation.app.faces.outside("default")).signer.public_key.pem)
    assert verify_bundle(path, public_key=key).ok


@pytest.fixture
async def emergency(installation: Any, command: Any, clean_environment: pytest.MonkeyPatch) -> Emergency:
    found = Emergency(installation, command)
    await found.begin()
    return found


async def test_one_of_those_who_may_lets_it_out_alone_loudly_and_it_is_reviewed_before_the_next(
    emergency: Emergency, tmp_path: Path
) -> None:
    installation, books = emergency.installation, emergency.installation.books
    asked, other = await emergency.ask("INC1"), await emergency.ask("INC2")
    for who, reason, status in (("ann", "x", 403), ("eve", "x", 403), ("tess", "", 422), ("tess", " ", 422)):
        assert ((await emergency.http(who, asked.id, "break-glass", reason)).status_code, who) == (status, who)
    answer = await emergency.http("tess", asked.id, "break-glass")
    assert answer.json()["counted"], "whoever has asked may, too: that is what it is for"
    await installation.work()
    assert len(installation.outside.effects) == 1
    (line,) = await books.audit(type="approval.voted")
    assert (line.data["glass"], line.data["groups"], line.actor["id"]) == (True, ["group:on-call"], "tess")
    assert [one["data"]["approval"] for one in await installation.tenant_events("glass.broken")] == [str(asked.id)]
    assert {"glass", "alarm"} <= {one.kind for one in await books.commands()}, "approvers and operators hear of it"
    faces = installation.app.faces
    checks = {one.what: one async for one in doctor.of_tenant("default", faces.database, faces.definitions)}
    assert checks["glass"].state is State.WARNING
    assert "Tess" in str(checks["glass"])
    assert (
        "The glass is broken"
        in (await (await Browser.logged_in(installation, emergency.tokens["ann"])).get("/inbox")).text
    )
    await bundle_verifies(installation, asked.run, tmp_path)
    # Nobody breaks it again, at any door, before somebody else has reviewed this.
    again = await emergency.http("bob", other.id, "break-glass")
    assert (again.status_code, again.json()["code"]) == (409, RefusalCode.UNREVIEWED)
    assert RefusalCode.UNREVIEWED in await emergency.cli("bob", other.id, "break-glass", Exit.CONFLICT)
    assert RefusalCode.UNREVIEWED in (await emergency.console("bob", other.id, "glass")).text
    for who in ("tess", "ann", "bob"):
        assert ((await emergency.http(who, asked.id, "review")).status_code, who) == (403, who)
    assert (await emergency.console("tess", asked.id, "review")).status_code == 409
    assert (await emergency.http("eve", other.id, "review")).status_code == 409, "nothing waits for a review there"
    assert (await emergency.http("eve", asked.id, "review", "it was right")).status_code == 204
    assert (await emergency.http("eve", asked.id, "review")).status_code == 409
    async with faces.database.transaction("default") as connection:  # nor by a face that asks nobody
        for of in (asked.id, other.id):
            assert not await glass_rows.review(connection, "default", of, Actor("person", "eve"), {"approval": str(of)})
    (reviewed,) = await installation.tenant_events("glass.reviewed")
    assert (reviewed["actor"]["id"], reviewed["data"]["reason"]) == ("eve", "it was right")
    assert '"counted": true' in await emergency.cli("bob", other.id, "break-glass")
    await installation.work()
    assert len(installation.outside.effects) == 2
    refused = await emergency.http("tess", other.id, "review")
    assert refused.status_code == 403, "whoever has asked for what it let out does not review that either"
    assert (await emergency.console("eve", other.id, "review")).status_code == 303


def test_its_time_is_over_for_a_first_attempt_and_for_every_other() -> None:
    glass = BreakGlass(("on-call",), ("security",), 600)
    terms = Terms(Tier.HIGH, (GroupQuorum("leads"),), break_glass=glass)
    vote = Vote("tess", "Tess", Choice.APPROVE, "x", glass.keys, VoteChannel.CLI, "", "d", glass=True)
    plain = replace(vote, glass=False)
    began = datetime(2026, 1, 1, tzinfo=UTC)
    about = (UUID(int=1), ApprovalKind.ACTION, "d", Choice.APPROVE, "x", terms, ())
    for voted, seconds, closed in ((vote, 599, False), (vote, 601, True), (plain, 601, False)):
        given: Any = GivenApproval(*about, (voted,), False, began)
        assert given.emergency_is_over(SimpleNamespace(now=began + timedelta(seconds=seconds))) is closed


async def test_two_at_once_are_one_use_and_a_pause_holds_it(emergency: Emergency) -> None:
    installation = emergency.installation
    asked, other = await emergency.ask("INC1"), await emergency.ask("INC2")
    admin = await installation.client(Role.ADMIN)
    paused = {"what": "connector", "name": "probe", "reason": "stop"}
    assert (await admin.post("/v1/pauses", json=paused)).status_code == 200
    answers = await asyncio.gather(
        emergency.http("tess", asked.id, "break-glass"), emergency.http("bob", other.id, "break-glass")
    )
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    await installation.work()
    assert installation.outside.effects == [], "broken glass goes over no pause"
    assert (await admin.post("/v1/pauses/resume", json={"what": "connector", "name": "probe"})).status_code == 200
    await installation.app.sweeper().sweep()
    await installation.work()
    assert len(installation.outside.effects) == 1


async def test_it_is_never_over_a_denial_and_closed_again_after_its_time(emergency: Emergency) -> None:
    installation = emergency.installation
    asked = await emergency.ask("INC1")
    assert (await emergency.http("bob", asked.id, "break-glass")).json()["counted"]
    await emergency.policy(f"{RULE}, {GLASS}}}", DENIES)
    await installation.work()
    assert installation.outside.effects == [], "a denial of now wins"
    assert (await emergency.http("eve", asked.id, "review")).status_code == 204
    await emergency.policy(f"{RULE}}}")
    bare = await emergency.ask("INC2")
    answer = await emergency.http("bob", bare.id, "break-glass")
    assert (answer.status_code, answer.json()["code"]) == (403, RefusalCode.GLASS), "no rule lets anybody"
