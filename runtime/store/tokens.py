"""Bearer tokens. Only their SHA-256 is stored, so whoever reads the table can use none of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

import asyncpg

from core.db import Connection


class Ending(StrEnum):
    """The reason why a token is good no more. ``left`` and ``deactivated`` are said of its subject, or their owner."""

    REVOKED = "revoked"
    EXPIRED = "expired"
    LEFT = "left"
    DEACTIVATED = "deactivated"


_CREATE = """
INSERT INTO tokens (token_hash, tenant_id, subject, roles, expires_at) VALUES ($1, $2, $3, $4, now() + $5::interval)
RETURNING expires_at"""
_OWNER = "SELECT tenant_id, subject, roles, ended FROM token_owner($1)"
# ``token_owner`` says the same of one token.
_LIST = """
SELECT left(t.token_hash, 12) AS token, t.subject, t.roles, t.created_at, t.expires_at, t.revoked_at,
  CASE WHEN t.revoked_at IS NOT NULL THEN 'revoked' WHEN t.expires_at <= now() THEN 'expired'
    WHEN p.person_id IS NULL OR p.owner IS NOT NULL AND o.person_id IS NULL THEN 'left'
    WHEN NOT (p.active AND coalesce(o.active, true)) THEN 'deactivated' END AS ended
FROM tokens t LEFT JOIN people p ON p.tenant_id = t.tenant_id AND p.person_id = t.subject
LEFT JOIN people o ON o.tenant_id = t.tenant_id AND o.person_id = p.owner
WHERE t.tenant_id = $1 ORDER BY t.created_at, t.token_hash"""
_REVOKE = """
UPDATE tokens SET revoked_at = now() WHERE tenant_id = $1 AND starts_with(token_hash, $2) AND revoked_at IS NULL
RETURNING token_hash"""


async def create(
    connection: Connection, tenant: str, token_hash: str, subject: str, roles: Sequence[str], lifetime: timedelta
) -> datetime:
    """Store a token's hash; return when it expires."""
    expires: datetime = await connection.fetchval(_CREATE, token_hash, tenant, subject, list(roles), lifetime)
    return expires


async def owner(connection: Connection, token_hash: str) -> asyncpg.Record | None:
    """Tenant, subject and roles of a token, and why it ``ended`` (``Ending``; None if it is good). Needs no tenant."""
    return await connection.fetchrow(_OWNER, token_hash)


async def approval_owner(connection: Connection, approval_id: UUID) -> str | None:
    """The tenant of an approval, by its unguessable id. Needs no tenant."""
    tenant: str | None = await connection.fetchval("SELECT approval_owner($1)", approval_id)
    return tenant


async def listed(connection: Connection, tenant: str) -> list[asyncpg.Record]:
    """Every token of a tenant, named by the beginning of its hash, with why it has ``ended`` as ``owner`` says it."""
    return await connection.fetch(_LIST, tenant)


async def revoke(connection: Connection, tenant: str, hash_prefix: str) -> int:
    """Revoke by the beginning of the hash; return how many were revoked."""
    return len(await connection.fetch(_REVOKE, tenant, hash_prefix))
