-- name: take
SELECT take_turn($1, $2, $3, $4);

-- name: note_busy
SELECT note_busy($1, $2, $3);

-- name: standing
-- The turns of the tenant $1 by target: calls of the last minute, steps that wait for a turn, since when the first does.
-- A turn that is kept for a step which has ended since is nobody's.
SELECT t.target, count(*) FILTER (WHERE t.used AND t.at > clock_timestamp() - interval '1 minute') AS used,
  count(*) FILTER (WHERE w.step_id IS NOT NULL) AS waiting, min(t.since) FILTER (WHERE w.step_id IS NOT NULL) AS oldest
FROM turns t LEFT JOIN (
  SELECT DISTINCT w.step_id FROM waits w WHERE w.tenant_id = $1 AND w.status = 'waiting' AND w.kind = 'retry') w
  ON w.step_id = t.step_id AND NOT t.used
WHERE t.tenant_id = $1 GROUP BY t.target ORDER BY t.target;

-- name: busy
-- The targets that want no calls of the tenant $1 now, with the steps that wait for that, and since when the first does.
SELECT b.key AS target, b.value::timestamptz AS until, count(w.wait_id) AS waiting, min(w.created_at) AS oldest
FROM tenants t CROSS JOIN LATERAL jsonb_each_text(t.busy) b
LEFT JOIN waits w ON w.tenant_id = $1 AND w.status = 'waiting' AND w.kind = 'retry'
  AND w.context #>> '{error,code}' = 'busy' AND w.context #>> '{error,target}' = b.key
WHERE t.tenant_id = $1 AND b.value::timestamptz > clock_timestamp() GROUP BY 1, 2 ORDER BY 1;
