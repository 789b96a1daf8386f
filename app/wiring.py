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
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from app import adapters, storage
from app.completions import TenantCompletions
from app.delivering import Delivering
from app.faces import Faces, faces_of, version
from app.outside import Outsides, Replacements
from app.settings import Settings
from approvals.ports import Messenger
from connectors.port import Connectors
from core.db import ENGINE_ROLE, Connection, Database
from core.limits import Limits
from evidence.blobs import BlobStore
from evidence.signing import FileSigner, Signer
from runtime.definition.catalog import Definitions
from runtime.keep.dispatcher import Dispatcher
from runtime.keep.scheduler import Reconciler, Scheduler
from runtime.keep.sweeper import Sweeper
from runtime.queue.port import DeadLetters, WorkQueue
from runtime.store import records
from runtime.work.holding import Tools
from runtime.work.worker import Worker


@dataclass(frozen=True)
class App:
    """The whole runtime. ``database`` is under the engine's role. ``owner`` is this process's name in leases.

    Connectors, messengers, signers and evidence stores are in ``outsides``, which gives them by tenant alone.
    """

    faces: Faces
    database: Database
    queue: WorkQueue
    owner: str
    dead_letters: DeadLetters | None = None

    @property
    def settings(self) -> Settings:
        """The settings it was built from."""
        return self.faces.settings

    @property
    def outsides(self) -> Outsides:
        """The systems and keys of each tenant."""
        return self.faces.outsides

    @property
    def definitions(self) -> Definitions:
        """The compiled workflows and policies."""
        return self.faces.definitions

    def worker(self) -> Worker:
        """A worker that leases steps and drives them."""
        lease = timedelta(seconds=self.settings.lease_seconds)
        connectors = OwnConnectors(self.outsides)
        rehearse = partial(self.faces.helpers.rehearse, self.database.url)
        parts = (self.database, self.definitions, connectors, self.owner, lease, self.faces.slack_groups, rehearse)
        tools = Tools(*parts, propagates=self.settings.otel_propagate)
        return Worker(tools, self.queue, concurrency=self.settings.worker_concurrency)

    def dispatcher(self) -> Dispatcher:
        """A dispatcher that delivers the outbox: cards, tasks, answers, bundles, and orders to other systems."""
        parts = (self.database, self.definitions, self.outsides, f"counterseal {version()}", self.faces.budgets)
        delivering = Delivering(*parts)
        return Dispatcher(self.database, delivering.handlers(), self.owner)

    def completions(self) -> TenantCompletions:
        """A keeper that polls for completions the connectors whose systems cannot call us back."""
        return TenantCompletions(self.database, self.definitions, self.outsides)

    def scheduler(self) -> Scheduler:
        """A scheduler, which admits steps to a queue that needs it."""
        return Scheduler(self.database, self.queue, self.owner)

    def reconciler(self) -> Reconciler | None:
        """A reconciler of the queue's dead letters; None if no queue of dead letters is configured."""
        if self.dead_letters is None:
            return None
        return Reconciler(self.database, self.definitions, self.dead_letters, self.owner)

    def sweeper(self) -> Sweeper:
        """A sweeper, which repairs the leftovers of crashes and ends what is overdue."""
        lease = timedelta(seconds=self.settings.lease_seconds)
        return Sweeper(self.database, self.definitions, lease=lease, stores=self._store)

    async def _store(self, connection: Connection, tenant: str) -> BlobStore | None:
        return (await self.outsides.of(connection, tenant)).blobs


@dataclass(frozen=True)
class OwnConnectors:
    """The connectors of every tenant, as workers ask for them."""

    outsides: Outsides

    async def of(self, connection: Connection, tenant: str, stop: int) -> Connectors:
        """See ``TenantConnectors.of``."""
        return (await self.outsides.of(connection, tenant, stop)).connectors


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
            await storage.create_default_tenant(faces.database)
        await storage.require_tenants(faces.database, logins, settings.tenants)
        connections, limits = settings.worker_concurrency + 8, Limits.within(settings.lease_seconds)
        # In a process of faces alone nothing uses it: PostgreSQL would refuse the engine's role to the faces' login.
        url = await storage.engine_of(logins)
        engine = await stack.enter_async_context(Database(url, ENGINE_ROLE, connections=connections, limits=limits))
        if logins.engine is not None:
            faces.served.append(engine)
        if queue is None:
            queue = adapters.queue_of(settings)
        if signer is None:
            faces.outsides.signer = await asyncio.to_thread(FileSigner.load_or_create, settings.signing_key_path)
        faces.outsides.given = Replacements(connectors, messenger, signer, blobs)
        faces.outsides.read = partial(records.read, engine)
        owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        letters = adapters.dead_letters_of(settings)
        yield App(faces, engine, queue, owner, letters)
