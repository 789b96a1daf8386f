"""A whole runtime in this process, on its own PostgreSQL, with an outside system that does nothing."""

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

from app import storage
from app.embedded_postgres import EmbeddedPostgres
from approvals.lists import ListView
from approvals.model import CardView, Choice, TaskView, VoteChannel
from approvals.notices import Notice
from approvals.ports import Absent, FindOutcome, MessageRef, Posted, PostOutcome
from benchmarks import documents as texts
from benchmarks.counting import Counter, CountingDatabase
from connectors.catalog import Source, load_catalog
from connectors.port import Before, Call, Connectors, Done, NotSent, Outcome, Probe, ProbeVerdict, Refused
from core.canonical import JsonObject
from core.db import ENGINE_ROLE, FACES_ROLE, Connection
from core.ids import new_id
from evidence.chain import Actor
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from runtime.definition.catalog import Definitions
from runtime.engine.model.states import RunState
from runtime.keep.bundling import Bundling
from runtime.keep.dispatcher import Dispatcher
from runtime.keep.messages import Messages
from runtime.keep.sweeper import Sweeper
from runtime.keep.telling import Telling
from runtime.queue.port import WorkQueue
from runtime.requests.policies import publish_policy
from runtime.requests.publishing import ensure_tenant, publish_directory, publish_workflow
from runtime.requests.starting import StartRequest, start_named
from runtime.requests.voting import VoteRequest, Voting
from runtime.store import claims
from runtime.work.driving import Drive
from runtime.work.holding import Tools
from runtime.work.lease import Lease
from runtime.work.worker import Worker

ACTOR = Actor("benchmark", "bench")
SLOTS = 64
EVER = UUID(int=0)
TAIL_BITS = 80
DIRECTORY = f"""
directory: bench
people: [{{id: {texts.PERSON}, name: Ana, slack: {texts.SLACK_USER}}}]
groups: {{{texts.GROUP}: [{texts.PERSON}]}}
"""


def this_moment() -> UUID:
    """An id that is smaller than all new ids from now on, and larger than those of a millisecond ago."""
    return UUID(int=new_id().int >> TAIL_BITS << TAIL_BITS)


@dataclass
class NoOp:
    """The outside system. It awaits ``on_effect`` in each effect."""

    effects: int = 0
    target: str = ""
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
    """A messenger that posts nothing and reports success."""

    async def post_card(self, channel: str, view: CardView, key: str) -> PostOutcome:
        return Posted(MessageRef(channel, "1.0"))

    async def update_card(self, ref: MessageRef, view: CardView) -> PostOutcome:
        return Posted(ref)

    async def post_list(self, channel: str, view: ListView, key: str) -> PostOutcome:
        return Posted(MessageRef(channel, "1.0"))

    async def update_list(self, ref: MessageRef, view: ListView) -> PostOutcome:
        return Posted(ref)

    async def find_card(self, channel: str, key: str, *, since: float) -> FindOutcome:
        return Absent()

    async def post_task(self, channel: str, view: TaskView, key: str) -> PostOutcome:
        return Posted(MessageRef(channel, "1.0"))

    async def update_task(self, ref: MessageRef, view: TaskView) -> PostOutcome:
        return Posted(ref)

    async def post_thread(self, ref: MessageRef, text: str, key: str) -> PostOutcome:
        return Posted(ref)

    async def post_notice(self, to: str, notice: Notice, key: str) -> PostOutcome:
        return Posted(MessageRef(to, "1.0"))

    async def update_notice(self, ref: MessageRef, notice: Notice) -> PostOutcome:
        return Posted(ref)

    async def find_notice(self, to: str, key: str, *, since: float) -> FindOutcome:
        return Absent()

    async def post_ephemeral(self, channel: str, user: str, text: str) -> PostOutcome:
        return Posted(MessageRef(channel, "1.0"))


@dataclass(frozen=True)
class ForAll:
    """The same connectors for every tenant: a benchmark is no installation."""

    connectors: Connectors

    async def of(self, connection: Connection, tenant: str, stop: int) -> Connectors:
        """Those of everybody."""
        return self.connectors


