-- name: open
-- The open questions of the tenant $1, ordered by deadline.
SELECT r.run_key, j.first_seq AS asked_at, j.lines AS asked, j.vals AS shown,
  m.questions -> a.approval_id::text AS kept, t.paused, t.directory_digest, to_jsonb(a) AS approval, now() AS now,
  r.workspace_id, r.workflow, r.workflow_version, r.reference,
  (SELECT jsonb_agg(jsonb_build_object('vote', to_jsonb(v), 'name', coalesce(p.name, v.person_id) || coalesce(
      ' for ' || coalesce((SELECT d.name FROM people d WHERE d.tenant_id = v.tenant_id AND d.person_id = v.on_behalf),
      v.on_behalf), '')) ORDER BY v.voted_at)
    FROM votes v LEFT JOIN people p ON p.tenant_id = v.tenant_id AND p.person_id = v.person_id
    WHERE v.approval_id = a.approval_id) AS votes
FROM approvals a JOIN runs r ON r.run_id = a.run_id
  LEFT JOIN journal j ON j.run_id = a.run_id AND j.n = a.n LEFT JOIN remains m ON m.run_id = a.run_id
  JOIN tenants t ON t.tenant_id = a.tenant_id
WHERE a.tenant_id = $1 AND a.status = 'requested' ORDER BY a.expires_at, a.approval_id LIMIT $2;

-- name: of_run
-- The questions of the run $2, oldest first.
SELECT r.run_key, j.first_seq AS asked_at, j.lines AS asked, j.vals AS shown,
  m.questions -> a.approval_id::text AS kept, t.paused, t.directory_digest, to_jsonb(a) AS approval, now() AS now,
  r.workspace_id, r.workflow, r.workflow_version, r.reference,
  (SELECT jsonb_agg(jsonb_build_object('vote', to_jsonb(v), 'name', coalesce(p.name, v.person_id) || coalesce(
      ' for ' || coalesce((SELECT d.name FROM people d WHERE d.tenant_id = v.tenant_id AND d.person_id = v.on_behalf),
      v.on_behalf), '')) ORDER BY v.voted_at)
    FROM votes v LEFT JOIN people p ON p.tenant_id = v.tenant_id AND p.person_id = v.person_id
    WHERE v.approval_id = a.approval_id) AS votes
FROM approvals a JOIN runs r ON r.run_id = a.run_id
  LEFT JOIN journal j ON j.run_id = a.run_id AND j.n = a.n LEFT JOIN remains m ON m.run_id = a.run_id
  JOIN tenants t ON t.tenant_id = a.tenant_id
WHERE a.tenant_id = $1 AND a.run_id = $2 ORDER BY a.created_at, a.approval_id LIMIT $3;

-- name: requested
-- The questions of runs that the person $2 requested, newest first, behind ($3, $4). A run of an older release holds no
-- person; then it is nobody's request here.
SELECT r.run_key, j.first_seq AS asked_at, j.lines AS asked, j.vals AS shown,
  m.questions -> a.approval_id::text AS kept, t.paused, t.directory_digest, to_jsonb(a) AS approval, now() AS now,
  r.workspace_id, r.workflow, r.workflow_version, r.reference,
  (SELECT jsonb_agg(jsonb_build_object('vote', to_jsonb(v), 'name', coalesce(p.name, v.person_id) || coalesce(
      ' for ' || coalesce((SELECT d.name FROM people d WHERE d.tenant_id = v.tenant_id AND d.person_id = v.on_behalf),
      v.on_behalf), '')) ORDER BY v.voted_at)
    FROM votes v LEFT JOIN people p ON p.tenant_id = v.tenant_id AND p.person_id = v.person_id
    WHERE v.approval_id = a.approval_id) AS votes
FROM approvals a JOIN runs r ON r.run_id = a.run_id
  LEFT JOIN journal j ON j.run_id = a.run_id AND j.n = a.n LEFT JOIN remains m ON m.run_id = a.run_id
  JOIN tenants t ON t.tenant_id = a.tenant_id
