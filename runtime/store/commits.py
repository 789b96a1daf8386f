"""Applying commits: one guarded statement, built from the parts that the commit has.

The guard is the UPDATE of the run's row at the expected version; every other part hangs on it, so either all of the
commit happens or none. The text depends only on which parts there are, so the few shapes that occur are prepared
once per connection.

Lock order: rows of the queue by run and step, then runs by id, then shared effects by key, then the rest. Whoever
settles a step locks the row of its lease first, and only then looks whether the lease is still its own: a statement
that waited for a lock has an old snapshot, but sees the row that it locked as it is. A row of the queue is never waited
for once a run is locked.

Commits of different runs may go in one statement, whose text is always the same. Each has a guard of its own, and the
rows of one whose guard does not hold are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from uuid import UUID

import orjson

from core.db import Connection
from runtime.engine.commit import Commit
from runtime.store.commit_part import Part
from runtime.store.governance_parts import GOVERNANCE_PARTS
from runtime.store.run_parts import RUN_PARTS

STEPS_CHANNEL = "counterseal_steps"
MESSAGES_CHANNEL = "counterseal_messages"

# A run has begun once it is neither queued nor canceled before that.
_GUARD = """
held AS MATERIALIZED (
  SELECT q.run_id FROM queue q
  WHERE q.run_id = $1 AND q.step_key = $18 AND q.lease_id = $19 AND q.epoch = $20 FOR NO KEY UPDATE),
guard AS (
  UPDATE runs SET version = version + 1, status = $3, superstep = $4, executing = $5, width = $6, writes = $7,
    audit_count = $8, audit_head = $9, error = $10, canceling = $11, reference = coalesce($15, reference),
    result = $16, extensions = extensions + $17,
    state = CASE WHEN $12 THEN NULL ELSE coalesce($21, state) END,
    state_n = CASE WHEN $12 THEN 0 WHEN $21 IS NULL THEN state_n ELSE version + 1 END,
    started_at = CASE WHEN $3 IN ('queued', 'canceled') THEN started_at ELSE coalesce(started_at, now()) END,
    finished_at = CASE WHEN $12 THEN now() ELSE finished_at END, purge_at = CASE WHEN $12 THEN now() + retention END
  WHERE run_id = $1 AND version = $2 AND ($18::text IS NULL OR EXISTS (SELECT FROM held))
    AND (NOT $13 OR (SELECT t.policy_digest FROM tenants t WHERE t.tenant_id = runs.tenant_id) IS NOT DISTINCT FROM $14)
  RETURNING run_id, tenant_id, workspace_id, cap, version)"""


_GUARDS = """
wanted AS (
  SELECT * FROM unnest($1::uuid[], $2::int[], $3::text[], $4::int[], $5::int[], $6::int[], $7::int[], $8::int[],
    $9::text[], $10::text[], $11::text[], $12::bool[], $13::bool[], $14::text[], $15::text[], $16::text[], $17::int[],
    $18::text[], $19::uuid[], $20::int[], $21::bytea[])
    AS w(run_id, version, status, superstep, executing, width, writes, audit_count, audit_head, error, canceling,
      finished, checks_policy, policy, reference, result, extended, step_key, lease_id, epoch, state)),
held AS MATERIALIZED (
  SELECT q.run_id FROM wanted w JOIN queue q
    ON q.run_id = w.run_id AND q.step_key = w.step_key AND q.lease_id = w.lease_id AND q.epoch = w.epoch
  ORDER BY q.run_id, q.step_key FOR NO KEY UPDATE OF q),
met AS (
  SELECT r.run_id FROM runs r JOIN wanted w ON w.run_id = r.run_id AND w.version = r.version
  WHERE w.step_key IS NULL OR w.run_id IN (SELECT held.run_id FROM held)
  ORDER BY r.run_id FOR NO KEY UPDATE OF r),
