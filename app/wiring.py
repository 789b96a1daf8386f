"""The composition root: settings in, a runtime out. Nothing else in the product constructs adapters.

``Faces`` is what HTTP, Slack and the command line get: it holds the faces' database role only, so that row-level
security stands behind everything they do. ``App`` is the whole, with the engine's role, for workers and keepers.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from importlib import metadata

import structlog
from slack_sdk.web.async_client import AsyncWebClient

from app import adapters, storage
from app.metrics import Metrics
from app.refusals import RefusalLog
from app.settings import Settings
from approvals.ports import Messenger
from approvals.slack.messenger import SlackMessenger
from approvals.slack.workspace import SlackUserGroups, SlackWorkspace
from connectors.port import CompletionSource, Connectors
from core.db import ENGINE_ROLE, FACES_ROLE, Connection, Database
from evidence.blobs import BlobStore
from evidence.signing import FileSigner, Signer
from runtime.definition.catalog import Definitions
from runtime.keep.bundling import Bundling
from runtime.keep.dispatcher import Deliver, Delivered, Dispatcher, Handler, Result
from runtime.keep.errands import Completing, Errands
from runtime.keep.messages import Messages
from runtime.keep.scheduler import Reconciler, Scheduler
from runtime.keep.sweeper import Sweeper
from runtime.queue.port import DeadLetters, WorkQueue
from runtime.requests.directory import DatabaseDirectory
from runtime.requests.extending import Extending
from runtime.requests.looking import Looking
from runtime.requests.signaling import Signaling
from runtime.requests.tasks import Tasks
from runtime.requests.voting import Voting
from runtime.store.outbox import Message
from runtime.work.holding import Tools
from runtime.work.worker import Worker

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Faces:
    """The runtime for a face; ``database`` is under the faces' role. ``now``: Unix seconds, for signatures' ages."""

    settings: Settings
    database: Database
    definitions: Definitions
    blobs: BlobStore
    slack: AsyncWebClient | None
    metrics: Metrics = field(default_factory=Metrics)
    now: Callable[[], float] = time.time

    def directory(self, tenant: str) -> DatabaseDirectory:
        """The people of one tenant."""
        groups = SlackUserGroups(self.slack, self.workspace) if self.slack is not None else None
        return DatabaseDirectory(self.database, tenant, groups)

    @cached_property
    def workspace(self) -> SlackWorkspace | None:
        """The Slack workspace whose members may click; None without Slack. One per process, because it caches."""
        return SlackWorkspace(self.slack) if self.slack is not None else None

    @cached_property
    def refusals(self) -> RefusalLog:
        """The audit of refused requests. One for the whole process, because it counts."""
        return RefusalLog(self.database)

    @property
    def voting(self) -> Voting:
        """The service behind every face's approve and reject."""
        return Voting(self.database, self.definitions, self.directory(self.settings.tenant))

    @property
    def signaling(self) -> Signaling:
        """Takes what the outside says to runs that wait."""
        return Signaling(self.database, self.definitions)

    @property
    def tasks(self) -> Tasks:
        """The service behind every face's completion of a task."""
        return Tasks(self.database, self.definitions)

    @property
    def looking(self) -> Looking:
        """Shows what the book of a run says."""
        return Looking(self.database, self.definitions)

    @property
    def extending(self) -> Extending:
        """Adds steps to running graphs."""
        return Extending(self.database, self.definitions)


