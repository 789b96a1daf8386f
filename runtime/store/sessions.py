"""Logins to the console, and links that log in once. Only the SHA-256 of each is stored."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from msgspec import Struct

from core.canonical import sha256_hex
from core.db import Connection
from runtime.store.statements import statements


class SessionKind(StrEnum):
    """A login of a browser, a link that becomes one, or a login anew for one question (``step_up_hash``)."""

    LOGIN = "login"
    LINK = "link"
    STEP_UP = "step_up"


class Session(Struct, frozen=True):
    """A stored session. ``ended`` says why it is good no more; None if it is good."""

    tenant_id: str
    subject: str
    name: str | None
    roles: tuple[str, ...]
    kind: SessionKind
    expires_at: datetime
    ended: str | None


class StepUp(Struct, frozen=True):
    """A login anew for one question: ``at`` what time, ``by`` which way, of which person."""

    at: datetime
    by: str
    subject: str


_SQL = statements("sessions")
_CREATE = _SQL["create"]
_OWNER = _SQL["owner"]
_END = _SQL["end"]
_SWEEP = _SQL["sweep"]
_FORGET = _SQL["forget"]
_STEP_UP = _SQL["step_up"]
_STEPPED_UP = _SQL["stepped_up"]
_BEGUN = _SQL["begun"]
# The method of a row that says only that a login anew was begun.
BEGUN = "begun"


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


def step_up_hash(secret: str, approval_id: UUID, digest: str) -> str:
    """The key of a login anew: it is good in one browser's session, for one question, and for one action."""
    return sha256_hex(f"{secret}:{approval_id}:{digest}".encode())


def begun_hash(secret: str, state: str, approval_id: UUID, digest: str) -> str:
    """The key of a login anew under way: in one session, by one answer of the provider, for one question and action."""
    return sha256_hex(f"{BEGUN}:{secret}:{state}:{approval_id}:{digest}".encode())


async def begun(connection: Connection, tenant: str, key: str) -> float | None:
    """The moment of a login anew with this key, in Unix seconds, which uses it up; None if none was begun lately."""
    row = await connection.fetchrow(_BEGUN, tenant, key)
    return None if row is None else float(row["since"])


async def step_up(connection: Connection, tenant: str, key: str, subject: str, by: str, lifetime: timedelta) -> None:
    """Store that a person has logged in anew. A crash before the commit leaves nothing: they log in once more."""
    await connection.execute(_SWEEP, tenant)
    await connection.execute(_FORGET, tenant, key)
    await connection.execute(_STEP_UP, key, tenant, subject, by, lifetime)


async def stepped_up(connection: Connection, tenant: str, key: str) -> StepUp | None:
    """The login anew with this key; None if there was none, or its row is over."""
    row = await connection.fetchrow(_STEPPED_UP, tenant, key)
    return None if row is None else StepUp(row["created_at"], row["method"], row["subject"])


async def owner(connection: Connection, session_hash: str) -> Session | None:
    """The session with this hash; None if there is none. Needs no tenant."""
    row = await connection.fetchrow(_OWNER, session_hash)
    if row is None:
        return None
    return Session(**{**row, "roles": tuple(row["roles"]), "kind": SessionKind(row["kind"])})


async def end(connection: Connection, tenant: str, session_hash: str) -> bool:
    """End a session; False if it was over. Of two who use one link at once, the second is told that it is used."""
    return await connection.fetchrow(_END, tenant, session_hash) is not None