guard AS (
  UPDATE runs SET version = runs.version + 1, status = w.status, superstep = w.superstep, executing = w.executing,
    width = w.width, writes = w.writes, audit_count = w.audit_count, audit_head = w.audit_head,
    error = w.error::jsonb, canceling = w.canceling::jsonb, reference = coalesce(w.reference, runs.reference),
    result = w.result::jsonb, extensions = extensions + w.extended,
    state = CASE WHEN w.finished THEN NULL ELSE coalesce(w.state, runs.state) END,
    state_n = CASE WHEN w.finished THEN 0 WHEN w.state IS NULL THEN runs.state_n ELSE runs.version + 1 END,
    started_at = CASE WHEN w.status IN ('queued', 'canceled') THEN started_at ELSE coalesce(started_at, now()) END,
    finished_at = CASE WHEN w.finished THEN now() ELSE finished_at END,
    purge_at = CASE WHEN w.finished THEN now() + retention END
  FROM met JOIN wanted w USING (run_id)
  WHERE runs.run_id = met.run_id AND runs.version = w.version
    AND (NOT w.checks_policy
      OR (SELECT t.policy_digest FROM tenants t WHERE t.tenant_id = runs.tenant_id) IS NOT DISTINCT FROM w.policy)
  RETURNING runs.run_id, runs.tenant_id, runs.workspace_id, runs.cap, runs.version)"""


_LANDED = "SELECT EXISTS (SELECT FROM journal WHERE run_id = $1 AND n = $2 AND lines = $3)"

PARTS = (*RUN_PARTS, *GOVERNANCE_PARTS)
_TOGETHER = tuple(part for part in PARTS if not part.alone)

_START_GUARD = """
guard AS (
  INSERT INTO runs (run_id, tenant_id, workspace_id, workflow, workflow_version, workflow_digest, trigger_type,
    trigger_ref, reference, requested_by, status, version, superstep, executing, width, audit_count, audit_head,
    deadline_at, retention, parent_run_id, depth, run_key, cap)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'queued', 1, $11, $12, $13, $14, $15, now() + $16, $17, $18, $19,
    $20, $21)
  ON CONFLICT (tenant_id, workflow, trigger_type, trigger_ref) DO NOTHING
  RETURNING run_id, tenant_id, workspace_id, cap, version),
