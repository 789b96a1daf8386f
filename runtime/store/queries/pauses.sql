-- name: change_pause
SELECT change_pause($1, $2);

-- name: in_force
SELECT p.key, p.value, r.finished_at IS NOT NULL AS over
FROM tenants t CROSS JOIN LATERAL jsonb_each(t.paused) p
  LEFT JOIN runs r ON r.tenant_id = t.tenant_id AND p.key = 'run:' || r.run_id
    AND r.run_id = CASE WHEN p.key LIKE 'run:%' THEN substr(p.key, 5)::uuid END
WHERE t.tenant_id = $1 ORDER BY p.value ->> 'at', p.key;

-- name: of_run
-- A pause of a connector holds up a run if one of its steps waits for the end of that pause.
SELECT p.key FROM runs r JOIN tenants t USING (tenant_id) CROSS JOIN LATERAL jsonb_object_keys(t.paused) p(key)
WHERE r.tenant_id = $1 AND r.run_id = $2 AND r.finished_at IS NULL
  AND (p.key IN ('suspended', 'tenant', 'workflow:' || r.workflow, 'run:' || r.run_id)
    OR r.trigger_type = 'agent' AND p.key = 'agent:' || lower(r.requested_by) OR p.key IN (
    SELECT w.context ->> 'paused' FROM waits w
    WHERE w.run_id = r.run_id AND w.kind = 'pause' AND w.status = 'waiting'));

-- name: parked
SELECT run_id, step_key, wait_id FROM waits
WHERE tenant_id = $1 AND context ->> 'paused' = ANY ($2) AND kind = 'pause' AND status = 'waiting'
ORDER BY context ->> 'paused', wait_id LIMIT $3;

-- name: change
SELECT stop_number AS number, paused, resumed, judge_after AS after FROM tenants WHERE tenant_id = $1;

-- name: questions
SELECT approval_id FROM approvals WHERE tenant_id = $1 AND status = 'requested' AND approval_id > $2
ORDER BY approval_id LIMIT $3;

-- name: redraw
-- Only the run's book tells the connector of an action, so a pause of a connector redraws every card.
WITH ordered AS (
  INSERT INTO commands (command_id, tenant_id, run_id, kind, payload, status, ordering_key)
  SELECT md5(a.approval_id || ':stop:' || $3::text)::uuid, a.tenant_id, a.run_id, 'card',
    jsonb_build_object('approval', a.approval_id), 'pending', coalesce('list:' || a.run_id || ':' || a.listed, 'approval:' || a.approval_id)
  FROM approvals a JOIN runs r USING (run_id) WHERE a.approval_id = ANY ($1) AND a.status = 'requested'
    AND EXISTS (SELECT FROM unnest($2::text[]) k(key) WHERE k.key LIKE 'connector:%'
      OR r.trigger_type = 'agent' AND k.key = 'agent:' || lower(r.requested_by)
      OR k.key IN ('suspended', 'tenant', 'workflow:' || r.workflow, 'run:' || r.run_id))
  ON CONFLICT DO NOTHING RETURNING command_id)
SELECT pg_notify('counterseal_messages', '') WHERE EXISTS (SELECT FROM ordered);

-- name: previewed
-- The questions whose runs have short books come first, so that a bounded look covers as many questions as it can.
SELECT q.approval_id FROM (
  SELECT a.approval_id, sum(r.audit_count) OVER (ORDER BY r.audit_count, a.approval_id) AS lines
  FROM (SELECT approval_id, run_id FROM approvals WHERE tenant_id = $1 AND status = 'requested'
    ORDER BY approval_id LIMIT $2) a JOIN runs r USING (run_id)) q
WHERE q.lines <= $3 ORDER BY q.approval_id;

-- name: open_questions
SELECT count(*) FROM approvals WHERE tenant_id = $1 AND status = 'requested';

-- name: followed
SELECT follow_change($1, $2, $3, $4);
