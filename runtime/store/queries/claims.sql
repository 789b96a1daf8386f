-- name: claim_next
-- Leases up to $3 steps of the tenant whose turn it is to the owner $1 for the time $2. Tenants in $4 are passed over,
-- because somebody holds their rows. There is no row if no tenant has a step to take. The step is null if the lane has
-- changed meanwhile: then the caller looks again.
WITH
-- The workspace that is next, and the room that its tenant has. Tenants are read in the order of their turns, up to the
-- first one that has a step to take.
lane AS (
  SELECT l.tenant_id, l.workspace_id, l.seen, l.starts, l.max_concurrency - h.held AS room,
    -- The limit of the wait for the tenant's row, set before the row is locked. A claim waits for another claim of its
    -- tenant, which takes a moment, but not for a holder that has vanished: then it is the next tenant's turn.
    set_config('lock_timeout', '100ms', true) AS waits
  FROM (
    SELECT w.tenant_id, w.workspace_id, t.xmin AS seen, t.max_concurrency,
      CASE WHEN t.max_runs_per_min IS NULL THEN 'infinity' ELSE
        least(t.max_runs_per_min, coalesce(t.starts_left, t.max_runs_per_min)
          + extract(epoch FROM greatest(now(), t.starts_left_at) - coalesce(t.starts_left_at, now()))
            * t.max_runs_per_min / 60) END AS starts
    FROM workspaces w JOIN tenants t USING (tenant_id)
    WHERE w.tenant_id <> ALL ($4)
    ORDER BY t.virtual_time, w.virtual_time, w.tenant_id, w.workspace_id
  ) l
  CROSS JOIN LATERAL (
    SELECT count(*) AS held FROM queue h WHERE h.tenant_id = l.tenant_id AND h.status <> 'claimable') h
  CROSS JOIN LATERAL (
    SELECT FROM (
      -- For each cap of the tenant: how many steps may be taken under it, and how many of them may start a run.
      -- Steps without a cap of their own are under ''.
      SELECT k.cap, k.room, k.starts FROM (
        SELECT '' AS cap, NULL::bigint AS room, 'infinity'::float8 AS starts UNION ALL
        SELECT c.cap, c.slots - h.held,
          CASE WHEN c.max_runs_per_min IS NULL THEN 'infinity' ELSE
            least(c.max_runs_per_min, coalesce(c.starts_left, c.max_runs_per_min)
              + extract(epoch FROM greatest(now(), c.starts_left_at) - coalesce(c.starts_left_at, now()))
                * c.max_runs_per_min / 60) END FROM caps c
          CROSS JOIN LATERAL (
            SELECT count(*) AS held FROM queue h
            WHERE h.tenant_id = c.tenant_id AND h.status <> 'claimable' AND h.cap = c.cap) h
        WHERE c.tenant_id = l.tenant_id) k
      WHERE k.room > 0 OR k.room IS NULL) k
    CROSS JOIN LATERAL (
      SELECT FROM queue q WHERE q.tenant_id = l.tenant_id AND q.workspace_id = l.workspace_id AND q.cap = k.cap
        AND q.status = 'claimable' AND q.starts_run <= (least(l.starts, k.starts) >= 1) LIMIT 1) q
    LIMIT 1) f
  WHERE h.held < l.max_concurrency
  LIMIT 1),
-- No step is taken if the tenant's row has changed since it was read.
tenant AS MATERIALIZED (
  SELECT lane.* FROM lane JOIN tenants t ON t.tenant_id = lane.tenant_id AND t.xmin = lane.seen
  FOR NO KEY UPDATE OF t),
