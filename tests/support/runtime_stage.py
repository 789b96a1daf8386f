"""A whole runtime on a real PostgreSQL with one strict in-process outside system, driven step by step by the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache, lru_cache, partial
from typing import Any
from uuid import UUID, uuid4

import pytest
import structlog

from approvals.model import Choice, VoteChannel
from connectors.catalog import Catalog, Source, load_catalog
from connectors.model.connector import ModelConnector, ModelSettings
from connectors.port import Connectors
from core.db import ENGINE_ROLE, FACES_ROLE, Database, DatabaseClock
from core.terms import Grant
from evidence.chain import Actor
from evidence.history import History
from policy.load import Policy
from runtime.definition.catalog import Definitions
from runtime.definition.workflow import load_workflow
from runtime.engine.life import doubt
from runtime.keep.dispatcher import Dispatcher
from runtime.keep.errands import Errands
from runtime.keep.sweeper import Sweeper
from runtime.queue.postgres import PostgresQueue
from runtime.requests.signaling import Signal, Signaling
from runtime.requests.starting import Started, StartRequest, start_named
from runtime.requests.steering import Extending, retry_run
from runtime.requests.tasks import Tasks
from runtime.requests.voting import VoteRequest, Voting
from runtime.store import documents
from runtime.store.documents import StoredWorkflow
from runtime.work.holding import Tools
from runtime.work.worker import Worker
from sandbox.model import Model
from sandbox.server import LoopbackServer
from tests.support import oracle
from tests.support.agents import Agents
from tests.support.arrivals import Arrivals
from tests.support.asking import owning
from tests.support.beside import wrong_beside
from tests.support.books import Books
from tests.support.for_all import ForAll
from tests.support.outside import Gate, Outside
from tests.support.people import add_person, fill_groups
from tests.support.trouble import Trouble

OPERATIONS = """
operations:
  - name: probe.effect.apply
    handler: probe:apply
    side_effects: external_call
    risk: medium
    summary: "Set {name} to {value}"
    target: "thing/{name}"
    in_doubt: probe
    input_schema:
      type: object
      required: [name]
      properties: {name: {type: string}, value: {type: string}, amount: {type: integer}}
      additionalProperties: false
    output_schema: {type: object}
    retry: {attempts: 3, backoff: [5, 30], jitter: 0}
  - name: probe.record.update
    handler: probe:update
    side_effects: external_call
    risk: medium
    summary: "Update {name}"
    target: "record/{name}"
    writes: fields
    diff: {fields: written}
    reverse: {operation: probe.record.update, input: {name: "{name}", fields: "{before}"}}
    in_doubt: probe
    input_schema:
      type: object
      required: [name, fields]
      properties:
        name: {type: string}
        fields:
          type: object
          properties: {priority: {type: string}, owner: {type: string}}
          additionalProperties: false
      additionalProperties: false
    output_schema: {type: object}
  - name: probe.secret.send
    handler: probe:send
    side_effects: external_call
    risk: high
    summary: "Tell {name}"
    target: "thing/{name}"
    in_doubt: ask
    input_schema:
      type: object
      properties: {name: {type: string}, password: {type: string, x-secret: true}}
      additionalProperties: false
    output_schema: {type: object}
  - name: probe.mail.send
    handler: probe:send
    side_effects: external_call
    risk: high
    summary: "Send {text}"
    target: "mail"
    in_doubt: ask
    input_schema: {type: object, properties: {text: {type: string}}, additionalProperties: false}
    output_schema: {type: object}
  - name: probe.key.put
    handler: probe:put
    side_effects: external_call
    risk: low
    summary: "Put {name}"
    target: "key/{name}"
    in_doubt: idempotent
    input_schema: {type: object, required: [name], properties: {name: {type: string}}, additionalProperties: false}
    output_schema: {type: object}
    retry: {attempts: 2, backoff: [5], jitter: 0}
  - name: probe.ticket.open
    handler: probe:open
    side_effects: external_call
    risk: low
    summary: "Open a ticket about {name}"
    target: "ticket/{name}"
    in_doubt: probe
    idempotency: {scope: reference}
    input_schema: {type: object, required: [name], properties: {name: {type: string}}, additionalProperties: false}
    output_schema: {type: object}
    retry: {attempts: 3, backoff: [5], jitter: 0}
  - name: probe.case.open
    kind: durable
    handler: probe:case
    side_effects: human_process
    risk: low
    summary: "Open a case about {name}"
    target: "case/{name}"
    in_doubt: probe
    input_schema: {type: object, required: [name], properties: {name: {type: string}}, additionalProperties: false}
    output_schema: {type: object}
    timeouts: {complete: P14D}
    retry: {attempts: 3, backoff: [5], jitter: 0}
  - name: probe.ticket.file
    handler: probe:file
    side_effects: external_call
    risk: low
    summary: "File {name}: {value}"
    target: "ticket/{name}"
    in_doubt: probe
    idempotency: {scope: reference, key: [name]}
    input_schema:
      type: object
      properties: {name: {type: string}, value: {type: string}}
      additionalProperties: false
    output_schema: {type: object}
  - name: probe.case.share
    kind: durable
    handler: probe:case
    side_effects: human_process
    risk: low
    summary: "Open the case about {name}"
    target: "case/{name}"
    in_doubt: probe
    idempotency: {scope: reference}
    input_schema: {type: object, required: [name], properties: {name: {type: string}}, additionalProperties: false}
    output_schema: {type: object}
    timeouts: {complete: P14D}
    retry: {attempts: 3, backoff: [5], jitter: 0}
  - name: kyc.papers.request
    connector: probe
    kind: durable
    handler: probe:case
    params: {template: id-card}
    side_effects: human_process
    risk: low
    summary: "Ask {name} for an {template}"
    target: "papers/{name}"
    in_doubt: probe
    input_schema: {type: object, required: [name], properties: {name: {type: string}}, additionalProperties: false}
    output_schema: {type: object}
    timeouts: {park: P7D, extend_to: P30D}
    on_timeout: {escalate: owners, expires: P2D}
  - name: probe.value.read
    handler: probe:read
    side_effects: none
    risk: low
    summary: "Read {name}"
    target: "thing/{name}"
    input_schema: {type: object, properties: {name: {type: string}}, additionalProperties: true}
    output_schema: {type: object}
