"""A runtime with a Slack of its own, and what each person has been told there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from approvals.slack.messenger import SlackMessenger
from approvals.slack.workspace import SlackUserGroups
from runtime.engine.life.closing import ALARM, HOLD, TOLD
from runtime.keep.dispatcher import ALARMED, Delivered, Dispatcher, saying
from runtime.keep.messages import Messages
from runtime.keep.telling import Telling
from runtime.requests.talking import ASKED
from sandbox.server import LoopbackServer
from sandbox.slack import Slack
from sandbox.slack_state import User
from tests.support.people import add_person

CHANNEL = "C0OPS"
PEOPLE = {"requester": (), "olga": ("operators",), "omar": ("operators",), "lea": ("leads",)}


@dataclass
class Chat:
    runtime: Any
    slack: Slack
    dispatcher: Dispatcher
    groups: SlackUserGroups

    async def begin(self, policy: str, *texts: str) -> None:
        await self.runtime.tenant()
        for person, groups in PEOPLE.items():
            await self.person(person, groups)
        await self.runtime.policy(policy)
        for text in texts:
            await self.runtime.publish(text)

    async def person(self, person: str, groups: Sequence[str] = (), **more: Any) -> None:
        account = f"U{person.upper()}"
        self.slack.state.users[account] = User(account, person, person, "#000000")
        await add_person(self.runtime.database, "acme", person, groups, principals=(f"slack:{account}",), **more)

    async def go(self, name: str, ref: str = "1") -> Any:
        started = await self.runtime.start(name, ref=ref)
        await self.runtime.worker(slack=self.groups).work_off()
        return started.run_id

    async def deliver(self) -> None:
        while await self.dispatcher.work_off():
            pass

    def told(self, person: str) -> list[Any]:
        return list(self.slack.state.direct(f"U{person.upper()}").messages)

    def cards(self, channel: str = CHANNEL) -> list[Any]:
        return [one for one in self.slack.state.messages(channel) if not one.thread_ts]


async def heard(connection: Any, message: Any) -> Any:
    return partial(saying, Delivered())


# For a dispatcher of a test in which nobody listens in private.
UNTOLD = {TOLD: heard, ALARM: heard, ALARMED: heard, HOLD: heard, ASKED: heard}


@asynccontextmanager
async def chatting(runtime: Any) -> AsyncIterator[Chat]:
    slack = Slack()
    async with LoopbackServer(slack.app) as server:
        slack.url = server.url
        client = AsyncWebClient(slack.config.bot_token, base_url=f"{server.url}/api/", retry_handlers=[])
        messenger = SlackMessenger(client)
        cards, telling = Messages(messenger, CHANNEL, runtime.definitions), Telling(messenger, runtime.definitions)
        kinds = {**cards.handlers(), **telling.handlers(), "bundle": heard}
        yield Chat(runtime, slack, Dispatcher(runtime.database, kinds, "d1"), SlackUserGroups(client))
        await slack.close()
