-- name: of_message
-- The questions on the message of the question $1.
SELECT b.approval_id FROM approvals a
JOIN approvals b ON b.run_id = a.run_id AND b.channel = a.channel AND b.message_ts = a.message_ts
WHERE a.approval_id = $1 ORDER BY b.created_at, b.approval_id;

-- name: of_list
-- The questions of the list of the question $1.
SELECT b.approval_id, b.status, b.channel, b.message_ts,
  EXISTS (SELECT FROM votes v WHERE v.approval_id = b.approval_id) AS voted
FROM approvals a JOIN approvals b ON b.run_id = a.run_id AND b.listed = a.listed
WHERE a.approval_id = $1 ORDER BY b.created_at, b.approval_id;

-- name: several
-- These approvals with their votes; of a run that retention has emptied, what it kept of them as well.
SELECT r.run_key, m.questions -> a.approval_id::text AS kept, t.paused, t.directory_digest,
  to_jsonb(a) AS approval, now() AS now, r.workspace_id, r.workflow, r.workflow_version, r.reference,
  CASE WHEN m.run_id IS NOT NULL THEN j.first_seq END AS first_seq,
  CASE WHEN m.run_id IS NOT NULL THEN j.lines END AS lines, NULL::bytea AS shown,
  (SELECT jsonb_agg(jsonb_build_object('vote', to_jsonb(v), 'name', coalesce(p.name, v.person_id) || coalesce(
      ' for ' || coalesce((SELECT d.name FROM people d WHERE d.tenant_id = v.tenant_id AND d.person_id = v.on_behalf),
      v.on_behalf), '')) ORDER BY v.voted_at)
    FROM votes v LEFT JOIN people p ON p.tenant_id = v.tenant_id AND p.person_id = v.person_id
    WHERE v.approval_id = a.approval_id) AS votes
FROM approvals a JOIN runs r ON r.run_id = a.run_id JOIN tenants t ON t.tenant_id = a.tenant_id
  LEFT JOIN remains m ON m.run_id = a.run_id LEFT JOIN journal j ON j.run_id = a.run_id AND j.n = a.n
WHERE a.approval_id = ANY ($1) ORDER BY a.created_at, a.approval_id;

-- name: asked_in
-- The appends $2 of these runs, each once.
SELECT j.n, j.first_seq, j.lines, j.vals, r.run_key FROM journal j JOIN runs r ON r.run_id = j.run_id
WHERE j.run_id = ANY ($1) AND j.n = ANY ($2);
