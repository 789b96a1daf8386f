"""Turns of steps at targets with a rate, and targets that ask for no calls for a while (``Retry-After``).

Both are counted in the database, for all workers together.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from core.db import Connection
from runtime.store.statements import statements

_SQL = statements("turns")
_TAKE = _SQL["take"]
_NOTE_BUSY = _SQL["note_busy"]
_STANDING = _SQL["standing"]
_BUSY = _SQL["busy"]


class Standing(NamedTuple):
    """The turns at a target: calls of the last minute, steps that wait, and since when the first of them does."""

    target: str
    used: int = 0
    waiting: int = 0
    oldest: datetime | None = None


class Busy(NamedTuple):
    """A target that wants no calls until then; the steps that wait for that, and since when the first does."""

    target: str
    until: datetime
    waiting: int
    oldest: datetime | None


async def take(connection: Connection, tenant: str, target: str, calls: int, step: UUID) -> float:
    """Take a turn for the step: 0 if it may call now, else the seconds until its turn, which stays reserved for it.

    A crash between this and the intent wastes the turn, and loses nothing: a call that was let out counts for a minute
    though nobody makes it, and a turn that is kept is found by the step's next lease. Nothing was sent or recorded.
    """
    return float(await connection.fetchval(_TAKE, tenant, target, calls, step))


async def note_busy(connection: Connection, tenant: str, place: str, seconds: float) -> datetime:
    """Note that a target asks for no calls for so long, and return until when no call of the tenant goes there.

    It moves the tenant's stop number, so an intent that was decided before is decided again, by whichever worker. A
    crash before it loses the word of the target alone: the next call is told again.
    """
    until: datetime = await connection.fetchval(_NOTE_BUSY, tenant, place, seconds)
    return until


async def standing(connection: Connection, tenant: str) -> dict[str, Standing]:
    """The turns of a tenant, by target."""
    return {row["target"]: Standing(*row) for row in await connection.fetch(_STANDING, tenant)}


async def busy(connection: Connection, tenant: str) -> list[Busy]:
    """The targets that want no calls of the tenant now."""
    return [Busy(*row) for row in await connection.fetch(_BUSY, tenant)]