@dataclass
class World:
    """The parts of a runtime. ``plain`` is an uncounted connection of the server's superuser."""

    url: str
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
        return Tools(self.engine, self.definitions, ForAll(self.connectors), "bench", timedelta(seconds=30))

    def worker(self, queue: WorkQueue, concurrency: int) -> Worker:
        return Worker(self.tools, queue, concurrency=concurrency)

    def dispatcher(self) -> Dispatcher:
        signer = FileSigner.load_or_create(self.folder / "key.pem")
        bundling = Bundling(FileBlobStore(self.folder / "evidence"), signer, "benchmark", self.definitions)
        cards = Messages(Silent(), "C0BENCH", self.definitions)
        return Dispatcher(
            self.engine,
            {**cards.handlers(), **Telling(Silent(), self.definitions).handlers(), **bundling.handlers()},
            "bench",
        )

    def sweeper(self) -> Sweeper:
        return Sweeper(self.engine, self.definitions)

    async def start(self, workflow: str, trigger: JsonObject | None = None, requester: str = "requester") -> UUID:
        """Start a run as the HTTP face does."""
        number = f"INC{next(self._references):07}"
        said = {"number": number, **(trigger or {})}
        request = StartRequest(texts.TENANT, "main", "bench", number, said, requester, ACTOR)
        return (await start_named(self.faces, self.definitions, workflow, None, request)).run_id

    async def drive(self) -> bool:
        """Claim the fairest ready step and drive its run until it waits or ends. Returns False if none was ready."""
        began = Lease.now()
        async with self.engine.connection() as connection:
            records = await claims.claim_next(connection, self.tools.owner, self.tools.lease)
        for record in records:
            await Drive(self.tools).run(record, began)
        return bool(records)

    async def open_approvals(self, since: UUID = EVER) -> list[UUID]:
        """List the open approvals of runs that were started since (see ``this_moment``)."""
        query = "SELECT approval_id FROM approvals WHERE tenant_id = $1 AND status = 'requested' AND approval_id > $2"
        return [row["approval_id"] for row in await self.plain.fetch(query, texts.TENANT, since)]

    async def approve(self, approval: UUID) -> None:
        """Give the one vote that decides."""
        request = VoteRequest(texts.TENANT, approval, texts.PERSON, Choice.APPROVE, "", VoteChannel.CLI)
        answer = await Voting(self.faces, self.definitions).vote(request)
        assert answer.counted, answer.sentence

    async def finished(self, since: UUID = EVER) -> int:
        """Count the runs that succeeded and were started since (see ``this_moment``).

        ``RuntimeError`` if one ended otherwise: a run that fails early is cheap, so its figures would flatter us.
        """
        query = """
            SELECT status, count(*) FROM runs WHERE run_id > $1 AND finished_at IS NOT NULL GROUP BY status
        """
        ended = {row["status"]: row["count"] for row in await self.plain.fetch(query, since)}
        succeeded = int(ended.pop(RunState.SUCCEEDED, 0))
        if ended:
            raise RuntimeError(f"Runs of the benchmark did not succeed: {ended}.")
        return succeeded

    @asynccontextmanager
    async def server_set(self, **settings: str | int) -> AsyncIterator[None]:
        """Change settings of the whole server, and reset them at the end."""
        try:
            for name, value in settings.items():
                await self.plain.execute(f"ALTER SYSTEM SET {name} = '{value}'")
            await self.plain.execute("SELECT pg_reload_conf()")
            yield
        finally:
            for name in settings:
                await self.plain.execute(f"ALTER SYSTEM RESET {name}")
            await self.plain.execute("SELECT pg_reload_conf()")


@asynccontextmanager
async def new_world(url: str, folder: Path, *, connections: int = 16) -> AsyncIterator[World]:
    """A runtime on a fresh database of the server at ``url``, which is dropped at the end."""
    async with database(url) as (name, own):
        await storage.upgrade(own)
        counter = Counter()
        definitions = Definitions(load_catalog([Source("bench.yaml", texts.OPERATIONS)]))
        outside = NoOp()
        connectors = Connectors({"bench": outside})
        plain = await asyncpg.connect(own)
        try:
            async with (
                CountingDatabase(own, ENGINE_ROLE, counter, connections=connections) as engine,
                CountingDatabase(own, FACES_ROLE, counter, connections=connections) as faces,
            ):
                world = World(own, engine, faces, plain, counter, definitions, outside, connectors, folder / name)
                world.folder.mkdir()
                await _publish(world)
                yield world
        finally:
            await plain.close()


@asynccontextmanager
async def database(url: str) -> AsyncIterator[tuple[str, str]]:
    """Create a database, and drop it at the end. Yields its name and its DSN."""
    name = f"bench_{new_id().hex}"
    await _execute(url, f'CREATE DATABASE "{name}"')
    try:
        yield name, url.rpartition("/")[0] + f"/{name}"
    finally:
        await _execute(url, f'DROP DATABASE "{name}" WITH (FORCE)')


async def _execute(url: str, statement: str) -> None:
    server = await asyncpg.connect(url)
    try:
        await server.execute(statement)
    finally:
        await server.close()


async def _publish(world: World) -> None:
    async with world.faces.transaction(texts.TENANT) as connection:
        await ensure_tenant(connection, texts.TENANT, max_concurrency=SLOTS, max_writes_per_run=100_000)
        await publish_directory(connection, texts.TENANT, DIRECTORY, "directory.yaml", ACTOR)
        await publish_policy(connection, world.definitions, texts.TENANT, texts.policy(50), "policy.yaml", ACTOR)
        for text in texts.WORKFLOWS:
            await publish_workflow(connection, world.definitions, texts.TENANT, text, "workflow.yaml", ACTOR)


@asynccontextmanager
async def new_server(*, durable: bool = True) -> AsyncIterator[tuple[str, Path]]:
    """Start an embedded PostgreSQL in a temporary folder. Yields its DSN and the folder."""
    with tempfile.TemporaryDirectory(prefix="counterseal-bench-", ignore_cleanup_errors=True) as folder:
        server = EmbeddedPostgres(Path(folder) / "postgres", durable=durable)
        url = await asyncio.to_thread(server.start)
        try:
            yield url, Path(folder)
        finally:
            await asyncio.to_thread(server.stop)