line AS (
  SELECT n.run_id, n.step_key FROM tenant
  CROSS JOIN LATERAL (
    SELECT q.run_id, q.step_key, count(*) FILTER (WHERE q.starts_run) OVER (ORDER BY q.starts_run, q.step_id) AS start
    FROM (
      SELECT k.cap, k.room, k.starts FROM (
        SELECT '' AS cap, NULL::bigint AS room, 'infinity'::float8 AS starts UNION ALL
        SELECT c.cap, c.slots - h.held,
          CASE WHEN c.max_runs_per_min IS NULL THEN 'infinity' ELSE
            least(c.max_runs_per_min, coalesce(c.starts_left, c.max_runs_per_min)
              + extract(epoch FROM greatest(now(), c.starts_left_at) - coalesce(c.starts_left_at, now()))
                * c.max_runs_per_min / 60) END FROM caps c
          CROSS JOIN LATERAL (
            SELECT count(*) AS held FROM queue h
            WHERE h.tenant_id = c.tenant_id AND h.status <> 'claimable' AND h.cap = c.cap) h
        WHERE c.tenant_id = tenant.tenant_id) k
      WHERE k.room > 0 OR k.room IS NULL) k
    CROSS JOIN LATERAL (
      SELECT s.*, count(*) FILTER (WHERE s.starts_run) OVER (ORDER BY s.starts_run, s.step_id) AS start FROM (
        SELECT q.run_id, q.step_key, q.step_id, q.starts_run FROM queue q
        WHERE q.tenant_id = tenant.tenant_id AND q.workspace_id = tenant.workspace_id AND q.cap = k.cap
          AND q.status = 'claimable' AND q.starts_run <= (least(tenant.starts, k.starts) >= 1)
        ORDER BY q.starts_run, q.step_id LIMIT least($3::int, k.room)) s) q
    WHERE q.start <= k.starts
    ORDER BY q.starts_run, q.step_id LIMIT least($3::int, tenant.room)) n
  WHERE n.start <= tenant.starts),
free AS MATERIALIZED (
  SELECT q.run_id, q.step_key FROM line JOIN queue q USING (run_id, step_key) WHERE q.status = 'claimable'
  ORDER BY q.run_id, q.step_key FOR UPDATE OF q SKIP LOCKED),
-- A claim is not flushed: if PostgreSQL loses it, nothing was done under it yet.
taken AS (
  UPDATE queue q SET status = 'leased', owner = $1, lease_id = gen_random_uuid(), epoch = q.epoch + 1,
    expires_at = now() + $2
  FROM free WHERE q.run_id = free.run_id AND q.step_key = free.step_key
  RETURNING q.*, set_config('synchronous_commit', 'off', true)),
-- Charges the turn: each step costs its share, by weight. The cap on starts is a token bucket of one minute's starts,
-- which refills all the time; a tenant has one, and so has each workflow that declares one. now() can be earlier than
-- the stored time if this transaction waited for a lock: never refill by a negative interval.
turn AS (
  SELECT tenant_id, workspace_id, count(*) AS steps, count(*) FILTER (WHERE starts_run) AS starts
  FROM taken GROUP BY tenant_id, workspace_id),
fair_tenant AS (
  UPDATE tenants t SET virtual_start = begun.at, virtual_time = begun.at + turn.steps / t.weight,
    starts_left = CASE WHEN turn.starts > 0 THEN
      least(t.max_runs_per_min, coalesce(t.starts_left, t.max_runs_per_min)
        + extract(epoch FROM greatest(now(), t.starts_left_at) - coalesce(t.starts_left_at, now()))
          * t.max_runs_per_min / 60) - turn.starts ELSE t.starts_left END,
    starts_left_at = CASE WHEN turn.starts > 0 THEN greatest(now(), t.starts_left_at) ELSE t.starts_left_at END
  FROM turn JOIN tenants n USING (tenant_id) CROSS JOIN LATERAL (
    SELECT greatest(n.virtual_time, (SELECT max(o.virtual_start) FROM tenants o)) AS at) begun
  WHERE t.tenant_id = turn.tenant_id),
fair_cap AS (
  UPDATE caps c SET starts_left =
    least(c.max_runs_per_min, coalesce(c.starts_left, c.max_runs_per_min)
      + extract(epoch FROM greatest(now(), c.starts_left_at) - coalesce(c.starts_left_at, now()))
        * c.max_runs_per_min / 60) - m.starts, starts_left_at = greatest(now(), c.starts_left_at)
  FROM (SELECT tenant_id, cap, count(*) AS starts FROM taken WHERE starts_run AND cap <> '' GROUP BY 1, 2) m
  WHERE c.tenant_id = m.tenant_id AND c.cap = m.cap AND c.max_runs_per_min IS NOT NULL),
