"""A whole runtime in this process, on a PostgreSQL of its own, with an outside system that does nothing."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path
from uuid import UUID

import asyncpg

from app.embedded_postgres import EmbeddedPostgres
from app.migrate import upgrade_async
from approvals.model import CardView, Choice, VoteChannel
from approvals.ports import Absent, FindOutcome, MessageRef, Posted, PostOutcome
from approvals.tasks import TaskView
from benchmarks import documents as texts
from benchmarks.counting import Counter, CountingDatabase
from connectors.catalog import Source, load_catalog
from connectors.port import Before, Call, Done, NotSent, Outcome, Probe, ProbeVerdict, Refused
from connectors.registry import Connectors
from core.canonical import JsonObject
from core.db import ENGINE_ROLE, FACES_ROLE
from evidence.chain import Actor
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from runtime.bundling import Bundling
from runtime.definition.catalog import Definitions
from runtime.dispatcher import Dispatcher
from runtime.driving import Drive
from runtime.holding import Tools
from runtime.messages import ApprovalMessages
from runtime.publishing import ensure_tenant, publish_directory, publish_policy, publish_workflow
from runtime.queue.port import WorkQueue
from runtime.queue.postgres import PostgresDelivery
from runtime.starting import StartRequest, start_run
from runtime.store import documents
from runtime.sweeper import Sweeper
from runtime.voting import VoteRequest, Voting
from runtime.worker import Worker

ACTOR = Actor("benchmark", "bench")
SLOTS = 64
DIRECTORY = f"""
directory: bench
people: [{{id: {texts.PERSON}, name: Ana}}]
groups: {{{texts.GROUP}: [{texts.PERSON}]}}
"""


@dataclass
class NoOp:
    """The outside system. ``on_effect`` is awaited before each effect."""

    effects: int = 0
    on_effect: Callable[[Call], Awaitable[None]] | None = None

    async def read_before(self, call: Call) -> Before | Refused | NotSent:
        return Before({}, None)

    async def perform(self, call: Call) -> Outcome:
        self.effects += 1
        if self.on_effect is not None:
            await self.on_effect(call)
        return Done({"applied": self.effects}, external_id=f"e{self.effects}")

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Probe:
        return Probe(ProbeVerdict.CANNOT_TELL, "Nothing is kept.")

    async def check(self) -> tuple[bool, str]:
        return True, "in process"

    async def aclose(self) -> None:
        return None


class Silent:
    """A messenger that shows nothing and says that it did."""

    async def post_card(self, channel: str, view: CardView, key: str) -> PostOutcome:
        return Posted(MessageRef(channel, "1.0"))

    async def update_card(self, ref: MessageRef, view: CardView) -> PostOutcome:
        return Posted(ref)

    async def find_card(self, channel: str, key: str, *, since: float) -> FindOutcome:
        return Absent()

    async def post_task(self, channel: str, view: TaskView, key: str) -> PostOutcome:
        return Posted(MessageRef(channel, "1.0"))

    async def update_task(self, ref: MessageRef, view: TaskView) -> PostOutcome:
        return Posted(ref)

    async def post_thread(self, ref: MessageRef, text: str, key: str) -> PostOutcome:
        return Posted(ref)

    async def post_ephemeral(self, channel: str, user: str, text: str) -> PostOutcome:
        return Posted(MessageRef(channel, "1.0"))


@dataclass
class World:
    """The parts. ``plain`` is a connection that is not counted and belongs to the server's superuser."""

    engine: CountingDatabase
    faces: CountingDatabase
    plain: asyncpg.Connection[asyncpg.Record]
    counter: Counter
    definitions: Definitions
    outside: NoOp
    connectors: Connectors
    folder: Path
    _references: count[int] = field(default_factory=count)

    @property
    def tools(self) -> Tools:
        return Tools(self.engine, self.definitions, self.connectors, "bench", timedelta(seconds=30))

    def worker(self, queue: WorkQueue, concurrency: int) -> Worker:
        return Worker(self.tools, queue, concurrency=concurrency)

    def dispatcher(self) -> Dispatcher:
        signer = FileSigner.load_or_create(self.folder / "key.pem")
        bundling = Bundling(self.engine, FileBlobStore(self.folder / "evidence"), signer, "benchmark")
        cards = ApprovalMessages(self.engine, Silent(), "C0BENCH")
        return Dispatcher(self.engine, {**cards.handlers(), **bundling.handlers()}, "bench")

    def sweeper(self) -> Sweeper:
        return Sweeper(self.engine, self.definitions)

    async def start(self, workflow: str, trigger: JsonObject | None = None) -> UUID:
        """Start a run in a transaction of its own, as a webhook does."""
        async with self.faces.transaction(texts.TENANT) as connection:
            (stored,) = await documents.newest_workflows(connection, texts.TENANT, workflow)
            number = f"INC{next(self._references):07}"
            request = StartRequest(
                texts.TENANT, "main", "bench", number, {"number": number, **(trigger or {})}, "requester", ACTOR
            )
            return (await start_run(connection, self.definitions.compiled(stored), request)).run_id

    async def drive(self) -> bool:
        """Claim the fairest ready step and go on until its run waits or ends."""
        return await Drive(self.tools).run(PostgresDelivery())

    async def open_approvals(self) -> list[UUID]:
        rows = await self.plain.fetch("SELECT approval_id FROM approvals WHERE status = 'requested'")
        return [row["approval_id"] for row in rows]

    async def approve(self, approval: UUID) -> None:
        """One vote, which decides."""
        request = VoteRequest(texts.TENANT, approval, texts.PERSON, Choice.APPROVE, "", VoteChannel.CLI)
        answer = await Voting(self.faces, self.definitions).vote(request)
        assert answer.counted, answer.sentence

    async def finished(self) -> int:
        return int(await self.plain.fetchval("SELECT count(*) FROM runs WHERE finished_at IS NOT NULL"))


