"""Applying commits: one guarded statement, built from the parts that the commit has.

The guard is the UPDATE of the run's row while its gate is as expected, so that what commutes may come in between, and
its version too where the commit must have seen everything. Every other part hangs on it: either all of the commit
happens or none. The text depends only on which parts there are, so the few shapes that occur are prepared once per
connection.

Lock order: rows of the queue by run and step, then runs by id, then shared effects by key, then the rest. Whoever
settles a step locks the row of its lease first, and only then looks whether the lease is still its own: a statement
that waited for a lock has an old snapshot, but sees the row that it locked as it is. A row of the queue is never waited
for once a run is locked.

Commits of different runs may go in one statement, whose text is always the same. Each has a guard of its own, and the
rows of one whose guard does not hold are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

import orjson

from core.db import Connection
from evidence.chain import digest_of
from runtime.engine.commit import Commit
from runtime.store.governance_parts import GOVERNANCE_PARTS
from runtime.store.run_parts import RUN_PARTS, Part

STEPS_CHANNEL = "counterseal_steps"
MESSAGES_CHANNEL = "counterseal_messages"

# A time that is further ahead of the database's own was made up, or is of a clock that cannot be trusted.
AHEAD = "10 seconds"

# A run has begun once it is neither queued nor canceled before that.
GUARD = f"""
held AS MATERIALIZED (
  SELECT q.step_key
  FROM unnest($24::uuid[], $25::text[], $26::uuid[], $27::int[]) AS l(run_id, step_key, lease_id, epoch)
  JOIN queue q ON q.run_id = l.run_id AND q.step_key = l.step_key AND q.lease_id = l.lease_id AND q.epoch = l.epoch
  ORDER BY q.run_id, q.step_key FOR NO KEY UPDATE OF q),
guard AS (
  UPDATE runs SET version = version + 1, gate = gate + $22, status = $3, superstep = $4,
    executing = executing + $5, width = $6, writes = writes + $7, audit_count = audit_count + $8,
    audit_head = coalesce(encode(sha256(decode(audit_head, 'hex') || $9::bytea), 'hex'), audit_head),
    error = $10, canceling = $11, reference = coalesce($15, reference), result = $16, extensions = extensions + $17,
    state = CASE WHEN $12 THEN NULL ELSE coalesce($19, state) END,
    state_n = CASE WHEN $12 THEN 0 WHEN $19 IS NULL THEN state_n ELSE version + 1 END,
    started_at = CASE WHEN $3 IN ('queued', 'canceled') THEN started_at ELSE coalesce(started_at, now()) END,
    finished_at = CASE WHEN $12 THEN now() ELSE finished_at END,
    purge_at = CASE WHEN $12 THEN now() + retention ELSE purge_at END
  WHERE run_id = $1 AND gate = $20 AND ($2::int IS NULL OR version = $2)
    AND coalesce($23::timestamptz <= clock_timestamp() + interval '{AHEAD}', true)
    AND (SELECT count(*) FROM held) = $18 AND ($21::int IS NULL OR writes + $7 <= $21)
    AND (NOT $13 OR (SELECT t.policy_digest FROM tenants t WHERE t.tenant_id = runs.tenant_id) IS NOT DISTINCT FROM $14)
  RETURNING run_id, tenant_id, workspace_id, cap, version, executing, audit_count)"""


GUARDS = f"""
wanted AS (
  SELECT * FROM unnest($1::uuid[], $2::int[], $3::text[], $4::int[], $5::int[], $6::int[], $7::int[], $8::int[],
    $9::bytea[], $10::text[], $11::text[], $12::bool[], $13::bool[], $14::text[], $15::text[], $16::text[], $17::int[],
    $18::int[], $19::bytea[], $20::int[], $21::int[], $22::int[], $23::timestamptz[])
    AS w(run_id, version, status, superstep, executing, width, writes, lines, digest, error, canceling,
      finished, checks_policy, policy, reference, result, extended, leases, state, gate, writes_max, moved, latest)),