fair_workspace AS (
  UPDATE workspaces w SET virtual_start = begun.at, virtual_time = begun.at + turn.steps / w.weight
  FROM turn JOIN workspaces n USING (tenant_id, workspace_id) CROSS JOIN LATERAL (
    SELECT greatest(n.virtual_time,
      (SELECT max(o.virtual_start) FROM workspaces o WHERE o.tenant_id = n.tenant_id)) AS at) begun
  WHERE w.tenant_id = turn.tenant_id AND w.workspace_id = turn.workspace_id),
-- The run as it is stored, and the leases that were taken.
run AS (
  SELECT r.* FROM runs r WHERE r.run_id IN (SELECT taken.run_id FROM taken)),
step AS (
  SELECT q.run_id, q.step_id, q.step_key, q.epoch AS lease_epoch, q.owner AS lease_owner, q.lease_id FROM taken q)
-- What a worker needs besides the leased rows. If a run executes many steps at once, the book is not read with each
-- claim, because the same workers take most of them.
SELECT (SELECT row_to_json(x) FROM (SELECT run.run_id, run.tenant_id, run.workspace_id, run.workflow,
    run.workflow_version, run.workflow_digest, run.trigger_type, run.status, run.version, run.gate, run.executing,
    run.extensions, run.audit_count, run.audit_head, run.state_n, run.deadline_at, run.parent_run_id, run.depth,
    run.purged_at, run.last_at, CASE WHEN run.trigger_type = 'agent' THEN agent_is_off(run.tenant_id, run.requested_by) END AS off,
    CASE WHEN run.root_run_id IS NOT NULL THEN (
      SELECT row_to_json(f) FROM families f WHERE f.root_run_id = run.root_run_id) END AS family) x) AS run,
  run.state, to_jsonb(step) AS step, run.run_key,
  t.policy_digests, t.directory_digest, t.max_writes_per_run, t.stop_number, t.paused, t.busy, clock_timestamp() AS now, tail.*
FROM lane LEFT JOIN (run JOIN step USING (run_id)) ON true
LEFT JOIN tenants t ON t.tenant_id = run.tenant_id
LEFT JOIN LATERAL (
  SELECT array_agg(j.first_seq ORDER BY j.n) AS firsts,
    array_agg(j.lines ORDER BY j.n) AS lines, array_agg(j.vals ORDER BY j.n) AS vals
  FROM journal j
  WHERE j.run_id = run.run_id AND ((j.n >= run.state_n OR j.n = 1) AND run.executing <= 1)) tail ON true;

-- name: claim_of_run
-- Leases a step of the run $4 that can begin at once: the worker of a parent goes on with it. If starts are
-- capped, the child waits for its turn like every other run.
WITH lane AS (
  SELECT q.tenant_id, q.workspace_id, t.xmin AS seen, 'infinity'::float8 AS starts, t.max_concurrency - h.held AS room,
    -- The limit of the wait for the tenant's row, set before the row is locked. A claim waits for another claim of its
    -- tenant, which takes a moment, but not for a holder that has vanished: then it is the next tenant's turn.
    set_config('lock_timeout', '100ms', true) AS waits
  FROM queue q JOIN tenants t USING (tenant_id)
  CROSS JOIN LATERAL (
    SELECT count(*) AS held FROM queue h WHERE h.tenant_id = q.tenant_id AND h.status <> 'claimable') h
  JOIN LATERAL (
    -- For each cap of the tenant: how many steps may be taken under it, and how many of them may start a run.
    -- Steps without a cap of their own are under ''.
    SELECT k.cap, k.room, k.starts FROM (
      SELECT '' AS cap, NULL::bigint AS room, 'infinity'::float8 AS starts UNION ALL
      SELECT c.cap, c.slots - h.held,
        CASE WHEN c.max_runs_per_min IS NULL THEN 'infinity' ELSE
          least(c.max_runs_per_min, coalesce(c.starts_left, c.max_runs_per_min)
            + extract(epoch FROM greatest(now(), c.starts_left_at) - coalesce(c.starts_left_at, now()))
              * c.max_runs_per_min / 60) END FROM caps c
        CROSS JOIN LATERAL (
          SELECT count(*) AS held FROM queue h
          WHERE h.tenant_id = c.tenant_id AND h.status <> 'claimable' AND h.cap = c.cap) h
      WHERE c.tenant_id = q.tenant_id) k
    WHERE k.room > 0 OR k.room IS NULL) k ON k.cap = q.cap
  WHERE q.run_id = $4 AND q.status = 'claimable'
    AND (t.max_runs_per_min IS NULL AND k.starts = 'infinity' OR NOT q.starts_run)
    AND h.held < t.max_concurrency
  LIMIT 1),
