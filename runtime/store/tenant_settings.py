"""The settings of tenants: every applied version, and the version in force."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from core.canonical import JsonObject, sha256_hex
from core.db import Connection
from evidence.chain import Actor, EventType
from runtime.store import audit
from runtime.store.statements import statements

_SQL = statements("tenant_settings")
_IN_FORCE = _SQL["in_force"]
_STANDING = _SQL["standing"]
_APPLY = _SQL["apply"]
_CHANGED = _SQL["changed"]


class StoredSettings(Struct, frozen=True):
    """One version of a tenant's settings, with its text."""

    version: int
    digest: str
    source: str
    applied_by: str
    applied_at: datetime


class Standing(Struct, frozen=True):
    """The version of the settings in force (None if there are none), the stop number, and a flag if it is suspended."""

    version: int | None
    stop: int
    suspended: bool


async def in_force(connection: Connection, tenant: str) -> StoredSettings | None:
    """The settings in force; None if none was ever applied."""
    row = await connection.fetchrow(_IN_FORCE, tenant)
    return None if row is None else StoredSettings(*row.values())


async def standing(connection: Connection, tenant: str) -> Standing | None:
    """The facts about a tenant that decide if its cached settings may be used; None if there is no such tenant."""
    row = await connection.fetchrow(_STANDING, tenant)
    return None if row is None else Standing(row["settings_version"], row["stop_number"], row["suspended"])


async def apply(connection: Connection, tenant: str, text: str, actor: Actor) -> tuple[int, bool]:
    """Put settings in force with their audit line; return their version, and False if they were in force already.

    The caller holds the lock of the tenant. A crash before the commit leaves the former version in force.
    """
    before, digest = await in_force(connection, tenant), sha256_hex(text.encode())
    if before is not None and before.digest == digest:
        return before.version, False
    version = 1 if before is None else before.version + 1
    data: JsonObject = {"version": version, "digest": digest}
    line = await audit.line(connection, tenant, EventType.TENANT_APPLIED, actor, data)
    await connection.execute(_APPLY, line, text, tenant)
    return version, True


async def changed(connection: Connection, environment: str, known: Mapping[str, int]) -> list[str]:
    """The tenants with outside systems whose settings' version is not the ``known`` one; 0 means no settings.

    Under the engine's role, which sees all tenants.
    """
    return [row["tenant_id"] for row in await connection.fetch(_CHANGED, environment, dict(known))]
