"""Uses of emergency access (broken glass): votes that let an action out alone. A tenant has at most one unreviewed."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from core.canonical import JsonObject
from core.db import Connection
from evidence.chain import Actor, EventType
from runtime.store import audit
from runtime.store.statements import statements

_SQL = statements("glass")
_UNREVIEWED = _SQL["unreviewed"]
_REVIEW = _SQL["review"]


class Use(Struct, frozen=True):
    """A use that waits for its review: the question, its run, the person who broke the glass, and the time."""

    approval_id: UUID
    run_id: UUID
    person: str
    name: str
    at: datetime


async def unreviewed(connection: Connection, tenant: str) -> Use | None:
    """The tenant's use that waits for its review; None if none does."""
    row = await connection.fetchrow(_UNREVIEWED, tenant)
    return (
        None
        if row is None
        else Use(*(row[name] for name in ("approval_id", "run_id", "person_id", "name", "voted_at")))
    )


async def review(connection: Connection, tenant: str, approval_id: UUID, actor: Actor, data: JsonObject) -> bool:
    """Store the review with its line; False if no use of this question waits for one. A crash leaves it unreviewed."""
    line = await audit.line(connection, tenant, EventType.GLASS_REVIEWED, actor, data)
    return bool(await connection.fetchval(_REVIEW, line, tenant, approval_id))