-- No step is taken if the tenant's row has changed since it was read.
tenant AS MATERIALIZED (
  SELECT lane.* FROM lane JOIN tenants t ON t.tenant_id = lane.tenant_id AND t.xmin = lane.seen
  FOR NO KEY UPDATE OF t),
line AS (
  SELECT q.run_id, q.step_key FROM tenant JOIN queue q ON q.run_id = $4 AND q.status = 'claimable'
  ORDER BY q.step_key LIMIT $3::int),
free AS MATERIALIZED (
  SELECT q.run_id, q.step_key FROM line JOIN queue q USING (run_id, step_key) WHERE q.status = 'claimable'
  ORDER BY q.run_id, q.step_key FOR UPDATE OF q SKIP LOCKED),
-- A claim is not flushed: if PostgreSQL loses it, nothing was done under it yet.
taken AS (
  UPDATE queue q SET status = 'leased', owner = $1, lease_id = gen_random_uuid(), epoch = q.epoch + 1,
    expires_at = now() + $2
  FROM free WHERE q.run_id = free.run_id AND q.step_key = free.step_key
  RETURNING q.*, set_config('synchronous_commit', 'off', true)),
-- Charges the turn: each step costs its share, by weight. The cap on starts is a token bucket of one minute's starts,
-- which refills all the time; a tenant has one, and so has each workflow that declares one. now() can be earlier than
-- the stored time if this transaction waited for a lock: never refill by a negative interval.
turn AS (
  SELECT tenant_id, workspace_id, count(*) AS steps, count(*) FILTER (WHERE starts_run) AS starts
  FROM taken GROUP BY tenant_id, workspace_id),
fair_tenant AS (
  UPDATE tenants t SET virtual_start = begun.at, virtual_time = begun.at + turn.steps / t.weight,
    starts_left = CASE WHEN turn.starts > 0 THEN
      least(t.max_runs_per_min, coalesce(t.starts_left, t.max_runs_per_min)
        + extract(epoch FROM greatest(now(), t.starts_left_at) - coalesce(t.starts_left_at, now()))
          * t.max_runs_per_min / 60) - turn.starts ELSE t.starts_left END,
    starts_left_at = CASE WHEN turn.starts > 0 THEN greatest(now(), t.starts_left_at) ELSE t.starts_left_at END
  FROM turn JOIN tenants n USING (tenant_id) CROSS JOIN LATERAL (
    SELECT greatest(n.virtual_time, (SELECT max(o.virtual_start) FROM tenants o)) AS at) begun
  WHERE t.tenant_id = turn.tenant_id),
fair_cap AS (
  UPDATE caps c SET starts_left =
    least(c.max_runs_per_min, coalesce(c.starts_left, c.max_runs_per_min)
      + extract(epoch FROM greatest(now(), c.starts_left_at) - coalesce(c.starts_left_at, now()))
        * c.max_runs_per_min / 60) - m.starts, starts_left_at = greatest(now(), c.starts_left_at)
  FROM (SELECT tenant_id, cap, count(*) AS starts FROM taken WHERE starts_run AND cap <> '' GROUP BY 1, 2) m
  WHERE c.tenant_id = m.tenant_id AND c.cap = m.cap AND c.max_runs_per_min IS NOT NULL),
fair_workspace AS (
  UPDATE workspaces w SET virtual_start = begun.at, virtual_time = begun.at + turn.steps / w.weight
  FROM turn JOIN workspaces n USING (tenant_id, workspace_id) CROSS JOIN LATERAL (
    SELECT greatest(n.virtual_time,
      (SELECT max(o.virtual_start) FROM workspaces o WHERE o.tenant_id = n.tenant_id)) AS at) begun
  WHERE w.tenant_id = turn.tenant_id AND w.workspace_id = turn.workspace_id),
run AS (
  SELECT r.* FROM runs r WHERE r.run_id IN (SELECT taken.run_id FROM taken)),
step AS (
  SELECT q.run_id, q.step_id, q.step_key, q.epoch AS lease_epoch, q.owner AS lease_owner, q.lease_id FROM taken q)
