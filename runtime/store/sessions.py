"""Logins to the console, and links that log in once. Only the SHA-256 of each is stored."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from core.db import Connection


class SessionKind(StrEnum):
    """A login of a browser, or a link that becomes one."""

    LOGIN = "login"
    LINK = "link"


class Session(Struct, frozen=True):
    """A stored session. ``ended`` says why it is good no more; None if it is good."""

    tenant_id: str
    subject: str
    name: str | None
    roles: tuple[str, ...]
    kind: SessionKind
    expires_at: datetime
    ended: str | None


_CREATE = """
INSERT INTO sessions (session_hash, tenant_id, subject, roles, token_hash, kind, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, now() + $7::interval)"""
_OWNER = "SELECT tenant_id, subject, name, roles, kind, expires_at, ended FROM session_owner($1)"
_END = """
UPDATE sessions SET ended_at = now() WHERE tenant_id = $1 AND session_hash = $2 AND ended_at IS NULL
RETURNING session_hash"""
_SWEEP = "DELETE FROM sessions WHERE tenant_id = $1 AND expires_at < now() - interval '1 day'"


async def create(
    connection: Connection,
    tenant: str,
    session_hash: str,
    subject: str,
    roles: Sequence[str],
    kind: SessionKind,
    lifetime: timedelta,
    token_hash: str | None = None,
) -> None:
    """Store a session, and remove those that ended long ago. A crash before the commit: the person logs in again."""
    await connection.execute(_SWEEP, tenant)
    await connection.execute(_CREATE, session_hash, tenant, subject, list(roles), token_hash, kind, lifetime)


async def owner(connection: Connection, session_hash: str) -> Session | None:
    """The session with this hash; None if there is none. Needs no tenant."""
    row = await connection.fetchrow(_OWNER, session_hash)
    if row is None:
        return None
    return Session(**{**row, "roles": tuple(row["roles"]), "kind": SessionKind(row["kind"])})


async def end(connection: Connection, tenant: str, session_hash: str) -> bool:
    """End a session; False if it was over. Of two who use one link at once, the second is told that it is used."""
    return await connection.fetchrow(_END, tenant, session_hash) is not None
