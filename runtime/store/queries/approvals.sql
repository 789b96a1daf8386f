-- name: read_one
-- An approval with its votes and the append that asked the question; of an emptied run, what retention kept of that
-- append. `preceded` is the last earlier question of the same step that is over and has a card: that card links to this
-- one.
SELECT r.run_key, j.first_seq AS asked_at, j.lines AS asked, j.vals AS shown,
  m.questions -> a.approval_id::text AS kept, t.paused, t.directory_digest,
  (SELECT b.approval_id FROM approvals b WHERE b.run_id = a.run_id AND b.step_key = a.step_key
    AND b.approval_id <> a.approval_id AND b.created_at <= a.created_at AND b.message_ts IS NOT NULL
    AND b.status IN ('superseded', 'expired') ORDER BY b.created_at DESC LIMIT 1) AS preceded,
  to_jsonb(a) AS approval, now() AS now, r.workspace_id,
  (SELECT jsonb_agg(jsonb_build_object('vote', to_jsonb(v), 'name', coalesce(p.name, v.person_id) || coalesce(
      ' for ' || coalesce((SELECT d.name FROM people d WHERE d.tenant_id = v.tenant_id AND d.person_id = v.on_behalf),
      v.on_behalf), '') || CASE WHEN v.glass THEN ' (broke the glass)' ELSE '' END) ORDER BY v.voted_at)
    FROM votes v LEFT JOIN people p ON p.tenant_id = v.tenant_id AND p.person_id = v.person_id
    WHERE v.approval_id = a.approval_id) AS votes
FROM approvals a JOIN runs r ON r.run_id = a.run_id
  LEFT JOIN journal j ON j.run_id = a.run_id AND j.n = a.n LEFT JOIN remains m ON m.run_id = a.run_id
  JOIN tenants t ON t.tenant_id = a.tenant_id
WHERE a.approval_id = $1;

-- name: read_question
-- The approval and its run, of one snapshot: see functions/read_question.sql.
SELECT * FROM read_question($1, $2, $3);

-- name: shown
UPDATE approvals SET channel = $2, message_ts = $3, card = $4, card_problem = NULL WHERE approval_id = $1;

-- name: refused
UPDATE approvals SET card = 'refused', card_problem = $2 WHERE approval_id = $1;

-- name: refusals
SELECT f.key, f.approval_id, f.run_id, f.groups, f.askers, f.by, f.reason, f.at, f.until FROM refusals f
WHERE f.tenant_id = $1 AND f.key = ANY ($2) AND f.until > now() ORDER BY f.at, f.approval_id;

-- name: open_by
SELECT asker, count(*) AS open FROM approvals WHERE tenant_id = $1 AND asker = ANY ($2) AND status = 'requested'
GROUP BY asker;

-- name: approvals
-- A page of the questions of the tenant $1, newest first: behind ($2, $3), with the status $4 and of the run $5 if they
-- are given.
SELECT a.approval_id, a.run_id, a.step_key, a.status, a.choice, a.reason, a.created_at, a.expires_at, a.decided_at,
  CASE WHEN a.status = 'approved' THEN coalesce(a.outcome, 'recorded') ELSE a.status END AS outcome, a.why,
  a.card AS delivered, a.card_problem, a.escalated, r.reference,
  r.run_key, j.first_seq AS asked_at, j.lines AS asked, j.vals AS shown,
  m.questions -> a.approval_id::text AS kept
FROM approvals a JOIN runs r ON r.run_id = a.run_id
  LEFT JOIN journal j ON j.run_id = a.run_id AND j.n = a.n LEFT JOIN remains m ON m.run_id = a.run_id
WHERE a.tenant_id = $1 AND (a.created_at, a.approval_id) < ($2, $3)
  AND (CAST($4 AS text) IS NULL OR a.status = $4) AND (CAST($5 AS uuid) IS NULL OR a.run_id = $5)
ORDER BY a.created_at DESC, a.approval_id DESC LIMIT $6;

-- name: open
SELECT a.approval_id, a.run_id, a.step_key,
  r.run_key, j.first_seq AS asked_at, j.lines AS asked, j.vals AS shown,
  m.questions -> a.approval_id::text AS kept
FROM approvals a JOIN runs r ON r.run_id = a.run_id
  LEFT JOIN journal j ON j.run_id = a.run_id AND j.n = a.n LEFT JOIN remains m ON m.run_id = a.run_id
WHERE a.tenant_id = $1 AND a.status = 'requested' ORDER BY a.approval_id LIMIT $2;

-- name: undelivered
SELECT a.approval_id, a.run_id, a.card_problem AS problem FROM approvals a
WHERE a.tenant_id = $1 AND a.status = 'requested' AND a.card = 'refused' ORDER BY a.approval_id LIMIT $2;

-- name: approval
SELECT a.approval_id, a.run_id, a.step_key, a.status, a.choice, a.reason, a.created_at, a.expires_at, a.decided_at,
  CASE WHEN a.status = 'approved' THEN coalesce(a.outcome, 'recorded') ELSE a.status END AS outcome, a.why,
  a.card AS delivered, a.card_problem, a.escalated, r.reference,
  r.run_key, j.first_seq AS asked_at, j.lines AS asked, j.vals AS shown,
  m.questions -> a.approval_id::text AS kept
FROM approvals a JOIN runs r ON r.run_id = a.run_id
  LEFT JOIN journal j ON j.run_id = a.run_id AND j.n = a.n LEFT JOIN remains m ON m.run_id = a.run_id
WHERE a.tenant_id = $1 AND a.approval_id = $2;

-- name: run_of
SELECT run_id FROM approvals WHERE approval_id = $1;

-- name: posted
SELECT message_ts IS NOT NULL FROM approvals WHERE approval_id = $1;
