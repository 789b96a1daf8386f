"""Takes leases of steps (Q-9, Q-12, Q-13), and extends them (Q-10).

One statement chooses the tenant that is furthest behind and has a step to run, locks it, and takes at most as many of
its steps as its caps leave places for. A held row of the queue is a place taken, so the caps are exact. Fairness is
start-time fair queueing over tenants, then over a tenant's workspaces: the one that has had the least, by weight, is
next, and one that was idle starts where the last turn began. Within a workspace, steps that resume go before steps that
start a run.

Claims of one tenant wait for each other at its row. A claim that waited has counted places before the other's claim,
so it takes nothing and looks again: ``xmin`` tells if the row is still the one that it read. Lock order: tenant, rows
of the queue, cap of a workflow, workspace; a claim takes no lock on a run.

A crash after a claim leaves leases that run out. Claims are not flushed, so PostgreSQL may lose one when it crashes.
The worker that had such a lease is refused by its id, even if somebody else has the same epoch by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

import asyncpg

from core.db import Connection
from runtime.engine.model.rows import Claim
from runtime.store.journal import KEPT_ON, OF_TENANT, RUN_ROW, TAIL

# The cap on starts is a token bucket of one minute's starts that refills all the time. now() can be earlier than the
# stored time if this transaction waited for a lock; never refill by a negative interval.
# A tenant has a bucket, and so has each workflow that declares one.
_BUCKET = """least({0}.max_runs_per_min, coalesce({0}.starts_left, {0}.max_runs_per_min)
  + extract(epoch FROM greatest(now(), {0}.starts_left_at) - coalesce({0}.starts_left_at, now()))
    * {0}.max_runs_per_min / 60)"""
STARTS_LEFT, STARTS_LEFT_OF_CAP = _BUCKET.format("t"), _BUCKET.format("c")

_HELD = "SELECT count(*) AS held FROM queue h WHERE h.tenant_id = {tenant} AND h.status <> 'claimable'"

# For each cap of a tenant: how many steps may be taken under it, and how many of them may start a run. Steps without a
# cap of their own are under ''.
_ROOM = f"""
    SELECT k.cap, k.room, k.starts FROM (
      SELECT '' AS cap, NULL::bigint AS room, 'infinity'::float8 AS starts UNION ALL
      SELECT c.cap, c.slots - h.held,
        CASE WHEN c.max_runs_per_min IS NULL THEN 'infinity' ELSE {STARTS_LEFT_OF_CAP} END FROM caps c
        CROSS JOIN LATERAL ({_HELD.format(tenant="c.tenant_id")} AND h.cap = c.cap) h
      WHERE c.tenant_id = {{tenant}}) k
    WHERE k.room > 0 OR k.room IS NULL"""

_IN_LINE = """q.tenant_id = {0}.tenant_id AND q.workspace_id = {0}.workspace_id AND q.cap = k.cap
        AND q.status = 'claimable' AND q.starts_run <= (least({0}.starts, k.starts) >= 1)"""

# A claim waits for another claim of its tenant, which takes a moment, and for nothing longer: somebody who has vanished
# may hold the tenant's row. Then the turn is the next tenant's. This sets the limit before the row is locked.
_WAIT = "100ms"
_WAITS = f"set_config('lock_timeout', '{_WAIT}', true) AS waits"

# The workspace that is next, and the room that its tenant has. Tenants are read in the order of their turns, up to the
# first one that has a step to take.
_LANE = f"""
lane AS (
  SELECT l.tenant_id, l.workspace_id, l.seen, l.starts, l.max_concurrency - h.held AS room, {_WAITS}
  FROM (
    SELECT w.tenant_id, w.workspace_id, t.xmin AS seen, t.max_concurrency,
      CASE WHEN t.max_runs_per_min IS NULL THEN 'infinity' ELSE {STARTS_LEFT} END AS starts
    FROM workspaces w JOIN tenants t USING (tenant_id){{but}}
    ORDER BY t.virtual_time, w.virtual_time, w.tenant_id, w.workspace_id
  ) l
  CROSS JOIN LATERAL ({_HELD.format(tenant="l.tenant_id")}) h
  CROSS JOIN LATERAL (
    SELECT FROM ({_ROOM.format(tenant="l.tenant_id")}) k
    CROSS JOIN LATERAL (SELECT FROM queue q WHERE {_IN_LINE.format("l")} LIMIT 1) q LIMIT 1) f
  WHERE h.held < l.max_concurrency
  LIMIT 1)"""

# A step of one run that can begin at once: the worker of a parent goes on with it. If starts are capped, the
# child waits for its turn like every other run.
_LANE_OF_RUN = f"""
lane AS (
  SELECT q.tenant_id, q.workspace_id, t.xmin AS seen, 'infinity'::float8 AS starts, t.max_concurrency - h.held AS room,
    {_WAITS}
  FROM queue q JOIN tenants t USING (tenant_id)
  CROSS JOIN LATERAL ({_HELD.format(tenant="q.tenant_id")}) h
  JOIN LATERAL ({_ROOM.format(tenant="q.tenant_id")}) k ON k.cap = q.cap
  WHERE q.run_id = $4 AND q.status = 'claimable'
    AND (t.max_runs_per_min IS NULL AND k.starts = 'infinity' OR NOT q.starts_run)
    AND h.held < t.max_concurrency
  LIMIT 1)"""

# Nothing is taken of a tenant whose row has changed since it was read.
_TENANT = """
tenant AS MATERIALIZED (
  SELECT lane.* FROM lane JOIN tenants t ON t.tenant_id = lane.tenant_id AND t.xmin = lane.seen
  FOR NO KEY UPDATE OF t)"""

_LINE = f"""
line AS (
  SELECT n.run_id, n.step_key FROM tenant
  CROSS JOIN LATERAL (
    SELECT q.run_id, q.step_key, count(*) FILTER (WHERE q.starts_run) OVER (ORDER BY q.starts_run, q.step_id) AS start
    FROM ({_ROOM.format(tenant="tenant.tenant_id")}) k
    CROSS JOIN LATERAL (
      SELECT s.*, count(*) FILTER (WHERE s.starts_run) OVER (ORDER BY s.starts_run, s.step_id) AS start FROM (
        SELECT q.run_id, q.step_key, q.step_id, q.starts_run FROM queue q WHERE {_IN_LINE.format("tenant")}
        ORDER BY q.starts_run, q.step_id LIMIT least($3::int, k.room)) s) q
    WHERE q.start <= k.starts
    ORDER BY q.starts_run, q.step_id LIMIT least($3::int, tenant.room)) n
  WHERE n.start <= tenant.starts)"""

_LINE_OF_RUN = """
line AS (
  SELECT q.run_id, q.step_key FROM tenant JOIN queue q ON q.run_id = $4 AND q.status = 'claimable'
  ORDER BY q.step_key LIMIT $3::int)"""

_FREE = """
free AS MATERIALIZED (
  SELECT q.run_id, q.step_key FROM line JOIN queue q USING (run_id, step_key) WHERE q.status = 'claimable'
  ORDER BY q.run_id, q.step_key FOR UPDATE OF q SKIP LOCKED)"""

# A claim is not flushed: if PostgreSQL loses it, nothing was done under it yet.
_RETURNING = "RETURNING q.*, set_config('synchronous_commit', 'off', true)"
_LEASED = "status = 'leased', owner = $1, lease_id = gen_random_uuid(), epoch = q.epoch + 1, expires_at = now() + $2"
_SENT = "status = 'sent', owner = $1, expires_at = now() + $2"

# Writes the leases, and charges the turn: each step costs its share, by weight.
_TAKEN = f"""
taken AS (
  UPDATE queue q SET {{leased}} FROM free WHERE q.run_id = free.run_id AND q.step_key = free.step_key {_RETURNING}),
