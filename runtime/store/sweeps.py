"""What is due: one statement that also returns expired leases of commands to where they can be leased again."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from core.db import Connection
from runtime.store.commits import MESSAGES_CHANNEL, STEPS_CHANNEL
from runtime.store.retention import MAY_BE_PURGED

BATCH = 100
# A run may have thousands of rows, so a sweep takes few of them.
PURGES = 20

# What is kept is looked at from its own side, one by one: there are few of them, and there may be many waits.
#
# A step command whose lease or expected claim is over goes back to pending and gives its slot back: the message was
# lost, or the scheduler died between the queue and us. If the message does come later, the row decides. Where the step
# was claimed meanwhile, only the mark was missing.
_DUE = f"""
WITH overdue AS (
  SELECT c.command_id, c.step_id, c.kind, c.status FROM commands c
  WHERE c.status IN ('leased', 'dispatched') AND c.lease_expires_at < now()
  ORDER BY c.command_id FOR UPDATE SKIP LOCKED),
stale AS (
  SELECT o.command_id, o.step_id, o.kind FROM overdue o LEFT JOIN steps s ON s.step_id = o.step_id
  WHERE (o.kind <> 'step' AND o.status = 'leased') OR (o.kind = 'step' AND s.status = 'ready')),
claimed AS (
  UPDATE commands SET status = 'dispatched', lease_owner = NULL, lease_expires_at = NULL
  FROM overdue o JOIN steps s ON s.step_id = o.step_id
  WHERE commands.command_id = o.command_id AND o.kind = 'step' AND s.status <> 'ready'),
returned AS (
  UPDATE commands SET status = 'pending', lease_owner = NULL, lease_expires_at = NULL
  FROM stale WHERE commands.command_id = stale.command_id RETURNING commands.kind),
freed AS (
  UPDATE slots SET step_id = NULL FROM stale WHERE slots.step_id = stale.step_id AND stale.kind = 'step'),
woken AS (
  SELECT pg_notify(CASE WHEN kind = 'step' THEN '{STEPS_CHANNEL}' ELSE '{MESSAGES_CHANNEL}' END, '')
  FROM (SELECT DISTINCT kind = 'step' AS step, kind FROM returned) kinds)
SELECT (SELECT count(*) FROM returned) AS commands, (SELECT count(*) FROM woken) AS woken,
  (SELECT jsonb_agg(jsonb_build_array(run_id, step_key, lease_epoch)) FROM (
    SELECT run_id, step_key, lease_epoch FROM steps WHERE status = 'running' AND lease_expires_at < now()
    ORDER BY lease_expires_at LIMIT {BATCH}) s) AS leases,
  (SELECT jsonb_agg(jsonb_build_array(run_id, step_key, wait_id)) FROM (
    SELECT run_id, step_key, wait_id FROM waits WHERE status = 'waiting' AND due_at <= now()
    ORDER BY due_at LIMIT {BATCH}) w) AS waits,
  EXISTS (SELECT FROM inbox i WHERE i.processed_at IS NULL AND i.correlation_key IS NOT NULL
    AND (SELECT true FROM waits w WHERE w.tenant_id = i.tenant_id AND w.correlation_key = i.correlation_key
      AND w.status = 'waiting' LIMIT 1)) AS kept,
  (SELECT jsonb_agg(run_id) FROM (
    SELECT r.run_id FROM runs r WHERE {MAY_BE_PURGED} ORDER BY r.purge_at LIMIT {PURGES}) p) AS purges"""

_IS_OVER = "SELECT lease_expires_at < now() FROM steps WHERE step_id = $1 AND lease_epoch = $2 AND status = 'running'"


@dataclass(frozen=True, slots=True)
class Due:
    """Leases as (run, step key, epoch), waits as (run, step key, wait), and how many commands were returned.

    ``kept`` says that a signal was kept for which there is a wait by now, ``purges`` are runs whose retention is over.
    """

    leases: tuple[tuple[UUID, str, int], ...]
    waits: tuple[tuple[UUID, str, UUID], ...]
    commands: int
    kept: bool
    purges: tuple[UUID, ...]


async def due(connection: Connection) -> Due:
    """Everything that is due now, at most ``BATCH`` of each kind."""
    row = await connection.fetchrow(_DUE)
    assert row is not None
    return Due(
        tuple((UUID(run), key, epoch) for run, key, epoch in row["leases"] or ()),
        tuple((UUID(run), key, UUID(wait)) for run, key, wait in row["waits"] or ()),
        row["commands"],
        row["kept"],
        tuple(UUID(run) for run in row["purges"] or ()),
    )


async def lease_is_over(connection: Connection, step_id: UUID, epoch: int) -> bool:
    """Whether this very lease has run out; a heartbeat may have come in between."""
    return bool(await connection.fetchval(_IS_OVER, step_id, epoch))
