"""A held step at every door: who may say what becomes of it, once and why; its message in Slack says what came."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from app.access import Role
from app.cli.outcome import Exit
from connectors.port import NotSent, Refused
from sandbox.slack_interact import Interactivity
from tests.support.browsing import Browser

pytestmark = pytest.mark.req("X-18")

FLOW = """
workflow: holding
version: 1
reference: ${{ trigger.number }}
steps:
  - {id: left, needs: [], do: probe.effect.apply, with: {name: left}, on_failure: {hold: ops}}
  - {id: right, needs: [], do: probe.danger.apply, with: {name: right}}
  - id: after
    needs: [left]
    do: probe.effect.apply
    with: {name: "${{ steps.left.status }}"}
"""
PEOPLE = """
directory: tests
version: 2
people:
  - {id: ann, name: Ann, slack: U0ANN}
  - {id: bob, name: Bob, slack: U0BOB}
  - {id: eve, name: Eve, slack: U0EVE}
  - {id: tess, name: Tess, slack: U0WHO}
  - {id: ada, name: Ada}
  - {id: zed, name: Zed, active: false}
service_accounts: [{id: robot, owner: eve}]
groups: {leads: [ann, bob], ops: [bob, eve, tess, zed]}
"""
DOORS = ("slack", "http", "cli", "console")


@dataclass
class Doors:
    """One installation, at whose doors people answer."""

    made: Any
    clicks: Interactivity
    command: Any
    run: UUID
    ts: str = ""

    async def answer(self, door: str, who: str, answer: str, step: str = "left", reason: str = "I looked.") -> bool:
        """Answer at a door; true if that was taken."""
        return bool(await getattr(self, f"by_{door}")(who, answer, step, reason))

    async def by_http(self, who: str, answer: str, step: str, reason: str) -> bool:
        role = Role.ADMIN if who == "ada" else Role.OPERATOR
        client = await self.made.client(role, subject=who)
        said = await client.post(f"/v1/runs/{self.run}/steps/{step}/answer", json={"answer": answer, "reason": reason})
        assert said.status_code in (200, 403, 404, 409), said.text
        return bool(said.status_code == 200)

    async def by_cli(self, who: str, answer: str, step: str, reason: str) -> bool:
        verb = {"again": "retry", "without": "release"}[answer]
        given = ("run", verb, str(self.run), "--step", step, "--reason", reason, "--as", who, "--json")
        try:
            await asyncio.to_thread(partial(self.command, *given))
        except AssertionError:
            await asyncio.to_thread(partial(self.command, *given, exit_code=Exit.CONFLICT))
            return False
        return True

    async def by_console(self, who: str, answer: str, step: str, reason: str) -> bool:
        token = await self.made.token(Role.ADMIN if who == "ada" else Role.OPERATOR, subject=who)
        browser = await Browser.logged_in(self.made, token)
        form = await browser.form(f"/runs/{self.run}", step=step, answer=answer, reason=reason)
        return (await browser.post(f"/runs/{self.run}/answer", form)).status_code == 303

    async def by_slack(self, who: str, answer: str, step: str, reason: str) -> bool:
        user = {"ann": "U0ANN", "bob": "U0BOB", "eve": "U0EVE", "tess": "U0WHO"}.get(who, "U0NOBODY")
        self.clicks.state.stacks.pop(user, None)
        message = self.message
        if not (await self.clicks.click(message.channel, message.ts, f"counterseal.hold.{answer}", user)).ok:
            return False
        window = self.clicks.state.top_view(user)
        if not window.body.get("callback_id"):
            return False
        assert (await self.clicks.submit_view(window.view_id, user, {"reason": reason})).ok
        return "Recorded" in json.dumps(self.clicks.state.top_view(user).body)

    @property
    def message(self) -> Any:
        return next(one for one in self.clicks.state.messages("C0INC") if one.ts == self.ts)

    async def text(self) -> str:
        await self.made.work()
        return json.dumps(self.message.blocks)


@pytest.fixture
async def doors(serve: Any, settings: Any, slack_world: Any, command: Any) -> Any:
    """An installation with a run whose one step is held while another waits for people."""
    made = await serve(settings.model_copy(update={"slack_channel": "C0INC"}))
    await made.publish()
    await made.people(PEOPLE)
    await made.add(FLOW)
    for channel in slack_world.state.channels.values():
        channel.messages.clear()
    where = {"url": f"{made.url}/slack/events", "signing_secret": settings.slack_signing_secret.get_secret_value()}
    clicks = Interactivity(slack_world.state, base_url=lambda: f"{slack_world.url}/", **where)
    made.outside.script["left"] = [Refused("503", "It is <away> today.")]
    run = await made.parked("holding")
    (held,) = [one for one in clicks.state.messages("C0INC") if "Failed, and held" in str(one.blocks)]
    yield Doors(made, clicks, command, run, held.ts)
    await clicks.close()


async def test_its_people_get_one_message_and_their_answer_is_shown_there(doors: Doors) -> None:
    shown = await doors.text()
    assert "It is &lt;away&gt; today." in shown
    assert all(one in shown for one in ("<@U0BOB>", "<@U0EVE>", "Try again", "Go on without it", "Cancel the run"))
    assert "<@U0ANN>" not in shown
    assert await doors.made.status(doors.run) == "waiting_approval"
    assert await doors.answer("slack", "eve", "again")
    shown = await doors.text()
    assert all(one in shown for one in ("Tried again", "Eve", "I looked."))
    assert "counterseal.hold" not in shown
    assert len(await doors.made.books.approvals(run=doors.run)) == 1
    lines = [json.loads(line) for line in await doors.made.books.lines(doors.run)]
    (said,) = [line for line in lines if line["type"] == "hold.answered"]
    assert (said["actor"], said["data"]["channel"]) == ({"kind": "person", "id": "eve"}, "slack")


# Who answers how, and whether that is taken: the requester tries again, but does not decide to leave a step out.
PERSONS = {
    ("ann", "again"): False, ("ann", "without"): False,
    ("zed", "again"): False, ("robot", "again"): False, ("nobody", "again"): False,
    ("tess", "without"): False,
    ("eve", "without"): True, ("tess", "again"): True, ("ada", "again"): True, ("ada", "without"): True,
}  # fmt: skip


@pytest.mark.parametrize("door", DOORS)
async def test_who_may_say_what_becomes_of_it_at_each_door(doors: Doors, door: str) -> None:
    for (who, answer), may in PERSONS.items():
        if may or (door in ("http", "console") and who in ("zed", "nobody")) or (door, who) == ("console", "robot"):
            continue  # they have no token, or cannot log in
        assert not await doors.answer(door, who, answer), (who, answer)
        assert (await doors.made.books.wait(run=doors.run, kind="hold")).status == "waiting"
    assert await doors.made.tenant_events("hold.refused")
    takes = "tess" if door in ("slack", "cli") else "ada"
    assert await doors.answer(door, takes, "again")
    assert not await doors.answer(door, "eve", "without"), "it was answered already"
    await doors.made.work()
    assert [call.input["name"] for call in doors.made.outside.effects] == ["left", "succeeded"]


async def test_two_people_at_once_give_one_answer(doors: Doors) -> None:
    both = (("http", "eve", "again"), ("http", "bob", "without"), ("console", "ada", "without"))
    taken = await asyncio.gather(*(doors.answer(*one) for one in both))
    assert sum(taken) == 1
    lines = [json.loads(line)["type"] for line in await doors.made.books.lines(doors.run)]
    assert lines.count("hold.answered") == 1


async def test_a_button_that_is_old_or_on_another_message_does_nothing(doors: Doors) -> None:
    original = doors.message
    copy = type(original)("C0INC", doors.clicks.state.next_ts(), original.user, "", original.blocks)
    copied = doors.clicks.state.post(copy)
    assert (await doors.clicks.click("C0INC", copied.ts, "counterseal.hold.without", "U0EVE")).ok
    assert "not the message" in str(doors.clicks.state.top_view("U0EVE").body)
    assert await doors.answer("http", "bob", "again")  # the message still has its buttons
    doors.clicks.state.stacks.pop("U0EVE", None)
    assert (await doors.clicks.click("C0INC", original.ts, "counterseal.hold.without", "U0EVE")).ok
    assert "Bob has answered it" in str(doors.clicks.state.top_view("U0EVE").body)


async def test_going_on_without_it_and_canceling(doors: Doors) -> None:
    assert await doors.answer("http", "eve", "without")
    await doors.made.work()
    assert [call.input["name"] for call in doors.made.outside.effects] == ["failed"]
    assert "Gone on without it" in await doors.text()
    doors.made.outside.script["left"] = [Refused("503", "away")]
    other = Doors(doors.made, doors.clicks, doors.command, await doors.made.parked("holding", "INC2"))
    assert await other.answer("http", "eve", "cancel")
    await doors.made.work()
    assert await doors.made.status(other.run) == "canceled"
    assert (await doors.made.books.approval(run=other.run)).status == "canceled"


async def test_a_retry_that_waits_is_tried_now_by_operators(doors: Doors) -> None:
    text = "workflow: later\nversion: 1\nreference: ${{ trigger.number }}\nsteps:\n"
    await doors.made.add(text + "  - {id: left, do: probe.effect.apply, with: {name: late}}\n")
    more = PEOPLE.replace("groups: {", "groups: {operators: [bob], ").replace("version: 2", "version: 3")
    await doors.made.people(more)
    doors.made.outside.script["late"] = [NotSent("busy", 3600)]
    late = Doors(doors.made, doors.clicks, doors.command, await doors.made.parked("later", "INC3"))
    assert await doors.made.status(late.run) == "waiting"
    assert not await late.answer("http", "eve", "again")
    assert await late.answer("console", "bob", "again")
    await doors.made.work()
    assert await doors.made.status(late.run) == "succeeded"
