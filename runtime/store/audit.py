"""The tenant's own audit stream: what belongs to no run, or comes after its end. An append has one line."""

from __future__ import annotations

from core.canonical import JsonObject
from core.db import Connection
from core.errors import NotFoundError
from evidence.chain import Actor, ChainHead, Event, EventType, append
from runtime.store.statements import statements

_SQL = statements("audit")
_HEAD = _SQL["head"]
_LINE = _SQL["line"]


async def record(connection: Connection, tenant: str, kind: EventType, actor: Actor, data: JsonObject) -> None:
    """Append one fact to the tenant's stream, in the caller's transaction (promise 6).

    The tenant's row is locked until that commits, which keeps ``seq`` without gaps; these facts are rare.
    """
    row = await connection.fetchrow(_HEAD, tenant)
    if row is None:
        raise NotFoundError(f"There is no tenant {tenant!r}.", remedy="Create it with `counterseal tenant create`.")
    stream, count = f"tenant:{tenant}", row["audit_count"]
    head = ChainHead(stream, count, row["audit_head"]) if count else ChainHead.of(stream)
    (line,), after = append(head, [Event(kind, actor, row["now"], data)])
    await connection.execute(_LINE, tenant, row["stream_id"], count, str(kind), line, after.hash)
