"""Bearer tokens. Only their SHA-256 is stored, so nobody can use a token by reading the table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

import asyncpg

from core.db import Connection
from runtime.store.statements import statements


class Ending(StrEnum):
    """The reason why a token is not valid any more. ``left`` and ``deactivated`` are about its subject or its owner."""

    REVOKED = "revoked"
    EXPIRED = "expired"
    LEFT = "left"
    DEACTIVATED = "deactivated"


_SQL = statements("tokens")
_CREATE = _SQL["create"]
_OWNER = _SQL["owner"]
_LIST = _SQL["list"]
_BEFORE_REVOKING = _SQL["before_revoking"]
_REVOKE = _SQL["revoke"]
_APPROVAL_OWNER = _SQL["approval_owner"]


async def create(
    connection: Connection, tenant: str, token_hash: str, subject: str, roles: Sequence[str], lifetime: timedelta
) -> datetime:
    """Store a token's hash; return when it expires."""
    expires: datetime = await connection.fetchval(_CREATE, token_hash, tenant, subject, list(roles), lifetime)
    return expires


async def owner(connection: Connection, token_hash: str) -> asyncpg.Record | None:
    """Tenant, subject and roles of a token, and why it ``ended`` (``Ending``; None if it is valid). Needs no tenant."""
    return await connection.fetchrow(_OWNER, token_hash)


async def approval_owner(connection: Connection, approval_id: UUID) -> str | None:
    """The tenant of an approval, by its unguessable id. Needs no tenant."""
    tenant: str | None = await connection.fetchval(_APPROVAL_OWNER, approval_id)
    return tenant


async def listed(connection: Connection, tenant: str) -> list[asyncpg.Record]:
    """Every token of a tenant, named by the beginning of its hash, with why it ``ended``, as for ``owner``."""
    return await connection.fetch(_LIST, tenant)


async def revoke(connection: Connection, tenant: str, hash_prefix: str) -> int:
    """Revoke the tokens whose hash begins with ``hash_prefix``; return how many were revoked.

    The caller holds ``tenants.lock``. After its commit, no action goes out for an agent that has lost its last token.
    """
    await connection.execute(_BEFORE_REVOKING, tenant)
    return len(await connection.fetch(_REVOKE, tenant, hash_prefix))
