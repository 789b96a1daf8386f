-- name: standing
-- The version with which runs of a workflow start now, the version whose schedule is kept, and the time.
SELECT w.version, w.schedule, greatest(w.published_at, w.startable_at) AS since, o.retired_at AS ended
FROM (SELECT 1) one
LEFT JOIN LATERAL (SELECT * FROM workflows WHERE tenant_id = $1 AND name = $2 AND retired_at IS NULL AND waits_for IS NULL
  ORDER BY version DESC LIMIT 1) w ON true
LEFT JOIN workflows o ON o.tenant_id = $1 AND o.name = $2 AND o.version = $3;

-- name: begin
INSERT INTO schedules (tenant_id, workflow, version, schedule, upto)
SELECT tenant_id, name, version, schedule, greatest(published_at, startable_at) FROM workflows
WHERE tenant_id = $1 AND name = $2 AND retired_at IS NULL AND waits_for IS NULL AND schedule IS NOT NULL
ORDER BY version DESC LIMIT 1 ON CONFLICT DO NOTHING;

-- name: lock
-- Whoever decides about the moments of a schedule holds its row until the transaction ends.
SELECT version, schedule, upto, next_at FROM schedules WHERE tenant_id = $1 AND workflow = $2 FOR NO KEY UPDATE;

-- name: move
UPDATE schedules SET version = $3, schedule = $4, upto = $5, next_at = $6 WHERE tenant_id = $1 AND workflow = $2;

-- name: known
SELECT trigger_ref FROM triggered WHERE tenant_id = $1 AND workflow = $2 AND trigger_ref = ANY ($3);

-- name: listed
-- Each workflow whose newest startable version has a schedule, its next moment, and the outcome of its last moment.
SELECT w.name AS workflow, w.version, w.schedule ->> 'cron' AS cron, w.schedule ->> 'timezone' AS timezone,
  CASE WHEN s.schedule = w.schedule THEN s.next_at END AS next_at, greatest(w.published_at, w.startable_at) AS since,
  substr(l.trigger_ref, 10) AS last_at, l.outcome AS last_outcome, l.run_id AS last_run, l.reason AS last_reason, m.missed
FROM (SELECT DISTINCT ON (name) * FROM workflows WHERE tenant_id = $1 AND retired_at IS NULL AND waits_for IS NULL
  ORDER BY name, version DESC) w
LEFT JOIN schedules s ON s.tenant_id = w.tenant_id AND s.workflow = w.name
LEFT JOIN LATERAL (SELECT * FROM triggered t WHERE t.tenant_id = w.tenant_id AND t.workflow = w.name
  AND t.trigger_ref LIKE 'schedule:%' ORDER BY t.trigger_ref DESC LIMIT 1) l ON true
CROSS JOIN LATERAL (SELECT count(*)::int AS missed FROM triggered t WHERE t.tenant_id = w.tenant_id
  AND t.workflow = w.name AND t.trigger_ref LIKE 'schedule:%' AND t.outcome = 'missed') m
WHERE w.schedule IS NOT NULL ORDER BY w.name;

-- name: moments
-- The moments of a workflow's schedule with the outcome of each, the newest first.
SELECT substr(trigger_ref, 10) AS moment, outcome, run_id, reason FROM triggered
WHERE tenant_id = $1 AND workflow = $2 AND trigger_ref LIKE 'schedule:%' ORDER BY trigger_ref DESC LIMIT $3;
