"""Applying a commit: one guarded statement, built from the parts that the commit has.

The guard is the UPDATE of the run's row at the expected version; every other part hangs on it, so either all of the
commit happens or none. The text depends only on which parts there are, so the few shapes that occur are prepared
once per connection. Lock order: run row first (the guard), then steps, approvals, and the tenant's slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any

import orjson

from core.canonical import JsonObject
from core.db import Connection
from runtime.kernel.commit import Commit

STEPS_CHANNEL = "counterseal_steps"
MESSAGES_CHANNEL = "counterseal_messages"

_GUARD = """
guard AS (
  UPDATE runs SET version = version + 1, status = $3, superstep = $4, executing = $5, width = $6, writes = $7,
    audit_count = $8, audit_head = $9, error = $10, canceling = $11,
    finished_at = CASE WHEN $12 THEN now() ELSE finished_at END
  WHERE run_id = $1 AND version = $2
    AND (NOT $13 OR (SELECT t.policy_digest FROM tenants t WHERE t.tenant_id = runs.tenant_id) IS NOT DISTINCT FROM $14)
  RETURNING run_id, tenant_id, workspace_id)"""


@dataclass(frozen=True, slots=True)
class Part:
    """One table's share of a commit: SQL with {0}, {1}, … for its parameters, and the values of one commit."""

    name: str
    sql: str
    parameters: Callable[[Commit], Sequence[object]]
    present: Callable[[Commit], bool]

    @property
    def count(self) -> int:
        """How many parameters the SQL takes."""
        return next(n for n in range(40) if f"{{{n}}}" not in self.sql)


def _json(value: object) -> str | None:
    return None if value is None else orjson.dumps(value).decode()


def _columns(rows: Sequence[Any], *names: str) -> list[list[object]]:
    return [[getattr(row, name) for row in rows] for name in names]


def _texts(rows: Sequence[Any], *names: str) -> list[list[str | None]]:
    return [[_json(getattr(row, name)) for row in rows] for name in names]


_NEW_STEPS = Part(
    "new_steps",
    """INSERT INTO steps (step_id, run_id, tenant_id, step_key, step_index, operation, superstep, status, lease_owner,
        lease_epoch, lease_expires_at, idempotency_key, attempt, output, writes, usage, last_error, finished_at)
      SELECT s.step_id, g.run_id, g.tenant_id, s.key, s.index, s.operation, s.superstep, s.status, s.owner, s.epoch,
        CASE WHEN s.status = 'running' THEN now() + {9} END, s.idempotency, s.attempt, s.output::jsonb,
        s.writes::jsonb, s.usage::jsonb, s.error::jsonb,
        CASE WHEN s.status IN ('succeeded', 'failed_terminal') THEN now() END
      FROM guard g, unnest({0}::uuid[], {1}::text[], {2}::int[], {3}::text[], {4}::int[], {5}::text[], {6}::text[],
        {7}::int[], {8}::text[], {10}::int[], {11}::text[], {12}::text[], {13}::text[], {14}::text[])
        AS s(step_id, key, index, operation, superstep, status, owner, epoch, idempotency, attempt, output, writes,
             usage, error)""",
    lambda c: [
        *_columns(c.new_steps, "step_id", "key", "index", "operation", "superstep", "status", "lease_owner"),
        *_columns(c.new_steps, "lease_epoch", "idempotency_key"),
        c.lease,
        *_columns(c.new_steps, "attempt"),
        *_texts(c.new_steps, "output", "writes", "usage", "last_error"),
    ],
    lambda c: bool(c.new_steps),
)

# The lease of a step that goes on running is renewed by heartbeats, not here; every other status has none.
_STEPS = Part(
    "steps",
    """UPDATE steps SET status = s.status, superstep = s.superstep, attempt = s.attempt, output = s.output::jsonb,
        writes = s.writes::jsonb, usage = s.usage::jsonb, last_error = s.error::jsonb,
        idempotency_key = s.idempotency,
        lease_owner = CASE WHEN s.status = 'running' THEN lease_owner END,
        lease_expires_at = CASE WHEN s.status = 'running' THEN lease_expires_at END,
        finished_at = CASE WHEN s.status IN ('succeeded', 'failed_terminal', 'canceled') THEN now() END
      FROM guard g, unnest({0}::uuid[], {1}::text[], {2}::int[], {3}::int[], {4}::text[], {5}::text[], {6}::text[],
        {7}::text[], {8}::text[]) AS s(step_id, status, superstep, attempt, idempotency, output, writes, usage, error)
      WHERE steps.step_id = s.step_id AND steps.run_id = g.run_id""",
    lambda c: [
        *_columns(c.steps, "step_id", "status", "superstep", "attempt", "idempotency_key"),
        *_texts(c.steps, "output", "writes", "usage", "last_error"),
    ],
    lambda c: bool(c.steps),
)

