"""Definitions at start (X-1, X-2): what a directory holds is published, and what is published is checked.

``definitions_dir`` holds ``workflows/*.yaml``, ``policies/*.yaml``, ``operations/*.yaml`` and ``directory.yaml``. In
strict mode an invalid one stops the start; in warn mode it is reported and unavailable, and the rest goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
from pydantic import ValidationError

from app import adapters
from app.outlining import outline
from app.settings import DefinitionsMode, Settings
from app.wiring import Faces
from connectors.catalog import Catalog, Source
from connectors.registry import Connectors
from core.canonical import JsonObject, digest
from core.db import Connection
from core.errors import ConfigurationError, ConsistencyError, CountersealError, InputError
from evidence.chain import Actor
from runtime.definition.active_policy import BrokenPolicy
from runtime.definition.catalog import Definitions
from runtime.store import documents
from runtime.store.documents import PublishedVersion
from runtime.verbs import publishing
from runtime.verbs.publishing import Published

log = structlog.get_logger(__name__)

ACTOR = Actor("installation", "definitions_dir")
CONFIGURED = "configured"
# What compiling a published version may raise: its text, or the declarations frozen with it, are not of this release.
UNREADABLE = (CountersealError, ValidationError)

Publish = Callable[[Connection, Source], Awaitable[Published]]


@dataclass(frozen=True, slots=True)
class Described:
    """One published version, whole. ``outline`` is None where this release cannot read it; ``problem`` says why.

    ``operations`` maps the operations that it calls to the SHA-256 of their declarations as frozen with it (V-4).
    """

    version: PublishedVersion
    source: str
    operations: Mapping[str, str]
    definition_digest: str | None
    outline: JsonObject | None
    problem: str | None


async def describe(
    connection: Connection, definitions: Definitions, tenant: str, name: str, version: int | None
) -> Described:
    """The version named, or the newest that is not retired, or the newest. ``NotFoundError`` names what there is."""
    known = await documents.known_versions(connection, tenant, name)
    if version is None:
        found = next((one for one in known if one.retired_at is None), known[0])
    else:
        found = documents.of_number(known, version)
    stored = await documents.workflow(connection, tenant, name, found.version)
    assert stored is not None  # versions are never deleted
    frozen = {operation: digest(declared) for operation, declared in sorted(stored.operations.items())}
    try:
        workflow = definitions.compiled(stored)
    except UNREADABLE as error:
        return Described(found, stored.source, frozen, None, None, str(error))
    return Described(found, stored.source, frozen, workflow.definition_digest, outline(workflow), None)


async def standing(settings: Settings, catalog: Catalog, names: Iterable[str]) -> dict[str, str]:
    """Of each connector whether this installation has it: ``configured``, or what would have to be set."""
    connectors = adapters.connectors_of(settings, catalog)
    try:
        return {name: _words(connectors, name) or CONFIGURED for name in sorted(set(names))}
    finally:
        await connectors.aclose()


def _words(connectors: Connectors, name: str) -> str:
    try:
        connectors.get(name)
    except ConfigurationError as error:
        return f"not configured. {error.remedy}".strip()
    return ""


@dataclass(frozen=True, slots=True)
class _Document:
    source: Source
    publish: Publish


async def prepare(faces: Faces, connectors: Connectors | None = None) -> None:
    """Publish the directory, then compile everything that the tenant has published.

    In strict mode all of it is one transaction: ``ConfigurationError`` lists what is invalid, and nothing of the
    directory was published. In warn mode what is invalid is reported, and the rest is published.
    """
    found = _documents(faces)
    database, tenant = faces.database, faces.settings.tenant
    if faces.settings.definitions_mode is DefinitionsMode.STRICT:
        async with database.transaction(tenant) as connection:
            done, problems = await _publish_all(connection, found)
            _refuse_to_start([*problems, *await _check(faces, connection, connectors)])
        for document, published in done:
            _tell(document, published)
        return
    problems = []
    for document in found:
        # Each in a transaction of its own, so that one that is invalid leaves the others alone.
        try:
            async with database.transaction(tenant) as connection:
                published = await document.publish(connection, document.source)
        except (InputError, ConsistencyError) as error:
            problems.append(str(error))
        else:
            _tell(document, published)
    async with database.transaction(tenant) as connection:
        problems += await _check(faces, connection, connectors)
    for line in (line for problem in problems for line in problem.splitlines()):
        log.warning("a definition is unavailable", reason=line)


def _refuse_to_start(problems: Sequence[str]) -> None:
    if problems:
        lines = "\n".join(line for problem in problems for line in problem.splitlines())
        raise ConfigurationError(
            f"definitions are invalid, and COUNTERSEAL_DEFINITIONS_MODE is strict:\n{lines}\n",
            remedy="Repair them, or set COUNTERSEAL_DEFINITIONS_MODE=warn to start without them.",
        )


def _documents(faces: Faces) -> list[_Document]:
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
        *(_Document(source, workflow) for source in adapters.documents_in(folder / "workflows")),
        *(_Document(source, policy) for source in adapters.documents_in(folder / "policies")),
        *(_Document(source, people) for source in _directory_of(folder)),
    ]


async def _publish_all(
    connection: Connection, found: Iterable[_Document]
) -> tuple[list[tuple[_Document, Published]], list[str]]:
    """Publish every one; what was published, and what is wrong with the others."""
    done, problems = [], []
    for document in found:
        try:
            done.append((document, await document.publish(connection, document.source)))
        except (InputError, ConsistencyError) as error:
            problems.append(str(error))
    return done, problems


def _tell(document: _Document, published: Published) -> None:
    if published.changed:
        log.info("published", file=document.source.file, name=published.name, version=published.version)
    elif published.retired:
        # Whoever finds it in the folder would think that it is in use.
        log.info("is retired", file=document.source.file, name=published.name, version=published.version)


def _directory_of(folder: Path) -> list[Source]:
    path = folder / "directory.yaml"
    return [Source(str(path), adapters.read_document(path))] if path.exists() else []


async def _check(faces: Faces, connection: Connection, connectors: Connectors | None) -> list[str]:
    """Compile the newest version of every workflow, and the active policy; name every connector that is missing."""
    tenant, problems = faces.settings.tenant, []
    row = await connection.fetchrow("SELECT policy_digest FROM tenants WHERE tenant_id = $1", tenant)
    policy = await faces.definitions.policy(connection, tenant, row["policy_digest"] if row else None)
    if isinstance(policy, BrokenPolicy):
        problems.append(f"The active policy cannot be read, so nothing is allowed: {policy.message}")
    for version in await documents.newest_workflows(connection, tenant):
        name = f"{version.name}@{version.version}"
        try:
            workflow = faces.definitions.compiled(version)
        except UNREADABLE as error:
            problems.append(f"{name}: {error}")
            continue
        if connectors is not None:
            problems += [f"{name}: {words}" for words in _missing(workflow.connectors, connectors)]
    return problems


def _missing(names: Iterable[str], connectors: Connectors) -> list[str]:
    words = []
    for name in names:
        try:
            connectors.get(name)
        except CountersealError as error:
            words.append(str(error))
    return words
