"""The composition root: settings in, a runtime out. Nothing else in the product constructs adapters.

``App`` is the whole runtime, under the engine's role, for workers and keepers. ``app.faces`` has the part for HTTP,
Slack and the command line. It has only the faces' role, so row-level security holds for everything that it does.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import structlog

from app import adapters, storage
from app.faces import Faces, faces_of, version
from app.settings import Settings
from approvals.ports import Messenger
from approvals.slack.messenger import SlackMessenger
from connectors.port import CompletionSource, Connectors
from core.db import ENGINE_ROLE, Connection, Database
from core.limits import Limits
from evidence.blobs import BlobStore
from evidence.signing import FileSigner, Signer
from runtime.definition.catalog import Definitions
from runtime.engine.life.closing import ALARM, HOLD, TOLD
from runtime.keep.bundling import Bundling
from runtime.keep.dispatcher import ALARMED, Deliver, Delivered, Dispatcher, Handler, saying
from runtime.keep.errands import Completing, Errands
from runtime.keep.messages import Messages
from runtime.keep.scheduler import Reconciler, Scheduler
from runtime.keep.sweeper import Sweeper
from runtime.keep.telling import Telling
from runtime.queue.port import DeadLetters, WorkQueue
from runtime.requests.talking import ASKED, SAID
from runtime.store import records
from runtime.store.outbox import Message
from runtime.work.holding import Tools
from runtime.work.worker import Worker

log = structlog.get_logger(__name__)


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
        groups = self.faces.slack_groups
        tools = Tools(self.database, self.definitions, self.connectors, self.owner, lease, groups)
        return Worker(tools, self.queue, concurrency=self.settings.worker_concurrency)

    def dispatcher(self) -> Dispatcher:
        """A dispatcher that delivers the outbox: cards, tasks, answers, bundles, and orders to other systems."""
        bundling = Bundling(self.faces.blobs, self.signer, f"counterseal {version()}", self.definitions)
        errands = Errands(self.database, self.definitions, self.connectors)
        # Without a channel no card or task can be posted. People can still answer over HTTP and on the command line.
        kinds = (*_SHOWN, "note", "task", HOLD, TOLD, ALARM, ALARMED)
        messages: dict[str, Handler] = dict.fromkeys(kinds, _shown_nowhere)
        channel = self.settings.slack_channel
        if self.messenger is not None and channel is not None:
            mentions = self.settings.slack_mentions
            messages = Messages(self.messenger, channel, self.definitions, mentions, self.settings.pages).handlers()
        if self.messenger is not None:
            messages |= Telling(self.messenger, self.definitions, pages=self.settings.pages).handlers()
        return Dispatcher(self.database, {**messages, **bundling.handlers(), **errands.handlers()}, self.owner)

    def completing(self) -> Completing:
        """A keeper that polls for completions the connectors whose systems cannot call us back."""
        sources = {name: found for name, found in self.connectors.items() if isinstance(found, CompletionSource)}
        return Completing(self.database, self.definitions, sources)

    def scheduler(self) -> Scheduler:
        """A scheduler, which admits steps to a queue that needs it."""
        return Scheduler(self.database, self.queue, self.owner)

    def reconciler(self) -> Reconciler | None:
        """A reconciler of the queue's dead letters; None if no queue of dead letters is configured."""
        if self.dead_letters is None:
            return None
        return Reconciler(self.database, self.definitions, self.dead_letters, self.owner)

    def sweeper(self) -> Sweeper:
        """A sweeper, which repairs what crashes left behind and ends what is overdue."""
        return Sweeper(self.database, self.definitions, lease=timedelta(seconds=self.settings.lease_seconds))


_SHOWN = ("card", "remind", "escalate", "voided", "proposal", SAID, ASKED)


async def _shown_nowhere(connection: Connection, message: Message) -> Deliver:
    log.info("no Slack channel is configured; answer on the command line or over HTTP", kind=message.kind)
    return partial(saying, Delivered())


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
    """Build everything that the settings ask for. An argument replaces the part that they would build.

    ``ConfigurationError`` for settings that cannot work, ``TransportError`` if the database is not reachable,
    ``NotFoundError`` if a tenant that they name does not exist. A ``first_run`` creates the default tenant.
    """
    async with AsyncExitStack() as stack:
        logins = await stack.enter_async_context(storage.ready_database(settings))
        faces = await faces_of(stack, settings, logins.faces, blobs)
        if first_run and storage.DEFAULT_TENANT in settings.tenants:
            await storage.found_default_tenant(faces.database)
        await storage.require_tenants(faces.database, logins, settings.tenants)
        connections, limits = settings.worker_concurrency + 8, Limits.within(settings.lease_seconds)
        # In a process of faces alone nobody uses it: PostgreSQL would refuse the engine's role to the faces' login.
        url = await storage.engine_of(logins)
        engine = await stack.enter_async_context(Database(url, ENGINE_ROLE, connections=connections, limits=limits))
        if logins.engine is not None:
            faces.served.append(engine)
        if connectors is None:
            catalog = faces.definitions.catalog
            made = adapters.connectors_of(settings, catalog, partial(records.read, engine))
            connectors = await stack.enter_async_context(aclosing(made))
        if queue is None:
            queue = adapters.queue_of(settings)
        if signer is None:
            signer = await asyncio.to_thread(FileSigner.load_or_create, settings.signing_key_path)
        if messenger is None and faces.slack is not None:
            messenger = SlackMessenger(faces.slack, pages=settings.pages)
        owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        letters = adapters.dead_letters_of(settings)
        yield App(faces, engine, connectors, queue, signer, messenger, owner, letters)