@asynccontextmanager
async def new_world(url: str, folder: Path, *, connections: int = 16) -> AsyncIterator[World]:
    """A runtime on a fresh database of the server at ``url``."""
    server = await asyncpg.connect(url)
    name = f"bench_{await server.fetchval('SELECT count(*) FROM pg_database')}"
    await server.execute(f'CREATE DATABASE "{name}"')
    await server.close()
    own = url.rpartition("/")[0] + f"/{name}"
    await upgrade_async(own)
    counter = Counter()
    definitions = Definitions(load_catalog([Source("bench.yaml", texts.OPERATIONS)]))
    outside = NoOp()
    plain = await asyncpg.connect(own)
    async with (
        CountingDatabase(own, ENGINE_ROLE, counter, connections=connections) as engine,
        CountingDatabase(own, FACES_ROLE, counter, connections=connections) as faces,
    ):
        connectors = Connectors({"bench": outside})
        world = World(engine, faces, plain, counter, definitions, outside, connectors, folder / name)
        world.folder.mkdir()
        await _publish(world)
        try:
            yield world
        finally:
            await plain.close()


async def _publish(world: World) -> None:
    async with world.engine.transaction() as connection:
        await ensure_tenant(connection, texts.TENANT, max_concurrency=SLOTS, max_writes_per_run=5000)
        await publish_directory(connection, texts.TENANT, DIRECTORY, "directory.yaml", ACTOR)
        await publish_policy(connection, world.definitions, texts.TENANT, texts.policy(50), "policy.yaml", ACTOR)
        for text in (texts.W1, texts.W2, texts.PARKED, texts.LOOP):
            await publish_workflow(connection, world.definitions, texts.TENANT, text, "workflow.yaml", ACTOR)


@asynccontextmanager
async def new_server() -> AsyncIterator[tuple[str, Path]]:
    """A durable embedded PostgreSQL in a temporary folder: its DSN, and the folder."""
    with tempfile.TemporaryDirectory(prefix="counterseal-bench-", ignore_cleanup_errors=True) as folder:
        server = EmbeddedPostgres(Path(folder) / "postgres", durable=True)
        url = await asyncio.to_thread(server.start)
        try:
            yield url, Path(folder)
        finally:
            await asyncio.to_thread(server.stop)
