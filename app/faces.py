"""The runtime for HTTP, Slack and the command line, under the faces' role; each service is imported when first used."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from app import storage
from core.db import FACES_ROLE, Connection, Database
from core.limits import Limits

if TYPE_CHECKING:
    from app.budgeting import Budgets
    from app.helpers import Helpers
    from app.metrics import Metrics
    from app.outside import Outside, Outsides
    from app.refusals import RefusalLog, UnreadSecrets
    from app.serial import Serial
    from app.settings import Settings
    from app.waiting import Waiting
    from approvals.ports import SlackGroups
    from evidence.blobs import BlobStore
    from runtime.definition.catalog import Definitions
    from runtime.requests.directory import DatabaseDirectory
    from runtime.requests.editing import Editing
    from runtime.requests.holding import Holding
    from runtime.requests.talking import Talking
    from runtime.requests.tasks import Tasks
    from runtime.requests.views import RunReader
    from runtime.requests.voting import Voting

# The deadline of the readiness check.
READY_SECONDS = 3.0

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Faces:
    """The runtime for a face; ``database`` is under the faces' role. ``now``: Unix seconds, for signatures' ages.

    ``served`` are the other databases that this process works with: it is ready only if they answer, too.
    """

    settings: Settings
    database: Database
    stack: AsyncExitStack
    given_blobs: BlobStore | None = None
    served: list[Database] = field(default_factory=list)
    now: Callable[[], float] = time.time

    async def ask(
        self,
        tenant: str,
        function: Callable[Concatenate[Connection, str, P], Awaitable[T]],
        *given: P.args,
        **named: P.kwargs,
    ) -> T:
        """Call a function with a tenant's connection, in a transaction of its own, and return its result."""
        async with self.database.transaction(tenant) as connection:
            return await function(connection, tenant, *given, **named)

    @cached_property
    def definitions(self) -> Definitions:
        """The compiled workflows and policies."""
        from connectors.catalog import load_catalog
        from runtime.definition.catalog import Definitions

        return Definitions(load_catalog())

    @cached_property
    def outsides(self) -> Outsides:
        """The systems and keys of each tenant, asked for by tenant."""
        from app.outside import Outsides, Replacements

        return Outsides(self.settings, self.stack, Replacements(blobs=self.given_blobs))

    async def outside(self, tenant: str) -> Outside:
        """The systems and keys of this tenant now. ``NotFoundError`` if there is no such tenant."""
        async with self.database.transaction(tenant) as connection:
            return await self.outsides.of(connection, tenant)

    async def blobs(self, tenant: str) -> BlobStore:
        """The store of the tenant's evidence. ``ConfigurationError`` if the tenant has set none."""
        outside = await self.outside(tenant)
        if outside.blobs is None:
            raise outside.unset("evidence")
        return outside.blobs

    @cached_property
    def metrics(self) -> Metrics:
        """The counters of this process."""
        from app.metrics import Metrics

        return Metrics()

    async def answering(self) -> None:
        """Ask every database on a connection that this process works with; ``TransportError`` if one is silent."""
        await asyncio.gather(*(one.answers(READY_SECONDS) for one in (self.database, *self.served)))

    def directory(self, tenant: str) -> DatabaseDirectory:
        """The people of one tenant."""
        from runtime.requests.directory import DatabaseDirectory

        return DatabaseDirectory(self.database, self.definitions, tenant, self.slack_groups(tenant))

    def slack_groups(self, tenant: str) -> SlackGroups:
        """Looks up members of the user groups in the tenant's own Slack; without one, the groups are empty."""
        from app.outside import TenantGroups

        return TenantGroups(self.outside, tenant)

    @cached_property
    def refusals(self) -> RefusalLog:
        """The audit of refused requests. One for the whole process, because it counts."""
        from app.refusals import RefusalLog

        return RefusalLog(self.database)

    @cached_property
    def unread(self) -> UnreadSecrets:
        """The log of secrets of incoming requests that could not be read."""
        from app.refusals import UnreadSecrets

        return UnreadSecrets()

    @cached_property
    def budgets(self) -> Budgets:
        """The budgets of the tenants. One for the whole process, because it counts."""
        from app.budgeting import Budgets

        return Budgets(self.database, self.refusals, self.settings.budgets)

    @cached_property
    def helpers(self) -> Helpers:
        """Starts helper processes that read texts. One for the whole process, because it bounds their number."""
        from app.helpers import Helpers

        made = Helpers()
        self.stack.push_async_callback(made.close)
        return made

    @cached_property
    def serial(self) -> Serial:
        """Begins the actions of one agent one after the other: one for the whole process."""
        from app.serial import Serial

        return Serial()

    @cached_property
    def waiting(self) -> Waiting:
        """The requests that wait for runs to end. One for the whole process: at most half of its connections wait."""
        from app.waiting import Waiting

        made = Waiting(self.database, self.settings.http_connections_max // 2)
        self.stack.push_async_callback(made.close)
        return made

    @property
    def voting(self) -> Voting:
        """The service behind every face's approve and reject."""
        from runtime.requests.voting import Voting

        return Voting(self.database, self.definitions, self.directory)

    @property
    def editing(self) -> Editing:
        """The service behind every face's edits of actions."""
        from runtime.requests.editing import Editing

        return Editing(self.database, self.definitions, self.directory(self.settings.tenant))

    @property
    def talking(self) -> Talking:
        """The service behind everything that people say about a question before they decide."""
        from runtime.requests.talking import Talking

        return Talking(self.database, self.definitions, self.directory(self.settings.tenant))

    @property
    def tasks(self) -> Tasks:
        """The service behind every face's completion of a task."""
        from runtime.requests.tasks import Tasks

        return Tasks(self.database, self.definitions)

    @property
    def holding(self) -> Holding:
        """The service behind every face's answers about held steps."""
        from runtime.requests.holding import Holding

        return Holding(self.database, self.definitions)

    @property
    def reader(self) -> RunReader:
        """Reads the books of runs for display."""
        from runtime.requests.views import RunReader

        return RunReader(self.database, self.definitions)


@asynccontextmanager
async def build_faces(
    settings: Settings, *, blobs: BlobStore | None = None, new_tenant: bool = False
) -> AsyncIterator[Faces]:
    """Build only the faces, without a worker, for the command line. Everything is closed at the end.

    ``NotFoundError`` if the tenant does not exist, unless it is a ``new_tenant``, which the caller will create.
    """
    async with AsyncExitStack() as stack:
        logins = await stack.enter_async_context(storage.ready_database(settings))
        faces = await faces_of(stack, settings, logins.faces, blobs)
        if not new_tenant:
            await storage.require_tenants(faces.database, logins, [settings.tenant])
        yield faces


async def faces_of(stack: AsyncExitStack, settings: Settings, url: str, blobs: BlobStore | None = None) -> Faces:
    """The faces of a database whose schema is at head; ``stack`` closes what they open."""
    if settings.otel_endpoint is not None:
        from app.telemetry import telemetry

        stack.enter_context(telemetry(settings, version()))
    database = await stack.enter_async_context(Database(url, FACES_ROLE, limits=Limits.within(settings.lease_seconds)))
    return Faces(settings, database, stack, blobs)


def version() -> str:
    """The version of this release."""
    try:
        return metadata.version("counterseal")
    except metadata.PackageNotFoundError:
        return "unknown"
