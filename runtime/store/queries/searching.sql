-- name: scan
-- The next $5 runs of the tenant $1, newest first, after ($2, $3) and begun since $4. `fits` is true for a run
-- with the reference $6, of the workflow $7, requested by the person $8 or by one of the texts $9 that name the person,
-- on which the person $10 voted, from $11 on and before $12, with a question that ended as $13, and whose lines hold
-- each of the texts $14, if they are given. The lines are read only of runs that fit otherwise.
SELECT s.*, CASE
  WHEN CAST($6 AS text) IS NOT NULL AND s.reference <> $6 THEN false
  WHEN CAST($7 AS text) IS NOT NULL AND s.workflow <> $7 THEN false
  WHEN CAST($8 AS text) IS NOT NULL
    AND NOT (s.requester = $8 OR s.requester IS NULL AND s.requested_by = ANY (CAST($9 AS text[]))) THEN false
  WHEN CAST($10 AS text) IS NOT NULL AND NOT EXISTS (
    SELECT FROM approvals a JOIN votes v USING (approval_id)
    WHERE a.run_id = s.run_id AND v.person_id = $10
      AND v.voted_at >= CAST($11 AS timestamptz) AND v.voted_at < CAST($12 AS timestamptz)) THEN false
  WHEN CAST($13 AS text) IS NOT NULL AND NOT EXISTS (
    SELECT FROM approvals a WHERE a.run_id = s.run_id AND a.status = $13) THEN false
  ELSE NOT EXISTS (SELECT FROM unnest(CAST($14 AS bytea[])) AS wanted(text) WHERE NOT EXISTS (
    SELECT FROM journal j WHERE j.run_id = s.run_id AND position(wanted.text IN j.lines) > 0))
  END AS fits,
  EXISTS (SELECT FROM bundles b WHERE b.run_id = s.run_id) AS bundle
FROM (SELECT r.run_id, r.workflow, r.workflow_version, r.reference, r.requester, r.requested_by, r.status, r.error,
    r.created_at, r.finished_at
  FROM runs r WHERE r.tenant_id = $1 AND (r.created_at, r.run_id) < ($2, $3) AND r.created_at >= $4
  ORDER BY r.created_at DESC, r.run_id DESC LIMIT $5) s
ORDER BY s.created_at DESC, s.run_id DESC;
