"""Taking a step's lease (Q-9, Q-12, Q-13), and beating it (Q-10).

One statement chooses the fairest lane that has something to do, takes a slot under the tenant's cap, leases the step
and moves its run. Fairness is stride scheduling over tenants, then over a tenant's workspaces: whoever has had the
least, by weight, is next, and who comes back from idling starts level. Within a lane what resumes goes before what
starts. A slot is a row, so the cap holds without a counter that every claim would have to lock; under a workflow's
own cap a step holds a second one.

Lock order: command, slot, the tenant (it is waited for only when its starts are metered), run, step. Nothing else
waits for a tenant's row after a run's.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import asyncpg

from core.db import Connection
from runtime.store.views import TAIL

# The cap on starts is a token bucket of one minute's starts that refills all the time. A transaction that has waited
# for another may have begun before it: time does not run backwards for that.
_STARTS_LEFT = """least(t.max_runs_per_min, coalesce(t.starts_left, t.max_runs_per_min)
  + extract(epoch FROM greatest(now(), t.starts_left_at) - coalesce(t.starts_left_at, now()))
    * t.max_runs_per_min / 60)"""

# Where a served tenant or lane stands then: a share further, or level with the others if it comes back from idling.
_TENANT_SERVED = """1 / t.weight + greatest(t.virtual_time,
  (SELECT max(o.virtual_time) - max(1 / o.weight) FROM tenants o))"""
_LANE_SERVED = """1 / l.weight + greatest(l.virtual_time,
  (SELECT max(o.virtual_time) - max(1 / o.weight) FROM lanes o WHERE o.tenant_id = l.tenant_id))"""

# The fairest lane that has both a command and a free slot, each locked; what others hold just now is passed over. A
# command whose step is not ready any more is chosen as well, to be ended, and takes nothing. ``fresh`` and the look for
# a free slot are no EXISTS, because the planner may turn that into a look at all ready steps, or all free slots.
#
# A command of a workflow that has a cap of its own is in line under that cap, and looked at only while the cap has a
# free slot, so that a backlog behind a cap costs nobody anything. ``f`` is in the order in which the lane would be
# served without caps; ``w`` is the slot under the workflow's cap, taken beside the tenant's.
_LANE = f"""
lane AS (
  SELECT l.tenant_id, l.workspace_id, l.metered AND c.starts_run AS metered, c.command_id, c.step_id, c.run_id, s.slot,
    f.cap, w.slot AS cap_slot, (SELECT s.status = 'ready' FROM steps s WHERE s.step_id = c.step_id) IS TRUE AS fresh
  FROM (
    SELECT l.tenant_id, l.workspace_id, t.max_runs_per_min IS NOT NULL AS metered,
      t.max_runs_per_min IS NULL OR {_STARTS_LEFT} >= 1 AS can_start
    FROM lanes l JOIN tenants t USING (tenant_id)
    WHERE (SELECT true FROM slots s WHERE s.tenant_id = l.tenant_id AND s.cap = '' AND s.step_id IS NULL LIMIT 1)
    ORDER BY t.virtual_time, l.virtual_time, l.tenant_id, l.workspace_id
  ) l
  CROSS JOIN LATERAL (
    SELECT k.cap FROM (
      SELECT '' AS cap UNION ALL
      SELECT DISTINCT s.cap FROM slots s WHERE s.tenant_id = l.tenant_id AND s.cap > '' AND s.step_id IS NULL
    ) k
    CROSS JOIN LATERAL (
      SELECT c.starts_run, c.command_id FROM commands c
      WHERE c.tenant_id = l.tenant_id AND c.workspace_id = l.workspace_id AND c.cap = k.cap AND c.kind = 'step'
        AND c.status = 'pending' AND c.starts_run <= l.can_start
      ORDER BY c.starts_run, c.command_id LIMIT 1
    ) first
    ORDER BY first.starts_run, first.command_id
  ) f
  CROSS JOIN LATERAL (
    SELECT c.tenant_id, c.command_id, c.step_id, c.run_id, c.starts_run FROM commands c
    WHERE c.tenant_id = l.tenant_id AND c.workspace_id = l.workspace_id AND c.cap = f.cap AND c.kind = 'step'
      AND c.status = 'pending' AND c.starts_run <= l.can_start
    ORDER BY c.starts_run, c.command_id LIMIT 1 FOR UPDATE SKIP LOCKED
  ) c
  CROSS JOIN LATERAL (
    SELECT s.slot FROM slots s WHERE s.tenant_id = c.tenant_id AND s.cap = '' AND s.step_id IS NULL
    ORDER BY s.slot LIMIT 1 FOR UPDATE SKIP LOCKED
  ) s
  LEFT JOIN LATERAL (
    SELECT s.slot FROM slots s WHERE s.tenant_id = c.tenant_id AND s.cap = f.cap AND f.cap > '' AND s.step_id IS NULL
    ORDER BY s.slot LIMIT 1 FOR UPDATE SKIP LOCKED
  ) w ON true
  WHERE f.cap = '' OR w.slot IS NOT NULL
  LIMIT 1)"""

# A step of one run that can begin at once: what its parent's worker goes on with. Where starts are metered, the
# child waits for its turn like every other run.
_LANE_OF_RUN = """
lane AS (
  SELECT c.tenant_id, c.workspace_id, false AS metered, c.command_id, c.step_id, c.run_id, f.slot, c.cap,
    w.slot AS cap_slot, true AS fresh
  FROM steps r JOIN tenants t USING (tenant_id)
  CROSS JOIN LATERAL (
    SELECT c.tenant_id, c.workspace_id, c.command_id, c.step_id, c.run_id, c.cap FROM commands c
    WHERE c.step_id = r.step_id AND c.kind = 'step' AND c.status = 'pending'
      AND (t.max_runs_per_min IS NULL OR NOT c.starts_run) LIMIT 1 FOR UPDATE SKIP LOCKED
  ) c
  CROSS JOIN LATERAL (
    SELECT s.slot FROM slots s WHERE s.tenant_id = r.tenant_id AND s.cap = '' AND s.step_id IS NULL
    ORDER BY s.slot LIMIT 1 FOR UPDATE SKIP LOCKED
  ) f
  LEFT JOIN LATERAL (
    SELECT s.slot FROM slots s WHERE s.tenant_id = r.tenant_id AND s.cap = c.cap AND c.cap > '' AND s.step_id IS NULL
    ORDER BY s.slot LIMIT 1 FOR UPDATE SKIP LOCKED
  ) w ON true
  WHERE r.run_id = $3 AND r.status = 'ready' AND (c.cap = '' OR w.slot IS NOT NULL)
  LIMIT 1)"""

_ADMITTED = f"""
metered AS (
  UPDATE tenants t SET virtual_time = {_TENANT_SERVED}, starts_left = {_STARTS_LEFT} - 1,
    starts_left_at = greatest(now(), t.starts_left_at)
  FROM lane WHERE lane.metered AND lane.fresh AND t.tenant_id = lane.tenant_id AND {_STARTS_LEFT} >= 1
  RETURNING t.tenant_id),
