"""Publishing documents: workflows, policies, the directory of people. Each publication is an audit event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from core.canonical import JsonObject, sha256_hex
from core.db import Connection, check_tenant
from core.documents import Document, load_document
from core.errors import DefinitionError, Problem
from core.ids import new_id
from core.validation import validate
from evidence.chain import Actor, EventType
from runtime import audit
from runtime.definition.catalog import Definitions
from runtime.definition.workflow import load_workflow
from runtime.store import documents, tenants
from runtime.store.documents import StoredWorkflow


@dataclass(frozen=True, slots=True)
class Published:
    """What was published; ``changed`` is False when exactly this was published before."""

    name: str
    version: int
    digest: str
    changed: bool


async def ensure_tenant(
    connection: Connection,
    tenant: str,
    *,
    max_concurrency: int | None = None,
    max_runs_per_min: int | None = None,
    max_writes_per_run: int | None = None,
    weight: float | None = None,
) -> bool:
    """Create the tenant if it is new, and set the caps that are given (Q-12); whether it is new."""
    created = await tenants.create(connection, check_tenant(tenant), new_id())
    if created or max_concurrency is not None:
        await tenants.set_slots(connection, tenant, max_concurrency or tenants.MAX_CONCURRENCY_DEFAULT)
    await tenants.set_caps(connection, tenant, max_runs_per_min, max_writes_per_run, weight)
    return created


async def publish_workflow(
    connection: Connection, definitions: Definitions, tenant: str, text: str, file: str, actor: Actor
) -> Published:
    """Publish one version of a workflow. ``DefinitionError`` lists what is wrong with it."""
    workflow = load_workflow(text, file, definitions.catalog)
    stored = StoredWorkflow(workflow.name, workflow.version, workflow.digest, text, workflow.frozen_operations)
    changed = await documents.publish_workflow(connection, tenant, stored, actor.id)
    if changed:
        data: JsonObject = {"name": workflow.name, "version": workflow.version, "digest": workflow.digest}
        await audit.record(connection, tenant, EventType.WORKFLOW_PUBLISHED, actor, data)
    return Published(workflow.name, workflow.version, workflow.digest, changed)


async def publish_policy(
    connection: Connection, definitions: Definitions, tenant: str, text: str, file: str, actor: Actor
) -> Published:
    """Publish a policy and make it the tenant's active one. ``DefinitionError`` lists what is wrong with it."""
    policy = definitions.compile_policy(text, file)
    changed = await documents.publish_policy(
        connection,
        tenant,
        digest=policy.digest,
        name=policy.name,
        version=policy.version,
        source=text,
        by=actor.id,
    )
    if changed:
        data: JsonObject = {"name": policy.name, "version": policy.version, "digest": policy.digest}
        await audit.record(connection, tenant, EventType.POLICY_PUBLISHED, actor, data)
    return Published(policy.name, policy.version, policy.digest, changed)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


Identifier = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]*$")]


class PersonDocument(_Part):
    """One person; ``slack`` is the member id of their Slack account (U…)."""

    id: Identifier
    name: Annotated[str, Field(min_length=1, max_length=200)]
    slack: Annotated[str, Field(pattern=r"^[UW][A-Z0-9]{2,20}$")] | None = None


class DirectoryDocument(_Part):
    """People and groups of one tenant; publishing it replaces what was there."""

    directory: Identifier
    version: Annotated[int, Field(ge=1)] = 1
    people: Annotated[tuple[PersonDocument, ...], Field(max_length=10_000)]
    groups: dict[Identifier, tuple[Identifier, ...]] = {}


async def publish_directory(connection: Connection, tenant: str, text: str, file: str, actor: Actor) -> Published:
    """Replace the tenant's people and groups. Rights are read when a vote arrives, so this takes effect at once."""
    document = load_document(text, file)
    content = validate(document, DirectoryDocument)
    problems = _directory_problems(document, content)
    if problems:
        raise DefinitionError(tuple(problems))
    people = [(person.id, person.name, person.slack) for person in content.people]
    members = [(group, person) for group, persons in content.groups.items() for person in persons]
    await tenants.replace_directory(connection, tenant, people, members)
    digest = sha256_hex(text.encode())
    data: JsonObject = {"name": content.directory, "version": content.version, "digest": digest}
    await audit.record(connection, tenant, EventType.DIRECTORY_PUBLISHED, actor, data)
    return Published(content.directory, content.version, digest, True)


def _directory_problems(document: Document, content: DirectoryDocument) -> list[Problem]:
    problems = []
    ids: set[str] = set()
    accounts: set[str] = set()
    for number, person in enumerate(content.people):
        if person.id in ids:
            problems.append(document.problem(("people", number, "id"), f"The person {person.id!r} is here twice."))
        if person.slack is not None and person.slack in accounts:
            message = f"The Slack account {person.slack} belongs to two people."
            problems.append(document.problem(("people", number, "slack"), message))
        ids.add(person.id)
        accounts |= {person.slack} if person.slack else set()
    for group, persons in content.groups.items():
        for number, name in enumerate(persons):
            if name not in ids:
                message = f"The group {group!r} names {name!r}, who is not among the people."
                problems.append(document.problem(("groups", group, number), message, "Add the person, or take it out."))
            elif name in persons[:number]:
                problems.append(document.problem(("groups", group, number), f"{name!r} is in {group!r} twice."))
    return problems