turn AS (
  SELECT tenant_id, workspace_id, count(*) AS steps, count(*) FILTER (WHERE starts_run) AS starts
  FROM taken GROUP BY tenant_id, workspace_id),
fair_tenant AS (
  UPDATE tenants t SET virtual_start = begun.at, virtual_time = begun.at + turn.steps / t.weight,
    starts_left = CASE WHEN turn.starts > 0 THEN {STARTS_LEFT} - turn.starts ELSE t.starts_left END,
    starts_left_at = CASE WHEN turn.starts > 0 THEN greatest(now(), t.starts_left_at) ELSE t.starts_left_at END
  FROM turn JOIN tenants n USING (tenant_id) CROSS JOIN LATERAL (
    SELECT greatest(n.virtual_time, (SELECT max(o.virtual_start) FROM tenants o)) AS at) begun
  WHERE t.tenant_id = turn.tenant_id),
fair_cap AS (
  UPDATE caps c SET starts_left = {STARTS_LEFT_OF_CAP} - m.starts, starts_left_at = greatest(now(), c.starts_left_at)
  FROM (SELECT tenant_id, cap, count(*) AS starts FROM taken WHERE starts_run AND cap <> '' GROUP BY 1, 2) m
  WHERE c.tenant_id = m.tenant_id AND c.cap = m.cap AND c.max_runs_per_min IS NOT NULL),
