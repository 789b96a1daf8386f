"""Finds everything that is due: one statement, which also frees messages and steps that never came to their end."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from core.db import Connection
from runtime.engine.model.rows import Claim
from runtime.store.commits import MESSAGES_CHANNEL, STEPS_CHANNEL
from runtime.store.inbox import KEPT, Kept
from runtime.store.retention import COPIES, MAY_BE_PURGED

BATCH = 100
# No step is on its way to a worker for longer.
SENT_MAX = "10 minutes"
# A run may have thousands of rows, so a sweep takes few of them.
PURGES = 20


def _in_turn(name: str, table: str, columns: str, order: str, due: str, most: int) -> str:
    """Up to ``most`` rows ``r`` that are due: every tenant's first one before anybody's second one.

    One look into an index finds if a tenant has any, and no backlog is read further than the tenant's share. If there
    are more tenants than ``most``, they are drawn at random: by waiting time, the longest backlog would always win.
    """
    of_tenant = f"FROM {table} r WHERE r.tenant_id = t.tenant_id AND {due}"
    share = f"least({most}, 1 + 10 * {most} / count(*))"
    return f"""
{name}_of AS MATERIALIZED (
  SELECT t.tenant_id FROM tenants t CROSS JOIN LATERAL (SELECT {of_tenant} ORDER BY {order} LIMIT 1) r),
{name} AS (
  SELECT {columns} FROM {name}_of t CROSS JOIN LATERAL (
    SELECT r.*, row_number() OVER (ORDER BY {order}) AS number {of_tenant}
    ORDER BY {order} LIMIT (SELECT {share} FROM {name}_of)) r
  ORDER BY r.number, random() LIMIT {most})"""


_OF_WAITS = ("r.run_id, r.step_key, r.wait_id, r.created_at", "r.due_at", "r.status = 'waiting' AND r.due_at <= now()")
_DUE_WAITS = _in_turn("due_waits", "waits", *_OF_WAITS, BATCH)
_DUE_PURGES = _in_turn("due_purges", "runs", "r.run_id", "r.purge_at", MAY_BE_PURGED, PURGES)

_LONG_OPEN = f"""long_open AS (
  SELECT r.run_id FROM runs r WHERE r.open_until IS NOT NULL AND r.open_until <= now() AND r.finished_at IS NULL
    AND r.status <> 'queued'
  LIMIT {BATCH})"""
_COPIES = f"copies AS (SELECT r.run_id FROM runs r WHERE {COPIES} LIMIT {PURGES})"
# Shared effects that are over, while a step still waits for their end: it was not told. Looked for now and then.
_UNTOLD = f"""
untold AS (
  SELECT DISTINCT e.tenant_id, e.key FROM waits w
  JOIN effects e ON $2 AND e.tenant_id = w.tenant_id AND e.key = w.context ->> 'shared'
  WHERE w.kind = 'shared' AND w.status = 'waiting' AND (e.status IN ('succeeded', 'failed', 'left')
    OR e.status <> 'begun' AND EXISTS (SELECT FROM runs r WHERE r.run_id = e.run_id AND r.finished_at IS NOT NULL))
  LIMIT {BATCH})"""

# A lease that ends later than one that is taken now was taken before the clock went back: cap it to that.
#
# A step that was sent, and not claimed in time, gives its place back and may be sent again: the message was lost, or
# the scheduler died before it could note that the queue has it. If the message does come later, the row decides.
_DUE = f"""
WITH silent AS (
  SELECT c.command_id FROM commands c WHERE c.status = 'leased' AND c.lease_expires_at < now()
  ORDER BY c.command_id FOR UPDATE SKIP LOCKED),
unclaimed AS (
  SELECT q.run_id, q.step_key FROM queue q WHERE q.status <> 'claimable' AND q.status = 'sent' AND q.expires_at < now()
  ORDER BY q.run_id, q.step_key FOR UPDATE SKIP LOCKED),
ahead AS (
  SELECT q.run_id, q.step_key, l.ends FROM queue q
  CROSS JOIN LATERAL (SELECT now() + CASE q.status WHEN 'leased' THEN $1 ELSE interval '{SENT_MAX}' END AS ends) l
  WHERE q.status <> 'claimable' AND q.expires_at > l.ends + interval '1 s'
  ORDER BY q.run_id, q.step_key FOR UPDATE OF q SKIP LOCKED),
capped AS (
  UPDATE queue q SET expires_at = a.ends FROM ahead a WHERE q.run_id = a.run_id AND q.step_key = a.step_key),
returned AS (
  UPDATE commands SET status = 'pending', lease_owner = NULL, lease_expires_at = NULL
  FROM silent WHERE commands.command_id = silent.command_id RETURNING '{MESSAGES_CHANNEL}' AS channel),
freed AS (
  UPDATE queue SET status = 'claimable', owner = NULL, expires_at = NULL
  FROM unclaimed u WHERE queue.run_id = u.run_id AND queue.step_key = u.step_key
  RETURNING '{STEPS_CHANNEL}' AS channel),
