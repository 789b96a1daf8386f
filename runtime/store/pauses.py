"""The pauses of a tenant: an object in the tenant's row, by key, which every decision reads with the policy.

A trigger of that row moves ``stop_number``, the guard of every intent, and waits for the appends that began before.
``resumed`` holds the keys whose steps a keeper has still to resume; a crash after a resume loses none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct

from core.db import Connection
from runtime.engine.model.states import WaitKind
from runtime.store.commits import MESSAGES_CHANNEL

# The next pause also removes those of runs that are over by now.
_PAUSE = """
UPDATE tenants SET resumed = array_remove(resumed, $2), paused = coalesce(paused, '{}') - $5::text[]
  || jsonb_build_object($2::text, jsonb_build_object('by', $3::text, 'reason', $4::text, 'at', now()))
WHERE tenant_id = $1 AND NOT coalesce(paused ? $2, false) RETURNING tenant_id"""
_RESUME = """
UPDATE tenants SET resumed = array_append(array_remove(resumed, $2), $2), paused = nullif(paused - $2, '{}')
WHERE tenant_id = $1 AND paused ? $2 RETURNING tenant_id"""

_IN_FORCE = """
SELECT p.key, p.value, r.finished_at IS NOT NULL AS over
FROM tenants t CROSS JOIN LATERAL jsonb_each(t.paused) p
  LEFT JOIN runs r ON r.tenant_id = t.tenant_id AND p.key = 'run:' || r.run_id
    AND r.run_id = CASE WHEN p.key LIKE 'run:%' THEN substr(p.key, 5)::uuid END
WHERE t.tenant_id = $1 ORDER BY p.value ->> 'at', p.key"""

# A pause of a connector holds up a run if one of its steps waits for the end of that pause.
_OF_RUN = f"""
SELECT p.key FROM runs r JOIN tenants t USING (tenant_id) CROSS JOIN LATERAL jsonb_object_keys(t.paused) p(key)
WHERE r.tenant_id = $1 AND r.run_id = $2 AND r.finished_at IS NULL
  AND (p.key IN ('tenant', 'workflow:' || r.workflow, 'run:' || r.run_id) OR p.key IN (
    SELECT w.context ->> 'paused' FROM waits w
    WHERE w.run_id = r.run_id AND w.kind = '{WaitKind.PAUSE}' AND w.status = 'waiting'))"""

_PARKED = f"""
SELECT run_id, step_key, wait_id FROM waits
WHERE tenant_id = $1 AND context ->> 'paused' = ANY ($2) AND kind = '{WaitKind.PAUSE}' AND status = 'waiting'
ORDER BY context ->> 'paused', wait_id LIMIT $3"""

_CHANGE = "SELECT stop_number AS number, paused, resumed, judge_after AS after FROM tenants WHERE tenant_id = $1"
_QUESTIONS = """
SELECT approval_id FROM approvals WHERE tenant_id = $1 AND status = 'requested' AND approval_id > $2
ORDER BY approval_id LIMIT $3"""
# Only the run's book tells the connector of an action, so a pause of a connector redraws every card.
_REDRAW = f"""
WITH ordered AS (
  INSERT INTO commands (command_id, tenant_id, run_id, kind, payload, status, ordering_key)
  SELECT md5(a.approval_id || ':stop:' || $3::text)::uuid, a.tenant_id, a.run_id, 'card',
    jsonb_build_object('approval', a.approval_id), 'pending', 'approval:' || a.approval_id
  FROM approvals a JOIN runs r USING (run_id) WHERE a.approval_id = ANY ($1) AND a.status = 'requested'
    AND EXISTS (SELECT FROM unnest($2::text[]) k(key) WHERE k.key LIKE 'connector:%'
      OR k.key IN ('tenant', 'workflow:' || r.workflow, 'run:' || r.run_id))
  ON CONFLICT DO NOTHING RETURNING command_id)
SELECT pg_notify('{MESSAGES_CHANNEL}', '') WHERE EXISTS (SELECT FROM ordered)"""
# The questions whose runs have short books come first, so that a bounded look says something of as many as it can.
_PREVIEWED = """
SELECT q.approval_id FROM (
  SELECT a.approval_id, sum(r.audit_count) OVER (ORDER BY r.audit_count, a.approval_id) AS lines
  FROM (SELECT approval_id, run_id FROM approvals WHERE tenant_id = $1 AND status = 'requested'
    ORDER BY approval_id LIMIT $2) a JOIN runs r USING (run_id)) q