fair_workspace AS (
  UPDATE workspaces w SET virtual_start = begun.at, virtual_time = begun.at + turn.steps / w.weight
  FROM turn JOIN workspaces n USING (tenant_id, workspace_id) CROSS JOIN LATERAL (
    SELECT greatest(n.virtual_time,
      (SELECT max(o.virtual_start) FROM workspaces o WHERE o.tenant_id = n.tenant_id)) AS at) begun
  WHERE w.tenant_id = turn.tenant_id AND w.workspace_id = turn.workspace_id)"""

# The run as it is stored, and the leases that were taken.
_ROWS = """
run AS (
  SELECT r.* FROM runs r WHERE r.run_id IN (SELECT taken.run_id FROM taken)),
step AS (
  SELECT q.run_id, q.step_id, q.step_key, q.epoch AS lease_epoch, q.owner AS lease_owner, q.lease_id FROM taken q)"""

# What a worker needs besides the leased rows. If a run executes many steps at once, the book is not read with each
# claim, because the same workers take most of them.
_FOUND = f"""
SELECT {RUN_ROW.format("run")}, run.state, to_jsonb(step) AS step, run.run_key,
  {OF_TENANT}, clock_timestamp() AS now, tail.*
FROM {{source}} LEFT JOIN (run JOIN step USING (run_id)) ON true
LEFT JOIN tenants t ON t.tenant_id = run.tenant_id
{TAIL.format("run", f"({KEPT_ON.format('run')}) AND run.executing <= 1")}"""

_TAKE = f"{_TENANT}, {{line}}, {_FREE}, {_TAKEN.format(leased=_LEASED)}, {_ROWS} {_FOUND.format(source='lane')}"

_ANY, _BUT = _LANE.format(but=""), _LANE.format(but="\n    WHERE w.tenant_id <> ALL (${0})")
CLAIM_NEXT = f"WITH {_ANY}, {_TAKE.format(line=_LINE)}"
CLAIM_OF_RUN = f"WITH {_LANE_OF_RUN}, {_TAKE.format(line=_LINE_OF_RUN)}"

# With a queue in between, the place was taken when the step was sent. A step that is not ``sent`` must not run now.
CLAIM_STEP = f"""WITH
taken AS (
  UPDATE queue q SET {_LEASED} WHERE q.step_id = $3 AND q.status = 'sent' {_RETURNING}), {_ROWS}
{_FOUND.format(source="taken")}"""

_ADMIT = f"""{_TENANT}, {_LINE}, {_FREE}, {_TAKEN.format(leased=_SENT)}
SELECT taken.run_id, taken.step_key, taken.step_id, taken.epoch FROM lane LEFT JOIN taken USING (tenant_id)"""
ADMIT = f"WITH {_ANY}, {_ADMIT}"

# The same without some tenants, whose rows are held by somebody; and whose turn it is then.
_BUT_FOURTH, _BUT_FIRST = _BUT.format(4), _BUT.format(1)
_NEXT_BUT = f"WITH {_BUT_FOURTH}, {_TAKE.format(line=_LINE)}"
_ADMIT_BUT = f"WITH {_BUT_FOURTH}, {_ADMIT}"
_WHOSE_TURN = f"WITH {_BUT_FIRST} SELECT tenant_id FROM lane"

_EXPECTED = """
UPDATE queue q SET expires_at = now() + $3 FROM unnest($1::uuid[], $2::text[]) AS m(run_id, step_key)
WHERE q.run_id = m.run_id AND q.step_key = m.step_key AND q.status = 'sent'"""

# The chosen steps may be locked, or another claim of the tenant come first: then look again, this many times at most.
LOOKS_MAX = 64

# At most so many tenants are passed over by a claim.
HELD_MAX = 8

# Locks in the order in which commits that go together lock these rows.
_HEARTBEAT = """
WITH ours AS MATERIALIZED (
  SELECT q.run_id, q.step_key FROM unnest($2::uuid[], $3::text[], $4::uuid[]) AS l(run_id, step_key, lease_id)
  JOIN queue q ON q.run_id = l.run_id AND q.step_key = l.step_key AND q.lease_id = l.lease_id AND q.status = 'leased'
  ORDER BY q.run_id, q.step_key FOR NO KEY UPDATE OF q)
