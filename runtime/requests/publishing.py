"""Publishes workflows and the directory of people. Each publication is an audit event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from uuid import UUID

from msgspec import Struct

from approvals.electorate import slack_groups, unanswerable
from approvals.tally import resolved
from connectors.catalog import Catalog
from core.canonical import Json, JsonObject, sha256_hex
from core.db import Connection, check_tenant
from core.errors import AuthorizationError, DefinitionError, InputError
from core.identity import Directory, Kind
from core.ids import new_id
from core.terms import Terms
from evidence.chain import Actor, EventType
from runtime.definition.catalog import Definitions
from runtime.definition.foresight import foresee_steps
from runtime.definition.people import DirectoryDocument, load_directory, of_policy, of_workflow
from runtime.definition.reserved import refuse_reserved
from runtime.definition.schemas import refuse_unsendable
from runtime.definition.workflow import load_workflow
from runtime.engine.book.contributors import stated_contributors
from runtime.engine.model.workflow import Workflow
from runtime.requests.child_runs import check_children, result_schemas
from runtime.requests.confirming import set_caps, waits_for
from runtime.requests.declaring import settled
from runtime.requests.directory import first_of_two, same_approvers
from runtime.requests.policies import Published, refuse
from runtime.store import approvals, audit, documents, replication, tenant_settings, tenants
from runtime.store.documents import StoredWorkflow
from runtime.store.offload import COMPILING, offload


@dataclass(frozen=True, slots=True)
class Retired:
    """A retirement; ``changed`` is False if it had happened before. Runs now start with ``starts_with``, if any."""

    name: str
    version: int
    changed: bool
    starts_with: int | None


async def ensure_tenant(
    connection: Connection,
    tenant: str,
    *,
    max_concurrency: int | None = None,
    max_runs_per_min: int | None = None,
    max_writes_per_run: int | None = None,
    weight: float | None = None,
) -> bool:
    """Create the tenant if it is new, and set the given caps; return True if it is new."""
    created = await tenants.create(connection, check_tenant(tenant), new_id())
    if created or max_concurrency is not None:
        await tenants.set_slots(connection, tenant, max_concurrency or tenants.MAX_CONCURRENCY_DEFAULT)
    if (max_runs_per_min, max_writes_per_run, weight) != (None, None, None):
        await tenants.set_caps(connection, tenant, max_runs_per_min, max_writes_per_run, weight)
    return created


async def publish_workflow(
    connection: Connection,
    definitions: Definitions,
    tenant: str,
    text: str,
    file: str,
    actor: Actor,
    *,
    owned: bool = False,
) -> Published:
    """Publish one version of a workflow. ``DefinitionError`` lists what is wrong with it.

    With ``owned``, the publisher is only an author: ``AuthorizationError`` for a name that somebody else has published
    first, and a version that would act by itself waits for an admin (``runtime.requests.confirming``).
    """
    catalog, (workflow, wrong) = await settled(connection, definitions, tenant, text, partial(_compiled, text, file))
    wrong = wrong or await _misread(connection, definitions, tenant, (text, file, workflow, catalog))
    if wrong is not None:
        before = await documents.workflow(connection, tenant, workflow.name, workflow.version)
        if before is None or before.source != text:
            raise wrong
    if owned:
        await check_owner(connection, tenant, workflow.name, actor)
    await check_children(connection, definitions, tenant, workflow)
    waits = await waits_for(connection, definitions, tenant, workflow, actor) if owned else None
    schedule = None if workflow.schedule is None else workflow.schedule.spec
    facts = (workflow.name, workflow.version, workflow.digest, text, workflow.frozen_operations, schedule)
    stored = StoredWorkflow(*facts)
    changed = await documents.publish_workflow(connection, tenant, stored, actor.id, waits)
    if changed:
        data: JsonObject = {"name": workflow.name, "version": workflow.version, "digest": workflow.digest}
        await audit.record(
            connection, tenant, EventType.WORKFLOW_PUBLISHED, actor, data | ({"waits": True} if waits else {})
        )
        if waits is None:
            await set_caps(connection, tenant, workflow)
        await replication.forget(connection, tenant, "workflow", workflow.name)
        warnings = refuse(of_workflow(text, file, await tenants.groups(connection, tenant)))
        policies = await definitions.policies(connection, tenant, await documents.in_force(connection, tenant))
        steps = tuple(one.to_json() for one in foresee_steps(workflow, policies))
        answer = (workflow.name, workflow.version, workflow.digest, True)
        return Published(*answer, warnings=warnings, steps=steps, waits=waits is not None, waits_for=waits)
    known = await documents.known_versions(connection, tenant, workflow.name)
    found = documents.of_number(known, workflow.version)
    waits, retired = found.waits_for, found.retired_at is not None
    answer = (workflow.name, workflow.version, workflow.digest, False)
    return Published(*answer, retired=retired, waits=waits is not None, waits_for=waits)


def _compiled(text: str, file: str, catalog: Catalog) -> tuple[Workflow, DefinitionError | None]:
    """Compile a workflow; return it with its faults, which count only if it is new: a published one stays usable."""
    try:
        return check_workflow(catalog, text, file), None
    except DefinitionError as error:
        return check_workflow(catalog, text, file, typed=False), error


async def _misread(
    connection: Connection, definitions: Definitions, tenant: str, made: tuple[str, str, Workflow, Catalog]
) -> DefinitionError | None:
    """Compile a workflow once more with the result schemas of the workflows that it runs; return the faults, if any."""
    text, file, workflow, catalog = made
    children = await result_schemas(connection, definitions, tenant, workflow)
    if not children:
        return None
    try:
        await offload(COMPILING, partial(check_workflow, catalog, text, file, children=children), connection)
    except DefinitionError as error:
        return error
    return None


def check_workflow(
    catalog: Catalog, text: str, file: str, *, typed: bool = True, children: Mapping[str, Json] = MappingProxyType({})
) -> Workflow:
    """Compile a workflow that is not Counterseal's own; ``DefinitionError`` lists what is wrong with it."""
    workflow = load_workflow(text, file, catalog, typed=typed, children=children)
    refuse_reserved(workflow.name, text, file)
    refuse_unsendable(text, file, workflow.operations)
    return workflow


