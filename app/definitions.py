"""Definitions at start (X-1, X-2): what a directory holds is published, and what is published is checked.

``definitions_dir`` holds ``workflows/*.yaml``, ``policies/*.yaml``, ``operations/*.yaml`` and ``directory.yaml``. In
strict mode an invalid one stops the start; in warn mode it is reported and unavailable, and the rest goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import structlog

from app import adapters
from app.settings import DefinitionsMode
from app.wiring import Faces
from connectors.catalog import Source
from connectors.registry import Connectors
from core.db import Connection
from core.errors import ConfigurationError, ConsistencyError, CountersealError, InputError
from evidence.chain import Actor
from runtime import publishing
from runtime.definition.active_policy import BrokenPolicy
from runtime.publishing import Published
from runtime.store import documents

log = structlog.get_logger(__name__)

ACTOR = Actor("installation", "definitions_dir")

Publish = Callable[[Connection, Source], Awaitable[Published]]


async def prepare(faces: Faces, connectors: Connectors | None = None) -> None:
    """Publish the directory, then compile everything that the tenant has published.

    In strict mode ``ConfigurationError`` lists what is invalid.
    """
    problems = [*await _publish(faces), *await _check(faces, connectors)]
    for problem in problems:
        log.error("a definition is unavailable", reason=problem)
    if problems and faces.settings.definitions_mode is DefinitionsMode.STRICT:
        raise ConfigurationError(
            "\n".join(problems), remedy="Repair them, or set COUNTERSEAL_DEFINITIONS_MODE=warn to start without them."
        )


async def _publish(faces: Faces) -> list[str]:
    folder = faces.settings.definitions_dir
    if folder is None:
        return []
    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is not a directory.", remedy="Set COUNTERSEAL_DEFINITIONS_DIR.")
    tenant, definitions = faces.settings.tenant, faces.definitions

    async def workflow(connection: Connection, source: Source) -> Published:
        return await publishing.publish_workflow(connection, definitions, tenant, source.text, source.file, ACTOR)

    async def policy(connection: Connection, source: Source) -> Published:
        return await publishing.publish_policy(connection, definitions, tenant, source.text, source.file, ACTOR)

    async def people(connection: Connection, source: Source) -> Published:
        return await publishing.publish_directory(connection, tenant, source.text, source.file, ACTOR)

    return [
        *await _each(faces, adapters.documents_in(folder / "workflows"), workflow),
        *await _each(faces, adapters.documents_in(folder / "policies"), policy),
        *await _each(faces, _directory_of(folder), people),
    ]


def _directory_of(folder: Path) -> list[Source]:
    path = folder / "directory.yaml"
    return [Source(str(path), adapters.read_document(path))] if path.exists() else []


async def _each(faces: Faces, sources: Sequence[Source], publish: Publish) -> list[str]:
    """Each document in a transaction of its own, so that one that is invalid leaves the others alone."""
    problems = []
    for source in sources:
        try:
            async with faces.database.transaction(faces.settings.tenant) as connection:
                published = await publish(connection, source)
        except (InputError, ConsistencyError) as error:
            problems.append(str(error))
        else:
            if published.changed:
                log.info("published", file=source.file, name=published.name, version=published.version)
    return problems


async def _check(faces: Faces, connectors: Connectors | None) -> list[str]:
    """Compile the newest version of every workflow, and the active policy; name connectors that are missing."""
    tenant, problems = faces.settings.tenant, []
    async with faces.database.transaction(tenant) as connection:
        row = await connection.fetchrow("SELECT policy_digest FROM tenants WHERE tenant_id = $1", tenant)
        policy = await faces.definitions.policy(connection, tenant, row["policy_digest"] if row else None)
        stored = await documents.newest_workflows(connection, tenant)
    if isinstance(policy, BrokenPolicy):
        problems.append(f"The active policy cannot be read, so nothing is allowed: {policy.message}")
    for version in stored:
        try:
            workflow = faces.definitions.compiled(version)
            if connectors is not None:
                for name in workflow.connectors:
                    connectors.get(name)
        except CountersealError as error:
            problems.append(f"{version.name}@{version.version}: {error}")
    return problems
