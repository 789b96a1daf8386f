"""Definitions at start: publish the new documents of a folder, and check all published ones.

``definitions_dir`` holds ``workflows/*.yaml``, ``policies/*.yaml``, ``operations/*.yaml`` and ``directory.yaml``. In
strict mode an invalid one stops the start; in warn mode it is reported and unavailable, and the rest goes on.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from dataclasses import asdict
from functools import partial
from typing import Any

import structlog

from app import adapters
from app.faces import Faces
from app.outlining import outline
from app.settings import Settings
from connectors.catalog import Source, names_in
from connectors.port import Connectors, Declared
from core.canonical import JsonObject, digest
from core.db import Connection
from core.errors import ConfigurationError, ConsistencyError, CountersealError, DefinitionError, InputError
from evidence.chain import Actor
from runtime.definition.catalog import Definitions
from runtime.requests import declaring, publishing, renewing
from runtime.requests.policies import Published
from runtime.requests.renewing import Before, Left, Renewed
from runtime.store import documents, replication
from runtime.store.documents import PublishedVersion, StoredWorkflow
from runtime.store.replication import Unavailable

log = structlog.get_logger(__name__)

ACTOR = Actor("installation", "definitions_dir")
CONFIGURED = "configured"

_HEAD = re.compile(r"^(?P<kind>workflow|policy|directory):[ \t]*[\"']?(?P<name>[A-Za-z0-9._-]{1,100})", re.MULTILINE)

Publish = Callable[..., Awaitable[Renewed]]


async def describe(
    connection: Connection, definitions: Definitions, tenant: str, name: str, version: int | None
) -> dict[str, Any]:
    """The named version in full; without a ``version`` the newest that is not retired, or else the newest.

    ``operations`` maps each operation that it calls to the SHA-256 of the declaration frozen with it. ``outline``
    is None if this release cannot read the version; ``problem`` says why. ``source`` has a mark for each secret that
    stands in the text. ``NotFoundError`` names the versions there.
    """
    found, stored = await _version(connection, tenant, name, version)
    described = {
        **asdict(found),
        "operations": {operation: digest(declared) for operation, declared in sorted(stored.operations.items())},
        "connectors": list(found.connectors),
        "source": definitions.evident(stored),
    }
    try:
        workflow = definitions.compiled(stored)
    except CountersealError as error:
        return {**described, "definition_digest": None, "outline": None, "problem": str(error)}
    facts = {"definition_digest": workflow.definition_digest, "outline": outline(workflow)}
    return {**described, **facts, "problem": None}


async def frozen(connection: Connection, tenant: str, name: str, version: int | None) -> JsonObject:
    """The declarations that were frozen with a version, by name; ``NotFoundError`` as of ``describe``."""
    _, stored = await _version(connection, tenant, name, version)
    return {operation: stored.operations[operation] for operation in sorted(stored.operations)}


async def _version(
    connection: Connection, tenant: str, name: str, version: int | None
) -> tuple[PublishedVersion, StoredWorkflow]:
    known = await documents.known_versions(connection, tenant, name)
    if version is None:
        found = next((one for one in known if one.retired_at is None), known[0])
    else:
        found = documents.of_number(known, version)
    stored = await documents.workflow(connection, tenant, name, found.version)
    assert stored is not None  # versions are never deleted
    return found, stored


async def connector_states(settings: Settings, names: Iterable[str]) -> dict[str, str]:
    """The state of each connector in this process: ``configured``, or words that name the missing setting."""
    async with aclosing(adapters.connectors_of(settings)) as connectors:
        words = lacking(names, connectors)
    return {name: words.get(name, CONFIGURED) for name in sorted(set(names))}


def lacking(names: Iterable[str], connectors: Connectors) -> dict[str, str]:
    """The connectors that are not configured in this process, with words that name the missing setting."""
    return {name: f"not configured. {error.remedy}".strip() for name, error in _lacking(names, connectors).items()}


def _lacking(names: Iterable[str], connectors: Connectors) -> dict[str, ConfigurationError]:
    """The error of each connector that is not configured in this process."""
    lacking = {}
    for name in names:
        try:
            connectors[name]
        except ConfigurationError as error:
            lacking[name] = error
    return lacking


async def prepare(faces: Faces, connectors: Connectors | None = None) -> None:
    """Publish the new documents of the folder, then compile everything that the tenant has published.

    This is one transaction, under the tenant's lock. In strict mode an invalid document raises ``ConfigurationError``
    and nothing is published. In warn mode invalid documents are reported and the others are published.
    """
    tenant, found, misfits = faces.settings.tenant, _documents(faces), await _misfits(faces.settings, connectors)
    async with faces.database.transaction(tenant) as connection:
        done, problems = await _renew(faces, connection, found)
        problems += await _check(faces, connection, connectors)
        lines = [line for problem in problems for line in problem.reason.splitlines()] + misfits
        if lines and faces.settings.definitions_mode == "strict":
            facts = "\n".join(lines)
            raise ConfigurationError(
                f"definitions are invalid, and COUNTERSEAL_DEFINITIONS_MODE is strict:\n{facts}\n",
                remedy="Repair them, or set COUNTERSEAL_DEFINITIONS_MODE=warn to start without them.",
            )
        await replication.replace(connection, tenant, problems)
        stuck = await publishing.undecided(connection, tenant)
    for file, renewed in done:
        named = {"file": file, "name": renewed.name, "version": renewed.version}
        # Log it: a reader of the folder would think that every document in it is in use.
        if isinstance(renewed, Left):
            log.warning("definition not published", **named, reason=renewed.why)
        elif renewed.changed:
            log.info("definition published", **named)
        elif renewed.retired:
            log.info("workflow retired", **named)
    for words in stuck:
        log.warning("a question that nobody could decide", reason=words)
    for line in lines:
        log.warning("a definition is unavailable", reason=line)


def _documents(faces: Faces) -> list[tuple[Publish, Source]]:
    folder = faces.settings.definitions_dir
    if folder is None:
        return []
    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is not a directory.", remedy="Set COUNTERSEAL_DEFINITIONS_DIR.")
    workflow = partial(renewing.renew_workflow, definitions=faces.definitions)
    policy = partial(renewing.renew_policy, definitions=faces.definitions)
    # The directory comes first: the check of a policy looks up who may decide.
    return [
        *((renewing.renew_directory, source) for source in adapters.documents_in(folder, "directory.yaml")),
        *((workflow, source) for source in adapters.documents_in(folder / "workflows")),
        *((policy, source) for source in adapters.documents_in(folder / "policies")),
    ]


async def _renew(
    faces: Faces, connection: Connection, found: Iterable[tuple[Publish, Source]]
) -> tuple[list[tuple[str, Renewed]], list[Unavailable]]:
    """Publish new documents; return the outcome of each valid document, and the faults of the invalid ones."""
    done, problems = list[tuple[str, Renewed]](), list[Unavailable]()
    before = await Before.look(connection, faces.settings.tenant)
    # Declarations come first: policies and workflows are compiled against them.
    await connection.execute("SAVEPOINT declarations")
    try:
        done += await declare(connection, faces)
    except DefinitionError as error:
        await connection.execute("ROLLBACK TO SAVEPOINT declarations")
        for file in sorted({problem.file for problem in error.problems}):
            words = "\n".join(str(problem) for problem in error.problems if problem.file == file)
            problems.append(Unavailable("operations", "", file, words))
    for publish, source in found:
        # With a savepoint, an invalid document does not roll back the others.
        await connection.execute("SAVEPOINT document")
        try:
            renewed = await publish(connection, before=before, text=source.text, file=source.file, actor=ACTOR)
            done.append((source.file, renewed))
        except (InputError, ConsistencyError) as error:
            await connection.execute("ROLLBACK TO SAVEPOINT document")
            problems.append(_of_document(source, str(error)))
    return done, problems


async def declare(connection: Connection, faces: Faces, actor: Actor = ACTOR) -> list[tuple[str, Renewed]]:
    """Publish the folder's new declarations, in the caller's transaction; ``DefinitionError`` for invalid ones."""
    sources, tenant = adapters.declarations_in(faces.settings), faces.settings.tenant
    if not sources:
        return []
    files = {name: source.file for source in sources for name in names_in([source])}
    publish = declaring.publish_operations(connection, faces.definitions, tenant, sources, actor, forward=True)
    return [(files[one.name], _renewed(one)) for one in await publish]


def _renewed(one: declaring.Declared) -> Renewed:
    if one.reason:
        return Left(one.name, one.version, one.reason)
    return Published(one.name, one.version, one.digest, one.changed)


def _of_document(source: Source, reason: str) -> Unavailable:
    """Describe an invalid document by the kind and name at the start of its text, if these can be read."""
    found = _HEAD.search(source.text)
    kind, name = (found["kind"], found["name"]) if found else ("document", "")
    return Unavailable(kind, name, source.file, reason)


async def _misfits(settings: Settings, connectors: Connectors | None) -> list[str]:
    """The faults of the folder's declarations that do not fit their outside system.

    If the system does not answer, the first call checks them. Publishing reports declarations that are invalid in
    themselves.
    """
    problems: list[str] = []
    with suppress(DefinitionError):
        own = adapters.catalog_of(settings).own.values()
        for name, connector in (connectors or {}).items():
            declared = [one for one in own if one.connector == name]
            faults = await connector.faults(declared) if isinstance(connector, Declared) else ()
            if isinstance(faults, str):
                words = "operations are compared with their system at the first call"
                log.warning(words, connector=name, reason=faults)
            else:
                problems += faults
    return problems


async def _check(faces: Faces, connection: Connection, connectors: Connectors | None) -> list[Unavailable]:
    """Compile the newest version of every workflow, and the policies in force; name every connector that is missing."""
    tenant, problems = faces.settings.tenant, list[Unavailable]()
    policies = await faces.definitions.policies(connection, tenant, await documents.in_force(connection, tenant))
    for broken in policies.broken:
        words = f"A policy in force cannot be read, so it denies all that it applies to: {broken.message}"
        problems.append(Unavailable("policy", "", "a policy in force", words))
    for version in await documents.newest_workflows(connection, tenant):
        name = f"{version.name}@{version.version}"
        try:
            workflow = faces.definitions.compiled(version)
        except CountersealError as error:
            problems.append(Unavailable("workflow", version.name, name, f"{name}: {error}"))
            continue
        lacking = {} if connectors is None else _lacking(workflow.connectors, connectors)
        if lacking:
            words = "\n".join(f"{name}: {error}" for error in lacking.values())
            problems.append(Unavailable("workflow", version.name, name, words))
    return problems
