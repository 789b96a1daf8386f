"""The matrix of walls, its other rows: engine, database, ways to end a wait, figures, lines, errors (promise 8).

Each kind x both tenants x {own, the other's, not set}. The kinds come from the code: a new connector, figure, logger or
source of completions without a row fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import asyncpg
import httpx
import pytest
import structlog
from pydantic import SecretStr
from structlog.contextvars import merge_contextvars

from app import adapters
from app.access import Role
from app.faces import Faces
from app.http.application import create_app
from app.metrics import Counters
from app.settings import Settings, WebhookEndpoint
from connectors.catalog import Source
from connectors.port import CompletionSource
from core.db import FACES_ROLE, Database
from runtime.keep.errands import Completing
from runtime.store.queue_reads import LaneQueue, MessageQueue, TenantQueue
from sandbox.bpmn import Bpmn
from sandbox.bpmn_config import BpmnConfig
from sandbox.server import LoopbackServer
from tests.support import two_tenants
from tests.support.connectors_sql import SCHEMA, document
from tests.support.databases import Databases
from tests.support.two_tenants import INCIDENT, Walls

ROOT = Path(__file__).parents[2]
WORKFLOWS = """
workflow: process
version: 1
reference: ${{ trigger.number }}
result: ${{ steps.s.output.page }}
steps:
  - {id: s, do: bpmn.process.start, with: {process: document-request, variables: {}}, timeout: P1D}
---
workflow: row
version: 1
reference: ${{ trigger.number }}
steps:
  - {id: s, do: crm.customer.update, with: {id: 1, fields: {status: "${{ trigger.number }}"}}}
---
workflow: write
version: 1
reference: ${{ trigger.number }}
steps:
  - {id: s, do: servicenow.incident.add_work_note, with: {sys_id: "${{ trigger.number }}", work_notes: hello}}
---
workflow: signaled
version: 1
reference: ${{ trigger.number }}
steps:
  - {id: s, wait: {signal: paid, correlate: "one-key"}}
---
workflow: listens
version: 1
reference: ${{ run.id }}
triggers:
  servicenow: {table: incident, events: [insert], dedupe: "${{ trigger.nothing.at_all }}"}
steps:
  - {id: s, wait: {signal: paid, correlate: "${{ run.id }}"}}
---
workflow: broken
version: 1
reference: ${{ trigger.number }}
channels: {found: {}}
steps:
  - {set: {found: "${{ trigger.number.nothing }}"}}
"""


@dataclass
class Place:
    """The engine and the database of one tenant, with its own account in each."""

    bpmn: Bpmn
    sql: str

    @property
    def secrets(self) -> list[str]:
        """The secrets of a tenant's settings that are for these two."""
        at, engine = urlsplit(self.sql), f"{urlsplit(self.bpmn.url).netloc} as {self.bpmn.config.username}"
        return [
            f"  bpmn: {{from: environment, for: ['{engine}']}}",
            f"  sql: {{from: environment, for: ['{at.hostname}:{at.port} as {at.username}']}}",
        ]

    @property
    def parts(self) -> dict[str, str]:
        """The parts of a tenant's settings that name them."""
        at, name = urlsplit(self.sql), self.bpmn.config.username
        said = f"url: '{self.bpmn.url}/engine-rest', username: {name}, password: '${{{{ secrets.bpmn }}}}'"
        address = f"postgresql://{at.username}@{at.hostname}:{at.port}{at.path}"
        sql = f"sql: {{url: '{address}', password: '${{{{ secrets.sql }}}}'}}"
        return {"bpmn": f"bpmn: {{{said}}}", "sql": sql}