WHERE q.lines <= $3 ORDER BY q.approval_id"""
_OPEN_QUESTIONS = "SELECT count(*) FROM approvals WHERE tenant_id = $1 AND status = 'requested'"
_FOLLOWED = """
UPDATE tenants SET judge_after = $3, resumed = CASE WHEN $4 THEN NULL ELSE resumed END
WHERE tenant_id = $1 AND stop_number = $2"""


async def pause(connection: Connection, tenant: str, key: str, by: str, reason: str, gone: Sequence[str]) -> bool:
    """Keep a pause, and drop those that are ``gone``; False if there is one under this key.

    It returns when every append with an intent that began before has ended; none begins until the transaction ends.
    A crash before that leaves the tenant as it was.
    """
    return await connection.fetchrow(_PAUSE, tenant, key, by, reason, gone) is not None


async def resume(connection: Connection, tenant: str, key: str) -> bool:
    """End a pause; False if there is none. Keepers find its steps, whatever crashes after the commit."""
    return await connection.fetchrow(_RESUME, tenant, key) is not None


async def in_force(connection: Connection, tenant: str) -> list[dict[str, Any]]:
    """Every pause of a tenant: its key, what is kept of it, and whether it is of a run that is ``over``."""
    return [dict(row) for row in await connection.fetch(_IN_FORCE, tenant)]


async def of_run(connection: Connection, tenant: str, run_id: UUID) -> list[str]:
    """The keys of the pauses that hold up a run now."""
    return [row["key"] for row in await connection.fetch(_OF_RUN, tenant, run_id)]


async def parked(connection: Connection, tenant: str, keys: Sequence[str], most: int) -> list[tuple[UUID, str, UUID]]:
    """Up to ``most`` steps (run, step key, wait) that wait for the end of one of these pauses."""
    rows = await connection.fetch(_PARKED, tenant, keys, most)
    return [(row["run_id"], row["step_key"], row["wait_id"]) for row in rows]


class Change(Struct, frozen=True):
    """The work of keepers after a change of a tenant's policy or pauses; ``number`` is its ``stop_number`` since.

    ``resumed`` are keys whose steps may go on, ``paused`` those of pauses in force. Open questions behind ``after`` are
    still to be looked at; None once all of them were.
    """

    tenant: str
    number: int
    paused: frozenset[str]
    resumed: tuple[str, ...]
    after: UUID | None


async def change(connection: Connection, tenant: str) -> Change:
    """The work of keepers in a tenant after a change."""
    row = await connection.fetchrow(_CHANGE, tenant)
    assert row is not None  # a sweep has just found it, and tenants are never deleted
    return Change(tenant, row["number"], frozenset(row["paused"] or {}), tuple(row["resumed"] or ()), row["after"])


async def questions(connection: Connection, tenant: str, after: UUID, most: int) -> list[UUID]:
    """Up to ``most`` open questions behind ``after``, in the order of their ids."""
    return [row["approval_id"] for row in await connection.fetch(_QUESTIONS, tenant, after, most)]


async def previewed(connection: Connection, tenant: str, most: int, lines: int) -> list[UUID]:
    """Up to ``most`` open questions whose runs' books have no more than so many lines in all, in the order of ids."""
    return [row["approval_id"] for row in await connection.fetch(_PREVIEWED, tenant, most, lines)]


async def redraw(connection: Connection, change: Change, questions: Sequence[UUID]) -> None:
    """Order new cards for those of the questions that a change of pauses may concern, once for each change."""
    await connection.execute(_REDRAW, questions, [*change.paused, *change.resumed], str(change.number))


async def open_questions(connection: Connection, tenant: str) -> int:
    """Count the open questions of a tenant."""
    count: int = await connection.fetchval(_OPEN_QUESTIONS, tenant)
    return count


async def followed(connection: Connection, change: Change, after: UUID | None, *, over: bool) -> None:
    """Note how far a keeper has come; ``over`` says that nothing is left. A no-op if there is a newer change.

    After a crash before that, the same questions are looked at once more, which is idempotent.
    """
    await connection.execute(_FOLLOWED, change.tenant, change.number, after, over)