held AS MATERIALIZED (
  SELECT q.run_id FROM unnest($24::uuid[], $25::text[], $26::uuid[], $27::int[]) AS l(run_id, step_key, lease_id, epoch)
  JOIN queue q ON q.run_id = l.run_id AND q.step_key = l.step_key AND q.lease_id = l.lease_id AND q.epoch = l.epoch
  ORDER BY q.run_id, q.step_key FOR NO KEY UPDATE OF q),
met AS (
  SELECT r.run_id FROM runs r JOIN wanted w ON w.run_id = r.run_id
  WHERE r.gate = w.gate AND (w.version IS NULL OR r.version = w.version)
    AND (w.writes_max IS NULL OR r.writes + w.writes <= w.writes_max)
    AND (SELECT count(*) FROM held WHERE held.run_id = w.run_id) = w.leases
  ORDER BY r.run_id FOR NO KEY UPDATE OF r),
guard AS (
  UPDATE runs SET version = runs.version + 1, gate = runs.gate + w.moved, status = w.status, superstep = w.superstep,
    executing = runs.executing + w.executing, width = w.width, writes = runs.writes + w.writes,
    audit_count = runs.audit_count + w.lines,
    audit_head = coalesce(encode(sha256(decode(runs.audit_head, 'hex') || w.digest), 'hex'), runs.audit_head),
    error = w.error::jsonb, canceling = w.canceling::jsonb, reference = coalesce(w.reference, runs.reference),
    result = w.result::jsonb, extensions = extensions + w.extended,
    state = CASE WHEN w.finished THEN NULL ELSE coalesce(w.state, runs.state) END,
    state_n = CASE WHEN w.finished THEN 0 WHEN w.state IS NULL THEN runs.state_n ELSE runs.version + 1 END,
    started_at = CASE WHEN w.status IN ('queued', 'canceled') THEN started_at ELSE coalesce(started_at, now()) END,
    finished_at = CASE WHEN w.finished THEN now() ELSE finished_at END,
    purge_at = CASE WHEN w.finished THEN now() + retention ELSE purge_at END
  FROM met JOIN wanted w USING (run_id)
  WHERE runs.run_id = met.run_id AND runs.gate = w.gate AND (w.version IS NULL OR runs.version = w.version)
    AND coalesce(w.latest <= clock_timestamp() + interval '{AHEAD}', true)
    AND (w.writes_max IS NULL OR runs.writes + w.writes <= w.writes_max) AND (NOT w.checks_policy
      OR (SELECT t.policy_digest FROM tenants t WHERE t.tenant_id = runs.tenant_id) IS NOT DISTINCT FROM w.policy)
  RETURNING runs.run_id, runs.tenant_id, runs.workspace_id, runs.cap, runs.version, runs.executing, runs.audit_count)"""


_LANDED = "SELECT EXISTS (SELECT FROM journal WHERE run_id = $1 AND n > $2 AND lines = $3)"

PARTS = (*RUN_PARTS, *GOVERNANCE_PARTS)
_TOGETHER = tuple(part for part in PARTS if not part.alone)


class Applied(NamedTuple):
    """Where an append has left its run: at which version, and how many steps of its super-step still execute."""

    version: int
    executing: int


async def apply(connection: Connection, commit: Commit) -> Applied | None:
    """Apply all of a commit, or nothing: None when the run (or the tenant's policy) is not as expected any more.

    A crash before this returns leaves either state; both are consistent, and the lease's expiry finds what is left.
    """
    present = tuple(part for part in PARTS if part.present(commit))
    parameters = guarded(commit)
    text = statement(GUARD, len(parameters), present, channels(commit), bool(commit.unqueued))
    for part in present:
        parameters.extend(part.parameters([commit]))
    row = await connection.fetchrow(text, *parameters)
    return None if row is None else Applied(row["version"], row["executing"])


async def landed(connection: Connection, commit: Commit) -> bool:
    """True if a commit was applied whose answer was lost: its lines, which no other writes, are in the book."""
    if not commit.lines:
        return False
    lines = b"\n".join(commit.lines)
    return bool(await connection.fetchval(_LANDED, commit.run_id, commit.expected_version, lines))


def can_go_together(commit: Commit) -> bool:
    """Whether this commit may share a statement with those of other runs."""
    return not any(part.alone and part.present(commit) for part in PARTS)


async def apply_together(connection: Connection, commits: Sequence[Commit]) -> dict[UUID, Applied]:
    """Apply commits of different runs, of one lease's span; what became of the runs whose commit was applied.

    An error is one of the statement, so of any of them, and nothing was applied.
    """
    guards = [list(values) for values in zip(*(_guarded(commit) for commit in commits), strict=True)]
    for index in GUARD_JSON:
        guards[index] = [None if value is None else orjson.dumps(value).decode() for value in guards[index]]
    guards += _leases(commits)
    wakes = tuple(sorted({channel for commit in commits for channel in channels(commit)}))
    frees = any(commit.unqueued for commit in commits)
    text = statement(GUARDS, len(guards), _TOGETHER, wakes, frees)
    values = [value for part in _TOGETHER for value in part.parameters(commits)]
    rows = await connection.fetch(text, *guards, *values)
    return {row["run_id"]: Applied(row["version"], row["executing"]) for row in rows}


def guarded(commit: Commit) -> list[object]:
    """The parameters of the guard, of which the last are the leases."""
    return [*_guarded(commit), *_leases([commit])]


def _guarded(commit: Commit) -> list[object]:
    version = commit.expected_version if commit.strict else None
    return [
        commit.run_id, version, str(commit.status), commit.superstep, commit.executing, commit.width, commit.writes,
        *moved(commit), commit.error, commit.canceling, commit.finished, commit.checks_policy,
        commit.expected_policy, commit.reference, commit.result, commit.extended, len(commit.held), commit.state,
        commit.gate, commit.writes_max if commit.writes or commit.counted else None, int(commit.moves_gate),
        commit.latest,
    ]  # fmt: skip


def _leases(commits: Sequence[Commit]) -> list[list[object]]:
    held = [(commit.run_id, claim.key, claim.id, claim.epoch) for commit in commits for claim in commit.held]
    return [list(column) for column in zip(*held, strict=True)] or [[], [], [], []]


def moved(commit: Commit) -> tuple[int, bytes | None]:
    """The number of lines and their digest, by which the guard moves the head; None leaves it as it is."""
    return len(commit.lines), digest_of(commit.lines) if commit.lines else None


# Which of them are JSON: an array of them is one of texts.
GUARD_JSON = (9, 10, 15)


def channels(commit: Commit) -> tuple[str, ...]:
    """Who is to be woken by this commit."""
    found = ((STEPS_CHANNEL, commit.queued or commit.requeued), (MESSAGES_CHANNEL, commit.commands))
    return tuple(name for name, news in found if news)


# Where the tenant or the workflow was at its cap, a step may be waiting for this very slot, at whichever worker.
WAKE_AT_CAP = f""", CASE WHEN EXISTS (
    SELECT FROM queue q WHERE q.tenant_id = guard.tenant_id AND q.status = 'claimable')
  AND ((SELECT count(*) FROM queue q WHERE q.tenant_id = guard.tenant_id AND q.status <> 'claimable')
      >= (SELECT t.max_concurrency FROM tenants t WHERE t.tenant_id = guard.tenant_id)
    OR guard.cap > ''
      AND (SELECT count(*) FROM queue q
        WHERE q.tenant_id = guard.tenant_id AND q.cap = guard.cap AND q.status <> 'claimable')
      >= (SELECT c.slots FROM caps c WHERE c.tenant_id = guard.tenant_id AND c.cap = guard.cap))
  THEN pg_notify('{STEPS_CHANNEL}', '') END"""


@lru_cache(maxsize=256)
def statement(guard: str, number: int, present: tuple[Part, ...], wakes: tuple[str, ...], frees_slot: bool) -> str:
    """The text of one shape of commit. NOTIFY is sent only if the guard held, and only on commit."""
    parts = [guard]
    for part in present:
        count = part.count
        parts.append(f"\n{part.cte} AS ({part.sql.format(*(f'${number + n + 1}' for n in range(count)))})")
        number += count
    notify = "".join(f", pg_notify('{channel}', '')" for channel in wakes)
    if frees_slot and STEPS_CHANNEL not in wakes:
        notify += WAKE_AT_CAP
    return f"WITH {','.join(parts)}\nSELECT run_id, version, executing{notify} FROM guard"
