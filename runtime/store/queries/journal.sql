-- name: lines
SELECT lines FROM journal WHERE run_id = $1 ORDER BY n;

-- name: opened
SELECT w.id, min(j.n) AS n FROM unnest($2::uuid[]) w(id)
JOIN journal j ON j.run_id = $1 AND position(convert_to(w.id::text, 'UTF8') IN j.lines) > 0 GROUP BY w.id;

-- name: with
SELECT n, first_seq, lines, vals FROM journal
WHERE run_id = $1 AND n > $3 AND position($2::bytea IN lines) > 0 ORDER BY n;

-- name: above
WITH RECURSIVE above AS (
  SELECT r.run_id, r.tenant_id, r.run_key, r.parent_run_id FROM runs r WHERE r.run_id = $1
  UNION SELECT r.run_id, r.tenant_id, r.run_key, r.parent_run_id
  FROM above JOIN runs r ON r.run_id = above.parent_run_id AND r.tenant_id = above.tenant_id)
SELECT run_id, run_key FROM above;

-- name: used
WITH RECURSIVE within AS (
  SELECT r.run_id, r.tenant_id FROM runs r WHERE r.run_id = $1
  UNION SELECT r.run_id, r.tenant_id
  FROM within JOIN runs r ON r.parent_run_id = within.run_id AND r.tenant_id = within.tenant_id)
SELECT j.lines FROM within JOIN journal j USING (run_id)
WHERE position('"usage":{'::bytea IN j.lines) > 0 OR position('"agent.answered"'::bytea IN j.lines) > 0
ORDER BY j.run_id, j.n;
