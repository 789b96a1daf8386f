"""Schedules of workflows: the moment up to which all moments are decided, and the outcome of each moment."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct

from core.canonical import JsonObject
from core.db import Connection
from runtime.store.statements import statements

SOURCE = "schedule"

_SQL = statements("schedules")
_STANDING = _SQL["standing"]
_BEGIN = _SQL["begin"]
_LOCK = _SQL["lock"]
_MOVE = _SQL["move"]
_KNOWN = _SQL["known"]
_LISTED = _SQL["listed"]
_MOMENTS = _SQL["moments"]


class StoredSchedule(Struct, frozen=True):
    """A schedule as keepers use it: all moments up to ``upto`` are decided. ``next_at`` is None if it has ended."""

    version: int
    schedule: JsonObject
    upto: datetime
    next_at: datetime | None


class Standing(Struct, frozen=True):
    """The version with which runs start now, if any, and since when; ``ended`` is when the kept version was retired."""

    version: int | None
    schedule: JsonObject | None
    since: datetime | None
    ended: datetime | None


class Listed(Struct, frozen=True):
    """A schedule as people read it. ``next_at`` is None until a keeper has seen it."""

    workflow: str
    version: int
    cron: str
    timezone: str
    next_at: datetime | None
    since: datetime
    last_at: str | None
    last_outcome: str | None
    last_run: UUID | None
    last_reason: str | None
    missed: int


async def lock(connection: Connection, tenant: str, workflow: str) -> tuple[StoredSchedule, Standing] | None:
    """Lock a workflow's schedule until the transaction ends; return it and its ``Standing``. None if it had none."""
    await connection.execute(_BEGIN, tenant, workflow)
    row = await connection.fetchrow(_LOCK, tenant, workflow)
    if row is None:
        return None
    stored = StoredSchedule(**row)
    standing = await connection.fetchrow(_STANDING, tenant, workflow, stored.version)
    assert standing is not None, "it is one row, whatever is published"
    return stored, Standing(**standing)


async def move(connection: Connection, tenant: str, workflow: str, stored: StoredSchedule) -> None:
    """Store how far a schedule has come. A crash before the commit leaves its moments to the next sweep."""
    await connection.execute(_MOVE, tenant, workflow, stored.version, stored.schedule, stored.upto, stored.next_at)


async def known(connection: Connection, tenant: str, workflow: str, refs: Sequence[str]) -> frozenset[str]:
    """Select the moments that were decided before: there are some after the database's clock has gone back."""
    return frozenset(row["trigger_ref"] for row in await connection.fetch(_KNOWN, tenant, workflow, refs))


async def listed(connection: Connection, tenant: str) -> list[Listed]:
    """The schedules of a tenant, by workflow."""
    return [Listed(**row) for row in await connection.fetch(_LISTED, tenant)]


async def moments(connection: Connection, tenant: str, workflow: str, most: int) -> list[dict[str, Any]]:
    """The last moments of a workflow's schedule with the outcome of each, the newest first."""
    return [dict(row) for row in await connection.fetch(_MOMENTS, tenant, workflow, most)]
