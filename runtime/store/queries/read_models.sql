-- name: runs
-- A page of the runs of the tenant $1, newest first: behind ($2, $3); with the status $4, of the workflow $5, with the
-- reference $6, requested by the person $7 if they are given. Runs of an older release hold only texts: those in $8
-- name the person. $9 and $10 are names and values by which they are found.
SELECT r.run_id, r.workspace_id, r.workflow, coalesce(r.migrated_to, r.workflow_version) AS workflow_version,
  r.trigger_type, r.trigger_ref, r.reference,
  r.requested_by, r.requester, r.started_by, r.status, r.version, r.superstep, r.writes, r.error, r.created_at,
  r.started_at, r.finished_at, r.purged_at, r.deadline_at
FROM runs r
WHERE r.tenant_id = $1 AND (r.created_at, r.run_id) < ($2, $3)
  AND (CAST($4 AS text) IS NULL OR r.status = $4)
  AND (CAST($5 AS text) IS NULL OR r.workflow = $5)
  AND (CAST($6 AS text) IS NULL OR r.reference = $6)
  AND (CAST($7 AS text) IS NULL OR r.requester = $7
    OR r.requester IS NULL AND r.requested_by = ANY (CAST($8 AS text[])))
  AND (cardinality(CAST($9 AS text[])) = 0 OR r.run_id IN (
    SELECT s.run_id FROM searched s
    JOIN unnest(CAST($9 AS text[]), CAST($10 AS text[])) AS w(name, value) ON (s.name, s.value) = (w.name, w.value)
    WHERE s.tenant_id = $1 GROUP BY s.run_id HAVING count(*) = cardinality(CAST($9 AS text[]))))
ORDER BY r.created_at DESC, r.run_id DESC LIMIT $11;

-- name: held
-- The cap that keeps a run from starting, its workflow's before its tenant's.
SELECT CASE WHEN r.status = 'queued' THEN (
    SELECT 'its start: ' || CASE
      WHEN
        least(c.max_runs_per_min, coalesce(c.starts_left, c.max_runs_per_min)
          + extract(epoch FROM greatest(now(), c.starts_left_at) - coalesce(c.starts_left_at, now()))
            * c.max_runs_per_min / 60) < 1
        THEN format('caps.max_runs_per_min of %s is %s', c.cap, c.max_runs_per_min)
      WHEN
        least(t.max_runs_per_min, coalesce(t.starts_left, t.max_runs_per_min)
          + extract(epoch FROM greatest(now(), t.starts_left_at) - coalesce(t.starts_left_at, now()))
            * t.max_runs_per_min / 60) < 1
        THEN format('max_runs_per_min of the tenant %s is %s', t.tenant_id, t.max_runs_per_min)
      END
    FROM tenants t LEFT JOIN caps c ON (c.tenant_id, c.cap) = (r.tenant_id, r.cap) WHERE t.tenant_id = r.tenant_id)
  END AS held
FROM runs r WHERE r.tenant_id = $1 AND r.run_id = $2;

-- name: run
-- Only the oldest children, because a loop over many items may have one for each. ``evidence_problem`` says why the
-- evidence was not signed or stored, if nobody tries that any more.
SELECT r.run_id, r.workspace_id, r.workflow, r.workflow_version, r.trigger_type, r.trigger_ref, r.reference,
  r.requested_by, r.requester, r.started_by, r.status, r.version, r.superstep, r.writes, r.error, r.created_at,
  r.started_at, r.finished_at, r.purged_at, r.deadline_at, r.audit_count, r.audit_head, r.result,
  r.parent_run_id, r.extensions, r.open_until,
  CASE WHEN r.trigger_ref ~ '^fork:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN substr(r.trigger_ref, 6)::uuid END AS forked_from,
  (SELECT f.run_id FROM runs f WHERE f.tenant_id = r.tenant_id AND f.workflow = r.workflow
    AND f.trigger_type = r.trigger_type AND f.trigger_ref = 'fork:' || r.run_id) AS fork,
  CASE WHEN r.open_until IS NOT NULL AND r.status = 'waiting' AND r.executing = 0
    AND NOT EXISTS (SELECT FROM waits w WHERE w.run_id = r.run_id AND w.status = 'waiting') THEN 'more steps'
    ELSE CASE WHEN r.status = 'queued' THEN (
      SELECT 'its start: ' || CASE
        WHEN
          least(c.max_runs_per_min, coalesce(c.starts_left, c.max_runs_per_min)
            + extract(epoch FROM greatest(now(), c.starts_left_at) - coalesce(c.starts_left_at, now()))
              * c.max_runs_per_min / 60) < 1
          THEN format('caps.max_runs_per_min of %s is %s', c.cap, c.max_runs_per_min)
        WHEN
          least(t.max_runs_per_min, coalesce(t.starts_left, t.max_runs_per_min)
            + extract(epoch FROM greatest(now(), t.starts_left_at) - coalesce(t.starts_left_at, now()))
              * t.max_runs_per_min / 60) < 1
          THEN format('max_runs_per_min of the tenant %s is %s', t.tenant_id, t.max_runs_per_min)
        END
      FROM tenants t LEFT JOIN caps c ON (c.tenant_id, c.cap) = (r.tenant_id, r.cap) WHERE t.tenant_id = r.tenant_id)
    END END AS waiting_for,
  (SELECT count(*) FROM runs c WHERE c.parent_run_id = r.run_id) AS children_count,
  ARRAY(SELECT c.run_id FROM runs c WHERE c.parent_run_id = r.run_id ORDER BY c.created_at, c.run_id LIMIT 100)
    AS children,
  (SELECT jsonb_build_object('name', b.name, 'uri', b.uri, 'sha256', b.sha256, 'bytes', b.bytes) FROM bundles b
    WHERE b.run_id = r.run_id ORDER BY b.lines DESC LIMIT 1) AS bundle,
  ARRAY(SELECT b.name FROM bundles b WHERE b.run_id = r.run_id ORDER BY b.lines) AS editions,
  (SELECT c.last_error FROM commands c
    WHERE c.tenant_id = r.tenant_id AND c.run_id = r.run_id AND c.kind = 'bundle' AND c.status = 'failed'
      AND NOT EXISTS (SELECT FROM bundles b WHERE b.run_id = c.run_id AND b.lines = r.audit_count)
    ORDER BY c.command_id DESC LIMIT 1) AS evidence_problem
