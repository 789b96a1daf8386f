-- name: head
SELECT r.run_id, r.tenant_id, r.workspace_id, r.workflow, r.workflow_version, r.workflow_digest, r.trigger_type,
  r.trigger_ref, r.reference, r.status, r.superstep, r.writes, r.extensions, r.audit_count, r.audit_head, r.run_key,
  r.error, r.canceling, r.result, r.purged_at
FROM runs r WHERE r.tenant_id = $1 AND r.run_id = $2;

-- name: several
SELECT r.run_id, r.tenant_id, r.workspace_id, r.workflow, r.workflow_version, r.workflow_digest, r.trigger_type,
  r.trigger_ref, r.reference, r.status, r.superstep, r.writes, r.extensions, r.audit_count, r.audit_head, r.run_key,
  r.error, r.canceling, r.result, r.purged_at, j.*
FROM runs r CROSS JOIN LATERAL (
  SELECT array_agg(b.first_seq ORDER BY b.n) AS firsts, array_agg(b.lines ORDER BY b.n) AS every_lines,
    array_agg(b.vals ORDER BY b.n) AS every_vals
  FROM journal b WHERE b.run_id = r.run_id) j
WHERE r.tenant_id = $1 AND r.run_id = ANY ($2::uuid[]);

-- name: page
SELECT n, first_seq, lines, vals FROM journal WHERE run_id = $1 AND n > $2 ORDER BY n LIMIT $3;

-- name: run
SELECT r.run_id, r.tenant_id, r.workspace_id, r.workflow, r.workflow_version, r.workflow_digest, r.trigger_type,
  r.trigger_ref, r.reference, r.status, r.superstep, r.writes, r.extensions, r.audit_count, r.audit_head, r.run_key,
  r.error, r.canceling, r.result, r.purged_at, j.*
FROM runs r CROSS JOIN LATERAL (
  SELECT array_agg(b.first_seq ORDER BY b.n) AS firsts, array_agg(b.lines ORDER BY b.n) AS every_lines,
    array_agg(b.vals ORDER BY b.n) AS every_vals
  FROM journal b WHERE b.run_id = r.run_id) j
WHERE r.tenant_id = $1 AND r.run_id = $2;
