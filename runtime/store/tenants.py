"""Tenants, their caps, and their directory of people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg

from core.db import Connection
from core.errors import ConsistencyError

MAX_CONCURRENCY_DEFAULT = 16

_CREATE = """
INSERT INTO tenants (tenant_id, stream_id) VALUES ($1, $2) ON CONFLICT (tenant_id) DO NOTHING RETURNING tenant_id"""
_GROUPS = """
SELECT group_name, array_agg(person_id) AS members FROM group_members WHERE tenant_id = $1 GROUP BY group_name"""
_OF_SLACK = "SELECT person_id, name FROM people WHERE tenant_id = $1 AND slack_user_id = ANY($2)"
_PERSON = """
SELECT p.name, p.slack_user_id, (SELECT array_agg(m.group_name) FROM group_members m
  WHERE m.tenant_id = p.tenant_id AND m.person_id = p.person_id) AS groups
FROM people p WHERE p.tenant_id = $1 AND p.person_id = $2"""
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('counterseal.publishing:' || $1, 0))"
_LISTED = """
SELECT tenant_id, max_concurrency, max_runs_per_min, max_writes_per_run, weight, policy_digest, created_at
FROM tenants ORDER BY tenant_id"""

# A claim holds the tenant's row, so what is counted after this has been set is what claims count as well.
_SET_CONCURRENCY = "UPDATE tenants SET max_concurrency = $2 WHERE tenant_id = $1"
_HELD = "SELECT count(*) FROM queue WHERE tenant_id = $1 AND status <> 'claimable'"
_SET_CAP = """
INSERT INTO caps (tenant_id, cap, slots) VALUES ($1, $2, $3)
ON CONFLICT (tenant_id, cap) DO UPDATE SET slots = excluded.slots"""
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
    """Let nobody else publish in this tenant until the transaction ends. Taken before anything else of it.

    What is published and its audit event lock the tenant's row one after the other, the second time harder; two
    transactions that did so at once would wait for each other.
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


async def set_workflow_slots(connection: Connection, tenant: str, workflow: str, count: int) -> None:
    """Let at most ``count`` steps of a workflow execute at once, of those that are claimed from now on."""
    await connection.execute(_SET_CAP, tenant, workflow, count)


async def set_caps(
    connection: Connection, tenant: str, runs_per_min: int | None, writes_per_run: int | None, weight: float | None
) -> None:
    """Set the caps that are given; a negative one is lifted."""
    await connection.execute(_SET_CAPS, tenant, runs_per_min, writes_per_run, weight)


async def groups(connection: Connection, tenant: str) -> dict[str, frozenset[str]] | None:
    """The groups of the directory with their members; None where the directory names nobody, or there is none."""
    if not await connection.fetchval("SELECT EXISTS (SELECT FROM people WHERE tenant_id = $1)", tenant):
        return None
    rows = await connection.fetch(_GROUPS, tenant)
    return {row["group_name"]: frozenset(row["members"]) for row in rows}


async def people_of_slack(connection: Connection, tenant: str, accounts: Sequence[str]) -> list[asyncpg.Record]:
    """Id and name of each person whose entry in the directory names one of these Slack accounts."""
    return await connection.fetch(_OF_SLACK, tenant, accounts)


async def person(connection: Connection, tenant: str, person_id: str) -> asyncpg.Record | None:
    """Name, Slack account and groups of a person of the directory."""
    return await connection.fetchrow(_PERSON, tenant, person_id)


async def replace_directory(
    connection: Connection,
    tenant: str,
    people: Sequence[tuple[str, str, str | None]],
    members: Sequence[tuple[str, str]],
) -> None:
    """Replace people (id, name, Slack id) and group members (group, person)."""
    await connection.execute("DELETE FROM group_members WHERE tenant_id = $1", tenant)
    await connection.execute("DELETE FROM people WHERE tenant_id = $1", tenant)
    await connection.executemany(
        "INSERT INTO people (tenant_id, person_id, name, slack_user_id) VALUES ($1, $2, $3, $4)",
        [(tenant, *person) for person in people],
    )
    await connection.executemany(
        "INSERT INTO group_members (tenant_id, group_name, person_id) VALUES ($1, $2, $3)",
        [(tenant, *member) for member in members],
    )
