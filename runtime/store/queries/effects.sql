-- name: by_key
-- Names only the run. The run's book, or what retention left of it, tells the outcome of the attempt.
SELECT run_id, receipt_id, status, holder, wait_id FROM effects WHERE tenant_id = $1 AND key = $2;

-- name: sharing
SELECT w.run_id, w.step_key, w.wait_id, w.status = 'waiting' AS waiting FROM waits w JOIN runs r USING (run_id)
WHERE w.tenant_id = $1 AND w.correlation_key = $2 AND w.kind = 'shared' AND w.status IN ('waiting', 'completed')
  AND r.finished_at IS NULL
ORDER BY w.created_at, w.wait_id;

-- name: abandon
UPDATE effects SET status = 'failed' WHERE tenant_id = $1 AND key = $2 AND wait_id = $3 AND status = 'left';

-- name: left_by
SELECT FROM effects WHERE tenant_id = $1 AND wait_id = $2 AND status = 'left';
