"""Uses of broken glass: votes that alone let an action out. An index allows one of a tenant without a review."""

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
    """A use that waits for its review: the question, its run, who broke the glass, and when."""

    approval_id: UUID
    run_id: UUID
    person: str
    name: str
    at: datetime


async def unreviewed(connection: Connection, tenant: str) -> Use | None:
    """The use of the tenant that waits for its review; None if none does."""
    row = await connection.fetchrow(_UNREVIEWED, tenant)
    return (
        None
        if row is None
        else Use(*(row[name] for name in ("approval_id", "run_id", "person_id", "name", "voted_at")))
    )


async def review(connection: Connection, tenant: str, approval_id: UUID, actor: Actor, data: JsonObject) -> bool:
    """Note who has reviewed it, with its line; False if nothing waits for that. A crash leaves it unreviewed."""
    line = await audit.line(connection, tenant, EventType.GLASS_REVIEWED, actor, data)
    return bool(await connection.fetchval(_REVIEW, line, tenant, approval_id))
