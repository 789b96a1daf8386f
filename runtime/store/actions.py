"""Actions that agents ask for: the keys of their calls, and the run that does each."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct

from core.db import Connection
from runtime.engine.model.run import AGENT
from runtime.store.documents import StoredWorkflow
from runtime.store.statements import statements

_SQL = statements("actions")
_OF_KEY = _SQL["of_key"]
_TAKE_TURN = _SQL["take_turn"]
_NEWEST = _SQL["newest"]
_BEGIN = _SQL["begin"]
_KEEP = _SQL["keep"]
_USED = _SQL["used"]
_ONE = _SQL["one"]
_OF_SESSION = _SQL["of_session"]
_SHAPES = _SQL["shapes"]
_OVER = _SQL["over"]

# The most keys that may stand for one action, so that nobody fills the table with ever new keys for it.
KEYS_MAX = 1_000


class Earlier(NamedTuple):
    """The newest run of the same call.

    ``lately`` says that it ended within the time that was asked for; ``code`` is that of its error if it failed.
    ``policies`` is the digest of the policies that were in force.
    """

    run_id: UUID
    going: bool
    lately: bool
    policies: str
    code: str | None


class Counted(Struct, frozen=True):
    """The actions that an account has asked for in the 24 hours before: all, those of the same call, those refused.

    An action was refused if policy denied it, if people rejected it, or if a bound on questions kept it from people.
    """

    asked: int = 0
    same: int = 0
    refused: int = 0


class Used(NamedTuple):
    """The actions of an account that were asked for in the last minute, those that are not over, and its pause."""

    lately: int
    asking: int
    counted: Counted
    paused: Mapping[str, Any] | None


class AskedAction(NamedTuple):
    """An action as its account asked for it the first time."""

    run_id: UUID
    call: str
    session: str
    policies: str


async def of_key(connection: Connection, tenant: str, account: str, key: str) -> tuple[UUID, str] | None:
    """The run and the digest of the call that this key stands for, if it was used."""
    row = await connection.fetchrow(_OF_KEY, tenant, account, key)
    return None if row is None else (UUID(int=row["run_id"].int), row["call"])


async def take_turn(connection: Connection, tenant: str, account: str) -> None:
    """Let nobody else begin an action of this account until the transaction ends.

    A crash ends the transaction, and with it the turn. Nothing that is locked later waits for a turn.
    """
    await connection.execute(_TAKE_TURN, tenant, account)


async def newest(connection: Connection, tenant: str, account: str, call: str, within: timedelta) -> Earlier | None:
    """The newest run of a call of this account, if there was one."""
    row = await connection.fetchrow(_NEWEST, tenant, account, call, within)
    if row is None:
        return None
    return Earlier(UUID(int=row["run_id"].int), row["going"], bool(row["lately"]), row["policies"], row["code"])


async def begin(connection: Connection, tenant: str, account: str, key: str, action: AskedAction) -> None:
    """Remember the run that was started under a key. The caller has the account's turn, and has looked for the key."""
    await connection.execute(_BEGIN, tenant, account, key, action.call, action.run_id, action.session, action.policies)


async def keep(connection: Connection, tenant: str, account: str, key: str, action: AskedAction) -> bool:
    """Let one more key stand for a run; False if it has ``KEYS_MAX``. The caller has the account's turn."""
    values = (action.call, action.run_id, action.session, action.policies, KEYS_MAX)
    return await connection.fetchval(_KEEP, tenant, account, key, *values) is not None


async def used(connection: Connection, tenant: str, account: str, call: str) -> Used:
    """Count, before one more call, what an account uses of its limits now, and what policies may count."""
    row = await connection.fetchrow(_USED, tenant, account, call)
    assert row is not None
    counted = Counted(row["asked"], row["same"], row["refused"])
    return Used(row["lately"], row["asking"], counted, row["paused"])


async def one(connection: Connection, tenant: str, account: str, run_id: UUID) -> AskedAction | None:
    """An action of this account; None if there is none, or if it is another account's."""
    row = await connection.fetchrow(_ONE, tenant, account, run_id)
    return None if row is None else _kept(row)


async def of_session(
    connection: Connection, tenant: str, account: str, session: str | None, before: UUID | None, limit: int
) -> list[AskedAction]:
    """The actions of an account, or of one session of it, the newest first."""
    return [_kept(row) for row in await connection.fetch(_OF_SESSION, tenant, account, session, before, limit)]


def _kept(row: Any) -> AskedAction:
    return AskedAction(UUID(int=row["run_id"].int), row["call"], row["session"], row["policies"])


async def shapes(connection: Connection, tenant: str, stored: StoredWorkflow) -> int:
    """Count the workflows that were made for agents' actions and call the same operations."""
    count: int = await connection.fetchval(_SHAPES, tenant, AGENT, stored.operations)
    return count


async def over(connection: Connection, tenant: str, runs: Collection[UUID]) -> set[UUID]:
    """Select from these runs those that have ended, and those whose agent has something to do."""
    rows = await connection.fetch(_OVER, tenant, [*runs])
    return {UUID(int=row["run_id"].int) for row in rows}
