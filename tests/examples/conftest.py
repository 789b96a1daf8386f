"""An installation with nothing replaced: real connectors, real HTTP to the stand-ins and to us, a real PostgreSQL.

The test drives it: what workers, dispatchers and sweepers would do is done when it says so.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from app import access, definitions, storage
from app.access import Role
from app.faces import build_faces
from app.http.application import create_app
from app.http.server import HttpServer
from app.settings import Settings, load_settings
from app.wiring import App, build
from core.db import FACES_ROLE, Database
from evidence.chain import Actor
from evidence.verify import verify_bundle
from runtime.engine.life import doubt
from runtime.queue.postgres import PostgresQueue
from runtime.requests import policies, publishing
from runtime.requests.views import RunReader
from sandbox.bpmn_config import BpmnConfig
from sandbox.servicenow_seed import seed_id
from sandbox.world import SandboxConfig, World, sandbox_world
from tests.support.arrivals import Arrivals
from tests.support.asking import reads_json
from tests.support.book import Approval
from tests.support.books import Books
from tests.support.other_verifiers import by_node
from tests.support.trouble import Trouble

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
TESTER = Actor("test", "tester")
REQUESTER = "raj.quist"
STAFF = "service_accounts:\n  - {id: bpmn-engine, owner: tess}\n  - {id: agent, owner: tess}\n"
SECONDS_MAX = 20.0


class _AttentiveQueue(PostgresQueue):
    """Looks once an hour: whoever uses it is woken, or sleeps."""

    def __init__(self) -> None:
        super().__init__(idle=timedelta(hours=1))


@dataclass
class Office:
    """The parts, and verbs that tests read like sentences."""

    settings: Settings
    world: World
    records: asyncpg.Connection
    folder: Path
    arrivals: Arrivals
    tokens: dict[str, str] = field(default_factory=dict)
    _app: App | None = None
    _exits: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def app(self) -> App:
        assert self._app is not None, "everything is closed"
        return self._app

    async def open(self) -> None:
        """Everything is opened anew: pools, compiled definitions, connectors, HTTP."""
        self._exits = AsyncExitStack()
        queue = PostgresQueue(idle=timedelta(milliseconds=5))
        self._app = await self._exits.enter_async_context(build(self.settings, queue=queue))
        server = HttpServer(create_app(self._app.faces), "127.0.0.1", self.settings.port)
        stop = asyncio.Event()
        serving = asyncio.create_task(server.run(stop))

        async def end() -> None:
            stop.set()
            await serving

        self._exits.push_async_callback(end)

    async def close(self) -> None:
        """Nothing of ours runs any more."""
        self._app = None
        await self._exits.aclose()

    @asynccontextmanager
    async def attentive(self) -> AsyncIterator[App]:
        """A process of its own as production has it, but that it looks for work only when it is woken."""
        async with build(self.settings, queue=_AttentiveQueue()) as app:
            yield app

    # -- what people and programs do over HTTP -----------------------------------------------------------------------

    async def token(self, subject: str, *roles: Role) -> str:
        """A token of this subject, made once."""
        if subject not in self.tokens:
            database = self.app.faces.database
            # No machine decides.
            given = frozenset(roles or Role) - {Role.AGENT, *((Role.APPROVER,) if subject == "agent" else ())}
            made = await access.create_token(database, self.settings.tenant, subject, given, None, TESTER)
            self.tokens[subject] = made.token
        return self.tokens[subject]

    async def http(self, method: str, path: str, subject: str = "tess", **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {await self.token(subject)}", **more.pop("headers", {})}
        url = f"http://127.0.0.1:{self.settings.port}"
        async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, verify=False) as client:
            return await client.request(method, path, **more)

    async def get(self, path: str) -> Any:
        answer = await self.http("GET", path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def publish(self, *texts: str | Path, policy: str | Path, people: Path = EXAMPLES / "directory.yaml") -> None:
        """Publish workflows, a policy, and people; those of files by their path."""
        faces, tenant = self.app.faces, self.settings.tenant
        async with faces.database.transaction(tenant) as connection:
            text = _text(people).replace("people:\n", "people:\n  - {id: tess, name: Tess}\n")
            text = text.replace("service_accounts:\n", STAFF)
            await publishing.publish_directory(connection, tenant, text, "people", TESTER)
            await definitions.declare(connection, faces)
            # An example's policy judges beside the others.
            beside = sorted((EXAMPLES / "policies").glob("*.yaml")) if isinstance(policy, Path) else []
            for each in (policy, *beside):
                await policies.publish_policy(connection, faces.definitions, tenant, _text(each), "policy", TESTER)
            for one in texts:
                await publishing.publish_workflow(connection, faces.definitions, tenant, _text(one), "test", TESTER)

    async def start(self, workflow: str, trigger: dict[str, Any]) -> UUID:
        answer = await self.http("POST", "/v1/runs", REQUESTER, json={"workflow": workflow, "input": trigger})
        assert answer.status_code == 201, answer.text
        return UUID(answer.json()["run_id"])

    async def signal(self, key: str, **said: Any) -> httpx.Response:
        return await self.http("POST", f"/v1/signals/{key}", json=said)

    async def vote(self, person: str, choice: str, reason: str = "because") -> httpx.Response:
        """Answer the one question that is open."""
        question = await self.question()
        body = {"choice": choice, "reason": reason}
        return await self.http("POST", f"/v1/approvals/{question.id}/votes", person, json=body)

    async def answer(self, run_id: UUID, person: str, choice: str, step: str = "") -> httpx.Response:
        """Say what becomes of the held step of a run."""
        held = step or (await self.books.wait(run=run_id, kind="hold", open=True)).step
        body = {"answer": choice, "reason": "because"}
        return await self.http("POST", f"/v1/runs/{run_id}/steps/{held}/answer", person, json=body)

    async def complete(self, person: str, value: dict[str, Any]) -> httpx.Response:
        """Complete the one task that is open."""
        (task,) = (await self.get("/v1/tasks?state=open"))["items"]
        return await self.http("POST", f"/v1/tasks/{task['task_id']}/complete", person, json={"value": value})

    async def extend(self, run_id: UUID, source: dict[str, Any]) -> httpx.Response:
        """Add steps as an agent does: at the version that it has looked at."""
        seen = await self.http("GET", f"/v1/runs/{run_id}")
        headers = {"If-Match": seen.headers["ETag"]}
        return await self.http("POST", f"/v1/runs/{run_id}/steps", "agent", json=source, headers=headers)

    # -- what processes do -------------------------------------------------------------------------------------------

    async def go_on(self) -> None:
        """Everything that can be done without anybody's help, until nothing moves."""
        moved = 1
        while moved:
            moved = await self.app.worker().work_off()
            moved += await self.app.dispatcher().work_off()
            moved += await self.app.sweeper().sweep()

    async def pass_days(self, days: int) -> None:
        """Let time pass for every wait and question, as if it had begun that much earlier."""
        await self.trouble.begin_waits_earlier(timedelta(days=days))
        self.arrivals.everything_so_far()

    # -- facts -------------------------------------------------------------------------------------------------------

    async def one(self, sql: str, *parameters: Any) -> Any:
        return await self.records.fetchrow(sql, *parameters)

    async def all(self, sql: str, *parameters: Any) -> list[Any]:
        return list(await self.records.fetch(sql, *parameters))

    @property
    def books(self) -> Books:
        """Typed questions to the database."""
        return Books(self.records)

    @property
    def trouble(self) -> Trouble:
        return Trouble(self.records)

    async def question(self) -> Approval:
        """The one question that is open."""
        return await self.books.approval(open=True)

    async def status(self, run_id: UUID) -> str:
        return await self.books.status_of(run_id)

    async def error(self, run_id: UUID) -> dict[str, Any]:
        return dict((await self.books.run(run_id)).error or {})

    async def result(self, run_id: UUID) -> Any:
        return (await self.books.run(run_id)).result

    async def channels(self, run_id: UUID) -> dict[str, Any]:
        return dict((await self.books.state_of(run_id))["channels"])

    async def receipts(self, run_id: UUID) -> list[tuple[str, str]]:
        """Step and status of each receipt, oldest first."""
        receipts = await self.books.receipts(run=run_id)
        return [(receipt.step.rpartition(".")[2], receipt.status) for receipt in receipts]

    async def posts(self) -> list[str]:
        """The texts that workflows posted to any channel. What people hear in private is ours."""
        channels = [name for name in self.world.slack.state.channels if not name.startswith("D")]
        return [message.text for name in sorted(channels) for message in self.world.slack.state.messages(name)]

    async def mentions(self, words: str) -> set[str]:
        """The tables that hold these words anywhere."""
        return await self.books.mentions(words)

    async def holds_nothing(self) -> None:
        """Assert that a wait holds no lease and no slot, and that no command is under way for it."""
        steps = await self.books.steps()
        leases = [step.key for step in steps if (step.lease_owner, step.lease_left) != (None, None)]
        moving = await self.books.commands(status={"pending", "leased"})
        assert (leases, await self.books.slots_taken(), moving) == ([], 0, [])

    async def connections(self) -> list[str]:
        """The users connected to the database besides the test."""
        rows = await self.all(
            "SELECT usename, state FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return [f"{row['usename']}: {row['state']}" for row in rows]

    async def until(self, fact: Callable[[], Awaitable[Any]]) -> Any:
        """Wait for a fact of the database or a stand-in."""
        async with asyncio.timeout(SECONDS_MAX):
            while not (found := await fact()):  # noqa: ASYNC110  the fact is the database's
                await asyncio.sleep(0.01)
        return found

    async def verified(self, run_id: UUID) -> Any:
        """The run's bundle as an auditor gets it, verified offline with the installation's public key.

        And its checkpoints, derived once more from what was recorded, are what they were (promise 5).
        """
        faces = self.app.faces
        replayed = await RunReader(faces.database, faces.definitions).replay(self.settings.tenant, run_id)
        assert replayed.ok, replayed
        return await self.evidence(run_id)

    async def evidence(self, run_id: UUID) -> Any:
        """The verification of the run's bundle alone, without what is in the database."""
        answer = await self.http("GET", f"/v1/runs/{run_id}/evidence")
        assert answer.status_code == 200, answer.text
        bundle, key = self.folder / f"{run_id}.zip", self.folder / "evidence.pub"
        bundle.write_bytes(answer.content)
        key.write_bytes(self.app.outsides.signer.public_key.pem)
        verification = verify_bundle(bundle, public_key=key)
        assert verification.ok, verification
        assert by_node(self.folder, key, [bundle]) == [(0, set())], "by the verifier in JavaScript"
        return verification

    # -- the outside -------------------------------------------------------------------------------------------------

    def insert(self, table: str, sys_id: str, **fields: str) -> str:
        """A record that has always been there."""
        self.world.servicenow.state.seed(table, {"sys_id": sys_id, **fields})
        return sys_id

    def record(self, table: str, sys_id: str) -> dict[str, str]:
        found = self.world.servicenow.state.record(table, sys_id)
        assert found is not None
        return dict(found)

    async def upload(self, **variables: Any) -> None:
        """The client does what the process asks for, over the engine's own interface."""
        bpmn = self.world.bpmn
        assert bpmn is not None
        auth = (bpmn.config.username, bpmn.config.password)
        async with httpx.AsyncClient(base_url=f"{bpmn.url}/engine-rest", auth=auth, trust_env=False) as client:
            (task,) = (await client.get("/task")).json()
            typed = {name: {"value": value} for name, value in variables.items()}
            answer = await client.post(f"/task/{task['id']}/complete", json={"variables": typed})
            assert answer.status_code == 204, answer.text


def _text(document: str | Path) -> str:
    return document.read_text() if isinstance(document, Path) else document


def _settings(database_url: str, home: Path, world: World | None, port: int) -> Settings:
    known: dict[str, Any] = {"database_url": database_url, "home": home, "port": port}
    if world is not None:
        urls = world.urls()
        known |= {
            "slack_bot_token": world.slack.config.bot_token,
            "slack_api_url": urls["slack_api"],
            "servicenow_url": urls["servicenow"],
            "servicenow_username": world.servicenow.config.integration_user,
            "servicenow_password": "sandbox",
            "model_url": urls["model"],
            "model_api_key": world.model.config.api_key,
        }
    if world is not None and world.bpmn is not None:
        known |= {
            "bpmn_url": urls["bpmn"],
            "bpmn_username": world.bpmn.config.username,
            "bpmn_password": world.bpmn.config.password,
            "bpmn_callback_url": f"http://127.0.0.1:{port}",
        }
    return load_settings(**known)


@pytest.fixture
async def database_url(database_url: str) -> str:
    """With the tenant `default`, as the first `up` leaves it."""
    async with Database(database_url, FACES_ROLE) as database:
        await storage.create_default_tenant(database)
    return database_url


@pytest.fixture
async def office(
    database_url: str, tmp_path: Path, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Office]:
    for name in list(os.environ):
        if name.startswith("COUNTERSEAL_"):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    arrivals = Arrivals()
    monkeypatch.setattr(doubt, "rest", arrivals.rest)
    # The token with which processes report exists before the engine that is told it.
    async with build_faces(_settings(database_url, home, None, unused_tcp_port)) as faces:
        text = f"directory: first\n{STAFF}people: [{{id: tess, name: Tess}}]\n"
        tenant = faces.settings.tenant
        async with faces.database.transaction(tenant) as connection:
            await publishing.publish_directory(connection, tenant, text, "people", TESTER)
        engine = (frozenset({Role.TRIGGER}), None, TESTER)
        token = (await access.create_token(faces.database, tenant, "bpmn-engine", *engine)).token
    async with AsyncExitStack() as exits:
        config = SandboxConfig(bpmn=BpmnConfig(callback_token=token, callback_backoff=(0.05, 0.2)))
        world = await exits.enter_async_context(sandbox_world(config))
        records = await reads_json(await asyncpg.connect(database_url))
        exits.push_async_callback(records.close)
        found = Office(_settings(database_url, home, world, unused_tcp_port), world, records, tmp_path, arrivals)
        exits.push_async_callback(found.close)
        await found.open()
        yield found


@pytest.fixture(scope="session")
def examples_folder() -> Path:
    return EXAMPLES


@pytest.fixture(scope="session")
def group_id() -> Callable[[str, str], str]:
    """The id of a record that the ServiceNow stand-in always has."""
    return seed_id
