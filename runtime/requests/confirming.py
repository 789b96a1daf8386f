"""Confirms versions of workflows that wait for an admin, because their publisher is only an author (promise 1).

An author may compose workflows, but may not let them act by themselves. So an author's version waits for an admin if it
has a trigger, if a policy gives rights to its name, or if a workflow of somebody else would run it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.canonical import JsonObject
from core.db import Connection
from core.errors import CountersealError
from core.identity import Kind, principal
from evidence.chain import Actor, EventType
from policy.load import Policy
from runtime.definition.catalog import Definitions
from runtime.engine.book.gates import children_in
from runtime.engine.model.graph import ContinueNode
from runtime.engine.model.workflow import Workflow
from runtime.store import audit, documents, tenants


@dataclass(frozen=True, slots=True)
class Activated:
    """A version with which runs may start; ``changed`` is False if they could start with it before."""

    name: str
    version: int
    digest: str
    changed: bool


async def waits_for(
    connection: Connection, definitions: Definitions, tenant: str, workflow: Workflow, actor: Actor
) -> str | None:
    """The reason why a version of a mere author waits for an admin; None if it does not have to wait."""
    if workflow.triggered:
        return "it has a trigger"
    policies = await definitions.policies(connection, tenant, await documents.in_force(connection, tenant))
    if policies.broken:
        return "a policy in force cannot be read, which may name it"
    for policy in policies.policies:
        if policy.scope.names(workflow.name) and not await _may(connection, tenant, policy, actor):
            return f"the policy {policy.name} names it, and not its author"
    above = await _run_by(connection, definitions, tenant, workflow, actor)
    return f"the workflow {above} runs it" if above else None


async def activate_workflow(
    connection: Connection, definitions: Definitions, tenant: str, name: str, version: int, actor: Actor
) -> Activated:
    """Let runs start with a waiting version, which the actor (an admin) has reviewed; idempotent."""
    await tenants.lock(connection, tenant)
    known = documents.of_number(await documents.known_versions(connection, tenant, name), version)
    changed = await documents.activate_workflow(connection, tenant, name, version)
    if changed:
        facts: JsonObject = {"name": name, "version": version, "digest": known.digest, "author": known.published_by}
        await audit.record(connection, tenant, EventType.WORKFLOW_ACTIVATED, actor, facts)
        stored = await documents.workflow(connection, tenant, name, version)
        if stored is not None:
            await set_caps(connection, tenant, definitions.compiled(stored))
    return Activated(name, version, known.digest, changed)


async def set_caps(connection: Connection, tenant: str, workflow: Workflow) -> None:
    """Put the caps of this version in force for the workflow's name.

    Call it after the audit's line, which locks the tenant's row: claims lock the two in this order.
    """
    if workflow.cap:
        caps = (workflow.max_concurrency, workflow.max_runs_per_min)
        await tenants.set_workflow_caps(connection, tenant, workflow.cap, *caps)


async def _may(connection: Connection, tenant: str, policy: Policy, actor: Actor) -> bool:
    """True if the policy gives the names in its scope to a group of authors that the actor belongs to."""
    authors = None if policy.applies is None else policy.applies.authors
    people = await tenants.directory(connection, tenant)
    person = people.resolve(principal(Kind.BEARER, actor.id)) if authors is not None else None
    entry = None if person is None else people.entries.get(person)
    return authors is not None and entry is not None and entry.active and authors.group in entry.groups


async def _run_by(
    connection: Connection, definitions: Definitions, tenant: str, workflow: Workflow, actor: Actor
) -> str | None:
    """Find a workflow of somebody else, or one that an admin has activated, that would run this version at any depth.

    Every version with which a run may start or go on counts: others may run an older one by its number.
    """
    by = {(one.name, one.version): one for one in await documents.workflow_versions(connection, tenant)}
    runs: dict[str, set[str]] = {}
    trusted = list[str]()
    for stored in await documents.living_workflows(connection, tenant):
        try:
            published = definitions.compiled(stored)
        except CountersealError:
            return stored.name  # it cannot be read, so nobody knows what it runs
        runs.setdefault(stored.name, set()).update(_runs(published, workflow))
        if by[stored.name, stored.version].published_by != actor.id or published.triggered:
            trusted.append(stored.name)
    return next((name for name in trusted if name != workflow.name and _reaches(runs, name, workflow.name)), None)


def _runs(published: Workflow, wanted: Workflow) -> set[str]:
    """The names of the workflows that this one runs; ``wanted`` only if it would be run in exactly this version."""
    leaves = [*children_in(published.graph)]
    places = [(leaf.workflow, leaf.version) for leaf in leaves]
    places += [
        (leaf.workflow, leaf.version) for leaf in published.graph.leaves.values() if isinstance(leaf, ContinueNode)
    ]
    return {name for name, version in places if name != wanted.name or version in (None, wanted.version)}


def _reaches(runs: Mapping[str, set[str]], begin: str, wanted: str) -> bool:
    todo, seen = [begin], set[str]()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        if wanted in runs.get(name, ()):
            return True
        todo += runs.get(name, ())
    return False