@dataclass(frozen=True)
class App:
    """The whole runtime. ``database`` is under the engine's role. ``owner`` is this process's name in leases."""

    faces: Faces
    database: Database
    connectors: Connectors
    queue: WorkQueue
    signer: Signer
    messenger: Messenger | None
    owner: str
    dead_letters: DeadLetters | None = None

    @property
    def settings(self) -> Settings:
        """The settings it was built from."""
        return self.faces.settings

    @property
    def definitions(self) -> Definitions:
        """The compiled workflows and policies."""
        return self.faces.definitions

    def worker(self) -> Worker:
        """A worker that leases steps and drives them."""
        lease = timedelta(seconds=self.settings.lease_seconds)
        tools = Tools(self.database, self.definitions, self.connectors, self.owner, lease)
        return Worker(tools, self.queue, concurrency=self.settings.worker_concurrency)

    def dispatcher(self) -> Dispatcher:
        """Delivers the outbox: cards, tasks, answers, bundles, and what runs order elsewhere."""
        bundling = Bundling(self.faces.blobs, self.signer, f"counterseal {version()}", self.definitions)
        errands = Errands(self.database, self.definitions, self.connectors)
        # Without a channel there is nowhere to show a card or a task; the same ones are answered over HTTP and here.
        messages: dict[str, Handler] = dict.fromkeys(("card", "remind", "escalate", "note", "task"), _shown_nowhere)
        channel = self.settings.slack_channel
        if self.messenger is not None and channel is not None:
            messages = Messages(self.messenger, channel, self.definitions).handlers()
        return Dispatcher(self.database, {**messages, **bundling.handlers(), **errands.handlers()}, self.owner)

    def completing(self) -> Completing:
        """Fetches completions from every connector that has to be asked for them."""
        sources = {name: found for name, found in self.connectors.items() if isinstance(found, CompletionSource)}
        return Completing(self.database, self.definitions, sources)

    def scheduler(self) -> Scheduler:
        """Admits steps to a queue that needs it."""
        return Scheduler(self.database, self.queue, self.owner)

    def reconciler(self) -> Reconciler | None:
        """Looks after the queue's dead letters; None if there is no such queue."""
        if self.dead_letters is None:
            return None
        return Reconciler(self.database, self.definitions, self.dead_letters, self.owner)

    def sweeper(self) -> Sweeper:
        """Finds what a crash or the passing of time has left."""
        return Sweeper(self.database, self.definitions)


async def _shown_nowhere(connection: Connection, message: Message) -> Deliver:
    log.info("no Slack channel is configured; answer on the command line or over HTTP", kind=message.kind)

    async def nowhere() -> Result:
        return Delivered()

    return nowhere


@asynccontextmanager
async def build_faces(
    settings: Settings, *, blobs: BlobStore | None = None, new_tenant: bool = False
) -> AsyncIterator[Faces]:
    """The part that needs no worker: for the command line. Everything is closed at the end.

    ``NotFoundError`` if there is no tenant of that name, unless it is a ``new_tenant``, which the caller creates.
    """
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(storage.ready_database(settings))
        faces = await _faces(stack, settings, url, blobs)
        if not new_tenant:
            await storage.require_tenants(faces.database, url, [settings.tenant])
        yield faces


@asynccontextmanager
async def build(
    settings: Settings,
    *,
    connectors: Connectors | None = None,
    messenger: Messenger | None = None,
    queue: WorkQueue | None = None,
    blobs: BlobStore | None = None,
    signer: Signer | None = None,
    first_run: bool = False,
) -> AsyncIterator[App]:
    """Build everything that the settings ask for; what is given replaces what they would make.

    ``ConfigurationError`` for settings that cannot work, ``TransportError`` if the database is not reachable,
    ``NotFoundError`` for a tenant that they name and that is not there. On a ``first_run`` the default one is made.
    """
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(storage.ready_database(settings))
        faces = await _faces(stack, settings, url, blobs)
        if first_run and storage.DEFAULT_TENANT in settings.tenants:
            await storage.found_default_tenant(faces.database)
        await storage.require_tenants(faces.database, url, settings.tenants)
        connections = settings.worker_concurrency + 8
        engine = await stack.enter_async_context(Database(url, ENGINE_ROLE, connections=connections))
        if connectors is None:
            catalog = faces.definitions.catalog
            connectors = await stack.enter_async_context(aclosing(adapters.connectors_of(settings, catalog)))
        if queue is None:
            queue = adapters.queue_of(settings)
        if signer is None:
            signer = await asyncio.to_thread(FileSigner.load_or_create, settings.signing_key_path)
        if messenger is None and faces.slack is not None:
            messenger = SlackMessenger(faces.slack)
        owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        letters = adapters.dead_letters_of(settings)
        yield App(faces, engine, connectors, queue, signer, messenger, owner, letters)


async def _faces(stack: AsyncExitStack, settings: Settings, url: str, blobs: BlobStore | None) -> Faces:
    definitions = Definitions(adapters.catalog_of(settings))
    database = await stack.enter_async_context(Database(url, FACES_ROLE))
    slack = await stack.enter_async_context(adapters.slack_client_of(settings))
    return Faces(settings, database, definitions, blobs or adapters.blobs_of(settings), slack)


def version() -> str:
    """The version of this release."""
    try:
        return metadata.version("counterseal")
    except metadata.PackageNotFoundError:
        return "unknown"