FROM runs r WHERE r.tenant_id = $1 AND r.run_id = $2;

-- name: waits
-- By their ids, because only the open waits are indexed by their run.
SELECT wait_id, step_key, kind, status, correlation_key, token, due_at, created_at, completed_at FROM waits
WHERE tenant_id = $1 AND wait_id = ANY ($2) AND (created_at, wait_id) > ($3, $4)
ORDER BY created_at, wait_id LIMIT $5;

-- name: ledger
-- The writes of a super-step are recorded in one commit, so their numbers within it never change.
SELECT * FROM (
  SELECT superstep, step_key, channel, value, written_at,
    row_number() OVER (PARTITION BY superstep ORDER BY step_key, channel) AS number
  FROM ledger WHERE tenant_id = $1 AND run_id = $2 AND superstep >= $3) l
WHERE (superstep, number) > ($3, $4) ORDER BY superstep, number LIMIT $5;

-- name: appends
-- Reads from the append with the wanted line on. Each append has at least one line, so ``limit`` appends are enough.
SELECT n, first_seq, lines FROM journal
WHERE tenant_id = $1 AND run_id = $2 AND n >= (
  SELECT coalesce(max(n), 0) FROM journal WHERE tenant_id = $1 AND run_id = $2 AND first_seq <= $3 + 1)
ORDER BY n LIMIT $4;

-- name: bundle
SELECT b.run_id, b.name, b.uri, b.version_id, b.sha256, b.bytes, b.lines, r.audit_count, r.audit_head, r.purged_at
FROM bundles b JOIN runs r USING (run_id) WHERE b.tenant_id = $1 AND r.tenant_id = $1 AND b.run_id = $2
ORDER BY b.lines DESC LIMIT 1;

-- name: policies
SELECT p.name, p.version, p.digest, p.published_by, p.published_at, p.digest = ANY (t.policy_digests) AS active
FROM policies p JOIN tenants t USING (tenant_id) WHERE tenant_id = $1 ORDER BY p.published_at DESC, p.digest;

-- name: counts
SELECT status, count(*) AS count FROM (
  SELECT r.status FROM runs r WHERE r.tenant_id = $1 ORDER BY r.created_at DESC, r.run_id DESC LIMIT $2) newest
GROUP BY status;

-- name: named
-- The newest runs of the tenant $1 with the reference $2, or whose id lies between $3 and $4, if these are given.
SELECT r.run_id, r.workflow, r.reference, r.status, r.created_at FROM runs r
WHERE r.tenant_id = $1 AND (r.reference = $2 OR r.run_id BETWEEN $3 AND $4)
ORDER BY r.created_at DESC, r.run_id DESC LIMIT $5;

-- name: approvals_named
-- The newest approvals of the tenant $1 whose id lies between $2 and $3.
SELECT a.approval_id FROM approvals a WHERE a.tenant_id = $1 AND a.approval_id BETWEEN $2 AND $3
ORDER BY a.approval_id DESC LIMIT $4;

-- name: waiting_longest
-- The open waits of the tenant $1, what has waited the longest first. A step that waits for its turn at a target has
-- waited since it came there, however often it was looked at since.
SELECT w.wait_id, w.run_id, w.step_key, w.kind, w.due_at, w.correlation_key, w.context, w.since,
  r.reference, r.workflow, r.requested_by
FROM (
  SELECT w.*, coalesce(t.since, w.created_at) AS since FROM waits w
  LEFT JOIN (SELECT step_id, min(since) AS since FROM turns WHERE tenant_id = $1 AND NOT used GROUP BY step_id) t
    ON t.step_id = w.step_id AND w.kind = 'retry'
  WHERE w.tenant_id = $1 AND w.status = 'waiting' AND (coalesce(t.since, w.created_at), w.wait_id) > ($3, $4)
  ORDER BY since, w.wait_id LIMIT $2) w
JOIN runs r ON r.run_id = w.run_id ORDER BY w.since, w.wait_id;

-- name: waiting
-- The open waits of each of the runs $2, ordered by their due time; a run may have thousands of waits.
SELECT w.run_id, w.step_key, w.kind, w.due_at, w.correlation_key, w.context, w.created_at FROM runs r
CROSS JOIN LATERAL (SELECT * FROM waits w WHERE w.run_id = r.run_id AND w.tenant_id = $1 AND w.status = 'waiting'
  ORDER BY w.due_at NULLS LAST, w.created_at, w.wait_id LIMIT $3) w
WHERE r.tenant_id = $1 AND r.run_id = ANY ($2) ORDER BY r.run_id, w.due_at NULLS LAST, w.created_at, w.wait_id;
