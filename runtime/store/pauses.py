"""The pauses of a tenant: a JSON object in the tenant's row, by key. Every decision reads it with the policy.

Only functions of the database change it, each with its line in the audit. A trigger raises ``stop_number``, the guard
of every intent, and waits for the appends that began before. ``resumed`` holds the keys whose steps a keeper has still
to resume; a crash after a resume loses none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct

from core.db import Connection
from evidence.chain import Actor, EventType
from runtime.store import audit
from runtime.store.statements import statements

_SQL = statements("pauses")
_CHANGE_PAUSE = _SQL["change_pause"]
_IN_FORCE = _SQL["in_force"]
_OF_RUN = _SQL["of_run"]
_PARKED = _SQL["parked"]
_CHANGE = _SQL["change"]
_QUESTIONS = _SQL["questions"]
_REDRAW = _SQL["redraw"]
_PREVIEWED = _SQL["previewed"]
_OPEN_QUESTIONS = _SQL["open_questions"]
_FOLLOWED = _SQL["followed"]


async def pause(connection: Connection, tenant: str, key: str, actor: Actor, reason: str) -> bool:
    """Store a pause with its event, and drop the pauses of ended runs; False if there is a pause under this key.

    It returns when every append with an intent that began before has ended; no other begins until the transaction ends.
    A crash before that leaves the tenant as it was.
    """
    return await _change(connection, tenant, EventType.PAUSE_SET, key, actor, reason)


async def resume(connection: Connection, tenant: str, key: str, actor: Actor, reason: str) -> bool:
    """End a pause with its event; False if there is none. Keepers resume its steps, even after a crash."""
    return await _change(connection, tenant, EventType.PAUSE_LIFTED, key, actor, reason)


async def _change(connection: Connection, tenant: str, kind: EventType, key: str, actor: Actor, reason: str) -> bool:
    line = await audit.line(connection, tenant, kind, actor, {"paused": key, "reason": reason})
    return bool(await connection.fetchval(_CHANGE_PAUSE, line, tenant))


async def in_force(connection: Connection, tenant: str) -> list[dict[str, Any]]:
    """Every pause of a tenant: its key, its content, and ``over``, which is true for the pause of an ended run."""
    return [dict(row) for row in await connection.fetch(_IN_FORCE, tenant)]


async def of_run(connection: Connection, tenant: str, run_id: UUID) -> list[str]:
    """The keys of the pauses that hold up a run now."""
    return [row["key"] for row in await connection.fetch(_OF_RUN, tenant, run_id)]


async def parked(connection: Connection, tenant: str, keys: Sequence[str], most: int) -> list[tuple[UUID, str, UUID]]:
    """Up to ``most`` steps (run, step key, wait) that wait for the end of one of these pauses."""
    rows = await connection.fetch(_PARKED, tenant, keys, most)
    return [(row["run_id"], row["step_key"], row["wait_id"]) for row in rows]


class Change(Struct, frozen=True):
    """The work of keepers after a change of a tenant's policy or pauses; ``number`` is the ``stop_number`` after it.

    ``resumed`` are the keys of ended pauses, whose steps may go on; ``paused`` are the keys of pauses in force. Keepers
    have still to look at the open questions after ``after``; None if they have looked at all.
    """

    tenant: str
    number: int
    paused: frozenset[str]
    resumed: tuple[str, ...]
    after: UUID | None


async def change(connection: Connection, tenant: str) -> Change:
    """The work that a change has left to the keepers in a tenant."""
    row = await connection.fetchrow(_CHANGE, tenant)
    assert row is not None  # a sweep has just found it, and tenants are never deleted
    return Change(tenant, row["number"], frozenset(row["paused"] or {}), tuple(row["resumed"] or ()), row["after"])


async def questions(connection: Connection, tenant: str, after: UUID, most: int) -> list[UUID]:
    """Up to ``most`` open questions after ``after``, in the order of their ids."""
    return [row["approval_id"] for row in await connection.fetch(_QUESTIONS, tenant, after, most)]


async def previewed(connection: Connection, tenant: str, most: int, lines: int) -> list[UUID]:
    """Up to ``most`` open questions, in the order of ids, whose runs' books have at most ``lines`` lines in all."""
    return [row["approval_id"] for row in await connection.fetch(_PREVIEWED, tenant, most, lines)]


async def redraw(connection: Connection, change: Change, questions: Sequence[UUID]) -> None:
    """Order new cards, once for each change, for the questions that a change of pauses may concern."""
    await connection.execute(_REDRAW, questions, [*change.paused, *change.resumed], str(change.number))


async def open_questions(connection: Connection, tenant: str) -> int:
    """Count the open questions of a tenant."""
    count: int = await connection.fetchval(_OPEN_QUESTIONS, tenant)
    return count


async def followed(connection: Connection, change: Change, after: UUID | None, *, over: bool) -> None:
    """Store how far a keeper has come; ``over``: nothing is left to do. A no-op if there is a newer change.

    After a crash before it, the keeper looks at the same questions once more, which is idempotent.
    """
    await connection.execute(_FOLLOWED, change.number, after, over, change.tenant)