async def check_owner(connection: Connection, tenant: str, name: str, actor: Actor) -> None:
    """Refuse a name that somebody else has published first. The tenant is locked, so two publishers come in order."""
    versions = await documents.workflow_versions(connection, tenant, name)
    owner = min(versions, key=lambda one: (one.published_at, one.version)).published_by if versions else actor.id
    if owner != actor.id:
        raise AuthorizationError(
            f"The workflow {name!r} belongs to {owner}, who has published it first.",
            remedy="Choose another name, or let them or an administrator publish it.",
        )


async def retire_workflow(connection: Connection, tenant: str, name: str, version: int, actor: Actor) -> Retired:
    """Let no run start with this version any more, for good; retiring it again changes nothing.

    Started runs go on with it. New runs start with the newest version that is left: retiring the newest one goes back
    to the previous one. ``NotFoundError`` lists the published versions.
    """
    await tenants.lock(connection, tenant)
    known = await documents.known_versions(connection, tenant, name)
    documents.of_number(known, version)
    changed = await documents.retire_workflow(connection, tenant, name, version)
    if changed:
        await audit.record(connection, tenant, EventType.WORKFLOW_RETIRED, actor, {"name": name, "version": version})
    left = await documents.newest_workflows(connection, tenant, name)
    return Retired(name, version, changed, left[0].version if left else None)


async def undecided(connection: Connection, tenant: str) -> tuple[str, ...]:
    """The questions of the policies in force that nobody of the present directory could decide."""
    groups = await tenants.groups(connection, tenant)
    problems: list[str] = []
    for digest in await documents.in_force(connection, tenant):
        stored = await documents.policy(connection, tenant, digest)
        if stored is None:
            continue
        try:
            found = of_policy(stored.source, f"{stored.name}@{stored.version}", groups)
        except InputError:
            continue  # a policy that cannot be read allows nothing, and is reported elsewhere
        problems += [*map(str, found.problems), *found.warnings]
    return tuple(problems)


async def publish_directory(connection: Connection, tenant: str, text: str, file: str, actor: Actor) -> Published:
    """Replace the tenant's people and groups. Rights are read when a vote arrives, so this takes effect at once.

    Two members of ``POLICY_APPROVERS`` must agree if it changes who belongs to that group, or an account, e-mail or
    service account of its members. Otherwise one person could approve their own policy in the name of a second one.
    People leave, so it is no error if nobody could decide a question any more; the warnings say so.
    """
    content = load_directory(text, file)
    await tenants.lock(connection, tenant)
    await _check_workspaces(connection, tenant, content)
    digest = sha256_hex(text.encode())
    people = Directory.of(digest, content.entries)
    data: JsonObject = {"name": content.directory, "version": content.version, "digest": digest}
    if not same_approvers(await tenants.directory(connection, tenant), people):
        events = (EventType.DIRECTORY_PROPOSED, EventType.DIRECTORY_PUBLISHED)
        if await first_of_two(connection, tenant, events, data, actor) is None:
            return Published(content.directory, content.version, digest, False, waits=True)
    before = {one.approval_id for one in await unread(connection, tenant, await tenants.directory(connection, tenant))}
    lost = [str(one) for one in await unread(connection, tenant, people) if one.approval_id not in before]
    await tenants.replace_directory(connection, tenant, people, text, actor, data)
    warnings = (*await undecided(connection, tenant), *lost)
    return Published(content.directory, content.version, digest, True, warnings=warnings)


async def _check_workspaces(connection: Connection, tenant: str, content: DirectoryDocument) -> None:
    """Refuse Slack ids without a workspace if the tenant has its own app: ids are unique only in a workspace."""
    standing = await tenant_settings.standing(connection, tenant)
    if standing is None or standing.version is None:
        return
    for entry in content.entries:
        for account in entry.accounts(Kind.SLACK):
            if "/" not in account:
                words = (
                    f"The Slack account {account} of {entry.id} names no workspace, and {tenant} has an app of its own."
                )
                raise InputError(words, where="slack", remedy=f"Write T…/{account}.")


# The most open questions that are checked, the oldest first; the rest is counted.
QUESTIONS_MAX = 500


class Unread(Struct, frozen=True):
    """An open question that nobody could decide, and the reason."""

    approval_id: UUID
    run_id: UUID
    step: str
    why: str

    def __str__(self) -> str:
        return (
            f"Nobody can decide the open question {self.approval_id} (run {self.run_id}, step {self.step}). {self.why}"
        )


async def unread(connection: Connection, tenant: str, people: Directory) -> list[Unread]:
    """The open questions that nobody of this directory could decide, not even after their escalation.

    Questions to a Slack group are left out: its members are known only when somebody votes.
    """
    found = []
    for one in await approvals.open_questions(connection, tenant, QUESTIONS_MAX):
        terms = Terms.from_json(one.asked.terms or {})
        if slack_groups(terms):
            continue
        why = unanswerable(terms, resolved(stated_contributors(one.asked), people), people, {})
        if why is not None:
            found.append(Unread(one.approval_id, one.run_id, one.step_key, f"{why.message} {why.remedy}"))
    return found
