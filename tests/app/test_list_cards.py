"""A list in Slack: one message, decided by its button or in its window, of which only what we opened counts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.settings import Settings
from evidence.chain import Actor
from runtime.requests import publishing
from sandbox.slack import SlackConfig
from sandbox.world import SandboxConfig, sandbox_world

CARDS = "C0OPS"
PEOPLE = """
directory: tests
people:
  - {id: ana, name: Ana, slack: U0ANA}
  - {id: ben, name: Ben, slack: U0BEN}
  - {id: tess, name: Tess, slack: U0REQ}
groups: {leads: [ana, ben]}
"""
LOOP = """
workflow: wave
version: 1
reference: ${{ trigger.number }}
channels: {lost: {}}
steps:
  - id: each
    foreach: ${{ ['web1', 'web2', 'web3', 'db`2'] }}
    max_parallel: 10
    steps:
      - {id: danger, do: probe.danger.apply, with: {name: "${{ item }}"}, on_rejected: [{set: {lost: "${{ item }}"}}]}
"""


class Channel:
    """The stand-in for Slack, and what people do there."""

    def __init__(self, slack: Any, installation: Any, run: Any) -> None:
        self.slack, self.installation, self.run = slack, installation, run

    @property
    def card(self) -> Any:
        return next(one for one in self.slack.state.messages(CARDS) if not one.ephemeral_for)

    async def press(self, action: str, user: str = "U0ANA", ts: str = "") -> Any:
        return await self.slack.people.click(CARDS, ts or self.card.ts, action, user)

    async def statuses(self) -> list[str]:
        await self.installation.work()
        return sorted(str(one.status) for one in await self.installation.books.approvals())

    def notes(self, user: str) -> list[str]:
        return [one.text for one in self.slack.state.channels[CARDS].messages if one.ephemeral_for == user]


@pytest.fixture
async def channel(settings: Settings, serve: Any) -> AsyncIterator[Channel]:
    assert settings.slack_signing_secret is not None
    secret = settings.slack_signing_secret.get_secret_value()
    config = SlackConfig(bot_token="xoxb-test", signing_secret=secret, ack_seconds=60.0)  # however busy the machine is
    async with sandbox_world(SandboxConfig(slack=config)) as world:
        changes = {"slack_api_url": f"{world.slack.url}/api/", "slack_channel": CARDS}
        installation = await serve(settings.model_copy(update=changes))
        world.slack.people.url = f"{installation.url}/slack/events"
        await installation.publish()
        async with installation.app.faces.database.transaction("default") as connection:
            await publishing.publish_directory(connection, "default", PEOPLE, "people.yaml", Actor("test", "tester"))
        await installation.add(LOOP)
        world.slack.state.channels[CARDS].members.update({"U0ANA", "U0BEN", "U0REQ"})
        run = await installation.parked("wave", "CHG1")
        yield Channel(world.slack, installation, run)


async def test_one_click_approves_all_of_a_list_and_the_card_folds(channel: Channel) -> None:
    card = channel.card
    assert [one["type"] for one in card.blocks] == ["header", "section", "section", "context", "actions", "context"]
    labels = [one["text"]["text"] for one in card.blocks[4]["elements"]]
    assert labels == ["Approve 4", "Reject…", "Choose…"]
    assert (await channel.press("counterseal.list_approve")).ok
    assert await channel.statuses() == ["approved"] * 4
    assert channel.notes("U0ANA") == ["4 approved."]
    assert (channel.card.ts, channel.card.blocks[0]["text"]["text"]) == (card.ts, "*Done* 4 of 4")


async def test_a_window_takes_some_of_a_list_and_a_reason_for_the_others(channel: Channel) -> None:
    assert (await channel.press("counterseal.list_choose")).ok
    view = channel.slack.state.top_view("U0ANA")
    boxes = next(one["element"] for one in view.body["blocks"] if one.get("block_id") == "items_0")
    assert boxes["options"][0]["text"]["text"].startswith("1. ")
    some = [one["value"] for one in boxes["options"][:3]]
    said = {"choice": "approve", "items_0": some}
    assert (await channel.slack.people.submit_view(view.view_id, "U0ANA", said)).errors
    assert (await channel.slack.people.submit_view(view.view_id, "U0ANA", {**said, "reason": "Ask first."})).ok
    assert await channel.statuses() == ["approved"] * 3 + ["rejected"]
    assert [one.reason for one in await channel.installation.books.votes() if str(one.choice) == "reject"] == [
        "Ask first."
    ]
    told = channel.card.blocks[0]["text"]["text"]
    assert told.startswith("*Done* 3 of 4")
    assert "*Rejected* 1 of 4" in told


async def test_a_list_is_answered_only_from_its_own_message_and_its_own_window(channel: Channel) -> None:
    blocks = channel.card.blocks
    lunch = channel.slack.state.channels["C0INC"]
    lunch.members.update({"U0ANA"})
    assert (await channel.press("counterseal.list_choose", "U0BEN")).ok
    window = channel.slack.state.top_view("U0BEN")
    metadata = window.body["private_metadata"]
    assert (await channel.press("counterseal.list_reject")).ok
    mine = channel.slack.state.top_view("U0ANA")
    mine.body["private_metadata"] = metadata  # taken from another person's window
    mine.body["callback_id"] = window.body["callback_id"]
    await channel.slack.people.submit_view(mine.view_id, "U0ANA", {"reason": "No."})
    assert await channel.statuses() == ["requested"] * 4
    assert blocks


async def test_people_ask_and_answer_on_a_list_about_the_question_they_name(channel: Channel) -> None:
    """From the list's window. Whoever may not, and a window of somebody else, say nothing."""
    people, state = channel.slack.people, channel.slack.state

    async def say(user: str, what: str, text: str, record: str, **more: str) -> str:
        assert (await channel.press("counterseal.list_choose", user)).ok
        view = state.top_view(user)
        if f"counterseal.list_talk.{what}" not in str(view.body):
            return "not offered"
        assert (await people.click_view(view.view_id, f"counterseal.list_talk.{what}", user)).ok
        window = state.top_view(user)
        options = next(one for one in window.body["blocks"] if one.get("block_id") == "about")["element"]["options"]
        (about,) = [one["value"] for one in options if record in one["text"]["text"]]
        await people.submit_view(window.view_id, user, {"about": about, "reason": text, **more})
        await channel.installation.work()
        return str(state.top_view(user).body["blocks"])

    assert await say("U0REQ", "asks", "Why?", "web1") == "not offered"
    assert "Asked." in await say("U0ANA", "asks", "Why tonight?", "web2")
    assert "web2: *Ana asks for more:* `Why tonight?`" in str(channel.card.blocks)
    assert "Approve 4" in str(channel.card.blocks), "all that was said stands on the card"
    assert "Recorded." in await say("U0REQ", "answers", "It is `late`", "web2")
    assert "web2: *Tess answers:*" in str(channel.card.blocks)
    assert "Handed on." in await say("U0ANA", "hands_on", "yours", "web3", to="ben")
    await channel.press("counterseal.list_choose", "U0BEN")
    view = state.top_view("U0BEN")
    await people.click_view(view.view_id, "counterseal.list_talk.comments", "U0BEN")
    theirs, about = state.top_view("U0BEN"), (await channel.installation.books.approvals())[0].id
    await channel.press("counterseal.list_choose", "U0ANA")
    await people.click_view(state.top_view("U0ANA").view_id, "counterseal.list_talk.comments", "U0ANA")
    mine = state.top_view("U0ANA")
    mine.body["private_metadata"] = theirs.body["private_metadata"]
    await people.submit_view(mine.view_id, "U0ANA", {"about": str(about), "reason": "Forged."})
    assert "not opened for you" in str(state.top_view("U0ANA").body)
    run = channel.run
    told = await channel.installation.books.events(run)
    assert [one.data.get("said", "handed") for one in told if one.type in ("approval.said", "approval.reassigned")] == [
        "asks", "answers", "handed",
    ]  # fmt: skip
    assert "Look and decide" in str(channel.card.blocks), "more was said than has room, and the window has it"
    await channel.press("counterseal.list_choose", "U0ANA")
    await people.submit_view(state.top_view("U0ANA").view_id, "U0ANA", {})
    window = state.top_view("U0ANA")
    boxes = next(one["element"] for one in window.body["blocks"] if one.get("block_id") == "items_0")
    chosen = {"choice": "approve", "items_0": [one["value"] for one in boxes["options"]]}
    await people.submit_view(window.view_id, "U0ANA", chosen)
    assert await channel.statuses() == ["approved"] * 4
    assert (await channel.installation.app.faces.reader.replay("default", run)).ok
