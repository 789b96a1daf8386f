-- name: hold
-- Locks a run that may be purged: its retention is over, or that of the run above whose values it has inherited. Its
-- evidence has to be stored, none of its messages may be on its way, and no run may wait for its result. A message that
-- could not be delivered for 30 days holds up nothing any more. sweeps.sql looks for the same runs. OFFSET 0 makes
-- PostgreSQL check the later conditions for one run after the other, not for all runs at once.
SELECT r.tenant_id FROM runs r
WHERE r.run_id = $1 AND (r.purge_at <= now()
    AND EXISTS (SELECT FROM bundles b WHERE b.run_id = r.run_id AND b.lines = r.audit_count OFFSET 0)
    AND r.run_id NOT IN (
      SELECT c.run_id FROM commands c WHERE c.created_at > now() - interval '30 days' AND c.status = 'pending')
    AND r.run_id NOT IN (
      SELECT c.run_id FROM commands c WHERE c.created_at > now() - interval '30 days' AND c.status = 'leased')
    AND NOT EXISTS (SELECT FROM runs p WHERE p.run_id = r.parent_run_id AND p.finished_at IS NULL OFFSET 0)
  OR r.inherits AND r.purged_at IS NULL AND r.finished_at IS NOT NULL
    AND EXISTS (SELECT FROM runs p WHERE p.run_id = r.parent_run_id AND p.purged_at IS NOT NULL)
    AND EXISTS (SELECT FROM bundles b WHERE b.run_id = r.run_id AND b.lines = r.audit_count OFFSET 0)
    AND r.run_id NOT IN (
      SELECT c.run_id FROM commands c WHERE c.created_at > now() - interval '30 days' AND c.status = 'pending')
    AND r.run_id NOT IN (
      SELECT c.run_id FROM commands c WHERE c.created_at > now() - interval '30 days' AND c.status = 'leased')
    AND NOT EXISTS (SELECT FROM runs p WHERE p.run_id = r.parent_run_id AND p.finished_at IS NULL OFFSET 0))
FOR UPDATE OF r;

-- name: waits
UPDATE waits SET result = NULL, context = CASE kind
  WHEN 'task' THEN context || jsonb_build_object('title', $2::text, 'description', '')
  ELSE context - 'correlate' - 'error' END
WHERE run_id = $1;

-- name: approvals
UPDATE approvals SET reason = $2 WHERE run_id = $1 AND reason > '';

-- name: refusals
UPDATE refusals SET reason = $2 WHERE run_id = $1 AND reason > '';

-- name: votes
UPDATE votes SET reason = $2 FROM approvals a
WHERE a.run_id = $1 AND votes.approval_id = a.approval_id AND votes.reason > '';

-- name: signals
UPDATE inbox SET payload = '{}' FROM waits w
WHERE w.run_id = $1 AND inbox.tenant_id = w.tenant_id AND inbox.correlation_key = w.correlation_key
  AND inbox.correlation_key IS NOT NULL AND inbox.result->>'run' = w.run_id::text;

-- name: searched
DELETE FROM searched WHERE run_id = $1;

-- name: children
-- The results that the children of this run have handed over, even if nobody had to wait for them.
UPDATE inbox SET payload = '{}' FROM runs c WHERE c.parent_run_id = $1 AND inbox.tenant_id = c.tenant_id
  AND inbox.source = 'run' AND inbox.notification_id = c.run_id::text;

-- name: event
-- One event may have started several runs: the last of them to be purged takes it along.
UPDATE inbox SET payload = '{}' WHERE tenant_id = $2 AND source = $3 AND notification_id = $4
  AND NOT EXISTS (SELECT FROM jsonb_array_elements_text(result->'runs') e JOIN runs r ON r.run_id = e::uuid
    WHERE r.run_id <> $1 AND r.purged_at IS NULL);

-- name: delivery
-- In the same way, the delivery that started a run: triggered knows where the inbox keeps it.
UPDATE inbox i SET payload = '{}' FROM triggered t
WHERE t.tenant_id = $2 AND t.workflow = $3 AND t.trigger_ref = $4
  AND i.tenant_id = t.tenant_id AND i.source = t.source AND i.notification_id = t.notification_id
  AND NOT EXISTS (SELECT FROM jsonb_array_elements_text(i.result->'runs') e JOIN runs r ON r.run_id = e::uuid
    WHERE r.run_id <> $1 AND r.purged_at IS NULL);

-- name: keys
-- The keys and the session of an agent's request are the agent's own words, so they are payload.
DELETE FROM actions WHERE run_id = $1;

-- name: records
-- Removes the ledger, the values of the book and the run's key. Only this function may, and only when it is time.
SELECT purge_records($1);

-- name: run
-- Of an error or a cancel only those facts stay that the audit has as well: its sentences may hold values.
UPDATE runs SET result = NULL,
  error = (
    SELECT jsonb_object_agg(key, value) FROM jsonb_each(error)
    WHERE key IN ('class', 'code', 'step', 'by')),
  canceling = (
    SELECT jsonb_object_agg(key, value) FROM jsonb_each(canceling)
    WHERE key IN ('class', 'code', 'step', 'by')),
  version = version + 1
WHERE run_id = $1;

-- name: keep
INSERT INTO remains (run_id, tenant_id, steps, receipts, extensions, questions)
SELECT run_id, tenant_id, $2, $3, $4, $5 FROM runs WHERE run_id = $1;

-- name: remains
SELECT steps, receipts, extensions FROM remains WHERE run_id = $1;