_SLOTS = Part(
    "slots",
    """UPDATE slots SET step_id = h.next FROM guard g, unnest({0}::uuid[], {1}::uuid[]) AS h(held, next)
      WHERE slots.step_id = h.held""",
    lambda c: [
        [*c.released, *(held for held, _ in c.handed)],
        [*(None for _ in c.released), *(n for _, n in c.handed)],
    ],
    lambda c: bool(c.released or c.handed),
)

_NEW_WAITS = Part(
    "new_waits",
    """INSERT INTO waits (wait_id, run_id, tenant_id, step_id, step_key, kind, status, token, context, due_at)
      SELECT w.wait_id, g.run_id, g.tenant_id, w.step_id, w.key, w.kind, w.status, w.token, w.context::jsonb,
        now() + w.due
      FROM guard g, unnest({0}::uuid[], {1}::uuid[], {2}::text[], {3}::text[], {4}::text[], {5}::text[], {6}::text[],
        {7}::interval[]) AS w(wait_id, step_id, key, kind, status, token, context, due)""",
    lambda c: [
        *_columns(c.new_waits, "wait_id", "step_id", "step_key", "kind", "status", "token"),
        *_texts(c.new_waits, "context"),
        *_columns(c.new_waits, "due_in"),
    ],
    lambda c: bool(c.new_waits),
)

_WAITS = Part(
    "waits",
    """UPDATE waits SET status = w.status, context = w.context::jsonb,
        due_at = CASE WHEN w.due IS NULL THEN waits.due_at ELSE now() + w.due END,
        completed_at = CASE WHEN w.status = 'waiting' THEN NULL ELSE now() END
      FROM guard g, unnest({0}::uuid[], {1}::text[], {2}::text[], {3}::interval[]) AS w(wait_id, status, context, due)
      WHERE waits.wait_id = w.wait_id AND waits.run_id = g.run_id AND waits.status = 'waiting'""",
    lambda c: [*_columns(c.waits, "wait_id", "status"), *_texts(c.waits, "context"), *_columns(c.waits, "due_in")],
    lambda c: bool(c.waits),
)

_COMMANDS = Part(
    "commands",
    """INSERT INTO commands (command_id, tenant_id, workspace_id, run_id, step_id, kind, dedupe_key, status, payload,
        starts_run, ordering_key)
      SELECT c.command_id, g.tenant_id, g.workspace_id, g.run_id, c.step_id, c.kind, c.dedupe, c.status,
        c.payload::jsonb, c.starts_run, c.ordering
      FROM guard g, unnest({0}::uuid[], {1}::uuid[], {2}::text[], {3}::text[], {4}::text[], {5}::text[], {6}::bool[],
        {7}::text[]) AS c(command_id, step_id, kind, dedupe, status, payload, starts_run, ordering)
      ON CONFLICT (dedupe_key) DO NOTHING""",
    lambda c: [
        *_columns(c.commands, "command_id", "step_id", "kind", "dedupe_key", "status"),
        *_texts(c.commands, "payload"),
        *_columns(c.commands, "starts_run", "ordering_key"),
    ],
    lambda c: bool(c.commands),
)

_COMMAND_MOVES = Part(
    "command_moves",
    """UPDATE commands SET status = m.status FROM guard g, unnest({0}::uuid[], {1}::text[]) AS m(command_id, status)
      WHERE commands.command_id = m.command_id AND commands.run_id = g.run_id""",
    lambda c: [[command for command, _ in c.command_moves], [status for _, status in c.command_moves]],
    lambda c: bool(c.command_moves),
)