@dataclass
class Matrix:
    """Both tenants with everything, once the settings of `globex` are applied."""

    walls: Walls
    places: dict[str, Place]

    async def apply(self, *without: str) -> None:
        """Apply the settings of `globex`, without these parts."""
        place = self.places["globex"]
        self.walls.globex.more = [*place.secrets, *(text for name, text in place.parts.items() if name not in without)]
        await two_tenants.apply(self.walls.installation, self.walls.globex.document())

    async def row_of(self, tenant: str) -> str:
        """The value in the row of this tenant's database."""
        connection = await asyncpg.connect(self.places[tenant].sql)
        try:
            return str(await connection.fetchval("SELECT status FROM crm.customers WHERE id = 1"))
        finally:
            await connection.close()

    async def start_at(self, tenant: str, key: str) -> None:
        """Start a process with this key at the engine itself, as anybody may."""
        bpmn = self.places[tenant].bpmn
        url = f"{bpmn.url}/engine-rest/process-definition/key/document-request/start"
        account = (bpmn.config.username, bpmn.config.password)
        async with httpx.AsyncClient(auth=account, trust_env=False) as client:
            answer = await client.post(url, json={"businessKey": key, "variables": {}})
        assert answer.status_code == 200, answer.text

    async def completed(self, tenant: str, page: int) -> bool:
        """Complete what stands open in this tenant's engine, and let a keeper of that tenant fetch it."""
        state = self.places[tenant].bpmn.state
        for task in [task for one in state.instances.values() if one.ended is None for task in one.user_tasks()]:
            state.complete_user_task(task.activity_id, {"complete": True, "page": page})
        installation = self.walls.installation
        sources = {k: v for k, v in (await self.walls.of(tenant)).connectors.items() if isinstance(v, CompletionSource)}
        completing = Completing(installation.app.database, installation.app.definitions, sources, tenant)
        taken = [
            await completing.take(name, source, one)
            for name, source in sources.items()
            for one in await source.completions(wait_seconds=0.0)
        ]
        await installation.work()
        return any(taken)


@pytest.fixture
async def matrix(settings: Settings, serve: Any, tmp_path: Path, databases: Databases) -> AsyncIterator[Matrix]:
    async with AsyncExitStack() as stack:
        places = {name: await placed(stack, name, databases) for name in ("default", "globex")}
        bpmn, sql = places["default"].bpmn, places["default"].sql
        given: dict[str, Any] = {"bpmn_url": f"{bpmn.url}/engine-rest", "bpmn_username": bpmn.config.username}
        given |= {"bpmn_password": SecretStr(bpmn.config.password), "sql_url": SecretStr(sql)}
        given |= {"webhooks": {"incidents": WebhookEndpoint(secret=SecretStr(two_tenants.word("default", "hook")))}}
        texts = WORKFLOWS.split("---")
        operations = Source("crm.yaml", json.dumps({"operations": [document()["update"]]}))
        made = two_tenants.walls(settings.model_copy(update=given), serve, tmp_path, *texts, operations=[operations])
        yield Matrix(await stack.enter_async_context(made), places)


async def placed(stack: AsyncExitStack, tenant: str, databases: Databases) -> Place:
    """An engine and a database with this tenant's own accounts."""
    word = two_tenants.word(tenant, "bpmn")
    bpmn = Bpmn(BpmnConfig(username=f"{tenant}-engine", password=word))
    bpmn.url = (await stack.enter_async_context(LoopbackServer(bpmn.app))).url
    stack.push_async_callback(bpmn.close)
    url = stack.enter_context(databases.made("crm"))
    login, word = f"{tenant}_{urlsplit(url).path[-12:]}", two_tenants.word(tenant, "sql")
    owner = await asyncpg.connect(url)
    stack.push_async_callback(owner.close)
    stack.push_async_callback(owner.execute, f"DROP OWNED BY {login}; DROP ROLE {login}")
    await owner.execute(f"{SCHEMA}; CREATE ROLE {login} LOGIN PASSWORD '{word}'; GRANT USAGE ON SCHEMA crm TO {login}")
    await owner.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA crm TO {login}")
    at = urlsplit(url)
    return Place(bpmn, f"postgresql://{login}:{quote(word, safe='')}@{at.hostname}:{at.port}{at.path}")


