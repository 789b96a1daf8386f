"""Published declarations of operations: immutable by name and version; the newest of each name is in use."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from core.canonical import JsonObject
from core.db import Connection
from evidence.chain import Actor, EventType
from runtime.store import audit
from runtime.store.statements import statements

_SQL = statements("operations")
_NEWEST = _SQL["newest"]
_NAMES = _SQL["names"]
_LISTED = _SQL["listed"]
_PUBLISH = _SQL["publish"]


class StoredOperation(Struct, frozen=True):
    """One version of a declaration, with its canonical JSON, whose SHA-256 is ``digest``."""

    name: str
    version: int
    digest: str
    source: str
    published_by: str
    published_at: datetime


async def newest(connection: Connection, tenant: str, names: Sequence[str] | None = None) -> list[StoredOperation]:
    """The declarations in use: the newest version of each name, or of each of ``names``."""
    return [StoredOperation(*row.values()) for row in await connection.fetch(_NEWEST, tenant, names)]


async def names(connection: Connection, tenant: str) -> list[str]:
    """The names of all published declarations, sorted."""
    return [row["name"] for row in await connection.fetch(_NAMES, tenant)]


async def listed(connection: Connection, tenant: str, name: str | None = None) -> list[StoredOperation]:
    """Every version of every declaration, or of the named one; ordered by name, the newest version first."""
    return [StoredOperation(*row.values()) for row in await connection.fetch(_LISTED, tenant, name)]


async def publish(
    connection: Connection, tenant: str, name: str, version: int, digest: str, source: str, actor: Actor
) -> None:
    """Store the next version of a declaration, with the line that says so. The caller holds the tenant's lock.

    A crash before the commit leaves neither, and the publisher repeats the call.
    """
    data: JsonObject = {"name": name, "version": version, "digest": digest}
    line = await audit.line(connection, tenant, EventType.OPERATION_PUBLISHED, actor, data)
    await connection.execute(_PUBLISH, line, source, tenant)