SELECT (SELECT row_to_json(x) FROM (SELECT run.run_id, run.tenant_id, run.workspace_id, run.workflow,
    run.workflow_version, run.workflow_digest, run.trigger_type, run.status, run.version, run.gate, run.executing,
    run.extensions, run.audit_count, run.audit_head, run.state_n, run.deadline_at, run.parent_run_id, run.depth,
    run.purged_at, run.last_at, CASE WHEN run.trigger_type = 'agent' THEN agent_is_off(run.tenant_id, run.requested_by) END AS off,
    CASE WHEN run.root_run_id IS NOT NULL THEN (
      SELECT row_to_json(f) FROM families f WHERE f.root_run_id = run.root_run_id) END AS family) x) AS run,
  run.state, to_jsonb(step) AS step, run.run_key,
  t.policy_digests, t.directory_digest, t.max_writes_per_run, t.stop_number, t.paused, t.busy, clock_timestamp() AS now, tail.*
FROM lane LEFT JOIN (run JOIN step USING (run_id)) ON true
LEFT JOIN tenants t ON t.tenant_id = run.tenant_id
LEFT JOIN LATERAL (
  SELECT array_agg(j.first_seq ORDER BY j.n) AS firsts,
    array_agg(j.lines ORDER BY j.n) AS lines, array_agg(j.vals ORDER BY j.n) AS vals
  FROM journal j
  WHERE j.run_id = run.run_id AND ((j.n >= run.state_n OR j.n = 1) AND run.executing <= 1)) tail ON true;

-- name: claim_step
-- Leases the step $3. With a queue in between, the place was taken when the step was sent. A step that is not `sent`
-- must not run now.
-- A claim is not flushed: if PostgreSQL loses it, nothing was done under it yet.
WITH taken AS (
  UPDATE queue q SET status = 'leased', owner = $1, lease_id = gen_random_uuid(), epoch = q.epoch + 1,
    expires_at = now() + $2
  WHERE q.step_id = $3 AND q.status = 'sent'
  RETURNING q.*, set_config('synchronous_commit', 'off', true)),
run AS (
  SELECT r.* FROM runs r WHERE r.run_id IN (SELECT taken.run_id FROM taken)),
step AS (
  SELECT q.run_id, q.step_id, q.step_key, q.epoch AS lease_epoch, q.owner AS lease_owner, q.lease_id FROM taken q)
SELECT (SELECT row_to_json(x) FROM (SELECT run.run_id, run.tenant_id, run.workspace_id, run.workflow,
    run.workflow_version, run.workflow_digest, run.trigger_type, run.status, run.version, run.gate, run.executing,
    run.extensions, run.audit_count, run.audit_head, run.state_n, run.deadline_at, run.parent_run_id, run.depth,
    run.purged_at, run.last_at, CASE WHEN run.trigger_type = 'agent' THEN agent_is_off(run.tenant_id, run.requested_by) END AS off,
    CASE WHEN run.root_run_id IS NOT NULL THEN (
      SELECT row_to_json(f) FROM families f WHERE f.root_run_id = run.root_run_id) END AS family) x) AS run,
  run.state, to_jsonb(step) AS step, run.run_key,
  t.policy_digests, t.directory_digest, t.max_writes_per_run, t.stop_number, t.paused, t.busy, clock_timestamp() AS now, tail.*
FROM taken LEFT JOIN (run JOIN step USING (run_id)) ON true
LEFT JOIN tenants t ON t.tenant_id = run.tenant_id
LEFT JOIN LATERAL (
  SELECT array_agg(j.first_seq ORDER BY j.n) AS firsts,
    array_agg(j.lines ORDER BY j.n) AS lines, array_agg(j.vals ORDER BY j.n) AS vals
  FROM journal j
  WHERE j.run_id = run.run_id AND ((j.n >= run.state_n OR j.n = 1) AND run.executing <= 1)) tail ON true;

