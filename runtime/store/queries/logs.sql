-- The tenants' logs: leaves and their order, and what the signer has signed.

-- name: moved
SELECT log_moved_heads($1);

-- name: order
SELECT order_leaves($1);

-- name: page
SELECT place, tenant_id, kind, run_id, number, count, head, at FROM log_leaves
WHERE tenant_id = $1 AND place >= $2 ORDER BY place LIMIT $3;

-- name: counted
-- The numbers of lines that leaves before this place cover: of these runs, and of the tenant's own stream. Both are
-- looked up by an index, however long the log is.
SELECT l.run_id, max(l.count) AS count FROM log_leaves l
WHERE l.tenant_id = $1 AND l.run_id = ANY ($3::uuid[]) AND l.place < $2 GROUP BY l.run_id
UNION ALL (SELECT NULL, l.count FROM log_leaves l
  WHERE l.tenant_id = $1 AND l.run_id IS NULL AND l.place < $2 ORDER BY l.place DESC LIMIT 1);

-- name: without_place
SELECT place, tenant_id, kind, run_id, number, count, head, at FROM log_leaves
WHERE tenant_id = $1 AND place IS NULL ORDER BY leaf_id;

-- name: unordered
SELECT count(*) AS waiting, min(at) AS since, now() AS now FROM log_leaves WHERE tenant_id = $1 AND place IS NULL;

-- name: counter
SELECT runs FROM log_counters WHERE tenant_id = $1;

-- name: keep
-- Each size has its row; the same size again brings other cosignatures.
INSERT INTO log_checkpoints (tenant_id, size, note) VALUES ($1, $2, $3)
ON CONFLICT (tenant_id, size) DO UPDATE SET note = excluded.note, at = now();

-- name: checkpoint
SELECT note, at FROM log_checkpoints WHERE tenant_id = $1 ORDER BY size DESC LIMIT 1;

-- name: tenants
SELECT tenant_id FROM tenants ORDER BY tenant_id;

-- name: runs
-- The runs of a tenant as their rows have them, in pages by id.
SELECT r.run_id, r.status, r.audit_count, r.audit_head, r.finished_at, r.purged_at FROM runs r
WHERE r.tenant_id = $1 AND r.run_id > $2 ORDER BY r.run_id LIMIT $3;

-- name: book
SELECT lines FROM journal WHERE run_id = $1 ORDER BY n;

-- name: elsewhere
SELECT tenant_id FROM runs WHERE run_id = $1;

-- name: bundles
SELECT run_id, name, uri, version_id, lines, sha256, bytes FROM bundles WHERE tenant_id = $1 ORDER BY run_id, lines;

-- name: in_force
SELECT policy_digests, directory_digest, paused FROM tenants WHERE tenant_id = $1;

-- name: monitored
SELECT line FROM audit_events WHERE tenant_id = $1 AND type = 'evidence.monitored' ORDER BY seq DESC LIMIT 1;

-- name: lines
SELECT e.line FROM audit_events e JOIN tenants t ON t.stream_id = e.stream_id
WHERE t.tenant_id = $1 AND e.seq = ANY ($2::bigint[]) ORDER BY e.seq;

-- name: head
SELECT audit_head FROM runs WHERE run_id = $1;

-- name: book_and_values
SELECT lines, vals FROM journal WHERE run_id = $1 ORDER BY n;

-- name: begun
-- The runs that triggers of ServiceNow have started, by their references.
SELECT workflow, trigger_ref, run_id FROM runs WHERE tenant_id = $1 AND trigger_type = 'servicenow';

-- name: received
-- The received events of ServiceNow records. If the runs of an event are erased, its record is not known any more.
SELECT DISTINCT payload ->> 'table' AS named, payload ->> 'event' AS kind, payload ->> 'sys_id' AS sys_id,
  payload ->> 'sys_mod_count' AS changed FROM inbox
WHERE tenant_id = $1 AND source LIKE 'servicenow:%' AND payload ->> 'sys_id' IS NOT NULL;

-- name: active
-- Runs that may have performed something in a period.
SELECT run_id FROM runs WHERE tenant_id = $1 AND writes > 0 AND created_at < $3
  AND (finished_at IS NULL OR finished_at >= $2) ORDER BY run_id;
