"""Socket Mode: clicks come over connections that we open, and are acknowledged only after they are recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import SecretStr

from app.doctor import State, outside
from app.http.signed import sockets_of
from app.settings import Settings, load_settings
from app.slack_apps import SlackApps
from core.errors import ConfigurationError
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
groups: {leads: [ana, ben]}
"""
OPEN = """
workflow: open
version: 1
reference: ${{ trigger.number }}
steps:
  - {id: danger, do: probe.danger.apply, with: {name: "${{ trigger.number }}"}}
"""


class Line:
    """An installation whose Slack calls nobody: it sends what people do over connections that were opened to it."""

    def __init__(self, slack: Any, installation: Any) -> None:
        self.slack, self.installation, self.sockets = slack, installation, slack.sockets
        self.stops: list[asyncio.Event] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def process(self) -> asyncio.Event:
        """One more process that holds a connection."""
        faces, stop = self.installation.app.faces, asyncio.Event()
        held = await sockets_of(faces, SlackApps(faces))
        self.tasks.append(asyncio.create_task(held.run(stop)))
        self.stops.append(stop)
        return stop

    async def end(self) -> None:
        for stop in self.stops:
            stop.set()
        await asyncio.gather(*self.tasks)

    async def asks(self, number: str) -> Any:
        run = await self.installation.parked("open", number)
        return await self.installation.books.approval(run=run)

    async def click(self, question: Any, action: str = "counterseal.approve", user: str = "U0ANA") -> Any:
        return await self.slack.people.click(CARDS, question.message_ts, action, user)

    async def votes(self, question: Any) -> list[str]:
        return [str(one.choice) for one in await self.installation.books.votes(approval=question.id)]


@pytest.fixture
async def line(settings: Settings, serve: Any) -> AsyncIterator[Line]:
    assert settings.slack_signing_secret is not None
    secret = settings.slack_signing_secret.get_secret_value()
    config = SlackConfig(bot_token="xoxb-test", signing_secret=secret, app_token="xapp-test", ack_seconds=2.0)
    async with sandbox_world(SandboxConfig(slack=config)) as world:
        changes = {"slack_api_url": f"{world.slack.url}/api/", "slack_channel": CARDS}
        installation = await serve(settings.model_copy(update={**changes, "slack_app_token": SecretStr("xapp-test")}))
        await installation.publish()
        async with installation.app.faces.database.transaction("default") as connection:
            await publishing.publish_directory(connection, "default", PEOPLE, "people.yaml", Actor("test", "tester"))
        await installation.add(OPEN)
        world.slack.state.channels[CARDS].members.update({"U0ANA", "U0BEN"})
        found = Line(world.slack, installation)
        await found.process()
        async with asyncio.timeout(20):
            await found.sockets.connected()
        try:
            yield found
        finally:
            await found.end()


async def test_clicks_windows_and_homes_come_over_the_connection(line: Line) -> None:
    question = await line.asks("INC1")
    assert (await line.click(question, "counterseal.reject")).ok
    window = line.slack.state.top_view("U0ANA")
    assert (await line.slack.people.submit_view(window.view_id, "U0ANA", {"reason": "Not today."})).ok
    assert await line.votes(question) == ["reject"]
    assert "Your rejection is counted" in str(line.slack.state.top_view("U0ANA").body)
    assert (await line.slack.people.open_home("U0BEN")).ok
    # A window that was not opened by us proves nothing here either.
    other = await line.asks("INC2")
    assert (await line.click(other, "counterseal.reject", "U0BEN")).ok
    false = line.slack.state.top_view("U0BEN")
    false.body["private_metadata"] = false.body["private_metadata"].replace('"m":"', '"m":"0')
    await line.slack.people.submit_view(false.view_id, "U0BEN", {"reason": "No."})
    assert await line.votes(other) == []


async def _twice(line: Line) -> None:
    line.sockets.twice = True


async def _lost_acknowledgement(line: Line) -> None:
    line.sockets.lose, line.sockets.twice = 1, True


async def _refreshed(line: Line) -> None:
    await line.sockets.refresh()
    await line.sockets.connected(2, opened=2)


async def _warned_twice(line: Line) -> None:
    await line.sockets.refresh(reason="warning")
    await line.sockets.connected(2, opened=2)
    await line.sockets.refresh()
    await line.sockets.connected(3, opened=3)


async def _dropped(line: Line) -> None:
    await line.sockets.drop()
    await line.sockets.connected(1, opened=2)


async def _refused_at_first(line: Line) -> None:
    line.sockets.refuses = 2
    await line.sockets.drop()
    await line.sockets.connected(1, opened=4)


async def _another_process(line: Line) -> None:
    await line.process()
    await line.sockets.connected(2)
    line.sockets.twice = True


async def _slack_limits_us(line: Line) -> None:
    line.slack.faults.add("status", status=429, times=2, path="apps.connections.open")
    await line.sockets.drop()
    await line.sockets.connected(1, opened=2)


@pytest.mark.parametrize(
    "trouble",
    [_twice, _lost_acknowledgement, _refreshed, _warned_twice, _dropped, _refused_at_first, _another_process],
)
async def test_whatever_slack_does_to_connections_a_click_is_one_vote(line: Line, trouble: Any) -> None:
    async with asyncio.timeout(30):
        question = await line.asks("INC1")
        await trouble(line)
        assert (await line.click(question)).ok
        assert await line.votes(question) == ["approve"]
        assert (await line.installation.books.approval(id=question.id)).status == "approved"


async def test_a_click_that_is_not_recorded_is_not_acknowledged(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    question = await line.asks("INC1")
    broken = {"broken": True}
    voting = type(line.installation.app.faces.voting)
    vote = voting.vote

    async def failing(self: Any, request: Any) -> Any:
        if broken["broken"]:
            raise OSError("the database is away")
        return await vote(self, request)

    monkeypatch.setattr(voting, "vote", failing)
    assert (await line.click(question)).error == "This app is not responding."
    assert line.sockets.acknowledged == []
    broken["broken"] = False
    assert (await line.click(question)).ok
    assert await line.votes(question) == ["approve"]


async def test_a_process_that_stops_answers_what_is_under_way(line: Line) -> None:
    question = await line.asks("INC1")
    click = asyncio.create_task(line.click(question))
    await asyncio.sleep(0)
    line.stops[0].set()
    told = await click
    assert told.ok == (await line.votes(question) == ["approve"])
    await asyncio.gather(*line.tasks)
    assert line.sockets.open == []


async def test_doctor_names_the_connection_and_settings_are_checked(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = line.installation.settings
    for token, state in {"xapp-test": State.OK, "xapp-other": State.BROKEN}.items():
        found = await outside(settings.model_copy(update={"slack_app_token": SecretStr(token)}))
        assert {one.what: one.state for one in found}["slack socket"] is state, found
    monkeypatch.setenv("COUNTERSEAL_SLACK_APP_TOKEN", "xoxb-1")
    with pytest.raises(ConfigurationError, match="xapp-"):
        load_settings()