_DECISIONS = Part(
    "decisions",
    """INSERT INTO decisions (decision_id, run_id, tenant_id, step_key, operation, action_digest, outcome,
        policy_digest, rules, errors, reasons, facts)
      SELECT d.decision_id, g.run_id, g.tenant_id, d.key, d.operation, d.digest, d.outcome, d.policy, d.rules::jsonb,
        d.errors::jsonb, d.reasons::jsonb, d.facts::jsonb
      FROM guard g, unnest({0}::uuid[], {1}::text[], {2}::text[], {3}::text[], {4}::text[], {5}::text[], {6}::text[],
        {7}::text[], {8}::text[], {9}::text[])
        AS d(decision_id, key, operation, digest, outcome, policy, rules, errors, reasons, facts)""",
    lambda c: [
        *_columns(c.decisions, "decision_id", "step_key", "operation", "action_digest", "outcome", "policy_digest"),
        *_texts(c.decisions, "rules", "errors", "reasons", "facts"),
    ],
    lambda c: bool(c.decisions),
)

_NEW_RECEIPTS = Part(
    "new_receipts",
    """INSERT INTO receipts (receipt_id, run_id, tenant_id, step_key, operation, target, idempotency_key, action_digest,
        action, status, attempt, lease_epoch, reversible, reverse)
      SELECT r.receipt_id, g.run_id, g.tenant_id, r.key, r.operation, r.target, r.idempotency, r.digest,
        r.action::jsonb, r.status, r.attempt, r.epoch, r.reversible, r.reverse::jsonb
      FROM guard g, unnest({0}::uuid[], {1}::text[], {2}::text[], {3}::text[], {4}::text[], {5}::text[], {6}::text[],
        {7}::int[], {8}::int[], {9}::bool[], {10}::text[], {11}::text[])
        AS r(receipt_id, key, operation, target, idempotency, digest, status, attempt, epoch, reversible, action,
             reverse)""",
    lambda c: [
        *_columns(c.new_receipts, "receipt_id", "step_key", "operation", "target", "idempotency_key", "action_digest"),
        *_columns(c.new_receipts, "status", "attempt", "lease_epoch", "reversible"),
        *_texts(c.new_receipts, "action", "reverse"),
    ],
    lambda c: bool(c.new_receipts),
)

_RECEIPTS = Part(
    "receipts",
    """UPDATE receipts SET status = r.status, attempt = r.attempt, lease_epoch = r.epoch, external_id = r.external,
        resolution = r.resolution, output = r.output::jsonb, usage = r.usage::jsonb, error = r.error::jsonb,
        settled_at = CASE WHEN r.status IN ('succeeded', 'failed') THEN now() END
      FROM guard g, unnest({0}::uuid[], {1}::text[], {2}::int[], {3}::int[], {4}::text[], {5}::text[], {6}::text[],
        {7}::text[], {8}::text[]) AS r(receipt_id, status, attempt, epoch, external, resolution, output, usage, error)
      WHERE receipts.receipt_id = r.receipt_id AND receipts.tenant_id = g.tenant_id""",
    lambda c: [
        *_columns(c.receipts, "receipt_id", "status", "attempt", "lease_epoch", "external_id", "resolution"),
        *_texts(c.receipts, "output", "usage", "error"),
    ],
    lambda c: bool(c.receipts),
)

_NEW_APPROVALS = Part(
    "new_approvals",
    """INSERT INTO approvals (approval_id, run_id, tenant_id, step_id, step_key, kind, status, action_digest, nonce,
        tier, terms, requester, card, action, expires_at)
      SELECT a.approval_id, g.run_id, g.tenant_id, a.step_id, a.key, a.kind, 'requested', a.digest, a.nonce, a.tier,
        a.terms::jsonb, a.requester, a.card::jsonb, a.action::jsonb, now() + a.expires
      FROM guard g, unnest({0}::uuid[], {1}::uuid[], {2}::text[], {3}::text[], {4}::text[], {5}::text[], {6}::text[],
        {7}::text[], {8}::text[], {9}::text[], {10}::text[], {11}::interval[])
        AS a(approval_id, step_id, key, kind, digest, nonce, tier, requester, terms, card, action, expires)""",
    lambda c: [
        *_columns(c.new_approvals, "approval_id", "step_id", "step_key", "kind", "action_digest", "nonce", "tier"),
        *_columns(c.new_approvals, "requester"),
        *_texts(c.new_approvals, "terms", "card", "action"),
        *_columns(c.new_approvals, "expires_in"),
    ],
    lambda c: bool(c.new_approvals),
)

