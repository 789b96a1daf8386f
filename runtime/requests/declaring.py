"""Publishes declarations of operations. Each publication is an audit event, in the same transaction.

A declaration states no version: each text that differs from the one in use becomes the next version of its name.
Workflows and policies are compiled against the newest version; runs that have begun keep the version that they began
with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from io import StringIO
from typing import Any, TypeVar

import orjson
from msgspec import Struct
from ruamel.yaml import YAML

from connectors.catalog import Catalog, Source, load_catalog, names_in
from connectors.operation import Operation
from core.canonical import Json, JsonObject, canonical_bytes
from core.db import Connection
from core.errors import NotFoundError, nearest
from evidence.chain import Actor
from runtime.definition.catalog import Definitions
from runtime.definition.difference import difference, lines_of
from runtime.store import operations, tenants
from runtime.store.offload import COMPILING, offload
from runtime.store.operations import StoredOperation

Made = TypeVar("Made")

NAMED_MAX = 10  # how many numbers an error lists


class Declared(Struct, frozen=True):
    """A published declaration; ``changed`` is False if exactly this one was in use already.

    ``reason`` says why the start of a process did not publish it; "" if it did, or if somebody published it by hand.
    """

    name: str
    version: int
    digest: str
    changed: bool
    reason: str = ""


class Change(Struct, frozen=True):
    """The difference of two declarations of one name; ``before`` is None if none was published before."""

    name: str
    before: int | None
    after: int | None
    lines: list[str]


async def settled(
    connection: Connection, definitions: Definitions, tenant: str, text: str, compiled: Callable[[Catalog], Made]
) -> tuple[Catalog, Made]:
    """Lock the tenant; return the declarations published at that moment, and what ``compiled`` made with them.

    It is compiled before the lock, so that nobody waits for it, and again if other declarations were published
    meanwhile.
    """
    before = await definitions.published(connection, tenant)
    made = await offload(COMPILING, partial(compiled, before), connection)
    await tenants.lock(connection, tenant)
    now = await definitions.published(connection, tenant)
    if now.digests != before.digests:
        made = await offload(COMPILING, partial(compiled, now), connection)
    return now, made


async def publish_operations(
    connection: Connection,
    definitions: Definitions,
    tenant: str,
    sources: Iterable[Source],
    actor: Actor,
    *,
    forward: bool = False,
) -> list[Declared]:
    """Publish all declarations of these documents, or none. ``DefinitionError`` lists every fault.

    With ``forward``, as at the start of a process, a text that was published before is not published again: somebody
    may have published a newer one since, and the process's folder may be old.
    """
    await tenants.lock(connection, tenant)
    now = await definitions.published(connection, tenant)
    given = [*sources]
    found = load_catalog(given, now.operations)
    versions = await operations.listed(connection, tenant)
    return [
        await _publish(connection, tenant, found.operations[name], versions, actor, forward=forward)
        for name in names_in(given)
    ]


async def _publish(
    connection: Connection,
    tenant: str,
    operation: Operation,
    versions: Sequence[StoredOperation],
    actor: Actor,
    *,
    forward: bool,
) -> Declared:
    known = [one for one in versions if one.name == operation.name]
    used = known[0] if known else None
    if used is not None and used.digest == operation.digest:
        return Declared(operation.name, used.version, used.digest, False)
    before = next((one for one in known if one.digest == operation.digest), None)
    if forward and used is not None and before is not None:
        reason = f"it was published before, as version {before.version}, and version {used.version} is in use"
        return Declared(operation.name, before.version, before.digest, False, reason)
    version = used.version + 1 if used is not None else 1
    source = canonical_bytes(operation.model_dump(mode="json")).decode()
    await operations.publish(connection, tenant, operation.name, version, operation.digest, source, actor)
    return Declared(operation.name, version, operation.digest, True)


async def find(
    connection: Connection, definitions: Definitions, tenant: str, name: str, version: int | None = None
) -> StoredOperation | Operation:
    """A published declaration: this ``version``, or the one in use; a packaged declaration as the release has it.

    ``NotFoundError`` lists the existing versions or names.
    """
    known = await operations.listed(connection, tenant, name)
    if not known and version is None and name in definitions.catalog.packaged:
        return definitions.catalog.operations[name]
    for one in known:
        if version in (None, one.version):
            return one
    if known:
        numbers = ", ".join(str(one.version) for one in known[:NAMED_MAX])
        raise NotFoundError(f"There is no version {version} of {name}.", remedy=f"Published: {numbers}.")
    every = {one.name for one in await operations.listed(connection, tenant)} | definitions.catalog.operations.keys()
    raise NotFoundError(f"There is no operation {name!r}.", remedy=nearest(name, every, "Published"))


def declaration_of(found: StoredOperation | Operation) -> JsonObject:
    """A declaration as JSON, as it was published."""
    source = found.source if isinstance(found, StoredOperation) else canonical_bytes(found.model_dump(mode="json"))
    declared: JsonObject = orjson.loads(source)
    return declared


async def changes(
    connection: Connection, definitions: Definitions, tenant: str, sources: Sequence[Source]
) -> list[Change]:
    """The changes that publishing these documents would make, by name."""
    now = await definitions.published(connection, tenant)
    used = {one.name: one for one in await operations.newest(connection, tenant)}
    found = load_catalog(sources, now.operations)
    made = []
    for name in names_in(sources):
        before, after = used.get(name), lines_of(declaration_of(found.operations[name]))
        lines = difference(lines_of(declaration_of(before)) if before is not None else [], after)
        made.append(Change(name, None if before is None else before.version, None, lines))
    return made


def compared(before: StoredOperation, after: StoredOperation) -> Change:
    """The change from one published version to another."""
    lines = difference(lines_of(declaration_of(before)), lines_of(declaration_of(after)))
    return Change(after.name, before.version, after.version, lines)


# The keys of a declaration whose values are objects with keys of their own.
_PARTS = ("idempotency", "timeouts", "retry", "diff", "reverse", "on_timeout")


def _written(declared: Any) -> JsonObject:
    """A declaration as people write it: without empty keys."""
    written = {name: value for name, value in declared.items() if value not in (None, "")}
    for name in written.keys() & {*_PARTS}:
        written[name] = {key: value for key, value in written[name].items() if value is not None}
    return written


def document(declarations: Sequence[Json]) -> str:
    """Render declarations as a YAML document that can be published."""
    text = StringIO()
    writer: Any = YAML(typ="safe", pure=True)
    writer.default_flow_style, writer.width, writer.sort_base_mapping_type_on_output = False, 120, False
    writer.dump({"operations": [_written(one) for one in declarations]}, text)
    return text.getvalue()
