-- name: snapshot
-- The newest rows are read in the order of their index, whatever the statistics say: sorting would read all.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY;
SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off; SET LOCAL enable_material = off;

-- name: tenants
-- ``starts_left`` is the rest of this minute's starts: it reads the token bucket of claims without taking from it.
SELECT t.tenant_id AS tenant, t.weight, t.max_concurrency AS slots,
  (SELECT count(*) FROM queue q WHERE q.tenant_id = t.tenant_id AND q.status <> 'claimable') AS slots_used,
  t.max_runs_per_min, floor(
    least(t.max_runs_per_min, coalesce(t.starts_left, t.max_runs_per_min)
      + extract(epoch FROM greatest(now(), t.starts_left_at) - coalesce(t.starts_left_at, now()))
        * t.max_runs_per_min / 60))::int AS starts_left
FROM tenants t WHERE $1::text IS NULL OR t.tenant_id = $1 ORDER BY t.tenant_id;

-- name: caps
SELECT c.tenant_id, c.cap, c.slots,
  (SELECT count(*) FROM queue q WHERE q.tenant_id = c.tenant_id AND q.cap = c.cap AND q.status <> 'claimable') AS used,
  (SELECT count(*) FROM (SELECT FROM queue q
    WHERE q.tenant_id = c.tenant_id AND q.cap = c.cap AND q.status = 'claimable' LIMIT $2) p) AS pending,
  c.max_runs_per_min, floor(
    least(c.max_runs_per_min, coalesce(c.starts_left, c.max_runs_per_min)
      + extract(epoch FROM greatest(now(), c.starts_left_at) - coalesce(c.starts_left_at, now()))
        * c.max_runs_per_min / 60))::int AS starts_left
FROM caps c WHERE c.tenant_id = ANY ($1::text[]) ORDER BY 1, 2;

-- name: lanes
SELECT w.tenant_id, w.workspace_id, w.weight, p.pending, p.oldest
FROM workspaces w
CROSS JOIN LATERAL (
  SELECT count(*) AS pending, extract(epoch FROM now() - min(q.created_at))::float8 AS oldest FROM (
    SELECT q.created_at FROM queue q
    WHERE q.tenant_id = w.tenant_id AND q.workspace_id = w.workspace_id AND q.status = 'claimable' LIMIT $2) q) p
WHERE w.tenant_id = ANY ($1::text[]) ORDER BY w.tenant_id, w.workspace_id;

-- name: held
SELECT tenant_id, workspace_id, count(*) FILTER (WHERE status = 'sent') AS admitted,
  count(*) FILTER (WHERE status = 'leased') AS running,
  count(*) FILTER (WHERE status = 'leased' AND expires_at < now()) AS abandoned
FROM queue WHERE status <> 'claimable' AND tenant_id = ANY ($1::text[]) GROUP BY tenant_id, workspace_id;

-- name: parked
SELECT w.tenant_id, r.workspace_id, w.kind, count(*) AS count FROM waits w JOIN runs r ON r.run_id = w.run_id
WHERE w.status = 'waiting' AND w.tenant_id = ANY ($1::text[]) GROUP BY w.tenant_id, r.workspace_id, w.kind;

-- name: parked_newest
SELECT r.tenant_id, r.workspace_id, w.kind, count(*) AS count FROM unnest($1::text[]) t(tenant_id) CROSS JOIN LATERAL (
  SELECT r.run_id, r.tenant_id, r.workspace_id FROM runs r WHERE r.tenant_id = t.tenant_id
  ORDER BY r.created_at DESC, r.run_id DESC LIMIT $2) r
JOIN waits w ON w.run_id = r.run_id AND w.status = 'waiting' GROUP BY r.tenant_id, r.workspace_id, w.kind;

-- name: messages
SELECT tenant_id, kind, status, count(*) AS count, extract(epoch FROM now() - min(created_at))::float8 AS oldest FROM (
  (SELECT * FROM commands WHERE status = 'pending' AND tenant_id = ANY ($1::text[]) LIMIT $2)
  UNION ALL
  (SELECT * FROM commands WHERE status = 'leased' AND tenant_id = ANY ($1::text[]) LIMIT $2)
  UNION ALL
  (SELECT * FROM commands WHERE status = 'failed' AND tenant_id = ANY ($1::text[]) LIMIT $2)) m
GROUP BY tenant_id, kind, status ORDER BY tenant_id, kind, status;

-- name: questions
-- Open questions of the tenant $1, at most $2 of the newest: those about the outcome of an action, and the others.
SELECT q.kind, count(*) AS count, extract(epoch FROM now() - min(q.created_at))::float8 AS oldest FROM (
  SELECT a.created_at, CASE WHEN EXISTS (
    SELECT FROM regexp_split_to_table(convert_from(j.lines, 'UTF8'), E'\n') line
    WHERE position('"kind":"in_doubt"' IN line) > 0 AND position(a.approval_id::text IN line) > 0)
    THEN 'in_doubt' ELSE 'decision' END AS kind
  FROM (SELECT approval_id, run_id, n, created_at FROM approvals
    WHERE tenant_id = $1 AND status = 'requested' ORDER BY approval_id DESC LIMIT $2) a
  LEFT JOIN journal j ON j.run_id = a.run_id AND j.n = a.n) q
GROUP BY q.kind;

-- name: leaves
-- Leaves of the tenant's log that no keeper has ordered, or no signer has signed: at most $2 of each, the oldest first.
SELECT 'unordered' AS state, count(*) AS count, extract(epoch FROM now() - min(l.at))::float8 AS oldest FROM (
  SELECT at FROM log_leaves WHERE tenant_id = $1 AND place IS NULL LIMIT $2) l
UNION ALL
SELECT 'unsigned', count(*), extract(epoch FROM now() - min(l.at))::float8 FROM (
  SELECT at FROM log_leaves WHERE tenant_id = $1
    AND place >= coalesce((SELECT max(size) FROM log_checkpoints WHERE tenant_id = $1), 0)
  ORDER BY place LIMIT $2) l;