workspace AS (
  INSERT INTO workspaces (tenant_id, workspace_id) SELECT tenant_id, workspace_id FROM guard
  ON CONFLICT (tenant_id, workspace_id) DO NOTHING)"""


@dataclass(frozen=True, slots=True)
class NewRun:
    """What a run's row holds from its first day. ``trigger_ref`` dedupes: one run per workflow, type and ref (Q-1).

    ``parent`` is the run that waits for this one; ``depth`` is how many runs are above it. ``cap`` is under which cap
    its steps execute besides the tenant's: the workflow's name, or nothing.
    """

    workflow: str
    workflow_version: int
    workflow_digest: str
    trigger_type: str
    trigger_ref: str
    reference: str
    requested_by: str
    sla: timedelta | None
    run_key: bytes
    retention: timedelta | None = None
    parent: UUID | None = None
    depth: int = 0
    cap: str = ""


async def apply(connection: Connection, commit: Commit) -> bool:
    """Apply all of a commit, or nothing: False when the run (or the tenant's policy) is not as expected any more.

    A crash before this returns leaves either state; both are consistent, and the lease's expiry finds what is left.
    """
    return await _execute(connection, commit, _GUARD, _guarded(commit))


async def landed(connection: Connection, commit: Commit) -> bool:
    """True if a commit was applied whose answer was lost: its lines, which no other writes, are in the book."""
    if not commit.lines:
        return False
    lines = b"\n".join(line.bytes for line in commit.lines)
    return bool(await connection.fetchval(_LANDED, commit.run_id, commit.expected_version + 1, lines))


def can_go_together(commit: Commit) -> bool:
    """Whether this commit may share a statement with those of other runs."""
    return not any(part.alone and part.present(commit) for part in PARTS)


async def apply_together(connection: Connection, commits: Sequence[Commit]) -> set[UUID]:
    """Apply commits of different runs, of one lease's span; the runs whose commit was applied.

    An error is one of the statement, so of any of them, and nothing was applied.
    """
    guards = [list(values) for values in zip(*(_guarded(commit) for commit in commits), strict=True)]
    for index in _GUARD_JSON:
        guards[index] = [None if value is None else orjson.dumps(value).decode() for value in guards[index]]
    wakes = tuple(sorted({channel for commit in commits for channel in _channels(commit)}))
    frees = any(commit.unqueued for commit in commits)
    statement = _statement(_GUARDS, len(guards), _TOGETHER, wakes, frees)
    values = [value for part in _TOGETHER for value in part.parameters(commits)]
    return {row["run_id"] for row in await connection.fetch(statement, *guards, *values)}


def _guarded(commit: Commit) -> list[object]:
    """The parameters of the guard."""
    lease = commit.held
    return [
        commit.run_id, commit.expected_version, str(commit.status), commit.superstep, commit.executing, commit.width,
        commit.writes, commit.head.count, commit.head.hash, commit.error, commit.canceling, commit.finished,
        commit.checks_policy, commit.expected_policy, commit.reference, commit.result, commit.extended,
        lease and lease.key, lease and lease.id, lease and lease.epoch, commit.state,
    ]  # fmt: skip


# Which of them are JSON: an array of them is one of texts.
_GUARD_JSON = (9, 10, 15)


async def apply_start(connection: Connection, commit: Commit, run: NewRun) -> bool:
    """Write a new run with its first checkpoint and steps; False if its trigger has started one already."""
    guard: list[object] = [
        commit.run_id, commit.tenant_id, commit.workspace_id, run.workflow, run.workflow_version, run.workflow_digest,
        run.trigger_type, run.trigger_ref, run.reference, run.requested_by, commit.superstep, commit.executing,
        commit.width, commit.head.count, commit.head.hash, run.sla, run.retention, run.parent, run.depth, run.run_key,
        run.cap,
    ]  # fmt: skip
    return await _execute(connection, commit, _START_GUARD, guard)


async def _execute(connection: Connection, commit: Commit, guard: str, parameters: list[object]) -> bool:
    present = tuple(part for part in PARTS if part.present(commit))
    statement = _statement(guard, len(parameters), present, _channels(commit), bool(commit.unqueued))
    for part in present:
        parameters.extend(part.parameters([commit]))
    return await connection.fetchrow(statement, *parameters) is not None


def _channels(commit: Commit) -> tuple[str, ...]:
    found = ((STEPS_CHANNEL, commit.queued or commit.requeued), (MESSAGES_CHANNEL, commit.commands))
    return tuple(name for name, news in found if news)


# Where the tenant or the workflow was at its cap, a step may be waiting for this very slot, at whichever worker.
_WAKE_AT_CAP = f""", CASE WHEN EXISTS (
    SELECT FROM queue q WHERE q.tenant_id = guard.tenant_id AND q.status = 'claimable')
  AND ((SELECT count(*) FROM queue q WHERE q.tenant_id = guard.tenant_id AND q.status <> 'claimable')
      >= (SELECT t.max_concurrency FROM tenants t WHERE t.tenant_id = guard.tenant_id)
    OR guard.cap > ''
      AND (SELECT count(*) FROM queue q
        WHERE q.tenant_id = guard.tenant_id AND q.cap = guard.cap AND q.status <> 'claimable')
      >= (SELECT c.slots FROM caps c WHERE c.tenant_id = guard.tenant_id AND c.cap = guard.cap))
  THEN pg_notify('{STEPS_CHANNEL}', '') END"""


@lru_cache(maxsize=256)
def _statement(guard: str, number: int, present: tuple[Part, ...], wakes: tuple[str, ...], frees_slot: bool) -> str:
    """The text of one shape of commit. NOTIFY is sent only if the guard held, and only on commit."""
    parts = [guard]
    for part in present:
        count = part.count
        parts.append(f"\n{part.cte} AS ({part.sql.format(*(f'${number + n + 1}' for n in range(count)))})")
        number += count
    notify = "".join(f", pg_notify('{channel}', '')" for channel in wakes)
    if frees_slot and STEPS_CHANNEL not in wakes:
        notify += _WAKE_AT_CAP
    return f"WITH {','.join(parts)}\nSELECT run_id{notify} FROM guard"
