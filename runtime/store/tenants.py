"""Tenants, their caps, and their directory of people."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import convert, to_builtins

from core.canonical import JsonObject
from core.db import Connection
from core.errors import ConsistencyError
from core.identity import Delegation, Directory, Entry
from core.quiet import Quiet
from evidence.chain import Actor, EventType
from runtime.store import audit
from runtime.store.statements import statements

MAX_CONCURRENCY_DEFAULT = 16

_SQL = statements("tenants")
_CREATE = _SQL["create"]
_GROUPS = _SQL["groups"]
_DIRECTORY = _SQL["directory"]
_NOW = _SQL["now"]
_DIGEST = _SQL["digest"]
_LOCK = _SQL["lock"]
_LISTED = _SQL["listed"]
_SET_CONCURRENCY = _SQL["set_concurrency"]
_HELD = _SQL["held"]
_SET_CAP = _SQL["set_cap"]
_SET_CAPS = _SQL["set_caps"]
_EXISTS = _SQL["exists"]
_NAMES = _SQL["names"]
_HAS_PEOPLE = _SQL["has_people"]
_REPLACE_DIRECTORY = _SQL["replace_directory"]
_QUIET = _SQL["quiet"]


async def create(connection: Connection, tenant: str, stream_id: UUID) -> bool:
    """Create a tenant; False if it exists already."""
    return await connection.fetchrow(_CREATE, tenant, stream_id) is not None


async def lock(connection: Connection, tenant: str) -> None:
    """Let nobody else publish in this tenant until the transaction ends. Take this lock before any other of the tenant.

    Publishing locks the tenant's row twice: for the text, and then more strongly for the audit event. Without this
    lock, two such transactions at once would deadlock.
    """
    await connection.execute(_LOCK, tenant)


async def exists(connection: Connection, tenant: str) -> bool:
    """True if there is such a tenant."""
    return bool(await connection.fetchval(_EXISTS, tenant))


async def names(connection: Connection) -> list[str]:
    """Every tenant's name, sorted. Needs the engine's role: the faces' role sees one tenant."""
    return [row["tenant_id"] for row in await connection.fetch(_NAMES)]


async def listed(connection: Connection) -> list[dict[str, Any]]:
    """Every tenant that the role sees, with its caps, sorted by name; the faces' role sees one."""
    return [dict(row) for row in await connection.fetch(_LISTED)]


async def set_slots(connection: Connection, tenant: str, count: int) -> None:
    """Let at most ``count`` steps of the tenant be leased at once. ``ConsistencyError`` while more of them are."""
    await connection.execute(_SET_CONCURRENCY, tenant, count)
    held = await connection.fetchval(_HELD, tenant)
    if held > count:
        raise ConsistencyError(
            f"{held - count} steps above the new cap are executing.", remedy="Try again when they have ended."
        )


async def set_workflow_caps(
    connection: Connection, tenant: str, workflow: str, slots: int | None, runs_per_min: int | None
) -> None:
    """Cap, from the next claim on, the steps of a workflow that execute at once, and its starts in a minute.

    None lifts a cap.
    """
    await connection.execute(_SET_CAP, tenant, workflow, slots, runs_per_min)


async def set_caps(
    connection: Connection, tenant: str, runs_per_min: int | None, writes_per_run: int | None, weight: float | None
) -> None:
    """Set the caps that are given; a negative one is lifted."""
    await connection.execute(_SET_CAPS, tenant, runs_per_min, writes_per_run, weight)


async def groups(connection: Connection, tenant: str) -> dict[str, frozenset[str]] | None:
    """The groups of the directory with their members; None if there is no directory, or if it names nobody."""
    if not await connection.fetchval(_HAS_PEOPLE, tenant):
        return None
    rows = await connection.fetch(_GROUPS, tenant)
    return {row["group_name"]: frozenset(row["members"]) for row in rows}


async def directory_digest(connection: Connection, tenant: str) -> str | None:
    """The digest of the directory that was published last."""
    digest: str | None = await connection.fetchval(_DIGEST, tenant)
    return digest


async def directory_now(connection: Connection, tenant: str) -> tuple[datetime, str | None, str | None]:
    """The database's time, the digest of the directory in use, and the reason if the tenant is suspended."""
    row = await connection.fetchrow(_NOW, tenant)
    assert row is not None, "there is a row without the tenant, too"
    return row["now"], row["digest"], row["suspended"]


async def directory(connection: Connection, tenant: str) -> Directory:
    """The people and service accounts in use, with the directory's digest, read by one statement."""
    rows = await connection.fetch(_DIRECTORY, tenant)
    entries = [
        Entry(
            id=row["person_id"],
            name=row["name"],
            active=row["active"],
            groups=frozenset(row["groups"] or ()),
            principals=tuple(row["principals"]),
            owner=row["owner"],
            quiet=None if row["quiet"] is None else convert(row["quiet"], Quiet),
            manager=row["manager"],
            delegate=None if row["delegate"] is None else convert(row["delegate"], Delegation),
        )
        for row in rows
        if row["person_id"] is not None
    ]
    return Directory.of((rows[0]["directory_digest"] if rows else None) or "", entries)


async def replace_directory(
    connection: Connection, tenant: str, directory: Directory, text: str, actor: Actor, facts: JsonObject
) -> None:
    """Replace the people, the service accounts and the groups; append the event that says so, and keep the text.

    A person who is not active is a member of no group. A crash before the commit leaves the former directory, and
    neither the event nor the text.
    """
    entries = directory.entries.values()
    people = [
        {"tenant_id": tenant, "person_id": one.id, "name": one.name, "active": one.active, "owner": one.owner}
        | {"principals": [*one.principals], "manager": one.manager}
        | {"delegate": None if one.delegate is None else to_builtins(one.delegate)}
        for one in entries
    ]
    members = [
        {"tenant_id": tenant, "group_name": group, "person_id": one.id}
        for one in entries
        if one.active
        for group in sorted(one.groups)
    ]
    line = await audit.line(connection, tenant, EventType.DIRECTORY_PUBLISHED, actor, facts)
    await connection.execute(_REPLACE_DIRECTORY, line, text, people, members, tenant)
    quiet = [[one.id, to_builtins(one.quiet)] for one in entries if one.quiet is not None]
    if quiet:  # in the same transaction: a crash leaves the directory as it was
        await connection.execute(_QUIET, quiet, tenant)
