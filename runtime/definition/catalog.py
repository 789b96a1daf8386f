"""The catalog of published versions, compiled once per process: by name and version, by digest."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias
from uuid import UUID

import orjson
from msgspec.structs import replace

from connectors.catalog import Catalog
from connectors.operation import Operation
from core.budgets import KIB, MIB
from core.canonical import sha256_hex
from core.db import Connection, DatabaseClock, within
from core.documents import load_document
from core.errors import CountersealError, InputError, NotFoundError
from core.identity import NOBODY, Directory
from policy.facts import OperationFacts
from policy.load import Policy, check_names, load_policy, scope_of
from policy.sets import NO_POLICIES, BrokenPolicy, PolicySet
from runtime.definition.cache import Cache, size_of_directory, size_of_policies, size_of_policy, size_of_workflow
from runtime.definition.edges import Generics
from runtime.definition.masking import evident
from runtime.definition.workflow import extended, load_workflow, thaw_operations
from runtime.engine.book.recorded import Diverged
from runtime.engine.model.events import RunMigrated
from runtime.engine.model.graph import Graph
from runtime.engine.model.rows import MutationRow
from runtime.engine.model.run import Definition
from runtime.engine.model.workflow import Workflow
from runtime.store import books, documents, operations, tenants
from runtime.store.books import Book
from runtime.store.documents import StoredWorkflow
from runtime.store.offload import COMPILING, offload
from runtime.store.operations import StoredOperation

# The digest of a workflow or the digests of the declarations by which a set judges, and the policies' digests.
_SetKey: TypeAlias = tuple[str | frozenset[tuple[str, str]], tuple[str, ...]]


def operation_facts(catalog: Catalog) -> dict[str, OperationFacts]:
    """The facts of each declared operation that policies may use."""
    found, generics = {}, Generics(catalog)
    for name, operation in catalog.operations.items():
        fields = operation.fact_types()
        read = operation.diff.fields if operation.diff is not None and isinstance(operation.diff.fields, tuple) else ()
        before = frozenset({*fields, *read} if operation.diff else ())
        arguments, free = operation.arguments, operation.takes_other_fields
        found[name] = OperationFacts(fields, before, generics.of(operation), operation.connector, arguments, free)
    return found


def readable(text: str, file: str, facts: dict[str, OperationFacts]) -> Policy | BrokenPolicy:
    """Compile a published policy against these declarations; a ``BrokenPolicy`` if they do not fit it any more."""
    try:
        return load_policy(text, file, facts)
    except CountersealError as error:
        return BrokenPolicy(sha256_hex(text.encode()), str(error), scope_of(text, file, facts))


class Definitions:
    """Compiles and caches what the database holds. One per process."""

    def __init__(self, catalog: Catalog) -> None:
        # The packaged declarations, which every tenant has.
        self.catalog = catalog
        self._declared: Cache[str, Operation] = Cache(32 * MIB)
        self._facts_of: Cache[frozenset[tuple[str, str]], dict[str, OperationFacts]] = Cache(16 * MIB)
        self._workflows: Cache[tuple[str, int, str], Workflow] = Cache(128 * MIB)
        self._extended: Cache[tuple[UUID, int], Workflow] = Cache(64 * MIB)
        self._policies: Cache[tuple[str, frozenset[tuple[str, str]]], Policy | BrokenPolicy] = Cache(32 * MIB)
        self._sets: Cache[_SetKey, PolicySet] = Cache(32 * MIB)
        self._directories: Cache[str, Directory] = Cache(32 * MIB)
        # The workflow for which a name stood when a run was last started with it, and the database's time then. The
        # statement that opens the next run checks that it still stands for it.
        self.startable: Cache[tuple[str, str, int | None], tuple[Workflow, DatabaseClock]] = Cache(64 * MIB)

    async def published(self, connection: Connection, tenant: str, names: Sequence[str] | None = None) -> Catalog:
        """The operations against which the tenant's documents are compiled now: packaged and published ones.

        With ``names``, only these published ones are read.
        """
        found, broken = dict[str, Operation](), dict[str, str]()
        for stored in await operations.newest(connection, tenant, names):
            if stored.name in self.catalog.packaged:
                continue  # a later release has packaged an operation of this name
            try:
                found[stored.name] = self.declared(stored)
            except InputError as error:
                broken[stored.name] = str(error)
        return Catalog({**self.catalog.operations, **found}, self.catalog.packaged, broken)

    def declared(self, stored: StoredOperation) -> Operation:
        """A published declaration; ``InputError`` if this release cannot read it."""
        if (known := self._declared.known(stored.digest)) is not None:
            return known
        if sha256_hex(stored.source.encode()) != stored.digest:
            raise InputError(f"The declaration of {stored.name} version {stored.version} is not the published one.")
        file, source = f"{stored.name}@{stored.version}", orjson.loads(stored.source)
        (made,) = thaw_operations({stored.name: source}, file).operations.values()
        return self._declared.put(stored.digest, made, 10 * len(stored.source))

    def facts(self, catalog: Catalog) -> dict[str, OperationFacts]:
        """The facts that policies may use of these operations."""
        known = self._facts_of.known(catalog.digests)
        return known or self._facts_of.put(catalog.digests, operation_facts(catalog), KIB * len(catalog.operations))

    def compile_policy(self, text: str, file: str, catalog: Catalog | None = None) -> Policy:
        """Compile a policy against these declarations, or the packaged ones; ``DefinitionError`` lists its problems."""
        return load_policy(text, file, self.facts(catalog or self.catalog))

    def check_policy(self, text: str, file: str, catalog: Catalog) -> Policy:
        """Compile a policy that is new, and check the names that it looks for as well."""
        found = self.compile_policy(text, file, catalog)
        check_names(found, file, self.facts(catalog))
        return found

    async def workflow(self, connection: Connection, tenant: str, name: str, version: int, digest: str) -> Workflow:
        """The version that a run started with."""
        if (known := self._workflows.known((name, version, digest))) is not None:
            return known
        async with within(connection, tenant):
            stored = await documents.workflow(connection, tenant, name, version)
        if stored is None or stored.digest != digest:
            raise NotFoundError(f"Workflow {name} version {version} is not what it was when the run started.")
        thaw = partial(self._thawed, stored)
        thawed = await offload(COMPILING, thaw, connection)
        return self._workflows.put((name, version, digest), thawed, size_of_workflow(thawed))

    async def graphs(self, connection: Connection, run: Definition) -> list[Graph]:
        """The graph of a run as it was published, and after each of its changes."""
        every = [await self.of_run(connection, replace(run, extensions=n)) for n in range(run.extensions)]
        return [workflow.graph for workflow in [*every, await self.of_run(connection, run)]]

    async def of_run(self, connection: Connection, run: Definition) -> Workflow:
        """The workflow as this run executes it: the version with which it started, and its extensions."""
        if run.extensions and (known := self._extended.known((run.run_id, run.extensions))) is not None:
            return known
        if not run.extensions:
            named = (run.tenant_id, run.workflow, run.workflow_version, run.workflow_digest)
            return await self.workflow(connection, *named)
        base, added = await self.extended_from(connection, run)
        return self._with((run.run_id, run.extensions), base, added)

    async def extended_from(self, connection: Connection, run: Definition) -> tuple[Workflow, list[MutationRow]]:
        """The version of the run's workflow after its last migration, and the extensions since then."""
        changes = list[books.Change]()
        if run.extensions:
            async with within(connection, run.tenant_id):
                changes = await books.changes(connection, run.run_id, run.run_key, run.extensions)
        moved, added = books.since_migration(changes)
        named = (run.tenant_id, run.workflow, run.workflow_version, run.workflow_digest)
        return await (
            self.workflow(connection, *named) if moved is None else self._moved(connection, named[0], moved)
        ), added

    async def _moved(self, connection: Connection, tenant: str, moved: RunMigrated) -> Workflow:
        """The version to which a run was moved. ``Diverged`` if its text is not what it was then."""
        named: Any = moved.workflow
        found = await self.workflow(connection, tenant, named["name"], named["version"], named["digest"])
        if found.definition_digest != moved.definition:
            words = f"The workflow {found.name}@{found.version} is not what it was when the run was moved to it"
            raise Diverged(words, "workflow and policies")
        return found

    async def editions(self, connection: Connection, book: Book) -> list[Workflow]:
        """The workflow at the run's beginning and after each change of its graph. ``Diverged`` if one was altered."""
        row, changes, found = book.row, book.changes, list[Workflow]()
        named = (row["tenant_id"], row["workflow"], row["workflow_version"], row["workflow_digest"])
        base = await self.workflow(connection, *named)
        if book.opened.definition != base.definition_digest:
            raise Diverged(
                f"The workflow {base.name}@{base.version} is not what it was when the run started",
                "workflow and policies",
            )
        for number in range(1, len(changes) + 1):
            moved, added = books.since_migration(changes[:number])
            since = base if moved is None else await self._moved(connection, row["tenant_id"], moved)
            found.append(self._with((book.run_id, number), since, added))
        return [base, *found]

    def _with(self, key: tuple[UUID, int], base: Workflow, added: Sequence[MutationRow]) -> Workflow:
        if (known := self._extended.known(key)) is not None:
            return known
        workflow = extended(base, added) if added else base
        return self._extended.put(key, workflow, size_of_workflow(workflow))

    def compiled(self, stored: StoredWorkflow) -> Workflow:
        """Compile a stored version against the declarations that were frozen with it."""
        key = (stored.name, stored.version, stored.digest)
        if (known := self._workflows.known(key)) is not None:
            return known
        thawed = self._thawed(stored)
        return self._workflows.put(key, thawed, size_of_workflow(thawed))

    @staticmethod
    def _thawed(stored: StoredWorkflow) -> Workflow:
        file = f"{stored.name}@{stored.version}"
        return load_workflow(stored.source, file, thaw_operations(stored.operations, file), stored.digest)

    def evident(self, stored: StoredWorkflow) -> str:
        """The text of a stored version for people and for evidence, with a mark in place of each secret literal.

        An operation that this release cannot read is replaced by the operation of its name in the present catalog.
        """
        file = f"{stored.name}@{stored.version}"
        known = dict(self.catalog.operations)
        for name, declared in stored.operations.items():
            with suppress(InputError):
                known |= thaw_operations({name: declared}, file).operations
        return evident(stored.source, load_document(stored.source, file).value, known)

    def people(self, tenant: str) -> Directory | None:
        """The tenant's people as they were last read; None before that. Callers guard their commit by the digest."""
        return self._directories.known(tenant)

    async def directory(self, connection: Connection, tenant: str, digest: str | None) -> Directory:
        """The tenant's people by the directory with this digest, or by a newer one that has replaced it."""
        if digest is None:
            return self._directories.put(tenant, NOBODY, KIB)
        known = self._directories.known(tenant)
        if known is not None and known.digest == digest:
            return known
        async with within(connection, tenant):
            found = await tenants.directory(connection, tenant)
        return self._directories.put(tenant, found, size_of_directory(found))

    async def policies(
        self,
        connection: Connection,
        tenant: str,
        digests: Sequence[str],
        workflow: Workflow | None = None,
        now: Catalog | None = None,
    ) -> PolicySet:
        """The set of the policies with these digests. A policy that cannot be read or found denies (fail-closed).

        With ``workflow`` they are compiled for its runs: against the declarations that were frozen with it and with
        each policy, whatever was published since. Otherwise they are compiled against ``now``; without it, against
        everything that is declared.
        """
        if not digests:
            return NO_POLICIES
        if workflow is None:
            now = now or await self.published(connection, tenant)
            key: _SetKey = (now.digests, tuple(digests))
        else:
            key = (workflow.definition_digest, tuple(digests))
        if (known := self._sets.known(key)) is not None:
            return known
        every = [await self._policy(connection, tenant, digest, workflow, now) for digest in digests]
        # A set with a missing or altered policy is not cached, so the policy is looked up each time.
        found = PolicySet(policy for policy, _ in every)
        return self._sets.put(key, found, size_of_policies(found)) if all(intact for _, intact in every) else found

    async def _policy(
        self, connection: Connection, tenant: str, digest: str, workflow: Workflow | None, now: Catalog | None
    ) -> tuple[Policy | BrokenPolicy, bool]:
        """Compile the policy against ``now`` or the workflow's operations; return it, and True if it may be cached."""
        stored = await documents.policy(connection, tenant, digest)
        if stored is None:
            return BrokenPolicy(digest, "It is not in the database."), False
        if sha256_hex(stored.source.encode()) != digest:
            return BrokenPolicy(digest, "Its text is not the one that was published."), False
        # A policy of an older release, with which no declarations were frozen, is compiled against today's. They only
        # say which other operations exist: calls of a run are judged by the declarations that were frozen with the run.
        if stored.operations is None and now is None:
            now = await self.published(connection, tenant)
        file = f"{stored.name}@{stored.version}"
        try:
            known = self._known_to(stored, workflow, now, file)
        except CountersealError as error:
            return BrokenPolicy(digest, str(error), scope_of(stored.source, file, self.facts(self.catalog))), True
        if (found := self._policies.known((digest, known.digests))) is not None:
            return found, True
        facts = self.facts(known)
        read = partial(readable, stored.source, file, facts)
        made = await offload(COMPILING, read, connection)
        return self._policies.put((digest, known.digests), made, size_of_policy(made)), True

    def _known_to(
        self, stored: documents.StoredPolicy, workflow: Workflow | None, now: Catalog | None, file: str
    ) -> Catalog:
        """The declarations by which a policy judges: packaged ones, those frozen with it, those of the run's workflow.

        Without a workflow (a face shows a forecast), the declarations ``now`` take precedence over frozen ones.
        """
        frozen = {} if stored.operations is None else thaw_operations(stored.operations, file).operations
        packaged = {name: self.catalog.operations[name] for name in self.catalog.packaged}
        known = {**packaged, **frozen, **(now.own if now is not None else {})}
        return Catalog(known | (dict(workflow.operations) if workflow is not None else {}), self.catalog.packaged)