_APPROVALS = Part(
    "approvals",
    """UPDATE approvals SET status = a.status, choice = coalesce(a.choice, approvals.choice),
        reason = coalesce(a.reason, approvals.reason), escalated = approvals.escalated OR a.escalated,
        consumed_at = CASE WHEN a.consumed THEN now() ELSE approvals.consumed_at END,
        decided_at = CASE WHEN a.status = 'requested' THEN NULL ELSE coalesce(approvals.decided_at, now()) END
      FROM guard g, unnest({0}::uuid[], {1}::text[], {2}::text[], {3}::text[], {4}::bool[], {5}::bool[])
        AS a(approval_id, status, choice, reason, consumed, escalated)
      WHERE approvals.approval_id = a.approval_id AND approvals.run_id = g.run_id""",
    lambda c: _columns(c.approvals, "approval_id", "status", "choice", "reason", "consumed", "escalated"),
    lambda c: bool(c.approvals),
)

_VOTES = Part(
    "votes",
    """INSERT INTO votes (approval_id, person_id, tenant_id, choice, reason, groups, channel)
      SELECT v.approval_id, v.person, g.tenant_id, v.choice, v.reason, string_to_array(v.groups, chr(31)), v.channel
      FROM guard g, unnest({0}::uuid[], {1}::text[], {2}::text[], {3}::text[], {4}::text[], {5}::text[])
        AS v(approval_id, person, choice, reason, groups, channel)
      ON CONFLICT (approval_id, person_id) DO UPDATE SET choice = excluded.choice, reason = excluded.reason,
        groups = excluded.groups, channel = excluded.channel, voted_at = now()""",
    lambda c: [
        *_columns(c.votes, "approval_id", "person_id", "choice", "reason"),
        ["\x1f".join(vote.groups) for vote in c.votes],
        *_columns(c.votes, "channel"),
    ],
    lambda c: bool(c.votes),
)

_CHECKPOINTS = Part(
    "checkpoints",
    """INSERT INTO checkpoints (run_id, superstep, tenant_id, state, digest)
      SELECT g.run_id, k.superstep, g.tenant_id, k.state::jsonb, k.digest
      FROM guard g, unnest({0}::int[], {1}::text[], {2}::text[]) AS k(superstep, digest, state)""",
    lambda c: [*_columns(c.checkpoints, "superstep", "digest"), *_texts(c.checkpoints, "state")],
    lambda c: bool(c.checkpoints),
)

_LINES = Part(
    "lines",
    """INSERT INTO audit_events (stream_id, seq, tenant_id, type, line, hash)
      SELECT g.run_id, l.seq, g.tenant_id, l.type, l.line, l.hash
      FROM guard g, unnest({0}::bigint[], {1}::text[], {2}::bytea[], {3}::text[]) AS l(seq, type, line, hash)""",
    lambda c: _columns(c.lines, "seq", "type", "bytes", "hash"),
    lambda c: bool(c.lines),
)

# Set-based, because a run may have thousands of open steps; what this commit itself moves is left to its own part.
_CANCEL_STEPS = Part(
    "cancel_steps",
    """UPDATE steps SET status = 'canceled', finished_at = now(), lease_owner = NULL, lease_expires_at = NULL
      FROM guard g WHERE steps.run_id = g.run_id AND steps.step_id <> ALL ({0}::uuid[])
        AND steps.status IN ('ready', 'waiting_approval', 'failed_retryable')""",
    lambda c: [[row.step_id for row in [*c.steps, *c.new_steps]]],
    lambda c: c.cancels_rest,
)
_CANCEL_WAITS = Part(
    "cancel_waits",
    """UPDATE waits SET status = 'canceled', completed_at = now() FROM guard g
      WHERE waits.run_id = g.run_id AND waits.status = 'waiting' AND waits.wait_id <> ALL ({0}::uuid[])""",
    lambda c: [[row.wait_id for row in c.waits]],
    lambda c: c.cancels_rest,
)
_CANCEL_APPROVALS = Part(
    "cancel_approvals",
    """UPDATE approvals SET status = 'canceled', decided_at = now() FROM guard g
      WHERE approvals.run_id = g.run_id AND approvals.status = 'requested'
        AND approvals.approval_id <> ALL ({0}::uuid[])""",
    lambda c: [[row.approval_id for row in c.approvals]],
    lambda c: c.cancels_rest,
)
_CANCEL_COMMANDS = Part(
    "cancel_commands",
    """UPDATE commands SET status = 'rejected' FROM guard g WHERE commands.run_id = g.run_id AND commands.kind = 'step'
        AND commands.status IN ('pending', 'deferred') AND commands.command_id <> ALL ({0}::uuid[])""",
    lambda c: [[command for command, _ in c.command_moves]],
    lambda c: c.cancels_rest,
)

