"""A whole installation on a real PostgreSQL, served over real HTTP on loopback, with one strict outside system."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import UUID

import httpx
import pytest
import structlog
import typer.main

from app import access, adapters, storage
from app.access import Role
from app.cli import main
from app.http.application import create_app
from app.http.server import HttpServer
from app.settings import Settings, load_settings
from app.wiring import App, build
from connectors.agent.connector import AgentConnector
from connectors.catalog import Source, load_catalog
from connectors.port import Connectors
from core.db import ENGINE_ROLE, FACES_ROLE, Database
from evidence.chain import Actor
from runtime.definition.catalog import Definitions
from runtime.queue.postgres import PostgresQueue
from runtime.requests import declaring, policies, publishing
from sandbox.server import LoopbackServer
from sandbox.slack import Slack, SlackConfig
from sandbox.slack_state import TEAM_ID, User
from tests.support.app_stage import PEOPLE, POLICY, WEBHOOK_SECRET
from tests.support.books import Books
from tests.support.clicking import honestly
from tests.support.databases import Databases
from tests.support.insides import look_often
from tests.support.outside import Outside
from tests.support.people import add_person
from tests.support.trouble import Trouble

SIGNING_SECRET = "a-slack-signing-secret"
SLACK_TEAM = TEAM_ID
TESTER = Actor("test", "tester")

OPERATIONS = """
operations:
  - name: probe.effect.apply
    handler: probe:apply
    side_effects: external_call
    risk: medium
    summary: "Set {name}"
    target: "thing/{name}"
    in_doubt: probe
    input_schema:
      type: object
      required: [name]
      properties: {name: {type: string}}
      additionalProperties: false
    output_schema: {type: object}
  - name: probe.danger.apply
    handler: probe:apply
    side_effects: external_call
    risk: high
    summary: "Endanger {name}"
    target: "thing/{name}"
    in_doubt: probe
    input_schema:
      type: object
      required: [name]
      properties: {name: {type: string}, pin: {type: string, x-secret: true}}
      additionalProperties: false
    output_schema: {type: object}
  - name: probe.danger.person
    handler: probe:apply
    side_effects: external_call
    risk: high
    summary: "Endanger {who}"
    target: "person/{who}"
    subject: "{who}"
    in_doubt: probe
    input_schema:
      type: object
      properties: {name: {type: string}, who: {type: string}}
      additionalProperties: false
    output_schema: {type: object}
  - name: probe.danger.hand
    handler: probe:apply
    side_effects: external_call
    risk: high
    summary: "Hand {name} over"
    target: "thing/{name}"
    writes: fields
    diff: {fields: written}
    in_doubt: probe
    input_schema:
      type: object
      properties:
        name: {type: string}
        fields: {type: object, properties: {name: {type: string}, owner: {type: string}}, additionalProperties: false}
      additionalProperties: false
    output_schema: {type: object}
  - name: probe.ticket.file
    handler: probe:file
    side_effects: external_call
    risk: low
    summary: "File {name}"
    target: "ticket/{name}"
    in_doubt: probe
    idempotency: {scope: tenant}
    input_schema: {type: object, properties: {name: {type: string}}, additionalProperties: false}
    output_schema: {type: object}
  - name: probe.value.read
    handler: probe:read
    side_effects: none
    risk: low
    summary: "Read {name}"
    target: "thing/{name}"
    input_schema: {type: object, properties: {name: {type: string}}, additionalProperties: false}
    output_schema: {type: object}
  - name: probe.case.open
    kind: durable
    handler: probe:case
    side_effects: human_process
    risk: medium
    summary: "Open a case about {name}"
    target: "case/{name}"
    in_doubt: probe
    input_schema:
      type: object
      required: [name]
      properties: {name: {type: string}}
      additionalProperties: false
    output_schema: {type: object}
"""

WORKFLOWS = """
workflow: simple
version: 1
reference: ${{ trigger.number }}
triggers:
  servicenow: {table: incident, events: [insert], dedupe: "${{ trigger.sys_id }}:${{ trigger.sys_mod_count }}"}
steps:
  - id: first
    do: probe.effect.apply
    with: {name: "${{ trigger.number }}"}
---
workflow: asking
version: 1
reference: ${{ trigger.number }}
steps:
  - id: danger
    do: probe.danger.apply
    with: {name: "${{ trigger.number }}", pin: "4711-secret"}
