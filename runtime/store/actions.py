"""Actions that agents ask for: the keys of their calls, and the run that does each."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from core.db import Connection
from runtime.store.statements import statements

_SQL = statements("actions")
_OF_KEY = _SQL["of_key"]
_NEWEST = _SQL["newest"]
_KEEP = _SQL["keep"]
_USED = _SQL["used"]
_ONE = _SQL["one"]
_OF_SESSION = _SQL["of_session"]
_OVER = _SQL["over"]
_ORPHANS = _SQL["orphans"]


class Earlier(NamedTuple):
    """The newest run of the same call; ``asked`` is the number of them all.

    ``lately``: it ended within the time that was asked for. ``policies`` is the digest of those that were in force.
    """

    run_id: UUID
    going: bool
    lately: bool
    policies: str
    asked: int


class Used(NamedTuple):
    """The actions of an account that were asked for in the last minute, and those that are not over."""

    lately: int
    asking: int


class Kept(NamedTuple):
    """An action as its account has asked for it first."""

    run_id: UUID
    call: str
    session: str
    policies: str


async def of_key(connection: Connection, tenant: str, account: str, key: str) -> tuple[UUID, str] | None:
    """The run and the digest of the call that this key stands for, if it was used."""
    row = await connection.fetchrow(_OF_KEY, tenant, account, key)
    return None if row is None else (UUID(int=row["run_id"].int), row["call"])


async def newest(connection: Connection, tenant: str, account: str, call: str, within: timedelta) -> Earlier | None:
    """The newest run of a call of this account, if there was one."""
    row = await connection.fetchrow(_NEWEST, tenant, account, call, within)
    if row is None:
        return None
    return Earlier(UUID(int=row["run_id"].int), row["going"], bool(row["lately"]), row["policies"], row["asked"])


async def keep(connection: Connection, tenant: str, account: str, key: str, kept: Kept) -> bool:
    """Remember the run that a key stands for. False if the key stands for one already."""
    return (
        await connection.fetchval(_KEEP, tenant, account, key, kept.call, kept.run_id, kept.session, kept.policies)
        is not None
    )


async def used(connection: Connection, tenant: str, account: str) -> Used:
    """Count what an account uses of its limits now."""
    row = await connection.fetchrow(_USED, tenant, account)
    assert row is not None
    return Used(row["lately"], row["asking"])


async def one(connection: Connection, tenant: str, account: str, run_id: UUID) -> Kept | None:
    """An action of this account; None if it is somebody else's, or none."""
    row = await connection.fetchrow(_ONE, tenant, account, run_id)
    return None if row is None else Kept(UUID(int=row["run_id"].int), row["call"], row["session"], row["policies"])


async def of_session(
    connection: Connection, tenant: str, account: str, session: str | None, before: UUID | None, limit: int
) -> list[UUID]:
    """The actions of an account, or of one session of it, the newest first."""
    rows = await connection.fetch(_OF_SESSION, tenant, account, session, before, limit)
    return [UUID(int=row["run_id"].int) for row in rows]


async def over(connection: Connection, tenant: str, runs: Collection[UUID]) -> set[UUID]:
    """Those of these runs that have ended, or for which an agent has something to do."""
    rows = await connection.fetch(_OVER, tenant, [*runs])
    return {UUID(int=row["run_id"].int) for row in rows}


async def orphans(connection: Connection, tenant: str) -> list[UUID]:
    """The actions under way of accounts that have no valid token any more."""
    return [UUID(int=row["run_id"].int) for row in await connection.fetch(_ORPHANS, tenant)]