PARTS: tuple[Part, ...] = (
    _NEW_STEPS, _STEPS, _SLOTS, _NEW_WAITS, _WAITS, _COMMANDS, _COMMAND_MOVES, _DECISIONS, _NEW_RECEIPTS, _RECEIPTS,
    _NEW_APPROVALS, _APPROVALS, _VOTES, _CHECKPOINTS, _LINES, _CANCEL_STEPS, _CANCEL_WAITS, _CANCEL_APPROVALS,
    _CANCEL_COMMANDS,
)  # fmt: skip
_BY_NAME = {part.name: part for part in PARTS}


_START_GUARD = """
guard AS (
  INSERT INTO runs (run_id, tenant_id, workspace_id, workflow, workflow_version, workflow_digest, trigger_type,
    trigger_ref, reference, requested_by, status, version, superstep, executing, width, audit_count, audit_head,
    deadline_at)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'queued', 1, $11, $12, $13, $14, $15, now() + $16)
  ON CONFLICT (tenant_id, workflow, trigger_type, trigger_ref) DO NOTHING
  RETURNING run_id, tenant_id, workspace_id),
inputs AS (
  INSERT INTO run_inputs (run_id, tenant_id, trigger, run_key) SELECT run_id, tenant_id, $17, $18 FROM guard),
lane AS (
  INSERT INTO lanes (tenant_id, workspace_id) SELECT tenant_id, workspace_id FROM guard
  ON CONFLICT (tenant_id, workspace_id) DO NOTHING)"""


@dataclass(frozen=True, slots=True)
class NewRun:
    """What a run's row holds from its first day. ``trigger_ref`` dedupes: one run per workflow, type and ref (Q-1)."""

    workflow: str
    workflow_version: int
    workflow_digest: str
    trigger_type: str
    trigger_ref: str
    reference: str
    requested_by: str
    sla: timedelta | None
    trigger: JsonObject
    run_key: bytes


async def apply(connection: Connection, commit: Commit) -> bool:
    """Apply all of a commit, or nothing: False when the run (or the tenant's policy) is not as expected any more.

    A crash before this returns leaves either state; both are consistent, and the lease's expiry finds what is left.
    """
    guard: list[object] = [
        commit.run_id, commit.expected_version, str(commit.status), commit.superstep, commit.executing, commit.width,
        commit.writes, commit.head.count, commit.head.hash, commit.error, commit.canceling, commit.finished,
        commit.checks_policy, commit.expected_policy,
    ]  # fmt: skip
    return await _execute(connection, commit, _GUARD, guard)


async def apply_start(connection: Connection, commit: Commit, run: NewRun) -> bool:
    """Write a new run with its first checkpoint, steps and commands; False if its trigger has started one already."""
    guard: list[object] = [
        commit.run_id, commit.tenant_id, commit.workspace_id, run.workflow, run.workflow_version, run.workflow_digest,
        run.trigger_type, run.trigger_ref, run.reference, run.requested_by, commit.superstep, commit.executing,
        commit.width, commit.head.count, commit.head.hash, run.sla, run.trigger, run.run_key,
    ]  # fmt: skip
    return await _execute(connection, commit, _START_GUARD, guard)


async def _execute(connection: Connection, commit: Commit, guard: str, parameters: list[object]) -> bool:
    present = tuple(part.name for part in PARTS if part.present(commit))
    statement = _statement(guard, len(parameters), present, _channels(commit))
    for name in present:
        parameters.extend(_BY_NAME[name].parameters(commit))
    return await connection.fetchrow(statement, *parameters) is not None


def _channels(commit: Commit) -> tuple[str, ...]:
    pending = {row.kind == "step" for row in commit.commands if row.status == "pending"}
    pending |= {True for _, status in commit.command_moves if status == "pending"}
    return tuple(name for name, steps in ((STEPS_CHANNEL, True), (MESSAGES_CHANNEL, False)) if steps in pending)


@lru_cache(maxsize=256)
def _statement(guard: str, number: int, names: tuple[str, ...], wakes: tuple[str, ...]) -> str:
    """The text of one shape of commit. NOTIFY is sent only if the guard held, and only on commit."""
    parts = [guard]
    for name in names:
        part = _BY_NAME[name]
        count = part.count
        parts.append(f"\n{name} AS ({part.sql.format(*(f'${number + n + 1}' for n in range(count)))})")
        number += count
    notify = "".join(f", pg_notify('{channel}', '')" for channel in wakes)
    return f"WITH {','.join(parts)}\nSELECT run_id{notify} FROM guard"