@pytest.mark.req("promise 8")
@pytest.mark.parametrize("tenant", ["default", "globex"])
async def test_engine_and_database_are_the_tenant_s_own(matrix: Matrix, tenant: str) -> None:
    own, other = matrix.walls.sides(tenant)
    await matrix.apply()
    run = await matrix.walls.installation.parked("process", INCIDENT, tenant)
    theirs = matrix.places[other.tenant].bpmn.state
    assert (len(matrix.places[tenant].bpmn.state.instances), len(theirs.instances)) == (1, 0)
    # The other's engine reports with the key of this wait: it ends nothing here, and is not acknowledged.
    wait = await matrix.walls.installation.books.wait(run=run)
    await matrix.start_at(other.tenant, str(wait.correlation_key))
    assert await matrix.completed(other.tenant, 666) is False
    assert await matrix.walls.installation.status(run) == "waiting"
    assert await matrix.completed(tenant, 7) is True
    ended = await matrix.walls.installation.books.run(run)
    assert (ended.status, ended.result) == ("succeeded", 7)
    assert await matrix.walls.ended("row", tenant, tenant) == ("succeeded", "None")
    assert (await matrix.row_of(tenant), await matrix.row_of(other.tenant)) == (tenant, "new")
    assert other.tenant not in own.seen + str(await matrix.walls.dump("journal"))


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize(("name", "workflow"), [("bpmn", "process"), ("sql", "row")])
async def test_an_engine_or_a_database_that_is_not_set_is_an_error_that_names_it(
    matrix: Matrix, name: str, workflow: str, applied: bool
) -> None:
    if applied:
        await matrix.apply(name)
    status, why = await matrix.walls.ended(workflow, "x", "globex")
    words = f"the connector {name!r} is not set for the tenant globex. Set `{name}` in the tenant's settings"
    assert (status, words in why) == ("failed_terminal", True), why
    assert matrix.places["default"].bpmn.state.instances == {}
    assert await matrix.row_of("default") == "new"


# Every way by which something from outside ends a wait or a question, and the path that it takes for a tenant.
ENDS = {
    "completion": "test_engine_and_database_are_the_tenant_s_own",
    "/v1/signals/{correlation_key}": "test_a_signal_ends_waits_of_its_own_tenant",
    "/v1/signals/{correlation_key}/extend": "test_a_signal_ends_waits_of_its_own_tenant",
    "/slack/events": "tests/app/test_tenants_walls.py",
    "/slack/events/{app}": "tests/app/test_tenants_walls.py",
    "/webhooks/servicenow/{endpoint}": "test_an_event_is_taken_for_the_tenant_of_its_endpoint",
    "/webhooks/servicenow/{tenant}/{endpoint}": "test_an_event_is_taken_for_the_tenant_of_its_endpoint",
    "/webhooks/events/{tenant}/{endpoint}": "tests/app/test_webhooks_of_others.py",
}


@pytest.mark.parametrize("tenant", ["default", "globex"])
async def test_a_signal_ends_waits_of_its_own_tenant(matrix: Matrix, tenant: str) -> None:
    """Both wait for the same key."""
    installation, (_, other) = matrix.walls.installation, matrix.walls.sides(tenant)
    runs = {name: await installation.parked("signaled", f"of-{name}", name) for name in ("default", "globex")}
    client = await installation.client(Role.TRIGGER, Role.OPERATOR, tenant=tenant)
    assert (await client.post("/v1/signals/paid:one-key/extend", json={"until": "P2D"})).status_code < 500
    answer = await client.post("/v1/signals/paid:one-key", json={"output": {"by": tenant}})
    assert answer.status_code in (200, 202), answer.text
    assert other.tenant not in answer.text
    await installation.work()
    ended = {name: await installation.status(run) for name, run in runs.items()}
    assert ended == {tenant: "succeeded", other.tenant: "waiting"}


