-- name: unreviewed
-- The use of broken glass that nobody has reviewed yet; an index allows at most one for each tenant.
SELECT v.approval_id, a.run_id, v.person_id, coalesce(p.name, v.person_id) AS name, v.voted_at
FROM votes v JOIN approvals a USING (approval_id)
  LEFT JOIN people p ON p.tenant_id = v.tenant_id AND p.person_id = v.person_id
WHERE v.tenant_id = $1 AND v.glass AND v.reviewed_at IS NULL;

-- name: review
SELECT review_glass($1, $2, $3);
