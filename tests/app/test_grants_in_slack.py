"""A grant in Slack: the decided card shows it, and whoever may takes it back there; nobody else does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import orjson
import pytest

from app.access import Role
from app.settings import Settings
from evidence.chain import Actor
from runtime.requests import policies, publishing
from sandbox.slack import SlackConfig
from sandbox.world import SandboxConfig, sandbox_world
from tests.support.granting import POLICY, WORKFLOW

pytestmark = pytest.mark.req("Q-3")
CARDS, TAKE_BACK = "C0OPS", "counterseal.take_back"
PEOPLE = """
directory: tests
people:
  - {id: ana, name: Ana, slack: U0ANA}
  - {id: ben, name: Ben, slack: U0BEN}
  - {id: cara, name: Cara, slack: U0CARA}
  - {id: dan, name: Dan, slack: U0REQ}
groups: {leads: [ana, ben], operators: [cara]}
"""


class Channel:
    """The stand-in for Slack, where one card stands whose approver has allowed two more."""

    def __init__(self, slack: Any, installation: Any, run: UUID) -> None:
        self.slack, self.installation, self.run = slack, installation, run

    @property
    def card(self) -> Any:
        return next(one for one in self.slack.state.messages(CARDS) if not one.ephemeral_for)

    async def window(self, user: str) -> Any:
        assert (await self.slack.people.click(CARDS, self.card.ts, TAKE_BACK, user)).ok
        return self.slack.state.top_view(user)

    async def say(self, view: Any, user: str) -> str:
        await self.slack.people.submit_view(view.view_id, user, {"reason": "No more."})
        await self.installation.work()
        return str(self.slack.state.top_view(user).body["blocks"])

    @property
    def labels(self) -> list[str]:
        rows = [block for block in self.card.blocks if block["type"] == "actions"]
        return [one["text"]["text"] for row in rows for one in row["elements"]]


@pytest.fixture
async def channel(settings: Settings, serve: Any) -> AsyncIterator[Channel]:
    assert settings.slack_signing_secret is not None
    secret = settings.slack_signing_secret.get_secret_value()
    config = SlackConfig(bot_token="xoxb-test", signing_secret=secret, ack_seconds=60.0)  # however busy the machine is
    async with sandbox_world(SandboxConfig(slack=config)) as world:
        changes = {"slack_api_url": f"{world.slack.url}/api/", "slack_channel": CARDS}
        installation = await serve(settings.model_copy(update=changes))
        people = world.slack.people
        people.url = f"{installation.url}/slack/events"
        await installation.publish()
        async with installation.app.faces.database.transaction("default") as connection:
            tester, definitions = Actor("test", "tester"), installation.app.faces.definitions
            await publishing.publish_directory(connection, "default", PEOPLE, "people.yaml", tester)
            await policies.publish_policy(connection, definitions, "default", POLICY, "policy", tester)
        await installation.add(WORKFLOW)
        world.slack.state.channels[CARDS].members.update({"U0ANA", "U0BEN", "U0CARA", "U0REQ"})
        found = Channel(world.slack, installation, await installation.parked("often", "CHG1"))
        assert (await people.click(CARDS, found.card.ts, "counterseal.review", "U0ANA")).ok
        said = {"choice": "approve", "grant": "2:14400"}
        assert (await people.submit_view(world.slack.state.top_view("U0ANA").view_id, "U0ANA", said)).ok
        await installation.work()
        yield found


@pytest.mark.parametrize("user", ["U0ANA", "U0BEN", "U0CARA"])  # who gave it, who may decide, an operator
async def test_whoever_may_takes_it_back_and_the_card_says_who(channel: Channel, user: str) -> None:
    assert channel.labels == ["Take back…"]
    assert "2 more allowed until" in str(channel.card.blocks)
    window = await channel.window(user)
    assert "is taken back" in await channel.say(window, user)
    name = {"U0ANA": "Ana", "U0BEN": "Ben", "U0CARA": "Cara"}[user]
    assert f"2 more: taken back by {name}" in str(channel.card.blocks)
    assert channel.labels == []
    lines = map(orjson.loads, await channel.installation.books.lines(channel.run))
    [event] = [one for one in lines if one["type"] == "grant.revoked"]
    assert (event["actor"]["kind"], event["actor"]["id"]) == ("person", name.lower())


async def test_nobody_else_takes_it_back_and_only_our_own_window_does(channel: Channel) -> None:
    """Refused: who has no right, an account that is unknown, another message, another person's window."""
    assert "You may not take it back" in str((await channel.window("U0REQ")).body["blocks"])
    stolen = (await channel.window("U0BEN")).body
    answer = await channel.window("U0CARA")
    answer.body["private_metadata"] = stolen["private_metadata"]
    assert "not opened for you" in await channel.say(answer, "U0CARA")
    assert channel.labels == ["Take back…"]
    assert "is taken back" in await channel.say(await channel.window("U0CARA"), "U0CARA")
    open_ = channel.slack.state.top_view("U0BEN")  # opened before somebody else took it back
    assert "It was not taken back: The grant is over already" in await channel.say(open_, "U0BEN")


async def test_the_button_goes_when_the_grant_is_used_up(channel: Channel) -> None:
    assert channel.labels == ["Take back…"]
    client = await channel.installation.client(Role.TRIGGER, subject="tess")
    assert (await client.post("/v1/signals/go:CHG1", json={"output": {}})).status_code == 200
    await channel.installation.work()
    assert len(channel.installation.outside.effects) == 3
    assert channel.labels == []


async def test_whoever_gave_it_takes_it_back_in_home_even_after_they_have_left_the_group(channel: Channel) -> None:
    people, state, faces = channel.slack.people, channel.slack.state, channel.installation.app.faces

    async def home(user: str) -> str:
        assert (await people.open_home(user)).ok
        return str(state.homes[user]["blocks"])

    async with faces.database.transaction("default") as connection:
        left = PEOPLE.replace("leads: [ana, ben]", "leads: [ben]")
        await publishing.publish_directory(connection, "default", left, "people.yaml", Actor("test", "tester"))
    assert "allowed in advance" not in await home("U0BEN"), "Home shows what its own person has allowed"
    assert "2 more allowed until" in await home("U0ANA")
    assert (await people.click_home("counterseal.home.take_back", "U0ANA")).ok
    window = state.top_view("U0ANA")
    forged = state.homes["U0REQ"] = state.homes["U0ANA"]  # the same button, pressed by somebody else
    assert (await people.click_home("counterseal.home.take_back", "U0REQ")).ok
    assert forged
    assert "You may not take it back" in str(state.top_view("U0REQ").body["blocks"])
    assert "is taken back" in await channel.say(window, "U0ANA")
    assert "taken back by Ana" in str(channel.card.blocks)
    assert "allowed in advance" not in await home("U0ANA")