@pytest.mark.parametrize("tenant", ["default", "globex"])
async def test_an_event_is_taken_for_the_tenant_of_its_endpoint(matrix: Matrix, tenant: str) -> None:
    """Signed with the own secret at the own endpoint; the other's secret fits neither, and no line names the other."""
    installation, (own, other) = matrix.walls.installation, matrix.walls.sides(tenant)
    await matrix.apply()
    event = {
        "table": "incident",
        "event": "insert",
        "number": "1",
        "sys_id": "s1",
        "sys_mod_count": "0",
        "sys_updated_by": "x",
    }
    endpoint = "globex/incidents" if tenant == "globex" else "incidents"
    refused = await installation.webhook(event, endpoint=endpoint, secret=other.secret("hook"))
    assert refused.status_code == 401
    with structlog.testing.capture_logs(processors=[merge_contextvars]) as lines:
        answer = await installation.webhook(event, endpoint=endpoint, secret=own.secret("hook"))
    assert (answer.status_code, other.tenant in answer.text) == (422, False), answer.text
    (line,) = [one for one in lines if one["event"] == "a workflow cannot be started"]
    assert (line["tenant"], line["name"]) == (tenant, "listens")
    assert await installation.books.runs() == []


# The families of figures; each is a tenant's own.
FIGURES = {
    *("http_requests_total", "votes_total", "requests_refused_total", "http_request_seconds", "runs", "commands"),
    *("commands_oldest_seconds", "steps", "waits", "slots", "starts_left", "call_seconds", "decision_seconds"),
    *("questions", "questions_oldest_seconds", "leaves", "leaves_oldest_seconds"),
}


@pytest.mark.parametrize("tenant", ["default", "globex"])
async def test_figures_lines_and_errors_are_about_their_own_tenant(matrix: Matrix, tenant: str) -> None:
    installation, (own, other) = matrix.walls.installation, matrix.walls.sides(tenant)
    await matrix.apply()
    mine, theirs = [
        await installation.client(*(set(Role) - {Role.TRIGGER}), tenant=one, subject="ann")
        for one in (tenant, other.tenant)
    ]

    async def figures(client: Any) -> list[str]:
        # A look at the figures is a request itself.
        return [one for one in (await client.get("/metrics")).text.splitlines() if "/metrics" not in one]

    before = await figures(theirs)
    with structlog.testing.capture_logs(processors=[merge_contextvars]) as lines:
        await matrix.walls.ended("broken", "1", tenant)
        await matrix.walls.ended("row", tenant, tenant)
        run = await installation.parked("write", INCIDENT, tenant)
        question = await installation.books.approval(run=run)
        for path in (f"/v1/runs/{run}", f"/v1/approvals/{question.id}", f"/v1/runs/{run}/evidence"):
            nobodys = re.sub("[0-9a-f-]{36}", "01890000-0000-7000-8000-000000000002", path)
            found, unknown = await theirs.get(path), await theirs.get(nobodys)
            assert (found.status_code, own.tenant in found.text) == (404, False), "it is as one that nobody has"
            assert found.text.replace(path.split("/")[3], "X") == unknown.text.replace(nobodys.split("/")[3], "X")
        vote = f"/v1/approvals/{question.id}/votes"
        assert (await theirs.post(vote, json={"choice": "approve", "reason": "x"})).status_code == 404
        assert (await mine.post(vote, json={"choice": "approve", "reason": "x"})).status_code == 403
    said = [one for one in lines if one["log_level"] != "debug"]
    assert said
    assert {str(one.get("tenant")) for one in said} <= {tenant, other.tenant}, "each names whose it is"
    assert [one for one in said if one["tenant"] == other.tenant and str(run) in str(one)] == []
    assert [one for one in said if one["tenant"] == tenant and other.tenant in str(one)] == []
    after = await figures(theirs)
    counted = [one for one in after if one not in before and not re.search("http_request|process|oldest", one)]
    assert [one for one in counted if not one.startswith("#") and "_created" not in one] == [], "nothing moved there"
    changed = "\n".join(await figures(mine))
    assert 'counterseal_runs{status="failed_terminal"} 1.0' in changed
    assert other.tenant not in changed


