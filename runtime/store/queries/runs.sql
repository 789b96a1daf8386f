-- name: run_of_trigger
SELECT run_id, reference, requested_by, requester FROM runs
WHERE tenant_id = $1 AND workflow = $2 AND trigger_type = $3 AND trigger_ref = $4;

-- name: going_of
SELECT run_id FROM runs WHERE tenant_id = $1 AND workflow = $2 AND finished_at IS NULL ORDER BY created_at, run_id;

-- name: proposal
SELECT r.run_id, r.requested_by, (SELECT a.approval_id FROM approvals a
    WHERE a.run_id = r.run_id AND a.status = 'requested') AS approval
FROM runs r WHERE r.tenant_id = $1 AND r.workflow = $2 AND r.trigger_type = $3 AND starts_with(r.trigger_ref, $4)
  AND r.finished_at IS NULL AND r.canceling IS NULL
ORDER BY r.created_at DESC LIMIT 1;

-- name: ending
-- ``shaped``: people may have shaped the result, because they ended a wait, added a step, or wrote something that the
-- run has read; the reads are known when the run is over. ``traced``: the run above, which waits for this one, needs
-- the origins of its result.
SELECT tenant_id, run_id, status, result, error, parent_run_id, trigger_ref, extensions > 0 OR finished_at IS NOT NULL
  OR EXISTS (SELECT FROM waits w WHERE w.run_id = r.run_id AND w.result ->> 'by' IS NOT NULL)
  AS shaped,
  EXISTS (SELECT FROM waits w WHERE w.run_id = r.parent_run_id AND w.correlation_key = r.run_id::text
    AND w.context ->> 'traced' IS NOT NULL) AS traced
FROM runs r WHERE r.run_id = $1;

-- name: open_children
SELECT run_id, workflow FROM runs WHERE parent_run_id = $1 AND finished_at IS NULL ORDER BY run_id;

-- name: below
-- The runs $3, and the children of the run $2 except $4; `going` is true for open ones.
SELECT run_id, finished_at IS NULL AS going FROM runs
WHERE tenant_id = $1 AND (run_id = ANY ($3::uuid[]) OR parent_run_id = $2 AND NOT run_id = ANY ($4::uuid[])) LIMIT $5;

-- name: wait
SELECT to_jsonb(w) AS wait, w.run_id FROM waits w WHERE w.wait_id = $1;

-- name: root
SELECT root_run_id FROM runs WHERE run_id = $1 FOR UPDATE;

-- name: make
INSERT INTO families (root_run_id, tenant_id, writes, refused, asked, writes_max, same, failed, anew)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- name: begun
UPDATE runs SET root_run_id = run_id, gate = gate + 1 WHERE run_id = $1;

-- name: of_part
-- Runs whose ids begin like that of a part of one of them: its first six bytes are those of its run.
SELECT run_id FROM runs WHERE tenant_id = $1 AND run_id >= $2 AND run_id <= $3 ORDER BY run_id LIMIT 1000;

-- name: reversals
SELECT run_id, status FROM runs
WHERE tenant_id = $1 AND trigger_type = 'reversal' AND starts_with(trigger_ref, $2) ORDER BY created_at;
