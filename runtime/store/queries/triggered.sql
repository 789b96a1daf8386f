-- name: lock
-- Held until the transaction ends by whoever decides the outcome of an event for a workflow's runs of a reference. A
-- transaction takes these locks in the order of the workflows' names, and at most one for each workflow.
SELECT pg_advisory_xact_lock(hashtextextended(jsonb_build_array('counterseal.triggered', $1::text, $2::text, $3::text)::text, 0));

-- name: find
SELECT outcome, run_id, reason, due_at FROM triggered WHERE tenant_id = $1 AND workflow = $2 AND trigger_ref = $3;

-- name: open
-- The open runs that the workflow's trigger has started for the reference: by their present reference, or by the one
-- with which they began. A run that is being canceled does not count as open.
SELECT r.run_id FROM runs r WHERE r.tenant_id = $1 AND r.workflow = $2 AND r.reference = $3 AND r.finished_at IS NULL
  AND r.trigger_type IN ('servicenow', 'schedule', 'webhook') AND r.canceling IS NULL
UNION
SELECT r.run_id FROM triggered t JOIN runs r USING (run_id)
WHERE t.tenant_id = $1 AND t.workflow = $2 AND t.reference = $3 AND t.run_id IS NOT NULL
  AND r.finished_at IS NULL AND r.canceling IS NULL
ORDER BY 1;

-- name: note
INSERT INTO triggered (tenant_id, workflow, trigger_ref, reference, workspace_id, source, notification_id, outcome, run_id,
  reason) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: merge
-- The waiting event is replaced by the newest event of its window.
UPDATE triggered SET outcome = 'merged' WHERE tenant_id = $1 AND workflow = $2 AND reference = $3 AND outcome = 'waiting'
RETURNING window_ref, due_at, created_at;

-- name: hold
-- A window begins with its first event and ends when it was to end, however many follow.
INSERT INTO triggered (tenant_id, workflow, trigger_ref, reference, workspace_id, source, notification_id, outcome,
  window_ref, due_at, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, 'waiting', coalesce($8, $3), coalesce($9, now() + $11), coalesce($10, now()))
RETURNING due_at;

-- name: due
-- The caller holds the lock of the reference, so nobody else ends the window meanwhile.
SELECT workflow, trigger_ref, workspace_id, source, notification_id, window_ref FROM triggered
WHERE tenant_id = $1 AND workflow = $2 AND reference = $3 AND outcome = 'waiting' AND due_at <= now();

-- name: events
-- The events of a window in the order in which they came, the last one too.
SELECT i.payload FROM triggered t JOIN inbox i USING (tenant_id, source, notification_id)
WHERE t.tenant_id = $1 AND t.workflow = $2 AND t.window_ref = $3 AND i.notification_id <> $4 ORDER BY i.received_at;

-- name: settle
UPDATE triggered SET outcome = $4, run_id = $5, reason = $6 WHERE tenant_id = $1 AND workflow = $2 AND trigger_ref = $3;

-- name: windows_begin
-- A window that begins later than now began before the clock went back: it begins now, and lasts as long as before.
UPDATE triggered SET due_at = due_at - (created_at - now()), created_at = now()
WHERE outcome = 'waiting' AND created_at > now() + interval '1 s';
