-- name: read
SELECT to_jsonb(w) AS wait, r.workflow, r.reference, w.created_at,
  (SELECT p.name FROM people p WHERE p.tenant_id = w.tenant_id AND 'person:' || p.person_id = w.result->>'by') AS by
FROM waits w JOIN runs r USING (run_id)
WHERE w.wait_id = $1 AND w.kind = 'hold';

-- name: shown
UPDATE waits SET channel = $2, message_ts = $3 WHERE wait_id = $1;
