-- name: read
-- A run with the appends from its kept state on, and the first append, which holds the trigger; all appends if $2.
SELECT (SELECT row_to_json(x) FROM (SELECT r.run_id, r.tenant_id, r.workspace_id, r.workflow,
    r.workflow_version, r.workflow_digest, r.trigger_type, r.status, r.version, r.gate, r.executing,
    r.extensions, r.audit_count, r.audit_head, r.state_n, r.deadline_at, r.parent_run_id, r.depth,
    r.purged_at, r.last_at, CASE WHEN r.trigger_type = 'agent' THEN agent_is_off(r.tenant_id, r.requested_by) END AS off,
      CASE WHEN r.root_run_id IS NOT NULL THEN (
      SELECT row_to_json(f) FROM families f WHERE f.root_run_id = r.root_run_id) END AS family) x) AS run,
  r.run_key, CASE WHEN $2 THEN NULL ELSE r.state END AS state,
  t.policy_digests, t.directory_digest, t.max_writes_per_run, t.stop_number, t.paused, t.busy, now() AS now, tail.*
FROM runs r JOIN tenants t ON t.tenant_id = r.tenant_id
LEFT JOIN LATERAL (
  SELECT array_agg(j.first_seq ORDER BY j.n) AS firsts,
    array_agg(j.lines ORDER BY j.n) AS lines, array_agg(j.vals ORDER BY j.n) AS vals
  FROM journal j WHERE j.run_id = r.run_id AND ($2 OR j.n >= r.state_n OR j.n = 1)) tail ON true
WHERE r.run_id = $1;

-- name: after
-- A run with the appends behind the append $2.
SELECT (SELECT row_to_json(x) FROM (SELECT r.run_id, r.tenant_id, r.workspace_id, r.workflow,
    r.workflow_version, r.workflow_digest, r.trigger_type, r.status, r.version, r.gate, r.executing,
    r.extensions, r.audit_count, r.audit_head, r.state_n, r.deadline_at, r.parent_run_id, r.depth,
    r.purged_at, r.last_at, CASE WHEN r.trigger_type = 'agent' THEN agent_is_off(r.tenant_id, r.requested_by) END AS off,
      CASE WHEN r.root_run_id IS NOT NULL THEN (
      SELECT row_to_json(f) FROM families f WHERE f.root_run_id = r.root_run_id) END AS family) x) AS run,
  r.run_key, NULL::bytea AS state,
  t.policy_digests, t.directory_digest, t.max_writes_per_run, t.stop_number, t.paused, t.busy, now() AS now, tail.*
FROM runs r JOIN tenants t ON t.tenant_id = r.tenant_id
LEFT JOIN LATERAL (
  SELECT array_agg(j.first_seq ORDER BY j.n) AS firsts,
    array_agg(j.lines ORDER BY j.n) AS lines, array_agg(j.vals ORDER BY j.n) AS vals
  FROM journal j WHERE j.run_id = r.run_id AND j.n > $2) tail ON true
WHERE r.run_id = $1;

-- name: lock
SELECT root_run_id FROM runs WHERE run_id = $1 FOR UPDATE;

-- name: lock_family
SELECT number FROM families WHERE root_run_id = $1 FOR UPDATE;

-- name: read_run
-- The same for the faces' role, which sets the tenant and may lock: see functions/read_run.sql.
SELECT * FROM read_run($1, $2, $3, $4);
