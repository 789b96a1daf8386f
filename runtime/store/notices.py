"""Notifications from outside, recorded before they are acted on, and the waits that they end, by correlation key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct

from core.canonical import JsonObject
from core.db import Connection

_RECORD = """
INSERT INTO inbox (tenant_id, source, notification_id, payload, correlation_key) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant_id, source, notification_id) DO NOTHING RETURNING notification_id"""
_READ = """
SELECT payload, result, correlation_key, processed_at IS NOT NULL AS processed FROM inbox
WHERE tenant_id = $1 AND source = $2 AND notification_id = $3"""
_PROCESSED = """
UPDATE inbox SET processed_at = now(), result = $4
WHERE tenant_id = $1 AND source = $2 AND notification_id = $3 AND processed_at IS NULL"""

# The oldest that waits comes first; of what is over, the newest tells why nothing waits any more.
_FIND = """
SELECT w.wait_id, w.run_id, w.step_key, w.kind, w.token, w.status = 'waiting' AS waiting,
  w.status = 'waiting' AND w.parked AS parked, r.version AS run_version
FROM waits w JOIN runs r ON r.run_id = w.run_id
WHERE w.tenant_id = $1 AND w.correlation_key = $2 AND w.kind = ANY ($3::text[])
ORDER BY w.status = 'waiting' DESC, CASE WHEN w.status = 'waiting' THEN w.created_at END, w.created_at DESC LIMIT 1"""

# Kept signals whose wait exists by now: what came before its wait, or in the same moment.
_KEPT = """
SELECT DISTINCT ON (i.tenant_id, i.correlation_key) i.tenant_id, i.source, i.notification_id
FROM inbox i CROSS JOIN LATERAL (
  SELECT w.wait_id FROM waits w
  WHERE w.tenant_id = i.tenant_id AND w.correlation_key = i.correlation_key AND w.status = 'waiting' AND w.parked
  LIMIT 1) w
WHERE i.processed_at IS NULL AND i.correlation_key IS NOT NULL
ORDER BY i.tenant_id, i.correlation_key, i.received_at LIMIT 100"""


# By tenant, because that is how waits are indexed. Keys of what runs outside are derived, so there is one at most.
_TENANT_OF = """
SELECT t.tenant_id FROM tenants t WHERE EXISTS (
  SELECT FROM waits w WHERE w.tenant_id = t.tenant_id AND w.correlation_key = $1 AND w.kind = 'external') LIMIT 1"""


class Notice(Struct, frozen=True):
    """A notification as it was kept. ``result`` says what became of it, None while nothing has."""

    payload: Mapping[str, Any]
    result: Mapping[str, Any] | None
    correlation_key: str | None
    processed: bool


class Found(Struct, frozen=True):
    """The wait with a correlation key; ``parked`` says that its step waits for it."""

    wait_id: UUID
    run_id: UUID
    step_key: str
    kind: str
    token: str
    waiting: bool
    parked: bool
    run_version: int


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


async def find(connection: Connection, tenant: str, key: str, kinds: Sequence[str]) -> Found | None:
    """The wait of one of these kinds that a notification with this key is for: one that waits, or the last that did."""
    row = await connection.fetchrow(_FIND, tenant, key, list(kinds))
    return None if row is None else Found(**row)


async def kept(connection: Connection) -> list[tuple[str, str, str]]:
    """Notifications whose wait exists by now, as (tenant, source, id); the oldest for each wait."""
    rows = await connection.fetch(_KEPT)
    return [(row["tenant_id"], row["source"], row["notification_id"]) for row in rows]


async def tenant_of(connection: Connection, key: str) -> str | None:
    """Whose run began what has this key outside; None if nobody's did. Under the engine's role, which sees all."""
    tenant: str | None = await connection.fetchval(_TENANT_OF, key)
    return tenant