"""

ALLOW_ALL = """
policy: allow-all
version: 1
rules:
  - id: everything
    match: {connector: probe}
    outcome: allow
    because: It is a test.
"""

ACTOR = Actor("test", "tester")


@cache
def probes() -> Catalog:
    """The packaged operations and those above."""
    return load_catalog([Source("probe.yaml", OPERATIONS)])


@lru_cache(maxsize=256)  # compiling one takes as long as a short test
def _compiled(text: str, file: str) -> Policy:
    return Definitions(probes()).compile_policy(text, file)


# What judges in a test, without the events of its publication.
_POLICY = """
INSERT INTO policies (tenant_id, digest, name, version, source, published_by) VALUES ($1, $2, $3, $4, $5, 'test')
ON CONFLICT DO NOTHING"""


@dataclass
class Runtime:
    """The parts, and verbs that tests read like sentences."""

    database: Database
    faces: Database
    definitions: Definitions
    outside: Outside
    connectors: Connectors
    catalog: Catalog
    arrivals: Arrivals

    @property
    def books(self) -> Books:
        """Typed questions to the database."""
        return Books(self.database)

    @property
    def trouble(self) -> Trouble:
        return Trouble(self.database)

    def worker(self, owner: str = "w1", *, lease: float = 30, concurrency: int = 4, slack: Any = None) -> Worker:
        tools = Tools(
            self.database,
            self.definitions,
            ForAll(self.connectors),
            owner,
            timedelta(seconds=lease),
            None if slack is None else lambda _: slack,
        )
        return Worker(tools, PostgresQueue(idle=timedelta(milliseconds=20)), concurrency=concurrency)

    async def tenant(self, tenant: str = "acme", *, concurrency: int = 16, **columns: Any) -> None:
        async with owning(self.database) as connection:
            await connection.execute(
                "INSERT INTO tenants (tenant_id, stream_id) VALUES ($1, gen_random_uuid())", tenant
            )
            for name, value in columns.items():
                await connection.execute(f"UPDATE tenants SET {name} = $2 WHERE tenant_id = $1", tenant, value)
        await self.trouble.set_slots(tenant, concurrency)

    async def publish(self, text: str, tenant: str = "acme", *, filled: bool = True) -> None:
        """Publish a workflow. Its groups are ``filled``, because nobody is asked what nobody could answer."""
        workflow = load_workflow(text, "test.yaml", self.catalog)
        stored = StoredWorkflow(workflow.name, workflow.version, workflow.digest, text, workflow.frozen_operations)
        async with owning(self.database) as connection:
            await documents.publish_workflow(connection, tenant, stored, "test")
        if filled:
            await fill_groups(self.database, tenant, text)

    async def policy(
        self, text: str = ALLOW_ALL, tenant: str = "acme", beside: tuple[str, ...] = (), *, filled: bool = True
    ) -> None:
        """Let exactly these policies judge."""
        compile_policy = _compiled if self.catalog is probes() else self.definitions.compile_policy
        found = [compile_policy(each, "policy.yaml") for each in (text, *beside)]
        async with owning(self.database) as connection:
            for policy in found:
                stored = (tenant, policy.digest, policy.name, policy.version, policy.text)
                await connection.execute(_POLICY, *stored)
            digests = [policy.digest for policy in found]
            await connection.execute("UPDATE tenants SET policy_digests = $2 WHERE tenant_id = $1", tenant, digests)
        for each in (text, *beside) if filled else ():
            await fill_groups(self.database, tenant, each)

    async def person(self, person: str, groups: tuple[str, ...] = (), tenant: str = "acme") -> None:
        await add_person(self.database, tenant, person, groups, principals=(f"slack:U{person.upper()}",))

    async def start(
        self,
        name: str,
        trigger: dict[str, Any] | None = None,
        *,
        ref: str = "1",
        tenant: str = "acme",
        workspace: str = "main",
        **more: Any,
    ) -> Started:
        request = StartRequest(tenant, workspace, "test", ref, trigger or {}, "requester", ACTOR, **more)
        return await start_named(self.faces, self.definitions, name, None, request)

    async def go(self, text: str, trigger: dict[str, Any] | None = None, policy: str | None = ALLOW_ALL) -> UUID:
        """A tenant with this policy (None for none at all) starts this workflow, and a worker does what there is."""
        await self.tenant()
        if policy is not None:
            await self.policy(policy)
        await self.publish(text)
        started = await self.start(load_workflow(text, "test.yaml", self.catalog).name, trigger)
        await self.worker().work_off()
        return started.run_id

    async def wait_is_due(self, *, long_ago: bool = True) -> None:
        """Let every wait be due now, and go on as a sweeper and a worker would."""
        if long_ago:
            await self.time_passes()
        await self.trouble.make_waits_due()
        await self.sweep()
        await self.worker().work_off()

    async def time_passes(self) -> None:
        """Let so much time pass that whatever was sent has arrived, or never will."""
        self.arrivals.everything_so_far()

    async def sweep(self) -> int:
        return await Sweeper(self.database, self.definitions).sweep()

    async def crash(self, gate: Gate, name: str, *, long_ago: bool = True) -> None:
        """A worker dies while its call of ``name`` is held up; its lease runs out and a sweeper finds it.

        ``long_ago`` says that nothing which it sent can arrive any more.
        """
        self.outside.gates[name] = gate
        working = asyncio.create_task(self.worker("dying").work_off())
        await asyncio.wait_for(gate.reached.wait(), 60)
        working.cancel()
        await asyncio.wait({working})
        await self.trouble.expire_leases()
        if long_ago:
            await self.time_passes()
        assert await self.sweep() == 1

    async def retry(self, run_id: UUID, reason: str = "it is mended", actor: Actor = ACTOR) -> str:
        """Go on with a failed run as a person does, once its evidence is stored."""
        async with self.faces.transaction("acme") as connection:
            return str(await retry_run(connection, self.definitions, "acme", run_id, actor, reason))

    async def question(self, tenant: str = "acme") -> UUID:
        """The one open question of a tenant."""
        return (await self.books.approval(open=True, tenant=tenant)).id

    async def vote(
        self, person: str, choice: str, tenant: str = "acme", *, on: UUID | None = None, grant: Grant | None = None
    ) -> Any:
        """Answer a question: the open one, if none is named."""
        approval = on or await self.question(tenant)
        request = VoteRequest(tenant, approval, person, Choice(choice), "because", VoteChannel.CLI, grant=grant)
        return await Voting(self.faces, self.definitions).vote(request)

    async def signal(self, key: str, output: Any = None, **more: Any) -> Any:
        """Signal a run as the HTTP face hands it on."""
        said = {"id": str(uuid4()), "tenant_id": "acme", "actor": ACTOR, **more}
        return await Signaling(self.faces, self.definitions).signal(Signal(correlation_key=key, output=output, **said))

    async def complete(self, person: str, value: dict[str, Any], task: UUID | None = None) -> Any:
        """Complete a task: the open one, if none is named."""
        if task is None:
            task = (await self.books.wait(kind="task", open=True)).id
        return await Tasks(self.faces, self.definitions).complete("acme", task, person, value, VoteChannel.HTTP)

    def restarted(self) -> Runtime:
        """The same world after a restart of everything: nothing of what was compiled is remembered."""
        return replace(self, definitions=Definitions(self.catalog))

    async def extend(
        self, run_id: UUID, source: dict[str, Any], version: int | None = None, tenant: str = "acme"
    ) -> Any:
        """Add steps to a run as an agent does, at the version that it has if none is named."""
        if version is None:
            version = (await self.books.run(run_id)).version
        return await Extending(self.faces, self.definitions).extend(tenant, run_id, ACTOR, source, version)

    async def errands(self, **more: Any) -> int:
        """Deliver what runs order elsewhere, as a dispatcher does; of messages to people those in ``more``."""
        handlers = Errands(self.database, self.definitions, self.connectors).handlers() | more
        people = ("card", "task", "hold", "note", "remind", "escalate", "voided", "proposal")
        kinds = ("bundle", *people, "told", "alarm", "alarmed")
        await self.trouble.drop_messages(*(kind for kind in kinds if kind not in more))
        return await Dispatcher(self.database, handlers, "d").work_off()

    async def go_on(self) -> None:
        """Everything that can be done without the outside: workers, errands, sweeps, until nothing moves."""
        moved = 1
        while moved:
            moved = await self.worker().work_off() + await self.errands() + await self.sweep()

    async def state(self, run_id: UUID) -> dict[str, Any]:
        """The newest checkpoint."""
        return await self.books.state_of(run_id)

    async def error(self, run_id: UUID) -> dict[str, Any]:
        return (await self.books.run(run_id)).error

    async def history(self, run_id: UUID) -> History:
        """The run's chain as an auditor reads it: whole, and every action let out by a decision or an approval."""
        history = History()
        report = await self.books.chain(run_id, history.observe)
        assert report.ok, report.problem
        assert (history.unauthorised, history.irregular) == ([], [])
        return history

    async def at_rest_but_waiting(self) -> None:
        """Assert that a wait holds no lease and no slot, and does not stand in line (promise 10)."""
        assert (await self.books.places(), await self.books.slots_taken()) == ([], 0)

    def gate_type(self, *, after_effect: bool = False) -> Gate:
        return Gate(after_effect=after_effect)

    @asynccontextmanager
    async def working(self, *, concurrency: int = 4) -> AsyncIterator[None]:
        """A worker at work meanwhile."""
        stop = asyncio.Event()
        task = asyncio.create_task(self.worker(concurrency=concurrency).run(stop))
        try:
            yield
        finally:
            stop.set()
            await asyncio.wait_for(task, 60)

    async def until(self, fact: str | Callable[[], Awaitable[Any]]) -> None:
        """Wait for a fact of the database."""
        ask = partial(self.all, fact) if isinstance(fact, str) else fact
        async with asyncio.timeout(60):
            while not await ask():  # noqa: ASYNC110  the fact is the database's
                await asyncio.sleep(0.01)

    async def at_rest(self) -> None:
        """Nothing is held or open any more."""
        places = await self.books.places()
        waits = await self.books.waits(open=True)
        questions = await self.books.approvals(open=True)
        steps = await self.books.steps(over=False)
        assert (places, waits, questions, steps) == ([], [], [], [])

    @property
    def actor(self) -> Actor:
        return ACTOR

    async def definitions_of(self, tenant: str, name: str) -> Any:
        """The newest version of a workflow, compiled."""
        async with self.database.connection() as connection:
            (stored,) = await documents.newest_workflows(connection, tenant, name)
        return self.definitions.compiled(stored)

    async def fingerprint(self) -> dict[str, str]:
        """Digest every table, to say that nothing was written."""
        return await self.books.fingerprint()

    async def one(self, sql: str, *parameters: Any) -> Any:
        async with self.database.connection() as connection:
            return await connection.fetchrow(sql, *parameters)

    async def all(self, sql: str, *parameters: Any) -> list[Any]:
        async with self.database.connection() as connection:
            return await connection.fetch(sql, *parameters)

    async def execute(self, sql: str, *parameters: Any) -> None:
        """Arrange something as the database's owner."""
        async with owning(self.database) as connection:
            await connection.execute(sql, *parameters)

    async def status(self, run_id: UUID) -> str:
        return await self.books.status_of(run_id)

    async def steps(self, run_id: UUID) -> dict[str, str]:
        return await self.books.statuses_of(run_id)

    async def events(self, run_id: UUID) -> list[str]:
        return await self.books.event_types(run_id)