# Each logger of the code, and what names the tenant of its lines: the context that a door or a loop binds, the line
# itself, or nothing, because its lines are the installation's.
LOGGERS = {
    "request": {"app/http/problems.py", "app/shown.py", "app/refusals.py", "app/console/application.py"}
    | {"runtime/requests/deliveries.py", "runtime/requests/triggers.py", "runtime/requests/reconciling.py"}
    | {"approvals/slack/edits.py", "approvals/slack/desk.py", "approvals/slack/holds.py", "approvals/slack/handlers.py"}
    | {"approvals/slack/workspace.py", "approvals/slack/calls.py", "approvals/slack/talks.py"},
    "step or message": {"runtime/work/driving.py", "runtime/work/setbacks.py", "runtime/work/calling.py"}
    | {
        "runtime/work/lease.py",
        "runtime/work/holding.py",
        "runtime/store/commits.py",
        "runtime/store/views.py",
        "runtime/keep/dispatcher.py",
    }
    | {"app/delivering.py", "connectors/lending.py", "core/outage.py", "core/clock.py", "runtime/keep/telling.py"}
    | {"runtime/work/pump.py"},
    "line": {"app/definitions.py", "runtime/keep/errands.py", "runtime/keep/log_signing.py", "runtime/store/audit.py"},
    "installation": {"app/storage.py", "app/processes.py", "app/http/connections.py", "app/http/server.py"}
    | {"runtime/queue/sqs.py", "runtime/work/worker.py", "runtime/keep/sweeper.py", "runtime/keep/scheduler.py"}
    | {"runtime/keep/witnessing.py", "approvals/slack/sockets.py", "app/demo/world.py", "app/logs.py"}
    | {"app/otlp.py", "app/telemetry.py"},
}


def loggers() -> set[str]:
    """The modules that write lines."""
    packages = ("app", "approvals", "connectors", "core", "evidence", "policy", "runtime")
    files = {file for package in packages for file in (ROOT / package).rglob("*.py")}
    return {str(one.relative_to(ROOT)) for one in files if re.search(r"\bget_?[lL]ogger\(", one.read_text())}


def test_the_rows_come_from_the_code() -> None:
    everything: dict[str, Any] = {"bpmn_url": "https://e.example", "sql_url": "postgresql://a:b@h/d"}
    made = adapters.connectors_of(Settings(**everything))
    assert {name for name, one in made.items() if isinstance(one, CompletionSource)} == {"bpmn"}
    database = Database("postgresql://docs@localhost/docs", FACES_ROLE)
    paths = create_app(Faces(Settings(), database, AsyncExitStack())).openapi()["paths"]
    signed = {path for path in paths if path.split("/")[1] in ("slack", "webhooks") or "signals" in path}
    assert signed | {"completion"} == set(ENDS), "others name an id, and tests/app/test_http_access.py tries them all"
    said = Counters()
    said.request("GET", "/x", 200, 0.1)
    lanes = LaneQueue("main", 1.0, 0, 0.0, 0, 0, 0, {"signal": 1})
    messages = (MessageQueue("card", "pending", 1, 1.0),)
    queue = TenantQueue("t", 1.0, 1, 0, 1, 1, (lanes,), (), messages)
    told = said.text([("running", 1)], [queue]).decode()
    found = {
        one for one in re.findall(r"^# TYPE counterseal_(\w+) ", told, re.MULTILINE) if not one.endswith("_created")
    }
    assert found == FIGURES
    named = [one for part in LOGGERS.values() for one in part]
    assert sorted(named) == sorted(loggers())
