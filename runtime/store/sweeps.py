"""Everything that is due: one statement that also frees what was leased, or sent, and never came to its end."""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct

from core.db import Connection
from runtime.engine.commit import Claim
from runtime.store.commits import MESSAGES_CHANNEL, STEPS_CHANNEL
from runtime.store.retention import MAY_BE_PURGED

BATCH = 100
# A run may have thousands of rows, so a sweep takes few of them.
PURGES = 20

# What is kept is looked at from its own side, one by one: there are few of them, and there may be many waits.
#
# A step that was sent and that nobody has claimed in time may be sent again, and gives its place back: the message was
# lost, or the scheduler died between the queue and us. If the message does come later, the row decides.
_DUE = f"""
WITH silent AS (
  SELECT c.command_id FROM commands c WHERE c.status = 'leased' AND c.lease_expires_at < now()
  ORDER BY c.command_id FOR UPDATE SKIP LOCKED),
unclaimed AS (
  SELECT q.run_id, q.step_key FROM queue q WHERE q.status <> 'claimable' AND q.status = 'sent' AND q.expires_at < now()
  ORDER BY q.run_id, q.step_key FOR UPDATE SKIP LOCKED),
returned AS (
  UPDATE commands SET status = 'pending', lease_owner = NULL, lease_expires_at = NULL
  FROM silent WHERE commands.command_id = silent.command_id RETURNING '{MESSAGES_CHANNEL}' AS channel),
freed AS (
  UPDATE queue SET status = 'claimable', owner = NULL, expires_at = NULL
  FROM unclaimed u WHERE queue.run_id = u.run_id AND queue.step_key = u.step_key
  RETURNING '{STEPS_CHANNEL}' AS channel),
found AS (SELECT channel FROM returned UNION ALL SELECT channel FROM freed),
woken AS (SELECT pg_notify(channel, '') FROM (SELECT DISTINCT channel FROM found) channels)
SELECT (SELECT count(*) FROM found) AS freed, (SELECT count(*) FROM woken) AS woken,
  (SELECT jsonb_agg(jsonb_build_array(run_id, step_key, lease_id, epoch)) FROM (
    SELECT run_id, step_key, lease_id, epoch FROM queue
    WHERE status <> 'claimable' AND status = 'leased' AND expires_at < now()
    ORDER BY expires_at LIMIT {BATCH}) s) AS leases,
  (SELECT jsonb_agg(jsonb_build_array(run_id, step_key, wait_id)) FROM (
    SELECT run_id, step_key, wait_id FROM waits WHERE status = 'waiting' AND due_at <= now()
    ORDER BY due_at LIMIT {BATCH}) w) AS waits,
  EXISTS (SELECT FROM inbox i WHERE i.processed_at IS NULL AND i.correlation_key IS NOT NULL
    AND (SELECT true FROM waits w WHERE w.tenant_id = i.tenant_id AND w.correlation_key = i.correlation_key
      AND w.status = 'waiting' LIMIT 1)) AS kept,
  (SELECT jsonb_agg(run_id) FROM (
    SELECT r.run_id FROM runs r WHERE {MAY_BE_PURGED} ORDER BY r.purge_at LIMIT {PURGES}) p) AS purges"""

_TAKE_AWAY = """
SELECT owner FROM queue
WHERE run_id = $1 AND step_key = $2 AND lease_id = $3 AND epoch = $4 AND status = 'leased' AND expires_at < now()
FOR NO KEY UPDATE"""
_FORGET = "DELETE FROM queue WHERE run_id = $1 AND step_key = $2"


class Due(Struct, frozen=True):
    """Leases by run, waits as (run, step key, wait), and how many messages and steps were freed for others.

    ``kept`` says that a signal was kept for which there is a wait by now, ``purges`` are runs whose retention is over.
    """

    leases: tuple[tuple[UUID, Claim], ...]
    waits: tuple[tuple[UUID, str, UUID], ...]
    freed: int
    kept: bool
    purges: tuple[UUID, ...]


async def due(connection: Connection) -> Due:
    """Everything that is due now, at most ``BATCH`` of each kind."""
    row = await connection.fetchrow(_DUE)
    assert row is not None
    return Due(
        tuple((UUID(run), Claim(key, UUID(lease), epoch)) for run, key, lease, epoch in row["leases"] or ()),
        tuple((UUID(run), key, UUID(wait)) for run, key, wait in row["waits"] or ()),
        row["freed"],
        row["kept"],
        tuple(UUID(run) for run in row["purges"] or ()),
    )


async def take_away(connection: Connection, run_id: UUID, claim: Claim) -> str | None:
    """Lock the row of a lease that has run out, before the run's row is locked; its owner.

    None if it is another's by now, or its step is over, or a heartbeat has come in between: the row is looked at as it
    is under the lock. A crash before the caller's transaction commits leaves the lease as it was.
    """
    owner: str | None = await connection.fetchval(_TAKE_AWAY, run_id, claim.key, claim.id, claim.epoch)
    return owner


async def forget(connection: Connection, run_id: UUID, step_key: str) -> None:
    """Delete the queue's row of a step that a cancel had to leave to its holder."""
    await connection.execute(_FORGET, run_id, step_key)