admitted AS (
  SELECT lane.* FROM lane WHERE lane.fresh AND (NOT lane.metered OR EXISTS (SELECT FROM metered))),
under AS MATERIALIZED (
  SELECT tenant_id, step_id, '' AS cap, slot FROM admitted UNION ALL
  SELECT tenant_id, step_id, cap, cap_slot FROM admitted WHERE cap > ''),
fair_tenant AS (
  UPDATE tenants t SET virtual_time = {_TENANT_SERVED}
  WHERE t.tenant_id IN (SELECT n.tenant_id FROM tenants n JOIN admitted USING (tenant_id)
    WHERE NOT admitted.metered FOR UPDATE OF n SKIP LOCKED)),
fair_lane AS (
  UPDATE lanes l SET virtual_time = {_LANE_SERVED}
  WHERE (l.tenant_id, l.workspace_id) IN (SELECT n.tenant_id, n.workspace_id FROM lanes n
    JOIN admitted USING (tenant_id, workspace_id) FOR UPDATE OF n SKIP LOCKED)),
stale AS (
  UPDATE commands SET status = 'rejected' FROM lane WHERE commands.command_id = lane.command_id AND NOT lane.fresh)"""

# The lease itself. The run's row first: every change of a lease bumps the run's version, which fences all writers.
_LEASE = """
run AS (
  UPDATE runs r SET version = version + 1, started_at = coalesce(started_at, now()),
    status = CASE WHEN r.status = 'queued' THEN 'running' ELSE r.status END
  FROM admitted
  WHERE r.run_id = admitted.run_id AND r.finished_at IS NULL
  RETURNING r.*),
step AS (
  UPDATE steps s SET status = 'running', lease_owner = $1, lease_epoch = lease_epoch + 1,
    lease_expires_at = now() + $2, next_eligible_at = NULL
  FROM run, admitted
  WHERE s.step_id = admitted.step_id AND s.run_id = run.run_id AND s.status = 'ready'
  RETURNING s.*)"""

# What a claim needs to know, besides what the leased rows themselves say.
_FOUND = """
SELECT to_jsonb(run) - 'state' - 'error' - 'result' AS run, run.state, to_jsonb(step) AS step, i.run_key,
  t.policy_digest, t.max_writes_per_run, clock_timestamp() AS now, tail.*
FROM {source} LEFT JOIN (run JOIN step USING (run_id)) ON true LEFT JOIN run_inputs i ON i.run_id = run.run_id
LEFT JOIN tenants t ON t.tenant_id = run.tenant_id
{tail}"""

_TAKEN = f"""{_ADMITTED}, {_LEASE},
taken AS (
  UPDATE slots SET step_id = step.step_id FROM step, under
  WHERE slots.tenant_id = under.tenant_id AND slots.cap = under.cap AND slots.slot = under.slot
    AND NOT EXISTS (SELECT FROM slots held WHERE held.step_id = step.step_id)),
