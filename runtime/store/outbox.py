"""The outbox: leasing commands that are messages, and saying how their delivery ended (O-1, O-4, O-7)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
from msgspec import Struct

from core.db import Connection
from runtime.engine.states import CommandState

# One at a time per ordering key: the partial unique index decides between dispatchers that look at once.
_LEASE = """
UPDATE commands SET status = 'leased', lease_owner = $1, lease_expires_at = now() + $2, attempts = attempts + 1
WHERE command_id = (
  SELECT c.command_id FROM commands c
  WHERE c.status = 'pending' AND coalesce(c.next_attempt_at, c.created_at) <= now()
    AND ($3::uuid IS NULL OR c.command_id = $3)
    AND NOT EXISTS (SELECT FROM commands o WHERE o.ordering_key = c.ordering_key AND o.status = 'leased')
  ORDER BY c.command_id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING command_id, tenant_id, run_id, kind, payload, attempts, created_at,
  (SELECT array_agg(o.command_id ORDER BY o.command_id) FROM commands o WHERE o.ordering_key = commands.ordering_key
    AND o.kind = commands.kind AND o.status = 'pending' AND o.command_id <> commands.command_id) AS behind"""

_END_SHOWN = "UPDATE commands SET status = 'dispatched' WHERE command_id = ANY ($1::uuid[]) AND status = 'pending'"

_END = """
UPDATE commands SET status = $3, last_error = $4, next_attempt_at = now() + $5, lease_owner = NULL,
  lease_expires_at = NULL
WHERE command_id = $1 AND attempts = $2 AND status = 'leased' RETURNING command_id"""


class Message(Struct, frozen=True):
    """A leased command. ``attempts`` counts this one; ``behind`` are those of its kind that wait for it."""

    command_id: UUID
    tenant_id: str
    run_id: UUID | None
    kind: str
    payload: Mapping[str, Any]
    attempts: int
    created_at: float
    behind: tuple[UUID, ...] = ()


async def lease_message(
    connection: Connection, owner: str, lease: timedelta, *, only: UUID | None = None
) -> Message | None:
    """Lease the oldest message that is due, or ``only`` this one; None if there is none.

    Another dispatcher may have been faster, which ends the transaction of the connection.
    """
    try:
        row = await connection.fetchrow(_LEASE, owner, lease, only)
    except asyncpg.UniqueViolationError:
        return None
    if row is None:
        return None
    return Message(**{**row, "created_at": row["created_at"].timestamp(), "behind": tuple(row["behind"] or ())})


async def end_message(
    connection: Connection, message: Message, status: CommandState, error: str | None, again_in: timedelta
) -> bool:
    """Say how it ended: dispatched, failed, or pending again after ``again_in``. False if the lease is gone.

    Each lease is another attempt, also if the same dispatcher takes it: that is what says whose it is.
    """
    ended = (message.command_id, message.attempts, status, error, again_in)
    return await connection.fetchrow(_END, *ended) is not None


async def end_shown(connection: Connection, message: Message) -> None:
    """End the messages behind a delivered one: it shows what they were to show."""
    if message.behind:
        await connection.execute(_END_SHOWN, list(message.behind))
