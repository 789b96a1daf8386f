"""The outbox: leasing commands that are messages, and saying how their delivery ended (O-1, O-4, O-7)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
from msgspec import Struct

from core.db import Connection
from runtime.engine.model.states import CommandState
from runtime.store.commits import MESSAGES_CHANNEL

# One at a time per ordering key: the partial unique index decides between dispatchers that look at once.
_DUE = """c.status = 'pending' AND coalesce(c.next_attempt_at, c.created_at) <= now()
    AND NOT EXISTS (SELECT FROM commands o WHERE o.ordering_key = c.ordering_key AND o.status = 'leased')"""
_ONLY = f"SELECT c.command_id FROM commands c WHERE c.command_id = $3 AND {_DUE} FOR UPDATE SKIP LOCKED"

# The lanes that have a pending message, in the order of their names, each found by one step through the index: first
# those behind the lane that had the last turn, then the others, then that one. The first with a due message is taken.
_IN_TURN = f"""
  WITH RECURSIVE lanes AS (
    SELECT $3::text AS tenant_id, $4::text AS kind, 0 AS round
    UNION ALL
    SELECT n.* FROM lanes l CROSS JOIN LATERAL (
      (SELECT c.tenant_id, c.kind, greatest(l.round, 1) FROM commands c
       WHERE c.status = 'pending' AND (c.tenant_id, c.kind) > (l.tenant_id, l.kind)
         AND (l.round < 2 OR (c.tenant_id, c.kind) <= ($3, $4))
       ORDER BY c.tenant_id, c.kind LIMIT 1)
      UNION ALL
      (SELECT '', '', 2 WHERE l.round < 2)
      LIMIT 1) n)
  SELECT d.command_id FROM lanes l CROSS JOIN LATERAL (
    SELECT c.command_id FROM commands c WHERE c.tenant_id = l.tenant_id AND c.kind = l.kind AND {_DUE}
    ORDER BY coalesce(c.next_attempt_at, c.created_at) LIMIT 1 FOR UPDATE SKIP LOCKED) d
  WHERE l.round > 0 AND NOT ARRAY[l.kind, l.tenant_id || ':' || l.kind] && $5
  LIMIT 1"""

_LEASE = """
UPDATE commands SET status = 'leased', lease_owner = $1, lease_expires_at = now() + $2, attempts = attempts + 1
WHERE command_id = ({0})
RETURNING command_id, tenant_id, run_id, kind, payload, attempts, created_at,
  (SELECT array_agg(o.command_id ORDER BY o.command_id) FROM commands o WHERE o.ordering_key = commands.ordering_key
    AND o.kind = commands.kind AND o.status = 'pending' AND o.command_id <> commands.command_id) AS behind"""
_LEASE_IN_TURN, _LEASE_ONLY = _LEASE.format(_IN_TURN), _LEASE.format(_ONLY)

_END_SHOWN = "UPDATE commands SET status = 'dispatched' WHERE command_id = ANY ($1::uuid[]) AND status = 'pending'"

_END = """
UPDATE commands SET status = $3, last_error = $4, next_attempt_at = now() + $5, lease_owner = NULL,
  lease_expires_at = NULL
WHERE command_id = $1 AND attempts = $2 AND status = 'leased' RETURNING command_id"""

_AGAIN = f"""
WITH again AS (
  UPDATE commands SET status = 'pending', attempts = 0, next_attempt_at = NULL
  WHERE status = 'failed' AND ($1::text IS NULL OR tenant_id = $1) AND ($2::text IS NULL OR kind = $2)
  RETURNING tenant_id AS tenant, kind)
SELECT tenant, kind, count(*) AS count, pg_notify('{MESSAGES_CHANNEL}', '') AS woken FROM again
GROUP BY 1, 2 ORDER BY 1, 2"""

# A tenant and a kind.
Lane: TypeAlias = tuple[str, str]


class Message(Struct, frozen=True):
    """A leased command. ``attempts`` counts this one too; ``behind`` are the commands of its kind that wait for it."""

    command_id: UUID
    tenant_id: str
    run_id: UUID | None
    kind: str
    payload: Mapping[str, Any]
    attempts: int
    created_at: float
    behind: tuple[UUID, ...] = ()

    @property
    def lane(self) -> Lane:
        """Its tenant and its kind, which take turns with the others."""
        return self.tenant_id, self.kind


async def lease_message(
    connection: Connection, owner: str, lease: timedelta, after: Lane, full: list[str], *, only: UUID | None = None
) -> Message | None:
    """Lease a message that is due, or ``only`` this one; None if there is none.

    It leases the message that has been due longest in the next lane behind ``after`` that has any, and none of the
    kinds and lanes (``tenant:kind``) that are ``full``. If another dispatcher is faster, the connection's transaction
    is aborted.
    """
    chosen = (_LEASE_IN_TURN, owner, lease, *after, full) if only is None else (_LEASE_ONLY, owner, lease, only)
    try:
        row = await connection.fetchrow(*chosen)
    except asyncpg.UniqueViolationError:
        return None
    if row is None:
        return None
    return Message(**{**row, "created_at": row["created_at"].timestamp(), "behind": tuple(row["behind"] or ())})


async def end_message(
    connection: Connection, message: Message, status: CommandState, error: str | None, again_in: timedelta
) -> bool:
    """Write how it ended: dispatched, failed, or pending again after ``again_in``. False if the lease is gone.

    Each lease is another attempt, even if the same dispatcher takes it, so ``attempts`` identifies the lease.
    """
    ended = (message.command_id, message.attempts, status, error, again_in)
    return await connection.fetchrow(_END, *ended) is not None


async def end_shown(connection: Connection, message: Message) -> None:
    """End the messages behind a delivered one: the delivered one includes what they would have shown."""
    if message.behind:
        await connection.execute(_END_SHOWN, list(message.behind))


async def send_again(connection: Connection, tenant: str | None, kind: str | None) -> list[dict[str, Any]]:
    """Let messages that failed for good be sent again; return how many, by tenant and kind. None stands for all.

    One statement, so after a crash all of them are sent again or none, and the caller asks once more.
    """
    rows = await connection.fetch(_AGAIN, tenant, kind)
    return [{name: row[name] for name in ("tenant", "kind", "count")} for row in rows]
