"""Logins to the console, and links that log in once. Of each secret only the SHA-256 is stored."""

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
    """The kind of a session: a browser's login, a link that becomes one, or a new login for one question (step-up)."""

    LOGIN = "login"
    LINK = "link"
    STEP_UP = "step_up"


class Session(Struct, frozen=True):
    """A stored session. ``ended`` is the reason why it is not valid any more; None if it is valid."""

    tenant_id: str
    subject: str
    name: str | None
    roles: tuple[str, ...]
    kind: SessionKind
    expires_at: datetime
    ended: str | None


class StepUp(Struct, frozen=True):
    """A new login for one question (step-up): its time ``at``, its method ``by``, and its person."""

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
# The method of a row that says only that a step-up was begun.
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
    """Store a session, and remove old ended ones. After a crash before the commit, the person logs in again."""
    await connection.execute(_SWEEP, tenant)
    await connection.execute(_CREATE, session_hash, tenant, subject, list(roles), token_hash, kind, lifetime)


def step_up_hash(secret: str, approval_id: UUID, digest: str) -> str:
    """The key of a step-up, which is valid in one browser's session, for one question and one action."""
    return sha256_hex(f"{secret}:{approval_id}:{digest}".encode())


def begun_hash(secret: str, state: str, approval_id: UUID, digest: str) -> str:
    """The key of a step-up under way: of one session, one ``state`` of the provider, one question and one action."""
    return sha256_hex(f"{BEGUN}:{secret}:{state}:{approval_id}:{digest}".encode())


async def begun(connection: Connection, tenant: str, key: str) -> float | None:
    """Take the time, in Unix seconds, at which a step-up with this key was begun; None if none was begun lately."""
    row = await connection.fetchrow(_BEGUN, tenant, key)
    return None if row is None else float(row["since"])


async def step_up(connection: Connection, tenant: str, key: str, subject: str, by: str, lifetime: timedelta) -> None:
    """Store a step-up of a person. A crash before the commit leaves nothing, and the person logs in once more."""
    await connection.execute(_SWEEP, tenant)
    await connection.execute(_FORGET, tenant, key)
    await connection.execute(_STEP_UP, key, tenant, subject, by, lifetime)


async def stepped_up(connection: Connection, tenant: str, key: str) -> StepUp | None:
    """The step-up with this key; None if there was none, or if it has expired."""
    row = await connection.fetchrow(_STEPPED_UP, tenant, key)
    return None if row is None else StepUp(row["created_at"], row["method"], row["subject"])


async def owner(connection: Connection, session_hash: str) -> Session | None:
    """The session with this hash; None if there is none. Needs no tenant."""
    row = await connection.fetchrow(_OWNER, session_hash)
    if row is None:
        return None
    return Session(**{**row, "roles": tuple(row["roles"]), "kind": SessionKind(row["kind"])})


async def end(connection: Connection, tenant: str, session_hash: str) -> bool:
    """End a session; False if it had ended. If a link is used twice at once, the second use is refused."""
    return await connection.fetchrow(_END, tenant, session_hash) is not None
