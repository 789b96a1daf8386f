-- name: stock
-- Counts of the tenant $1, each up to its limit: open runs among the newest $2, kept signals, open questions.
SELECT
  (SELECT count(*) FROM (SELECT r.finished_at FROM runs r WHERE r.tenant_id = $1
    ORDER BY r.created_at DESC, r.run_id DESC LIMIT $2) r WHERE r.finished_at IS NULL) AS open_runs,
  (SELECT count(*) FROM (SELECT FROM inbox i WHERE i.tenant_id = $1 AND i.processed_at IS NULL
    AND i.correlation_key IS NOT NULL LIMIT $3) i) AS signals_kept,
  (SELECT count(*) FROM (SELECT FROM approvals a WHERE a.tenant_id = $1 AND a.status = 'requested' LIMIT $4) a)
    AS open_questions;
