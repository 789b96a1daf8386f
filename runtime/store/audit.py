"""The tenant's own audit stream: facts that belong to no run, or that follow a run's end. An append has one line."""

from __future__ import annotations

from functools import partial
from uuid import UUID

import structlog

from core.canonical import JsonObject, canonical_bytes
from core.db import Connection, after_commit
from core.errors import NotFoundError
from evidence.chain import Actor, ChainHead, Event, EventType, append
from evidence.events import STOPPING
from runtime.engine.book import notices
from runtime.engine.model.rows import Notice
from runtime.store.statements import statements

# Commands silence this logger by its name (``app.logs``).
log = structlog.get_logger("counterseal.facts")

_SQL = statements("audit")
_HEAD = _SQL["head"]
_TELL = _SQL["tell"]
_TOLD = _SQL["told"]
_RUN_OF = _SQL["run_of"]


async def record(connection: Connection, tenant: str, kind: EventType, actor: Actor, data: JsonObject) -> None:
    """Append one fact to the tenant's stream, in the caller's transaction (promise 6).

    PostgreSQL refuses a fact that changes what is in force: the function that makes the change writes its line, too.
    """
    await connection.execute(_TELL, await line(connection, tenant, kind, actor, data), tenant)


async def line(connection: Connection, tenant: str, kind: EventType, actor: Actor, data: JsonObject) -> bytes:
    """Build the line of a fact; a function of the database must append it in this same transaction.

    The tenant's row is locked until that commits, which keeps ``seq`` without gaps; these facts are rare.
    """
    row = await connection.fetchrow(_HEAD, tenant)
    if row is None:
        raise NotFoundError(f"There is no tenant {tenant!r}.", remedy="Create it with `counterseal tenant create`.")
    stream, count = f"tenant:{tenant}", row["audit_count"]
    head = ChainHead(stream, count, row["audit_head"]) if count else ChainHead.of(stream)
    facts: JsonObject = {**data, "stop": row["stop_number"]} if kind in STOPPING else data
    (made,), _ = append(head, [Event(kind, actor, row["now"], facts)])
    if (notice := notices.of_tenant(kind, actor.id, data)) is not None:
        after_commit(connection, partial(say, notice, tenant=tenant))
    return made


def say(notice: Notice, **about: str) -> None:
    """Write one notice into the log, preceded by the names of what it is about."""
    level, words, facts = notice
    write = log.warning if level == notices.WARNING else log.info
    write(words, **about, **facts)


async def read_by(
    connection: Connection,
    tenant: str,
    actor: Actor,
    what: str,
    door: str,
    *,
    run: UUID | None = None,
    thing: UUID | None = None,
) -> None:
    """Record that somebody was shown something, once an hour for each person and thing.

    ``thing`` is a question or a task, by which the run is found. Two reads at the same moment may make two lines, never
    none. After a crash before the commit there is no line, and nothing was shown.
    """
    if run is None and thing is not None:
        run = await connection.fetchval(_RUN_OF, tenant, thing)
    named = {"run": run, "thing": thing}
    data: JsonObject = {
        "what": what,
        "door": door,
        **{name: str(one) for name, one in named.items() if one is not None},
    }
    # The members of a canonical line are sorted, so it begins with these members, and ``ts`` follows.
    begins = canonical_bytes({"actor": {"id": actor.id, "kind": actor.kind}, "data": data, "step": None})[:-1]
    if not await connection.fetchval(_TOLD, tenant, begins + b',"ts":"'):
        await record(connection, tenant, EventType.EVIDENCE_READ, actor, data)
