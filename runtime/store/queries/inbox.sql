-- name: record
INSERT INTO inbox (tenant_id, source, notification_id, payload, correlation_key) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant_id, source, notification_id) DO NOTHING RETURNING notification_id;

-- name: read
SELECT payload, result, correlation_key, processed_at IS NOT NULL AS processed, received_at FROM inbox
WHERE tenant_id = $1 AND source = $2 AND notification_id = $3;

-- name: processed
UPDATE inbox SET processed_at = now(), result = $4
WHERE tenant_id = $1 AND source = $2 AND notification_id = $3 AND processed_at IS NULL;

-- name: add
-- The outcome of an event that waited. Each workflow that the event was for adds its own.
UPDATE inbox SET result = jsonb_set(coalesce(result, '{}'), ARRAY[$4], coalesce(result -> $4, '[]') || $5::jsonb)
WHERE tenant_id = $1 AND source = $2 AND notification_id = $3;

-- name: empty
UPDATE inbox SET payload = '{}' WHERE tenant_id = $1 AND source = $2 AND notification_id = $3;

-- name: reserve_for
UPDATE inbox SET result = $4 WHERE tenant_id = $1 AND source = $2 AND notification_id = $3 AND processed_at IS NULL;

-- name: find
-- A signal is for the run $4, or else for a run that began before $5; for any run if both are null. The oldest open
-- wait comes first. If none is open, the newest ended wait is the answer.
SELECT w.wait_id, w.run_id, w.step_key, w.kind, w.token, m.waiting, m.waiting AND w.parked AS parked,
  r.finished_at IS NULL AS going
FROM waits w JOIN runs r ON r.run_id = w.run_id
CROSS JOIN LATERAL (
  SELECT w.status = 'waiting' AND coalesce(w.run_id = $4::uuid, r.created_at <= $5, true) AS waiting) m
WHERE w.tenant_id = $1 AND w.correlation_key = $2 AND w.kind = ANY ($3::text[])
ORDER BY m.waiting DESC, CASE WHEN m.waiting THEN w.created_at END, w.created_at DESC LIMIT 1;

-- name: named
-- A token or a version names one wait. If several runs have the key, an open wait comes first.
SELECT w.wait_id, w.run_id, w.step_key, w.kind, w.token, w.status = 'waiting' AS waiting,
  w.status = 'waiting' AND w.parked AS parked, r.finished_at IS NULL AS going
FROM waits w JOIN runs r ON r.run_id = w.run_id
WHERE w.tenant_id = $1 AND w.correlation_key = $2 AND w.kind = ANY ($3::text[]) AND ($4::text IS NULL OR w.token = $4)
  AND ($5::int IS NULL OR $5 = (SELECT j.n FROM journal j
    WHERE j.run_id = w.run_id AND position(convert_to(w.wait_id::text, 'UTF8') IN j.lines) > 0 ORDER BY j.n LIMIT 1))
ORDER BY waiting DESC, w.created_at DESC LIMIT 1;

-- name: tenant_of
-- By tenant, because that is how waits are indexed. The keys of durable operations are derived: at most one matches.
SELECT t.tenant_id FROM tenants t WHERE EXISTS (
  SELECT FROM waits w WHERE w.tenant_id = t.tenant_id AND w.correlation_key = $1 AND w.kind = 'external') LIMIT 1;

-- name: unstarted
-- The workflows that recent events could not start, with the newest reason for each, from the tenant's last lines. A
-- workflow is left out if a later event has started it, a newer version is published, or it is retired.
SELECT DISTINCT ON (u.workflow) u.workflow, u.version, u.reason, i.received_at FROM tenants t
JOIN audit_events e ON e.stream_id = t.stream_id AND e.seq >= t.audit_count - 1000 AND e.type = 'workflow.unstarted'
CROSS JOIN LATERAL (SELECT convert_from(e.line, 'UTF8')::jsonb AS line) l
JOIN inbox i ON i.tenant_id = t.tenant_id AND i.source IN ('servicenow:' || (l.line #>> '{actor,id}'), 'webhook:' || (l.line #>> '{actor,id}'))
  AND i.notification_id = l.line #>> '{data,event}'
CROSS JOIN LATERAL jsonb_to_recordset(i.result -> 'unstarted') AS u(workflow text, version int, reason text)
WHERE t.tenant_id = $1 AND u.workflow = l.line #>> '{data,name}'
  AND NOT EXISTS (SELECT FROM workflows w
    WHERE w.tenant_id = t.tenant_id AND w.name = u.workflow AND w.version > u.version AND w.retired_at IS NULL)
  AND EXISTS (SELECT FROM workflows w
    WHERE w.tenant_id = t.tenant_id AND w.name = u.workflow AND w.version = u.version AND w.retired_at IS NULL)
  AND NOT EXISTS (SELECT FROM runs r
    WHERE r.tenant_id = t.tenant_id AND r.workflow = u.workflow AND r.created_at > i.received_at
      AND r.trigger_type IN ('servicenow', 'webhook'))
ORDER BY u.workflow, e.seq DESC;

-- name: times_of
SELECT created_at, due_at, now() FROM waits WHERE wait_id = $1;