command AS (
  UPDATE commands SET status = 'dispatched' FROM admitted WHERE commands.command_id = admitted.command_id)
{_FOUND.format(source="lane", tail=TAIL.format("run", "run.state_n"))}"""

CLAIM_NEXT = f"WITH {_LANE}, {_TAKEN}"
CLAIM_OF_RUN = f"WITH {_LANE_OF_RUN}, {_TAKEN}"

# With a queue in between, the slot was taken when the command was admitted; a step without one is not to run now. The
# command is marked here too: whether the scheduler could do so does not matter any more.
CLAIM_STEP = f"""WITH
admitted AS (SELECT s.step_id, s.run_id FROM steps s JOIN slots USING (step_id)
  WHERE s.step_id = $3 AND s.status = 'ready' AND slots.cap = ''), {_LEASE},
command AS (
  UPDATE commands SET status = 'dispatched', lease_owner = NULL, lease_expires_at = NULL FROM step
  WHERE commands.step_id = step.step_id AND commands.kind = 'step' AND commands.status IN ('leased', 'dispatched')
    AND commands.lease_expires_at IS NOT NULL)
{_FOUND.format(source="admitted", tail=TAIL.format("run", "run.state_n"))}"""

ADMIT = f"""WITH {_LANE}, {_ADMITTED},
leased AS (
  UPDATE commands SET status = 'leased', lease_owner = $1, lease_expires_at = now() + $2, attempts = attempts + 1
  FROM admitted WHERE commands.command_id = admitted.command_id
  RETURNING commands.command_id, commands.step_id, commands.run_id, commands.dedupe_key),
taken AS (
  UPDATE slots SET step_id = under.step_id FROM under
  WHERE slots.tenant_id = under.tenant_id AND slots.cap = under.cap AND slots.slot = under.slot
    AND NOT EXISTS (SELECT FROM slots held WHERE held.step_id = under.step_id))
SELECT leased.* FROM lane LEFT JOIN leased USING (command_id)"""

# What was chosen may be stale, or meet the cap at this very moment: then the next is looked at, so many times.
LOOKS_MAX = 64

_HEARTBEAT = """
UPDATE steps SET lease_expires_at = now() + $2
WHERE lease_owner = $1 AND status = 'running' AND step_id = ANY ($3::uuid[]) RETURNING step_id"""

# A lease that ran out and that nobody has taken since, taken back: with its epoch, because nothing was decided since.
_TAKE_BACK = """
WITH step AS (
  UPDATE steps SET status = 'running', lease_owner = $1, lease_expires_at = now() + $2, next_eligible_at = NULL
  WHERE step_id = $3 AND lease_epoch = $4 AND status = 'ready' RETURNING step_id),
command AS (
  UPDATE commands SET status = 'dispatched', lease_owner = NULL, lease_expires_at = NULL FROM step
  WHERE commands.step_id = step.step_id AND commands.kind = 'step' AND commands.status IN ('pending', 'leased'))
SELECT true FROM step"""


async def claim_next(connection: Connection, owner: str, lease: timedelta) -> asyncpg.Record | None:
    """Lease the fairest ready step; None if there is none under the caps. Inside the caller's transaction."""
    return await _first(connection, CLAIM_NEXT, "step", owner, lease)


async def claim_of_run(connection: Connection, owner: str, lease: timedelta, run_id: UUID) -> asyncpg.Record | None:
    """Lease a ready step of this run; None if there is none, or no slot for it."""
    row = await connection.fetchrow(CLAIM_OF_RUN, owner, lease, run_id)
    return None if row is None or row["step"] is None else row


async def claim_step(connection: Connection, owner: str, lease: timedelta, step_id: UUID) -> asyncpg.Record | None:
    """Lease this step, which a queue's message named; None if it is not ready (somebody has it, or it is over)."""
    row = await connection.fetchrow(CLAIM_STEP, owner, lease, step_id)
    return None if row is None or row["step"] is None else row


async def admit(connection: Connection, owner: str, lease: timedelta) -> asyncpg.Record | None:
    """Lease the fairest pending step command for sending to a queue, and take its slot (Q-12, O-7)."""
    return await _first(connection, ADMIT, "step_id", owner, lease)


async def _first(
    connection: Connection, statement: str, found: str, owner: str, lease: timedelta
) -> asyncpg.Record | None:
    for _ in range(LOOKS_MAX):
        row = await connection.fetchrow(statement, owner, lease)
        if row is None or row[found] is not None:
            return row
    return None


async def take_back(connection: Connection, owner: str, lease: timedelta, step_id: UUID, epoch: int) -> bool:
    """Take this very lease back, to record what came of it. Inside the caller's transaction, under the run's lock.

    A crash before that commits leaves the step ready for whoever claims it.
    """
    return bool(await connection.fetchval(_TAKE_BACK, owner, lease, step_id, epoch))


async def heartbeat(connection: Connection, owner: str, lease: timedelta, steps: Sequence[UUID]) -> set[UUID]:
    """Extend leases; the steps whose lease is still ours. A step that is missing was lost and must not be settled."""
    rows = await connection.fetch(_HEARTBEAT, owner, lease, list(steps))
    return {row["step_id"] for row in rows}