-- name: admit
-- Takes places for up to $3 steps of the tenant whose turn it is; the caller sends them to a queue.
-- Tenants in $4 are passed over.
WITH
-- The workspace that is next, and the room that its tenant has. Tenants are read in the order of their turns, up to the
-- first one that has a step to take.
lane AS (
  SELECT l.tenant_id, l.workspace_id, l.seen, l.starts, l.max_concurrency - h.held AS room,
    -- The limit of the wait for the tenant's row, set before the row is locked. A claim waits for another claim of its
    -- tenant, which takes a moment, but not for a holder that has vanished: then it is the next tenant's turn.
    set_config('lock_timeout', '100ms', true) AS waits
  FROM (
    SELECT w.tenant_id, w.workspace_id, t.xmin AS seen, t.max_concurrency,
      CASE WHEN t.max_runs_per_min IS NULL THEN 'infinity' ELSE
        least(t.max_runs_per_min, coalesce(t.starts_left, t.max_runs_per_min)
          + extract(epoch FROM greatest(now(), t.starts_left_at) - coalesce(t.starts_left_at, now()))
            * t.max_runs_per_min / 60) END AS starts
    FROM workspaces w JOIN tenants t USING (tenant_id)
    WHERE w.tenant_id <> ALL ($4)
    ORDER BY t.virtual_time, w.virtual_time, w.tenant_id, w.workspace_id
  ) l
  CROSS JOIN LATERAL (
    SELECT count(*) AS held FROM queue h WHERE h.tenant_id = l.tenant_id AND h.status <> 'claimable') h
  CROSS JOIN LATERAL (
    SELECT FROM (
      -- For each cap of the tenant: how many steps may be taken under it, and how many of them may start a run.
      -- Steps without a cap of their own are under ''.
      SELECT k.cap, k.room, k.starts FROM (
        SELECT '' AS cap, NULL::bigint AS room, 'infinity'::float8 AS starts UNION ALL
        SELECT c.cap, c.slots - h.held,
          CASE WHEN c.max_runs_per_min IS NULL THEN 'infinity' ELSE
            least(c.max_runs_per_min, coalesce(c.starts_left, c.max_runs_per_min)
              + extract(epoch FROM greatest(now(), c.starts_left_at) - coalesce(c.starts_left_at, now()))
                * c.max_runs_per_min / 60) END FROM caps c
          CROSS JOIN LATERAL (
            SELECT count(*) AS held FROM queue h
            WHERE h.tenant_id = c.tenant_id AND h.status <> 'claimable' AND h.cap = c.cap) h
        WHERE c.tenant_id = l.tenant_id) k
      WHERE k.room > 0 OR k.room IS NULL) k
    CROSS JOIN LATERAL (
      SELECT FROM queue q WHERE q.tenant_id = l.tenant_id AND q.workspace_id = l.workspace_id AND q.cap = k.cap
        AND q.status = 'claimable' AND q.starts_run <= (least(l.starts, k.starts) >= 1) LIMIT 1) q
    LIMIT 1) f
  WHERE h.held < l.max_concurrency
  LIMIT 1),
-- No step is taken if the tenant's row has changed since it was read.
tenant AS MATERIALIZED (
  SELECT lane.* FROM lane JOIN tenants t ON t.tenant_id = lane.tenant_id AND t.xmin = lane.seen
  FOR NO KEY UPDATE OF t),
line AS (
  SELECT n.run_id, n.step_key FROM tenant
  CROSS JOIN LATERAL (
    SELECT q.run_id, q.step_key, count(*) FILTER (WHERE q.starts_run) OVER (ORDER BY q.starts_run, q.step_id) AS start
    FROM (
      SELECT k.cap, k.room, k.starts FROM (
        SELECT '' AS cap, NULL::bigint AS room, 'infinity'::float8 AS starts UNION ALL
        SELECT c.cap, c.slots - h.held,
          CASE WHEN c.max_runs_per_min IS NULL THEN 'infinity' ELSE
            least(c.max_runs_per_min, coalesce(c.starts_left, c.max_runs_per_min)
              + extract(epoch FROM greatest(now(), c.starts_left_at) - coalesce(c.starts_left_at, now()))
                * c.max_runs_per_min / 60) END FROM caps c
          CROSS JOIN LATERAL (
            SELECT count(*) AS held FROM queue h
            WHERE h.tenant_id = c.tenant_id AND h.status <> 'claimable' AND h.cap = c.cap) h
        WHERE c.tenant_id = tenant.tenant_id) k
      WHERE k.room > 0 OR k.room IS NULL) k
    CROSS JOIN LATERAL (
      SELECT s.*, count(*) FILTER (WHERE s.starts_run) OVER (ORDER BY s.starts_run, s.step_id) AS start FROM (
        SELECT q.run_id, q.step_key, q.step_id, q.starts_run FROM queue q
        WHERE q.tenant_id = tenant.tenant_id AND q.workspace_id = tenant.workspace_id AND q.cap = k.cap
          AND q.status = 'claimable' AND q.starts_run <= (least(tenant.starts, k.starts) >= 1)
        ORDER BY q.starts_run, q.step_id LIMIT least($3::int, k.room)) s) q
    WHERE q.start <= k.starts
    ORDER BY q.starts_run, q.step_id LIMIT least($3::int, tenant.room)) n
  WHERE n.start <= tenant.starts),
