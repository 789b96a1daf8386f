"""The installation under test: its schema, its documents, its people's tokens."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path

from app import adapters, storage
from app.access import Role, create_token
from chaos import documents
from chaos.cases import OTHER, TENANT
from chaos.eyes import AWAY
from chaos.people import SLACK_USERS
from connectors.catalog import load_catalog
from core.db import FACES_ROLE, Connection, Database
from core.errors import TransportError
from evidence.chain import Actor
from runtime.definition.catalog import Definitions
from runtime.requests.policies import publish_policy, retire_policy
from runtime.requests.publishing import ensure_tenant, publish_directory, publish_workflow

_ACTOR = Actor("test", "chaos")
_ROLES = frozenset({Role.APPROVER, Role.OPERATOR, Role.TRIGGER})


CHANGE_SECONDS = 8.0
# If PostgreSQL is away during a change, the directory stays as it was until the next change.
UNCERTAIN_SECONDS = 12.0
_OWNERS = [*SLACK_USERS.values()]


def definitions_in(folder: Path) -> Definitions:
    """Build the compiler of this installation's documents."""
    return Definitions(load_catalog(adapters.documents_in(folder / "operations")))


def _people_of(tenant: str, directory: str) -> str:
    """The directory of a tenant. The second one has an app of its own, so its accounts name their workspace."""
    return directory.replace("slack: U", "slack: T0OTHER/U") if tenant == OTHER else directory


async def publish(url: str, folder: Path, people: list[str]) -> dict[tuple[str, str], str]:
    """Publish everything as ``counterseal`` does; operations go to ``folder``. Returns a token for each person."""
    (folder / "operations").mkdir(parents=True)
    (folder / "operations" / "chaos.yaml").write_text(documents.OPERATIONS)
    await storage.upgrade(url)
    definitions = definitions_in(folder)
    async with Database(url, FACES_ROLE) as faces:
        for tenant in (TENANT, OTHER):
            async with faces.transaction(tenant) as connection:
                await ensure_tenant(connection, tenant, max_concurrency=documents.MAX_CONCURRENCY)
                await publish_directory(connection, tenant, _people_of(tenant, documents.DIRECTORY), "d.yaml", _ACTOR)
                for policy in (documents.POLICY, documents.TONE):
                    await publish_policy(connection, definitions, tenant, policy, "policy.yaml", _ACTOR)
                # A workflow is published after its child workflows.
                for name in sorted(documents.WORKFLOWS, key=lambda name: name != "inner"):
                    await publish_workflow(connection, definitions, tenant, documents.WORKFLOWS[name], name, _ACTOR)
        return {
            (tenant, person): (await create_token(faces, tenant, person, _ROLES, None, _ACTOR)).token
            for tenant in (TENANT, OTHER)
            for person in people
        }


@dataclass
class Office:
    """Changes policies and directory repeatedly. ``owners`` are the sets of owners, each with the time since when.

    Cara Diaz is an owner in every second edition. A change counts from before it was tried, as its answer may be lost.
    """

    url: str
    definitions: Definitions
    owners: list[tuple[float, frozenset[str]]] = field(default_factory=lambda: [(0.0, frozenset(_OWNERS))])
    done: int = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Make changes until ``stop``."""
        async with Database(self.url, FACES_ROLE, connections=1) as database:
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CHANGE_SECONDS):
                        await stop.wait()
                self.done += 1
                owners = [*_OWNERS[: 2 + self.done % 2]]
                self.owners.append((time.time(), frozenset(owners)))
                with contextlib.suppress(*AWAY, TransportError):
                    await self._change(database, self.done + 1, owners)

    async def _change(self, database: Database, edition: int, owners: list[str]) -> None:
        policy = documents.POLICY.replace("version: 1", f"version: {edition}").replace(
            "Edition 1", f"Edition {edition}"
        )
        directory = documents.DIRECTORY.replace(f"owners: [{', '.join(_OWNERS)}]", f"owners: [{', '.join(owners)}]")
        for tenant in (TENANT, OTHER):
            async with database.transaction(tenant) as connection:
                await publish_policy(connection, self.definitions, tenant, policy, "policy.yaml", _ACTOR)
            async with database.transaction(tenant) as connection:
                await self._change_tone(connection, tenant, edition)
            async with database.transaction(tenant) as connection:
                await publish_directory(connection, tenant, _people_of(tenant, directory), "d.yaml", _ACTOR)

    async def _change_tone(self, connection: Connection, tenant: str, edition: int) -> None:
        """Retire the second policy, publish the edition that asks people, or publish the plain one, in turn."""
        if edition % 3 == 0:
            await retire_policy(connection, self.definitions, tenant, "tone", _ACTOR)
            return
        text = documents.TONE_ASKS if edition % 3 == 1 else documents.TONE
        text = text.replace("version: 1", f"version: {edition}")
        await publish_policy(connection, self.definitions, tenant, text, "tone.yaml", _ACTOR)

    def owned(self, person: str, at: float) -> bool:
        """True if the person may have been an owner when the vote recorded at ``at`` was judged.

        Changes shortly before are uncertain: they may have failed, or come too late for that vote.
        """
        until = [members for since, members in self.owners if since <= at - UNCERTAIN_SECONDS][-1:]
        around = [members for since, members in self.owners if at - UNCERTAIN_SECONDS < since <= at]
        return any(person in members for members in until + around)
