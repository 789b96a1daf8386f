-- name: read
SELECT to_jsonb(w) AS wait, r.workspace_id, r.workflow, r.workflow_version, r.reference, w.due_at, w.created_at,
  (SELECT p.name FROM people p WHERE p.tenant_id = w.tenant_id AND 'person:' || p.person_id = w.result->>'by') AS by,
  (SELECT jsonb_build_object('name', p.name, 'groups', (SELECT jsonb_agg(m.group_name)
      FROM group_members m WHERE m.tenant_id = p.tenant_id AND m.person_id = p.person_id))
    FROM people p WHERE p.tenant_id = w.tenant_id AND p.person_id = $2) AS person
FROM waits w JOIN runs r USING (run_id)
WHERE w.wait_id = $1 AND w.kind = 'task';

-- name: page
SELECT to_jsonb(w) AS wait, r.workspace_id, r.workflow, r.workflow_version, r.reference, w.due_at, w.created_at,
  (SELECT p.name FROM people p WHERE p.tenant_id = w.tenant_id AND 'person:' || p.person_id = w.result->>'by') AS by,
  NULL::jsonb AS person
FROM waits w JOIN runs r USING (run_id)
WHERE w.tenant_id = $1 AND w.kind = 'task' AND w.wait_id > $2 AND ($3::text IS NULL OR w.status = $3)
  AND ($4::text IS NULL OR w.context->>'group' = $4)
ORDER BY w.wait_id LIMIT $5;

-- name: shown
UPDATE waits SET channel = $2, message_ts = $3 WHERE wait_id = $1;