free AS MATERIALIZED (
  SELECT q.run_id, q.step_key FROM line JOIN queue q USING (run_id, step_key) WHERE q.status = 'claimable'
  ORDER BY q.run_id, q.step_key FOR UPDATE OF q SKIP LOCKED),
-- A claim is not flushed: if PostgreSQL loses it, nothing was done under it yet.
taken AS (
  UPDATE queue q SET status = 'sent', owner = $1, expires_at = now() + $2
  FROM free WHERE q.run_id = free.run_id AND q.step_key = free.step_key
  RETURNING q.*, set_config('synchronous_commit', 'off', true)),
-- Charges the turn: each step costs its share, by weight. The cap on starts is a token bucket of one minute's starts,
-- which refills all the time; a tenant has one, and so has each workflow that declares one. now() can be earlier than
-- the stored time if this transaction waited for a lock: never refill by a negative interval.
turn AS (
  SELECT tenant_id, workspace_id, count(*) AS steps, count(*) FILTER (WHERE starts_run) AS starts
  FROM taken GROUP BY tenant_id, workspace_id),
fair_tenant AS (
  UPDATE tenants t SET virtual_start = begun.at, virtual_time = begun.at + turn.steps / t.weight,
    starts_left = CASE WHEN turn.starts > 0 THEN
      least(t.max_runs_per_min, coalesce(t.starts_left, t.max_runs_per_min)
        + extract(epoch FROM greatest(now(), t.starts_left_at) - coalesce(t.starts_left_at, now()))
          * t.max_runs_per_min / 60) - turn.starts ELSE t.starts_left END,
    starts_left_at = CASE WHEN turn.starts > 0 THEN greatest(now(), t.starts_left_at) ELSE t.starts_left_at END
  FROM turn JOIN tenants n USING (tenant_id) CROSS JOIN LATERAL (
    SELECT greatest(n.virtual_time, (SELECT max(o.virtual_start) FROM tenants o)) AS at) begun
  WHERE t.tenant_id = turn.tenant_id),
fair_cap AS (
  UPDATE caps c SET starts_left =
    least(c.max_runs_per_min, coalesce(c.starts_left, c.max_runs_per_min)
      + extract(epoch FROM greatest(now(), c.starts_left_at) - coalesce(c.starts_left_at, now()))
        * c.max_runs_per_min / 60) - m.starts, starts_left_at = greatest(now(), c.starts_left_at)
  FROM (SELECT tenant_id, cap, count(*) AS starts FROM taken WHERE starts_run AND cap <> '' GROUP BY 1, 2) m
  WHERE c.tenant_id = m.tenant_id AND c.cap = m.cap AND c.max_runs_per_min IS NOT NULL),
fair_workspace AS (
  UPDATE workspaces w SET virtual_start = begun.at, virtual_time = begun.at + turn.steps / w.weight
  FROM turn JOIN workspaces n USING (tenant_id, workspace_id) CROSS JOIN LATERAL (
    SELECT greatest(n.virtual_time,
      (SELECT max(o.virtual_start) FROM workspaces o WHERE o.tenant_id = n.tenant_id)) AS at) begun
  WHERE w.tenant_id = turn.tenant_id AND w.workspace_id = turn.workspace_id)
SELECT taken.run_id, taken.step_key, taken.step_id, taken.epoch FROM lane LEFT JOIN taken USING (tenant_id);

