"""Notifications from outside, recorded before they are acted on, and the waits that they end, by correlation key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct

from core.canonical import JsonObject
from core.db import Connection
from runtime.engine.model.states import WaitKind

# A signal is kept this long for a wait that does not exist yet.
KEPT_FOR = timedelta(days=30)
# Every sweep looks at this many of the newest kept signals.
NEWEST = 1000

_RECORD = """
INSERT INTO inbox (tenant_id, source, notification_id, payload, correlation_key) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant_id, source, notification_id) DO NOTHING RETURNING notification_id"""
_READ = """
SELECT payload, result, correlation_key, processed_at IS NOT NULL AS processed, received_at FROM inbox
WHERE tenant_id = $1 AND source = $2 AND notification_id = $3"""
_PROCESSED = """
UPDATE inbox SET processed_at = now(), result = $4
WHERE tenant_id = $1 AND source = $2 AND notification_id = $3 AND processed_at IS NULL"""

_EMPTY = "UPDATE inbox SET payload = '{}' WHERE tenant_id = $1 AND source = $2 AND notification_id = $3"
_MEANT_FOR = """
UPDATE inbox SET result = $4 WHERE tenant_id = $1 AND source = $2 AND notification_id = $3 AND processed_at IS NULL"""

# A signal is meant for this run, or else for one that began before this time; for any run if both are null.
_MEANT = "coalesce(w.run_id = {run}, r.created_at <= {before}, true)"

# The oldest open wait comes first. If none is open, the newest one that is over tells why.
_FIND = f"""
SELECT w.wait_id, w.run_id, w.step_key, w.kind, w.token, m.waiting, m.waiting AND w.parked AS parked,
  r.finished_at IS NULL AS going
FROM waits w JOIN runs r ON r.run_id = w.run_id
CROSS JOIN LATERAL (SELECT w.status = 'waiting' AND {_MEANT.format(run="$4::uuid", before="$5")} AS waiting) m
WHERE w.tenant_id = $1 AND w.correlation_key = $2 AND w.kind = ANY ($3::text[])
ORDER BY m.waiting DESC, CASE WHEN m.waiting THEN w.created_at END, w.created_at DESC LIMIT 1"""

# A token or a version names one wait. If several runs have the key, an open wait comes first.
_NAMED = """
SELECT w.wait_id, w.run_id, w.step_key, w.kind, w.token, w.status = 'waiting' AS waiting,
  w.status = 'waiting' AND w.parked AS parked, r.finished_at IS NULL AS going
FROM waits w JOIN runs r ON r.run_id = w.run_id
WHERE w.tenant_id = $1 AND w.correlation_key = $2 AND w.kind = ANY ($3::text[]) AND ($4::text IS NULL OR w.token = $4)
  AND ($5::int IS NULL OR $5 = (SELECT j.n FROM journal j
    WHERE j.run_id = w.run_id AND position(convert_to(w.wait_id::text, 'UTF8') IN j.lines) > 0 ORDER BY j.n LIMIT 1))
ORDER BY waiting DESC, w.created_at DESC LIMIT 1"""

# Kept signals for a sweep: those whose wait exists by now, because they came before it or at the same moment, and those
# that have been kept for too long. There may be many, and most never find a wait: a sweep looks at the newest only, and
# now and then at all of them (``whole``). Each tenant's first ones come before anybody's second ones.
_CAME = "CASE WHEN i.result IS NOT NULL THEN i.received_at END"
_OPEN = "i.processed_at IS NULL AND i.correlation_key IS NOT NULL"
KEPT = f"""
keys AS (
  (SELECT i.tenant_id, i.correlation_key FROM inbox i WHERE {_OPEN} ORDER BY i.received_at DESC LIMIT {NEWEST})
  UNION
  (SELECT i.tenant_id, i.correlation_key FROM inbox i WHERE {{whole}} AND {_OPEN})),
awaited AS (
  SELECT DISTINCT ON (i.tenant_id, i.source, i.notification_id) i.*, w.run_id FROM keys k
  JOIN waits w ON w.tenant_id = k.tenant_id AND w.correlation_key = k.correlation_key AND w.status = 'waiting'
    AND w.parked
  JOIN runs r ON r.run_id = w.run_id
  CROSS JOIN LATERAL (
    SELECT i.tenant_id, i.source, i.notification_id, i.received_at FROM inbox i
    WHERE i.tenant_id = k.tenant_id AND i.correlation_key = k.correlation_key AND {_OPEN}
      AND (i.source = 'run') = (w.kind = '{WaitKind.CHILD}')
      AND {_MEANT.format(run="(i.result->>'run')::uuid", before=_CAME)}
    ORDER BY i.received_at LIMIT 1) i),
outlived AS (
  SELECT i.tenant_id, i.source, i.notification_id, i.received_at, NULL::uuid FROM inbox i
  WHERE {_OPEN} AND i.source <> 'run' AND i.received_at < now() - interval '{KEPT_FOR.days} days'
  ORDER BY i.received_at LIMIT {{most}}),
