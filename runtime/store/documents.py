"""Published documents: workflows and policies, immutable by version and digest (X-1, V-4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core.canonical import JsonObject
from core.db import Connection
from core.errors import ConsistencyError


@dataclass(frozen=True, slots=True)
class StoredWorkflow:
    """One published version: its exact text, and the declarations of its operations as frozen then."""

    name: str
    version: int
    digest: str
    source: str
    operations: JsonObject


_NEWEST = """
SELECT DISTINCT ON (name) name, version, digest, source, operations FROM workflows
WHERE tenant_id = $1 AND retired_at IS NULL AND ($2::text IS NULL OR name = $2)
  AND ($3::int IS NULL OR version = $3)
ORDER BY name, version DESC"""

_BY_DIGEST = """
SELECT name, version, digest, source, operations FROM workflows
WHERE tenant_id = $1 AND name = $2 AND version = $3"""

_PUBLISH_WORKFLOW = """
INSERT INTO workflows (tenant_id, name, version, digest, source, operations, published_by)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (tenant_id, name, version) DO NOTHING RETURNING version"""

_PUBLISH_POLICY = """
INSERT INTO policies (tenant_id, digest, name, version, source, published_by) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (tenant_id, digest) DO NOTHING"""

_SAME_POLICY_VERSION = "SELECT digest FROM policies WHERE tenant_id = $1 AND name = $2 AND version = $3"

_ACTIVATE_POLICY = """
UPDATE tenants SET policy_digest = $2 WHERE tenant_id = $1 AND policy_digest IS DISTINCT FROM $2 RETURNING tenant_id"""

_POLICY = "SELECT name, version, source FROM policies WHERE tenant_id = $1 AND digest = $2"


def _stored(row: Any) -> StoredWorkflow:
    return StoredWorkflow(row["name"], row["version"], row["digest"], row["source"], row["operations"])


async def newest_workflows(
    connection: Connection, tenant: str, name: str | None = None, version: int | None = None
) -> list[StoredWorkflow]:
    """The newest version of every workflow that is not retired, or of the one named."""
    return [_stored(row) for row in await connection.fetch(_NEWEST, tenant, name, version)]


async def workflow(connection: Connection, tenant: str, name: str, version: int) -> StoredWorkflow | None:
    """One version, retired or not: a run goes on with the version that it started with."""
    row = await connection.fetchrow(_BY_DIGEST, tenant, name, version)
    return None if row is None else _stored(row)


async def publish_workflow(connection: Connection, tenant: str, stored: StoredWorkflow, by: str) -> bool:
    """Store a version; False if exactly it was there. ``ConsistencyError`` if the version exists with another text."""
    row = await connection.fetchrow(
        _PUBLISH_WORKFLOW, tenant, stored.name, stored.version, stored.digest, stored.source, stored.operations, by
    )
    if row is not None:
        return True
    known = await workflow(connection, tenant, stored.name, stored.version)
    if known is not None and known.digest == stored.digest:
        return False
    raise ConsistencyError(
        f"{stored.name} version {stored.version} is published with another text, and versions never change.",
        remedy=f"Give this text a new number, such as version: {stored.version + 1}.",
    )


async def publish_policy(
    connection: Connection, tenant: str, *, digest: str, name: str, version: int, source: str, by: str
) -> bool:
    """Store a policy and make it the tenant's active one; False if it was active already.

    Decisions that are being committed at this moment see the change in their guard and are judged again.
    """
    same = await connection.fetchrow(_SAME_POLICY_VERSION, tenant, name, version)
    if same is not None and same["digest"] != digest:
        raise ConsistencyError(
            f"Policy {name} version {version} is published with another text, and versions never change.",
            remedy=f"Give this text a new number, such as version: {version + 1}.",
        )
    await connection.execute(_PUBLISH_POLICY, tenant, digest, name, version, source, by)
    return await connection.fetchrow(_ACTIVATE_POLICY, tenant, digest) is not None


async def policy(connection: Connection, tenant: str, digest: str) -> tuple[str, int, str] | None:
    """Name, version and exact text of a policy."""
    row = await connection.fetchrow(_POLICY, tenant, digest)
    return None if row is None else (row["name"], row["version"], row["source"])