UPDATE queue q SET expires_at = now() + $1 FROM ours WHERE q.run_id = ours.run_id AND q.step_key = ours.step_key
RETURNING q.lease_id"""

_HOLD = """
SELECT q.lease_id, q.status FROM unnest($2::text[], $3::uuid[], $4::int[]) AS l(step_key, lease_id, epoch)
JOIN queue q ON q.run_id = $1 AND q.step_key = l.step_key AND q.lease_id = l.lease_id AND q.epoch = l.epoch
ORDER BY q.step_key FOR NO KEY UPDATE OF q"""


async def claim_next(connection: Connection, owner: str, lease: timedelta, count: int = 1) -> list[asyncpg.Record]:
    """Lease up to ``count`` steps of the tenant whose turn it is; none if no cap leaves a place or nothing is ready."""
    return await _in_turn(connection, (CLAIM_NEXT, _NEXT_BUT), "step", owner, lease, count)


async def claim_of_run(connection: Connection, owner: str, lease: timedelta, run_id: UUID) -> list[asyncpg.Record]:
    """Lease a ready step of this run; none if there is none, or no place for it, or somebody holds the tenant's row."""
    try:
        return await _first(connection, CLAIM_OF_RUN, "step", owner, lease, 1, run_id)
    except asyncpg.LockNotAvailableError:
        return []  # it stays ready, and is claimed like every other step


async def claim_step(connection: Connection, owner: str, lease: timedelta, step_id: UUID) -> list[asyncpg.Record]:
    """Lease this step, which a queue's message named; none if it was not sent (somebody has it, or it is over)."""
    return await connection.fetch(CLAIM_STEP, owner, lease, step_id)


async def admit(connection: Connection, owner: str, lease: timedelta, count: int = 1) -> list[asyncpg.Record]:
    """Take places for steps of the tenant whose turn it is; the caller sends them to a queue (Q-12, O-7)."""
    return await _in_turn(connection, (ADMIT, _ADMIT_BUT), "step_id", owner, lease, count)


async def _in_turn(
    connection: Connection, statements: tuple[str, str], found: str, *parameters: object
) -> list[asyncpg.Record]:
    """Take steps of the tenant whose turn it is; if somebody holds its row, of the next one.

    ``LockNotAvailableError`` if no other tenant has a step to run: the caller looks again.
    """
    try:
        return await _first(connection, statements[0], found, *parameters)
    except asyncpg.LockNotAvailableError as error:
        met = error
    held: list[str] = []
    while len(held) < HELD_MAX:
        # It may be another one by now: then that one loses this turn, and no more.
        tenant = await connection.fetchval(_WHOSE_TURN, held)
        if tenant is None:
            break
        held.append(tenant)
        try:
            rows = await _first(connection, statements[1], found, *parameters, held)
        except asyncpg.LockNotAvailableError as error:
            met = error
            continue
        if rows:
            return rows
        break
    raise met


async def _first(connection: Connection, statement: str, found: str, *parameters: object) -> list[asyncpg.Record]:
    for _ in range(LOOKS_MAX):
        rows = await connection.fetch(statement, *parameters)
        if not rows or rows[0][found] is not None:
            return rows
    return []


async def expected(connection: Connection, steps: Sequence[tuple[UUID, str]], within: timedelta) -> None:
    """Note that the queue has these steps. If nobody claims one in time, the sweeper lets it be sent again (O-8)."""
    await connection.execute(_EXPECTED, [run for run, _ in steps], [key for _, key in steps], within)


async def hold(connection: Connection, run_id: UUID, held: Sequence[Claim]) -> dict[UUID, str]:
    """Lock the rows of a run's leases, before the run's row is locked; the status of each that is still the newest.

    Claimable or sent says that the lease has run out, and nobody has taken its step since.
    """
    columns = ([getattr(claim, name) for claim in held] for name in ("key", "id", "epoch"))
    return {row["lease_id"]: row["status"] for row in await connection.fetch(_HOLD, run_id, *columns)}


async def heartbeat(connection: Connection, span: timedelta, held: Sequence[tuple[UUID, Claim]]) -> set[UUID]:
    """Extend leases; return the ids of those that are still ours. A missing one is lost, and must not be settled."""
    runs, keys, ids = [run for run, _ in held], [claim.key for _, claim in held], [claim.id for _, claim in held]
    return {row["lease_id"] for row in await connection.fetch(_HEARTBEAT, span, runs, keys, ids)}


Answer = TypeVar("Answer")

# Books with more lines are checked and folded in another thread.
LONG = 300
# A transaction whose client says nothing for some seconds is ended: whoever works in one says so in between.
SAID_SECONDS = 1.0


async def aside(lines: int, work: Callable[[], Answer], connection: Connection | None = None) -> Answer:
    """Do work on this many lines: at once, or in a thread if they are many.

    An open transaction of ``connection`` stays open meanwhile. A crash rolls it back, as ever.
    """
    if lines <= LONG:
        return work()
    working = asyncio.ensure_future(asyncio.to_thread(work))
    while True:
        await asyncio.wait({working}, timeout=SAID_SECONDS)
        if working.done():
            return working.result()
        if connection is not None and connection.is_in_transaction():
            await connection.execute("SELECT 1")