kept AS (
  SELECT * FROM (SELECT * FROM awaited UNION ALL SELECT * FROM outlived) i
  ORDER BY row_number() OVER (PARTITION BY i.tenant_id ORDER BY i.received_at), i.received_at LIMIT {{most}})"""

# By tenant, because that is how waits are indexed. The keys of durable operations are derived: at most one matches.
_TENANT_OF = """
SELECT t.tenant_id FROM tenants t WHERE EXISTS (
  SELECT FROM waits w WHERE w.tenant_id = t.tenant_id AND w.correlation_key = $1 AND w.kind = 'external') LIMIT 1"""


# The workflows that recent events could not start: the newest reason for each, from the tenant's last lines.
_UNSTARTED = """
SELECT DISTINCT ON (u.workflow) u.workflow, u.version, u.reason, i.received_at FROM tenants t
JOIN audit_events e ON e.stream_id = t.stream_id AND e.seq >= t.audit_count - 1000 AND e.type = 'workflow.unstarted'
CROSS JOIN LATERAL (SELECT convert_from(e.line, 'UTF8')::jsonb AS line) l
JOIN inbox i ON i.tenant_id = t.tenant_id AND i.source = 'servicenow:' || (l.line #>> '{actor,id}')
  AND i.notification_id = l.line #>> '{data,event}'
CROSS JOIN LATERAL jsonb_to_recordset(i.result -> 'unstarted') AS u(workflow text, version int, reason text)
WHERE t.tenant_id = $1 AND u.workflow = l.line #>> '{data,name}' ORDER BY u.workflow, e.seq DESC"""


class Notice(Struct, frozen=True):
    """A notification as it was kept. ``result`` says what became of it, None while nothing has."""

    payload: Mapping[str, Any]
    result: Mapping[str, Any] | None
    correlation_key: str | None
    processed: bool
    received_at: datetime


class Found(Struct, frozen=True):
    """The wait with a correlation key; ``parked`` says that its step waits for it, ``going`` that its run is open."""

    wait_id: UUID
    run_id: UUID
    step_key: str
    kind: str
    token: str
    waiting: bool
    parked: bool
    going: bool


class Kept(Struct, frozen=True):
    """A signal that was kept, and a run that waits for it by now; None if it has been kept for too long."""

    tenant_id: str
    source: str
    notification_id: str
    run_id: UUID | None


async def record(
    connection: Connection, tenant: str, source: str, notice_id: str, payload: JsonObject, key: str | None = None
) -> bool:
    """Keep a notification under its own id; False if it was there (P-11)."""
    return await connection.fetchrow(_RECORD, tenant, source, notice_id, payload, key) is not None


async def read(connection: Connection, tenant: str, source: str, notice_id: str) -> Notice | None:
    """A notification that was kept."""
    row = await connection.fetchrow(_READ, tenant, source, notice_id)
    return None if row is None else Notice(**row)


async def processed(connection: Connection, tenant: str, source: str, notice_id: str, result: JsonObject) -> None:
    """Note that it was acted on, or never will be; ``result`` says which."""
    await connection.execute(_PROCESSED, tenant, source, notice_id, result)


async def empty(connection: Connection, tenant: str, source: str, notice_id: str) -> None:
    """Remove what a notification said; its id and its end stay. Under the engine's role."""
    await connection.execute(_EMPTY, tenant, source, notice_id)


async def meant_for(connection: Connection, tenant: str, source: str, notice_id: str, run: JsonObject) -> None:
    """Note which run a kept notification is meant for: the one in ``run``, or any that exists now if it is null."""
    await connection.execute(_MEANT_FOR, tenant, source, notice_id, run)


async def find(
    connection: Connection, tenant: str, key: str, kinds: Sequence[str], kept: Notice | None = None
) -> Found | None:
    """The wait of one of these kinds that a notification with this key is for: an open one, or else the last one.

    A notification that was ``kept`` ends only waits of the runs that it was meant for.
    """
    meant = (None, None) if kept is None or kept.result is None else (kept.result["run"], kept.received_at)
    row = await connection.fetchrow(_FIND, tenant, key, list(kinds), *meant)
    return None if row is None else Found(**row)


async def times_of(connection: Connection, wait_id: UUID) -> tuple[datetime, datetime | None, datetime]:
    """The beginning of a wait, its deadline, and now."""
    row = await connection.fetchrow("SELECT created_at, due_at, now() FROM waits WHERE wait_id = $1", wait_id)
    assert row is not None, "it was found just now"
    return row[0], row[1], row[2]


async def find_named(
    connection: Connection, tenant: str, key: str, kinds: Sequence[str], token: str | None, version: int | None
) -> Found | None:
    """The wait with this token, or opened by the commit with this version; None if no such wait has this key.

    The first line that names a wait is the one that opens it.
    """
    row = await connection.fetchrow(_NAMED, tenant, key, list(kinds), token, version)
    return None if row is None else Found(**row)


async def tenant_of(connection: Connection, key: str) -> str | None:
    """The tenant whose run started the outside process with this key; None if none did.

    Under the engine's role, which sees all tenants.
    """
    tenant: str | None = await connection.fetchval(_TENANT_OF, key)
    return tenant


async def unstarted(connection: Connection, tenant: str) -> list[tuple[str, int, str, datetime]]:
    """The workflows that events could not start lately: name, version, the newest reason, and when the event came."""
    return [tuple(row) for row in await connection.fetch(_UNSTARTED, tenant)]
