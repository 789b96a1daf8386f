"""Bearer tokens. Only their SHA-256 is stored, so whoever reads the table can use none of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import asyncpg

from core.db import Connection

_CREATE = """
INSERT INTO tokens (token_hash, tenant_id, subject, roles, expires_at) VALUES ($1, $2, $3, $4, now() + $5::interval)"""
_OWNER = "SELECT tenant_id, subject, roles FROM token_owner($1)"
_LIST = """
SELECT left(token_hash, 12) AS token, subject, roles, created_at, expires_at, revoked_at FROM tokens
WHERE tenant_id = $1 ORDER BY created_at, token_hash"""
_REVOKE = """
UPDATE tokens SET revoked_at = now() WHERE tenant_id = $1 AND starts_with(token_hash, $2) AND revoked_at IS NULL
RETURNING token_hash"""


async def create(
    connection: Connection, tenant: str, token_hash: str, subject: str, roles: Sequence[str], lifetime: timedelta | None
) -> None:
    """Store a token's hash; without ``lifetime`` it lives until it is revoked."""
    await connection.execute(_CREATE, token_hash, tenant, subject, list(roles), lifetime)


async def owner(connection: Connection, token_hash: str) -> asyncpg.Record | None:
    """Tenant, subject and roles of a token that is neither expired nor revoked. Needs no tenant."""
    return await connection.fetchrow(_OWNER, token_hash)


async def approval_owner(connection: Connection, approval_id: UUID) -> str | None:
    """The tenant of an approval, by its unguessable id. Needs no tenant."""
    tenant: str | None = await connection.fetchval("SELECT approval_owner($1)", approval_id)
    return tenant


async def listed(connection: Connection, tenant: str) -> list[asyncpg.Record]:
    """Every token of a tenant, named by the beginning of its hash."""
    return await connection.fetch(_LIST, tenant)


async def revoke(connection: Connection, tenant: str, hash_prefix: str) -> int:
    """Revoke by the beginning of the hash; how many were revoked."""
    return len(await connection.fetch(_REVOKE, tenant, hash_prefix))