WHERE a.tenant_id = $1 AND r.requester = $2 AND (a.created_at, a.approval_id) < ($3, $4)
ORDER BY a.created_at DESC, a.approval_id DESC LIMIT $5;

-- name: answered
-- The questions that the person $2 has answered, newest first, behind ($3, $4).
SELECT r.run_key, j.first_seq AS asked_at, j.lines AS asked, j.vals AS shown,
  m.questions -> a.approval_id::text AS kept, t.paused, t.directory_digest, to_jsonb(a) AS approval, now() AS now,
  r.workspace_id, r.workflow, r.workflow_version, r.reference, mine.voted_at, mine.choice AS answer,
  (SELECT jsonb_agg(jsonb_build_object('vote', to_jsonb(v), 'name', coalesce(p.name, v.person_id) || coalesce(
      ' for ' || coalesce((SELECT d.name FROM people d WHERE d.tenant_id = v.tenant_id AND d.person_id = v.on_behalf),
      v.on_behalf), '')) ORDER BY v.voted_at)
    FROM votes v LEFT JOIN people p ON p.tenant_id = v.tenant_id AND p.person_id = v.person_id
    WHERE v.approval_id = a.approval_id) AS votes
FROM approvals a JOIN runs r ON r.run_id = a.run_id
  LEFT JOIN journal j ON j.run_id = a.run_id AND j.n = a.n LEFT JOIN remains m ON m.run_id = a.run_id
  JOIN tenants t ON t.tenant_id = a.tenant_id
  JOIN votes mine ON mine.approval_id = a.approval_id AND mine.person_id = $2
WHERE a.tenant_id = $1
  AND (mine.voted_at, mine.approval_id) < ($3, $4)
ORDER BY mine.voted_at DESC, mine.approval_id DESC LIMIT $5;

-- name: runs
-- A page of the runs of the tenant $1, newest first: behind ($2, $3); with one of the statuses $4, of the workflow $5,
-- begun since $6, with the reference or the beginning of an id $7, and that the person $8 has to do with, if given.
SELECT r.run_id, r.workspace_id, r.workflow, r.workflow_version, r.trigger_type, r.reference, r.requested_by,
  coalesce(p.name, r.requested_by) AS asked_by, r.status, r.error, r.created_at, r.started_at, r.finished_at,
  q.approval_id, q.expires_at, q.step_key AS asks,
  EXISTS (SELECT FROM commands c
    WHERE c.tenant_id = r.tenant_id AND c.run_id = r.run_id AND c.status = 'failed') AS dead
FROM runs r LEFT JOIN people p ON p.tenant_id = r.tenant_id AND p.person_id = r.requester
LEFT JOIN LATERAL (SELECT a.approval_id, a.expires_at, a.step_key FROM approvals a
  WHERE a.run_id = r.run_id AND a.status = 'requested' ORDER BY a.expires_at, a.approval_id LIMIT 1) q ON true
WHERE r.tenant_id = $1 AND (r.created_at, r.run_id) < ($2, $3)
  AND (CAST($4 AS text[]) IS NULL OR r.status = ANY (CAST($4 AS text[])))
  AND (CAST($5 AS text) IS NULL OR r.workflow = $5)
  AND (CAST($6 AS timestamptz) IS NULL OR r.created_at >= $6)
  AND (CAST($7 AS text) IS NULL OR r.reference = $7 OR starts_with(r.run_id::text, lower($7)))
  AND (CAST($8 AS text) IS NULL OR r.requester = $8 OR r.started_by = $8 OR EXISTS (
    SELECT FROM approvals a JOIN votes v USING (approval_id) WHERE a.run_id = r.run_id AND v.person_id = $8))
ORDER BY r.created_at DESC, r.run_id DESC LIMIT $9;

-- name: workflow_names
SELECT DISTINCT name FROM workflows WHERE tenant_id = $1 ORDER BY name LIMIT 200;

-- name: dead_letters
SELECT c.command_id, c.run_id, c.kind, c.attempts, c.last_error, c.created_at, r.reference
FROM commands c LEFT JOIN runs r USING (run_id)
WHERE c.tenant_id = $1 AND c.status = 'failed' ORDER BY c.created_at DESC, c.command_id LIMIT $2;