-- name: whose_turn
-- The tenant whose turn it is if those in $1 are passed over.
WITH
-- The workspace that is next, and the room that its tenant has. Tenants are read in the order of their turns, up to the
-- first one that has a step to take.
lane AS (
  SELECT l.tenant_id, l.workspace_id, l.seen, l.starts, l.max_concurrency - h.held AS room,
    -- The limit of the wait for the tenant's row, set before the row is locked. A claim waits for another claim of its
    -- tenant, which takes a moment, but not for a holder that has vanished: then it is the next tenant's turn.
    set_config('lock_timeout', '100ms', true) AS waits
  FROM (
    SELECT w.tenant_id, w.workspace_id, t.xmin AS seen, t.max_concurrency,
      CASE WHEN t.max_runs_per_min IS NULL THEN 'infinity' ELSE
        least(t.max_runs_per_min, coalesce(t.starts_left, t.max_runs_per_min)
          + extract(epoch FROM greatest(now(), t.starts_left_at) - coalesce(t.starts_left_at, now()))
            * t.max_runs_per_min / 60) END AS starts
    FROM workspaces w JOIN tenants t USING (tenant_id)
    WHERE w.tenant_id <> ALL ($1)
    ORDER BY t.virtual_time, w.virtual_time, w.tenant_id, w.workspace_id
  ) l
  CROSS JOIN LATERAL (
    SELECT count(*) AS held FROM queue h WHERE h.tenant_id = l.tenant_id AND h.status <> 'claimable') h
  CROSS JOIN LATERAL (
    SELECT FROM (
      -- For each cap of the tenant: how many steps may be taken under it, and how many of them may start a run.
      -- Steps without a cap of their own are under ''.
      SELECT k.cap, k.room, k.starts FROM (
        SELECT '' AS cap, NULL::bigint AS room, 'infinity'::float8 AS starts UNION ALL
        SELECT c.cap, c.slots - h.held,
          CASE WHEN c.max_runs_per_min IS NULL THEN 'infinity' ELSE
            least(c.max_runs_per_min, coalesce(c.starts_left, c.max_runs_per_min)
              + extract(epoch FROM greatest(now(), c.starts_left_at) - coalesce(c.starts_left_at, now()))
                * c.max_runs_per_min / 60) END FROM caps c
          CROSS JOIN LATERAL (
            SELECT count(*) AS held FROM queue h
            WHERE h.tenant_id = c.tenant_id AND h.status <> 'claimable' AND h.cap = c.cap) h
        WHERE c.tenant_id = l.tenant_id) k
      WHERE k.room > 0 OR k.room IS NULL) k
    CROSS JOIN LATERAL (
      SELECT FROM queue q WHERE q.tenant_id = l.tenant_id AND q.workspace_id = l.workspace_id AND q.cap = k.cap
        AND q.status = 'claimable' AND q.starts_run <= (least(l.starts, k.starts) >= 1) LIMIT 1) q
    LIMIT 1) f
  WHERE h.held < l.max_concurrency
  LIMIT 1)
SELECT tenant_id FROM lane;

-- name: expected
UPDATE queue q SET expires_at = now() + $3 FROM unnest($1::uuid[], $2::text[]) AS m(run_id, step_key)
WHERE q.run_id = m.run_id AND q.step_key = m.step_key AND q.status = 'sent';

-- name: heartbeat
-- Locks in the order in which commits that go together lock these rows.
WITH ours AS MATERIALIZED (
  SELECT q.run_id, q.step_key FROM unnest($2::uuid[], $3::text[], $4::uuid[]) AS l(run_id, step_key, lease_id)
  JOIN queue q ON q.run_id = l.run_id AND q.step_key = l.step_key AND q.lease_id = l.lease_id AND q.status = 'leased'
  ORDER BY q.run_id, q.step_key FOR NO KEY UPDATE OF q)
UPDATE queue q SET expires_at = now() + $1 FROM ours WHERE q.run_id = ours.run_id AND q.step_key = ours.step_key
RETURNING q.lease_id;

-- name: hold
SELECT q.lease_id, q.status FROM unnest($2::text[], $3::uuid[], $4::int[]) AS l(step_key, lease_id, epoch)
JOIN queue q ON q.run_id = $1 AND q.step_key = l.step_key AND q.lease_id = l.lease_id AND q.epoch = l.epoch
ORDER BY q.step_key FOR NO KEY UPDATE OF q;
