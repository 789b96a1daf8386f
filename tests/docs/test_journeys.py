"""The journeys of docs/architecture.md, walked in a real installation: each function is entered, in the page's order.

One run does all four: ServiceNow's webhook starts it, a worker performs what policy allows, a click in Slack approves
the rest, and its end orders the bundle. Every call of a Python function is noted while one journey goes on, in this
thread and in those that it hands work to.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from app import storage
from app.http.application import create_app
from app.http.server import HttpServer
from app.settings import load_settings
from app.wiring import App, build
from core.db import ENGINE_ROLE, FACES_ROLE, Database
from evidence.chain import Actor
from runtime.queue.postgres import PostgresQueue
from runtime.requests import policies, publishing
from sandbox.slack import SlackConfig
from sandbox.world import SandboxConfig, World, sandbox_world
from tests.support.books import Books

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
SECRET = "a-secret-of-these-tests"
OUTAGE = {"short_description": "Outage of the production order system", "impact": "3", "urgency": "3"}
NAME = r"`((?:app|approvals|connectors|core|evidence|policy|runtime)(?:\.\w+)+)`"


def journeys() -> dict[str, list[str]]:
    """The functions that each journey of the page names, in their order."""
    text = PAGE.read_text(encoding="utf-8")
    sections = re.split(r"^### ", text.partition("\n## Four journeys\n")[2].partition("\n## ")[0], flags=re.MULTILINE)
    return {
        section.partition("\n")[0]: re.findall(rf"^\d+\. {NAME}", section, re.MULTILINE) for section in sections[1:]
    }


def code_of(name: str) -> CodeType:
    """The code of a function or method by its dotted name. ``AttributeError`` if there is none."""
    function = resolve(name)
    code = inspect.unwrap(function).__code__
    assert isinstance(code, CodeType)
    return code


def resolve(name: str) -> Any:
    """Find the module, or the thing in one, that a dotted name stands for."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    raise AttributeError(name)


class Walk:
    """The codes that were entered, in their order. Threads begin to note when they begin."""

    def __init__(self) -> None:
        self.entered: list[CodeType] = []
        self._on = False

    def note(self, frame: FrameType, event: str, _: object) -> None:
        if self._on and event == "call":
            self.entered.append(frame.f_code)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note everything that is entered from here on, from an empty list."""
        self.entered = []
        self._on = True
        sys.setprofile(self.note)
        try:
            yield
        finally:
            sys.setprofile(None)
            self._on = False

    def missing(self, names: list[str]) -> list[str]:
        """The names that were not entered behind those before them."""
        entered = iter(self.entered)
        return [name for code, name in [(code_of(name), name) for name in names] if code not in entered]


class Installation:
    """Everything in this process, moved on when the test says so."""

    def __init__(self, app: App, world: World, books: Books) -> None:
        self.app, self.world, self.books = app, world, books

    async def publish(self) -> None:
        faces, examples, tester = self.app.faces, ROOT / "examples", Actor("test", "tester")
        tenant, definitions = faces.settings.tenant, faces.definitions
        people, policy, workflow = (
            (examples / name).read_text()
            for name in ("directory.yaml", "policies/it-operations.yaml", "workflows/incident-triage.yaml")
        )
        async with faces.database.transaction(tenant) as connection:
            await publishing.publish_directory(connection, tenant, people, "people", tester)
            await policies.publish_policy(connection, definitions, tenant, policy, "policy", tester)
            await publishing.publish_workflow(connection, definitions, tenant, workflow, "workflow", tester)

    async def deliver(self) -> None:
        """Deliver every message that is due."""
        await self.app.dispatcher().work_off()

    async def work(self) -> None:
        """Work until nothing is left to claim."""
        await self.app.worker().work_off()

    async def report(self) -> None:
        """Report an incident: ServiceNow tells us, until it is answered."""
        servicenow = self.world.servicenow
        servicenow.state.insert("incident", OUTAGE, "raj.quist")
        await servicenow.webhooks.until(lambda: all(one.done for one in servicenow.webhooks.deliveries))

    async def click(self) -> None:
        """Click *Approve* on the one card."""
        outcome = await self.world.slack.people.click("C0OPS", self.card(), "counterseal.approve", "U0ANA")
        assert outcome.ok, outcome

    def card(self) -> str:
        """The timestamp of the one card that has a button to approve."""
        (card,) = [m for m in self.world.slack.state.messages("C0OPS") if "counterseal.approve" in str(m.blocks)]
        return str(card.ts)


@pytest.fixture
async def installation(
    database_url: str, tmp_path: Path, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Installation]:
    for name in [name for name in os.environ if name.startswith("COUNTERSEAL_")]:
        monkeypatch.delenv(name)
    ours = f"http://127.0.0.1:{unused_tcp_port}"
    slack = SlackConfig(signing_secret=SECRET, interactivity_url=f"{ours}/slack/events")
    async with AsyncExitStack() as exits:
        world = await exits.enter_async_context(sandbox_world(SandboxConfig(slack=slack)))
        world.servicenow.webhooks.url = f"{ours}/webhooks/servicenow/tests"
        world.servicenow.webhooks.secret = SECRET
        async with Database(database_url, FACES_ROLE) as faces:
            await storage.create_default_tenant(faces)
        settings = load_settings(
            database_url=database_url,
            home=tmp_path,
            port=unused_tcp_port,
            slack_bot_token=world.slack.config.bot_token,
            slack_signing_secret=SECRET,
            slack_api_url=world.urls()["slack_api"],
            slack_channel="C0OPS",
            servicenow_url=world.urls()["servicenow"],
            servicenow_username=world.servicenow.config.integration_user,
            servicenow_password="sandbox",
            model_url=world.urls()["model"],
            model_api_key=world.model.config.api_key,
            webhooks={"tests": {"secret": SECRET}},
        )
        app = await exits.enter_async_context(build(settings, queue=PostgresQueue()))
        stop = asyncio.Event()
        serving = asyncio.create_task(HttpServer(create_app(app.faces), "127.0.0.1", unused_tcp_port).run(stop))

        async def end() -> None:
            stop.set()
            await serving

        exits.push_async_callback(end)
        database = await exits.enter_async_context(Database(database_url, ENGINE_ROLE, connections=1))
        found = Installation(app, world, Books(database))
        await found.publish()
        yield found


async def test_the_journeys_are_walked_as_the_page_says(installation: Installation) -> None:
    walk, named = Walk(), journeys()
    pool = ThreadPoolExecutor(1, initializer=lambda: sys.setprofile(walk.note))
    asyncio.get_running_loop().set_default_executor(pool)
    walked = {}
    for journey, way in (
        ("From a webhook to a run", [installation.report]),
        ("From an allowed effect's claim to its settle", [installation.work]),
        ("From a click in Slack to a vote", [installation.deliver, installation.click]),
        ("From the end of a run to its bundle", [installation.work, installation.deliver]),
    ):
        with walk.noting():
            for leg in way:
                await leg()
        walked[journey] = walk.missing(named[journey])
    assert (await installation.books.run()).status == "succeeded"
    assert walked == {journey: [] for journey in named}, "entered in another order, or not at all"


def test_each_journey_is_told_in_a_few_words() -> None:
    assert [6 <= len(names) <= 14 for names in journeys().values()] == [True] * 4


def test_every_name_on_the_page_is_in_the_code() -> None:
    unknown = []
    for name in re.findall(NAME, PAGE.read_text(encoding="utf-8")):
        try:
            resolve(name)
        except AttributeError:
            unknown.append(name)
    assert unknown == []
