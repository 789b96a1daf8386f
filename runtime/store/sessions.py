"""Logins to the console, and links that log in once. Only the SHA-256 of each is stored."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from core.db import Connection
from runtime.store.statements import statements


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


_SQL = statements("sessions")
_CREATE = _SQL["create"]
_OWNER = _SQL["owner"]
_END = _SQL["end"]
_SWEEP = _SQL["sweep"]


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