"""


@dataclass
class OutsideWorld(Outside):
    """The outside system of these tests, which cannot say what happened there."""

    remembers: bool = False


async def publish(database: Database, definitions: Definitions, sources: Sequence[Source], tenant: str) -> None:
    """Publish these declarations, and the workflows, the policy and the people of these tests."""
    async with database.transaction(tenant) as connection:
        await publishing.ensure_tenant(connection, tenant)
        await declaring.publish_operations(connection, definitions, tenant, sources, TESTER)
        for text in WORKFLOWS.split("---"):
            await publishing.publish_workflow(connection, definitions, tenant, text, "test.yaml", TESTER)
        await policies.publish_policy(connection, definitions, tenant, POLICY, "policy.yaml", TESTER)
        await publishing.publish_directory(connection, tenant, PEOPLE, "people.yaml", TESTER)


@dataclass
class Installation:
    """The parts, and verbs that tests read like sentences."""

    app: App
    url: str
    outside: OutsideWorld
    engine: Database
    stack: AsyncExitStack

    @property
    def books(self) -> Books:
        """Typed questions to the database."""
        return Books(self.engine)

    @property
    def trouble(self) -> Trouble:
        return Trouble(self.engine)

    @property
    def settings(self) -> Settings:
        return self.app.settings

    async def client(self, *roles: Role, subject: str = "tess", tenant: str = "default") -> httpx.AsyncClient:
        """A client with a token; without roles, one without a token."""
        headers = {}
        if roles:
            headers["Authorization"] = f"Bearer {await self.token(*roles, subject=subject, tenant=tenant)}"
        client = httpx.AsyncClient(base_url=self.url, headers=headers, trust_env=False, verify=False)
        return await self.stack.enter_async_context(client)

    async def token(
        self, *roles: Role, subject: str = "tess", tenant: str = "default", lifetime: timedelta | None = None
    ) -> str:
        """A token of this subject, who is in the directory from now on. Of several roles that of agents is left out."""
        roles = tuple(role for role in roles if role is not Role.AGENT or len(roles) == 1)
        await add_person(self.engine, tenant, subject)
        faces = self.app.faces.database
        made = await access.create_token(faces, tenant, subject, frozenset(roles), lifetime, TESTER)
        return made.token

    async def publish(self, tenant: str = "default") -> None:
        """The workflows, the policy and the people of these tests."""
        faces = self.app.faces
        await publish(faces.database, faces.definitions, adapters.declarations_in(self.settings), tenant)

    async def people(self, text: str, tenant: str = "default") -> None:
        """Publish another directory."""
        async with self.app.faces.database.transaction(tenant) as connection:
            await publishing.publish_directory(connection, tenant, text, "people.yaml", TESTER)

    async def add(self, text: str, tenant: str = "default") -> None:
        """Publish one more workflow."""
        faces = self.app.faces
        async with faces.database.transaction(tenant) as connection:
            await publishing.publish_workflow(connection, faces.definitions, tenant, text, "test.yaml", TESTER)

    async def parked(self, workflow: str, number: str = "INC1", tenant: str = "default") -> UUID:
        """A run that has gone as far as it can."""
        run_id = await self.start(workflow, number, tenant=tenant)
        await self.work()
        return run_id

    async def status(self, run_id: UUID) -> str:
        return await self.books.status_of(run_id)

    async def work(self) -> None:
        """Do everything that can be done now: steps, then messages."""
        await self.app.worker().work_off()
        await self.app.dispatcher().work_off()

    async def start(self, workflow: str, number: str = "INC1", subject: str = "tess", tenant: str = "default") -> UUID:
        client = await self.client(Role.TRIGGER, subject=subject, tenant=tenant)
        answer = await client.post("/v1/runs", json={"workflow": workflow, "input": {"number": number}})
        assert answer.status_code == 201, answer.text
        return UUID(answer.json()["run_id"])

    async def asked(self, number: str = "INC1", tenant: str = "default") -> tuple[UUID, UUID, str]:
        """A run that waits for people: its id, its approval's id and nonce."""
        run_id = await self.start("asking", number, tenant=tenant)
        await self.work()
        question = await self.books.approval(run=run_id)
        return run_id, question.id, question.nonce

    async def one(self, sql: str, *parameters: Any) -> Any:
        async with self.engine.connection() as connection:
            return await connection.fetchrow(sql, *parameters)

    async def all(self, sql: str, *parameters: Any) -> list[Any]:
        async with self.engine.connection() as connection:
            return await connection.fetch(sql, *parameters)

    async def tenant_events(self, kind: str, tenant: str = "default") -> list[dict[str, Any]]:
        """The tenant's own audit events of this type."""
        return [json.loads(event.line) for event in await self.books.tenant_events(tenant, type=kind)]

    async def webhook(
        self,
        event: dict[str, Any] | bytes,
        *,
        endpoint: str = "incidents",
        secret: str = WEBHOOK_SECRET,
        at: float | None = None,
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        """One signed delivery; ``headers`` replace those of the signature."""
        body = event if isinstance(event, bytes) else json.dumps(event).encode()
        timestamp = str(int(time.time() if at is None else at))
        digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
        signed = {"X-Counterseal-Timestamp": timestamp, "X-Counterseal-Signature": f"sha256={digest}"}
        client = await self.client()
        return await client.post(
            f"/webhooks/servicenow/{endpoint}",
            content=body,
            headers={"Content-Type": "application/json", **signed, **(headers or {})},
        )

    async def slack(
        self,
        payload: dict[str, Any] | bytes,
        *,
        secret: str = SIGNING_SECRET,
        path: str = "/slack/events",
        at: float | None = None,
        honest: bool = True,
    ) -> httpx.Response:
        """One interaction, signed as Slack signs. ``honest``: on the question's own message, or in a true window."""
        if honest and isinstance(payload, dict):
            payload = await honestly(self.engine, self.books, payload, SIGNING_SECRET)
        body = payload if isinstance(payload, bytes) else f"payload={quote(json.dumps(payload))}".encode()
        timestamp = str(int(time.time() if at is None else at))
        digest = hmac.new(secret.encode(), b"v0:" + timestamp.encode() + b":" + body, hashlib.sha256).hexdigest()
        client = await self.client()
        return await client.post(
            path,
            content=body,
            headers={
                "Content-Type": "application/x-www-form-urlencoded",
                "X-Slack-Request-Timestamp": timestamp,
                "X-Slack-Signature": f"v0={digest}",
            },
        )

    def click(self, approval: UUID, nonce: str, user: str = "U0ANN", button: str = "approve") -> dict[str, Any]:
        """The payload of one press of a button."""
        return {
            "type": "block_actions",
            "user": {"id": user, "team_id": SLACK_TEAM},
            "team": {"id": SLACK_TEAM},
            "container": {"type": "message", "channel_id": "C0CARDS", "message_ts": "1.2"},
            "trigger_id": "1.2.3",
            "actions": [
                {
                    "type": "button",
                    "action_id": f"counterseal.{button}",
                    "block_id": "b",
                    "value": json.dumps({"a": str(approval), "n": nonce}),
                }
            ],
        }

    def submission(self, approval: UUID, nonce: str, choice: str, reason: str, user: str = "U0ANN") -> dict[str, Any]:
        """The payload of the modal that asks for a reason."""
        return {
            "type": "view_submission",
            "user": {"id": user, "team_id": SLACK_TEAM},
            "team": {"id": SLACK_TEAM},
            "view": {
                "id": "V1",
                "type": "modal",
                "callback_id": "counterseal.reason",
                "private_metadata": json.dumps({"a": str(approval), "n": nonce, "c": choice}),
                "state": {"values": {"reason": {"reason": {"type": "plain_text_input", "value": reason}}}},
            },
        }


async def _founded(url: str, *, published: bool) -> None:
    async with Database(url, FACES_ROLE) as database:
        await storage.create_default_tenant(database)
        if published:
            sources = [Source("operations/probe.yaml", OPERATIONS)]
            await publish(database, Definitions(load_catalog()), sources, "default")


@pytest.fixture(scope="session")
def published_database(databases: Databases, template_database: str) -> Iterator[str]:
    """The name of a database that is as ``Installation.publish`` leaves it, made once: most tests begin there."""
    with databases.made("published", template_database) as url:
        asyncio.run(_founded(url, published=True))
        yield urlsplit(url).path[1:]


@pytest.fixture(scope="session")
def founded_database(databases: Databases, template_database: str) -> Iterator[str]:
    """The name of a database with the tenant `default` and nothing in it, made once."""
    with databases.made("founded", template_database) as url:
        asyncio.run(_founded(url, published=False))
        yield urlsplit(url).path[1:]


@pytest.fixture
def database_url(databases: Databases, request: pytest.FixtureRequest) -> Iterator[str]:
    """With the tenant `default`, as the first `up` leaves it; for an ``installation`` with all that it publishes."""
    begun = "published_database" if "installation" in request.fixturenames else "founded_database"
    with databases.made("test", request.getfixturevalue(begun)) as url:
        yield url


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No setting of the developer's own; home is a folder of the test's."""
    for name in list(os.environ):
        if name.startswith("COUNTERSEAL_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COUNTERSEAL_HOME", str(tmp_path / "home"))
    return monkeypatch


@pytest.fixture
def definitions_dir(tmp_path: Path) -> Path:
    """A definitions' directory that declares the operations of these tests."""
    folder = tmp_path / "definitions"
    (folder / "operations").mkdir(parents=True)
    (folder / "operations" / "probe.yaml").write_text(OPERATIONS)
    return folder


@pytest.fixture(scope="session")
def slack_world() -> Iterator[Slack]:
    """A stand-in for Slack in a thread of its own, which says where the app is and who people are."""
    slack = Slack(SlackConfig(bot_token="xoxb-test"))
    slack.state.team_id = SLACK_TEAM
    for name in ("ANN", "BOB", "EVE", "WHO", "NOBODY"):
        slack.state.users[f"U0{name}"] = User(f"U0{name}", name.lower(), name.title(), "#000000", SLACK_TEAM)
    begun = threading.Event()
    running: list[Any] = []

    async def main() -> None:
        stop = asyncio.Event()
        async with LoopbackServer(slack.app) as server:
            slack.url = server.url
            running.extend((asyncio.get_running_loop(), stop))
            begun.set()
            await stop.wait()
        await slack.close()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    assert begun.wait(10)
    yield slack
    running[0].call_soon_threadsafe(running[1].set)
    thread.join(10)


@pytest.fixture
async def settings(
    clean_environment: pytest.MonkeyPatch, database_url: str, definitions_dir: Path, slack_world: Slack
) -> Settings:
    async with Database(database_url, FACES_ROLE) as database, database.transaction("other") as connection:
        await publishing.ensure_tenant(connection, "other")
    return load_settings(
        database_url=database_url,
        port=0,
        definitions_dir=definitions_dir,
        webhooks={
            "incidents": {"secret": WEBHOOK_SECRET},
            "others": {"secret": WEBHOOK_SECRET + "2", "tenant": "other"},
        },
        slack_bot_token="xoxb-test",
        slack_signing_secret=SIGNING_SECRET,
        slack_api_url=f"{slack_world.url}/api/",
    )


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """Undo what the code under test does to the process's logging."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


Serve = Callable[..., Awaitable[Installation]]


@pytest.fixture
async def serve(settings: Settings) -> AsyncIterator[Serve]:
    """Builds and serves an installation, with these settings or others."""
    async with AsyncExitStack() as stack:

        async def start(given: Settings | None = None, *, real: bool = False) -> Installation:
            """With the stand-in of these tests for every connector, or with the ``real`` ones of the settings."""
            used = given or settings
            outside = OutsideWorld()
            stack.callback(outside.check_strictly)
            app = await stack.enter_async_context(
                build(
                    used,
                    connectors=None if real else Connectors({"probe": outside, "agent": AgentConnector()}),
                    queue=PostgresQueue(idle=timedelta(milliseconds=10)),
                )
            )
            server = HttpServer(create_app(app.faces), "127.0.0.1", 0)
            stop = asyncio.Event()
            serving = asyncio.create_task(server.run(stop))

            async def end() -> None:
                stop.set()
                await serving

            stack.push_async_callback(end)
            assert used.database_url is not None
            engine = await stack.enter_async_context(Database(used.database_url.get_secret_value(), ENGINE_ROLE))
            return Installation(app, server.url, outside, engine, stack)

        yield start


@pytest.fixture
async def installation(serve: Serve) -> Installation:
    """An installation with workflows, a policy and people."""
    return await serve()


@pytest.fixture
def outside_world() -> Iterator[OutsideWorld]:
    outside = OutsideWorld()
    yield outside
    outside.check_strictly()


@pytest.fixture(scope="session", autouse=True)
def parsed_once() -> Iterator[None]:
    """Let typer read the tree of commands once: that takes longer than most commands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


class Command:
    """Runs the command line in this process and tells how it ended."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.said = ""
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: str, exit_code: int | None = 0) -> str:
        self._monkeypatch.setattr(sys, "argv", ["counterseal", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = self._capsys.readouterr()
        self.said = printed.err
        assert exit_code in (None, int(ended.value.code or 0)), (arguments, printed.out, printed.err)
        assert "Traceback" not in printed.err
        if exit_code:
            assert printed.err.strip() or printed.out.strip()
        return printed.out

    def json(self, *arguments: str, exit_code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", exit_code=exit_code))


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str],
    clean_environment: Any,
    restored_logging: Any,
    database_url: str,
    definitions_dir: Path,
) -> Command:
    clean_environment.setenv("COUNTERSEAL_DATABASE_URL", database_url)
    clean_environment.setenv("COUNTERSEAL_DEFINITIONS_DIR", str(definitions_dir))
    clean_environment.setenv("COUNTERSEAL_PERSON", "tess")
    return Command(capsys, clean_environment)


@pytest.fixture
def work_off() -> Callable[[OutsideWorld], None]:
    """Does everything that workers and keepers would do, in a test that has no event loop."""

    async def work(outside: OutsideWorld) -> None:
        connectors = Connectors({"probe": outside, "agent": AgentConnector()}, rates=load_settings().rates)
        async with build(load_settings(), connectors=connectors) as app:
            look_often(app.queue)
            await app.sweeper().sweep()
            await app.worker().work_off()
            await app.dispatcher().work_off()

    return lambda outside: asyncio.run(work(outside))
