"""Tenants, their caps, and their directory of people."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from core.db import Connection
from core.errors import ConsistencyError
from core.identity import Directory, Entry

MAX_CONCURRENCY_DEFAULT = 16

_CREATE = """
INSERT INTO tenants (tenant_id, stream_id) VALUES ($1, $2) ON CONFLICT (tenant_id) DO NOTHING RETURNING tenant_id"""
_GROUPS = """
SELECT group_name, array_agg(person_id) AS members FROM group_members WHERE tenant_id = $1 GROUP BY group_name"""
_DIRECTORY = """
SELECT t.directory_digest, p.person_id, p.name, p.active, p.owner, p.principals, m.groups
FROM tenants t LEFT JOIN people p USING (tenant_id) LEFT JOIN (
  SELECT person_id, array_agg(group_name) AS groups FROM group_members WHERE tenant_id = $1 GROUP BY person_id
) m USING (person_id) WHERE t.tenant_id = $1"""
_NOW = "SELECT now() AS now, (SELECT directory_digest FROM tenants WHERE tenant_id = $1) AS digest"
_DIGEST = "SELECT directory_digest FROM tenants WHERE tenant_id = $1"
# Whoever holds the lock, and has vanished, is gone when its transaction has said nothing for too long: this waits for
# that, and then a little for others that wait as well. It holds for the locks that follow in the transaction too.
_PATIENCE = """set_config('lock_timeout', (1000 * extract(epoch FROM
  current_setting('idle_in_transaction_session_timeout')::interval + current_setting('lock_timeout')::interval)
  )::int::text, true)"""
_LOCK = f"SELECT {_PATIENCE}, pg_advisory_xact_lock(hashtextextended('counterseal.publishing:' || $1, 0))"
_LISTED = """
SELECT tenant_id, max_concurrency, max_runs_per_min, max_writes_per_run, weight, policy_digests, created_at
FROM tenants ORDER BY tenant_id"""

# A claim holds the tenant's row, so after this update our count is the one that the next claim makes as well.
_SET_CONCURRENCY = "UPDATE tenants SET max_concurrency = $2 WHERE tenant_id = $1"
_HELD = "SELECT count(*) FROM queue WHERE tenant_id = $1 AND status <> 'claimable'"
_SET_CAP = """
INSERT INTO caps (tenant_id, cap, slots, max_runs_per_min) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant_id, cap) DO UPDATE SET slots = excluded.slots, max_runs_per_min = excluded.max_runs_per_min"""
_SET_CAPS = """
UPDATE tenants SET
  max_runs_per_min = CASE WHEN $2 < 0 THEN NULL ELSE coalesce($2, max_runs_per_min) END,
  max_writes_per_run = CASE WHEN $3 < 0 THEN NULL ELSE coalesce($3, max_writes_per_run) END,
  weight = coalesce($4, weight)
WHERE tenant_id = $1"""


async def create(connection: Connection, tenant: str, stream_id: UUID) -> bool:
    """Create a tenant; False if it exists."""
    return await connection.fetchrow(_CREATE, tenant, stream_id) is not None


async def lock(connection: Connection, tenant: str) -> None:
    """Let nobody else publish in this tenant until the transaction ends. Take this lock before anything else of it.

    Publishing locks the tenant's row twice: for the text, and then more strongly for the audit event. Without this
    lock, two such transactions at once would deadlock.
    """
    await connection.execute(_LOCK, tenant)


async def exists(connection: Connection, tenant: str) -> bool:
    """True if there is such a tenant."""
    return bool(await connection.fetchval("SELECT EXISTS (SELECT FROM tenants WHERE tenant_id = $1)", tenant))


async def names(connection: Connection) -> list[str]:
    """Every tenant, by name. Under the engine's role: the faces' role sees one."""
    return [row["tenant_id"] for row in await connection.fetch("SELECT tenant_id FROM tenants ORDER BY tenant_id")]


async def listed(connection: Connection) -> list[dict[str, Any]]:
    """Every tenant that the role may see, by name, with its caps: the faces' role sees one."""
    return [dict(row) for row in await connection.fetch(_LISTED)]


async def set_slots(connection: Connection, tenant: str, count: int) -> None:
    """Let at most ``count`` steps of the tenant be held at once. ``ConsistencyError`` while more of them are."""
    await connection.execute(_SET_CONCURRENCY, tenant, count)
    held = await connection.fetchval(_HELD, tenant)
    if held > count:
        raise ConsistencyError(
            f"{held - count} steps above the new cap are executing.", remedy="Try again when they have ended."
        )


async def set_workflow_caps(
    connection: Connection, tenant: str, workflow: str, slots: int | None, runs_per_min: int | None
) -> None:
    """Cap the steps of a workflow that execute at once, from the next claim on, and its starts in a minute.

    None lifts a cap.
    """
    await connection.execute(_SET_CAP, tenant, workflow, slots, runs_per_min)


async def set_caps(
    connection: Connection, tenant: str, runs_per_min: int | None, writes_per_run: int | None, weight: float | None
) -> None:
    """Set the caps that are given; a negative one is lifted."""
    await connection.execute(_SET_CAPS, tenant, runs_per_min, writes_per_run, weight)


async def groups(connection: Connection, tenant: str) -> dict[str, frozenset[str]] | None:
    """The groups of the directory with their members; None if the directory names nobody, or there is none."""
    if not await connection.fetchval("SELECT EXISTS (SELECT FROM people WHERE tenant_id = $1)", tenant):
        return None
    rows = await connection.fetch(_GROUPS, tenant)
    return {row["group_name"]: frozenset(row["members"]) for row in rows}


async def directory_digest(connection: Connection, tenant: str) -> str | None:
    """The digest of the directory that was published last."""
    digest: str | None = await connection.fetchval(_DIGEST, tenant)
    return digest


async def directory_now(connection: Connection, tenant: str) -> tuple[datetime, str | None]:
    """The database's time, and the digest of the directory that is published then."""
    row = await connection.fetchrow(_NOW, tenant)
    assert row is not None, "a SELECT without FROM has a row"
    return row["now"], row["digest"]


async def directory(connection: Connection, tenant: str) -> Directory:
    """The people and service accounts as they are now, with the digest that says so, by one statement."""
    rows = await connection.fetch(_DIRECTORY, tenant)
    entries = [
        Entry(
            id=row["person_id"],
            name=row["name"],
            active=row["active"],
            groups=frozenset(row["groups"] or ()),
            principals=tuple(row["principals"]),
            owner=row["owner"],
        )
        for row in rows
        if row["person_id"] is not None
    ]
    return Directory.of((rows[0]["directory_digest"] if rows else None) or "", entries)


async def replace_directory(connection: Connection, tenant: str, directory: Directory) -> None:
    """Replace the people, the service accounts and the groups, after the audit's line that says so.

    A person who is not active is a member of no group.
    """
    entries = directory.entries.values()
    people = [
        {"tenant_id": tenant, "person_id": one.id, "name": one.name, "active": one.active, "owner": one.owner}
        | {"principals": [*one.principals]}
        for one in entries
    ]
    members = [
        {"tenant_id": tenant, "group_name": group, "person_id": one.id}
        for one in entries
        if one.active
        for group in sorted(one.groups)
    ]
    await connection.execute("SELECT replace_directory($1, $2, $3, $4)", people, members, directory.digest, tenant)