async def wrong_in(runtime: Runtime) -> list[str]:
    """Say what of all runs is not what their books say: each is folded, shown and derived again (promises 5 and 6)."""
    runs = await runtime.books.runs(purged_at=None)
    runs = runs[:: len(runs) // 1000 + 1]  # of very many a part, or the check takes longer than the test
    every = [await oracle.wrong(runtime.faces, runtime.definitions, run.tenant, run.id) for run in runs]
    beside = [] if len(runs) > 99 else await wrong_beside(runtime.database, runtime.definitions)
    # Tests forget rejections, to ask again; that none is lost is tried at crash points.
    beside = [problem for problem in beside if not problem.endswith("binds nothing")]
    return [problem for problems in every for problem in problems] + beside


@pytest.fixture
async def runtime(
    database_url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Runtime]:
    arrivals = Arrivals()
    monkeypatch.setattr(doubt, "rest", arrivals.rest)
    # Tests skip time, and ask who executed at once by the book: both need times that are never ahead.
    monkeypatch.setattr(DatabaseClock, "error", timedelta(0))
    catalog = probes()
    outside = Outside()
    async with (
        Database(database_url, ENGINE_ROLE, connections=16) as database,
        Database(database_url, FACES_ROLE) as faces,
    ):
        world = Runtime(
            database, faces, Definitions(catalog), outside, Connectors({"probe": outside}), catalog, arrivals
        )
        yield world
        if request.node.get_closest_marker("tampers") is None:
            assert (wrong := await wrong_in(world)) == [], wrong
        outside.check_strictly()


@pytest.fixture
async def agents(runtime: Runtime) -> AsyncIterator[Agents]:
    """The same world with a model that plays a part."""
    model = Model()
    async with LoopbackServer(model.app) as server:
        connector = ModelConnector(ModelSettings(f"{server.url}/v1", model.config.api_key))
        connectors = Connectors({"probe": runtime.outside, "model": connector})
        yield Agents(replace(runtime, connectors=connectors), model)
        await connector.aclose()


@pytest.fixture
def gate() -> Gate:
    """Holds a call up before its effect."""
    return Gate()


@pytest.fixture
def late_gate() -> Gate:
    """Holds a call up after its effect."""
    return Gate(after_effect=True)


@pytest.fixture
def quiet() -> Iterator[None]:
    """Planned faults are not worth a traceback each."""
    configured = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    structlog.configure(**configured)