found AS (SELECT channel FROM returned UNION ALL SELECT channel FROM freed),
woken AS (SELECT pg_notify(channel, '') FROM (SELECT DISTINCT channel FROM found) channels),
{_DUE_WAITS},
{_DUE_PURGES},
{_COPIES},
{_LONG_OPEN},
{_UNTOLD},
{KEPT.format(whole="$2", most=BATCH)}
SELECT now() AS now, (SELECT count(*) FROM found) AS freed, (SELECT count(*) FROM woken) AS woken,
  (SELECT jsonb_agg(jsonb_build_array(run_id, step_key, lease_id, epoch)) FROM (
    SELECT run_id, step_key, lease_id, epoch FROM queue
    WHERE status <> 'claimable' AND status = 'leased' AND expires_at < now()
    ORDER BY row_number() OVER (PARTITION BY tenant_id ORDER BY expires_at), expires_at LIMIT {BATCH}) s) AS leases,
  (SELECT jsonb_agg(jsonb_build_array(run_id, step_key, wait_id, extract(epoch FROM now() - created_at)))
    FROM due_waits) AS waits,
  (SELECT jsonb_agg(jsonb_build_array(tenant_id, source, notification_id, run_id)) FROM kept) AS kept,
  (SELECT jsonb_agg(run_id) FROM (SELECT run_id FROM due_purges UNION SELECT run_id FROM copies) p) AS purges,
  (SELECT jsonb_agg(jsonb_build_array(tenant_id, key)) FROM untold) AS untold,
  (SELECT jsonb_agg(run_id) FROM long_open) AS long_open,
  (SELECT array_agg(tenant_id) FROM tenants WHERE resumed IS NOT NULL OR judge_after IS NOT NULL) AS changed"""

_TAKE_AWAY = """
SELECT owner FROM queue
WHERE run_id = $1 AND step_key = $2 AND lease_id = $3 AND epoch = $4 AND status = 'leased' AND expires_at < now()
FOR NO KEY UPDATE"""
_FORGET = "DELETE FROM queue WHERE run_id = $1 AND step_key = $2"


# What began later than now began before the clock went back: it begins now, and takes as long as it was to take. What
# began earlier is late by less than it was to take.
_WAITS_BEGIN = """
UPDATE waits SET due_at = due_at - (created_at - now()), created_at = now()
WHERE status = 'waiting' AND created_at > now() + interval '1 s'"""
_MESSAGES_BEGIN = """
UPDATE commands SET created_at = least(created_at, now()), next_attempt_at = NULL
WHERE status = 'pending' AND coalesce(next_attempt_at, created_at) > now() AND ($1 OR created_at > now())"""
_LEASES_END = """
UPDATE commands SET lease_expires_at = now() + interval '1 minute'
WHERE status = 'leased' AND lease_expires_at > now() + interval '1 minute'"""


class Due(Struct, frozen=True):
    """The reading of a sweep. ``now`` is the database's time.

    Leases by run, waits as (run, step key, wait, age in seconds), how many messages and steps were freed for others.

    ``kept`` are signals that have a wait by now, or none for too long, ``purges`` are runs whose retention is over,
    ``changed`` are tenants with a change of policy or pauses that keepers still have work with. ``untold`` are effects,
    each by tenant and key, whose end somebody still waits for; ``long_open`` are open runs that have waited for steps
    long enough.
    """

    now: datetime
    leases: tuple[tuple[UUID, Claim], ...]
    waits: tuple[tuple[UUID, str, UUID, float], ...]
    freed: int
    kept: tuple[Kept, ...]
    purges: tuple[UUID, ...]
    changed: tuple[str, ...]
    untold: tuple[tuple[str, str], ...]
    long_open: tuple[UUID, ...]


async def due(connection: Connection, lease: timedelta, *, whole: bool) -> Due:
    """Everything that is due now, at most ``BATCH`` of each kind, of which tenants have equal shares.

    ``whole`` compares all kept signals with all waits. No worker's lease ends later than ``lease`` from now. A crash
    before the commit leaves everything to the next sweep.
    """
    row = await connection.fetchrow(_DUE, lease, whole)
    assert row is not None
    return Due(
        row["now"],
        tuple((UUID(run), Claim(key, UUID(lease), epoch)) for run, key, lease, epoch in row["leases"] or ()),
        tuple((UUID(run), key, UUID(wait), age) for run, key, wait, age in row["waits"] or ()),
        row["freed"],
        tuple(Kept(tenant, source, key, run and UUID(run)) for tenant, source, key, run in row["kept"] or ()),
        tuple(UUID(run) for run in row["purges"] or ()),
        tuple(row["changed"] or ()),
        tuple((tenant, key) for tenant, key in row["untold"] or ()),
        tuple(UUID(run) for run in row["long_open"] or ()),
    )


async def begin_anew(connection: Connection, *, seen: bool) -> int:
    """Let everything that is timed go on after the clock has gone back; return how much was moved.

    ``seen`` says that it was seen to go back: then messages that wait for another try are tried at once. A crash leaves
    what is not moved yet to the next sweep that looks at everything.
    """
    given = ((_WAITS_BEGIN,), (_MESSAGES_BEGIN, seen), (_LEASES_END,))
    return sum([int((await connection.execute(*each)).rpartition(" ")[2]) for each in given])


async def take_away(connection: Connection, run_id: UUID, claim: Claim) -> str | None:
    """Lock the row of a lease that has run out, before the run's row is locked; return its owner.

    None if it is another's by now, or its step is over, or a heartbeat has come in between: this is checked under the
    lock. A crash before the caller's transaction commits leaves the lease as it was.
    """
    owner: str | None = await connection.fetchval(_TAKE_AWAY, run_id, claim.key, claim.id, claim.epoch)
    return owner


async def forget(connection: Connection, run_id: UUID, step_key: str) -> None:
    """Delete the queue's row of a step that a cancel had to leave to its holder."""
    await connection.execute(_FORGET, run_id, step_key)
