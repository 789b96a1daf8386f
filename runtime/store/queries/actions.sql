-- name: of_key
SELECT run_id, call FROM actions WHERE tenant_id = $1 AND account = $2 AND key = $3;

-- name: newest
-- The newest run that was to do this call for this account; `lately`: it has ended within this time, and it is still
-- known how.
SELECT r.run_id, r.finished_at IS NULL AS going,
  r.finished_at > now() - $4::interval AND r.purged_at IS NULL AS lately, a.policies,
  (SELECT count(DISTINCT run_id) FROM actions WHERE tenant_id = $1 AND account = $2 AND call = $3) AS asked
FROM actions a JOIN runs r ON r.tenant_id = $1 AND r.run_id = a.run_id
WHERE a.tenant_id = $1 AND a.account = $2 AND a.call = $3 ORDER BY a.run_id DESC, a.asked_at LIMIT 1;

-- name: keep
INSERT INTO actions (tenant_id, account, key, call, run_id, session, policies)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT DO NOTHING RETURNING run_id;

-- name: used
-- What an account has asked for in the last minute, and how many of its actions are not over: one that is not judged
-- yet, or that is on its way, may become a question as well.
SELECT (SELECT count(DISTINCT run_id) FROM actions WHERE tenant_id = $1 AND account = $2
    AND asked_at > now() - interval '1 minute') AS lately,
  (SELECT count(*) FROM runs r WHERE r.tenant_id = $1 AND r.finished_at IS NULL
    AND r.run_id IN (SELECT run_id FROM actions WHERE tenant_id = $1 AND account = $2)) AS asking;

-- name: one
SELECT run_id, call, session, policies FROM actions WHERE tenant_id = $1 AND account = $2 AND run_id = $3
ORDER BY asked_at, key LIMIT 1;

-- name: of_session
SELECT DISTINCT a.run_id FROM actions a JOIN runs r ON r.tenant_id = $1 AND r.run_id = a.run_id
WHERE a.tenant_id = $1 AND a.account = $2 AND ($3::text IS NULL OR a.session = $3)
  AND ($4::uuid IS NULL OR a.run_id < $4) AND r.purged_at IS NULL
ORDER BY a.run_id DESC LIMIT $5;

-- name: over
-- Those of these runs that have ended, or whose agent has something to do: fetch its permit, or report.
SELECT run_id FROM runs r WHERE tenant_id = $1 AND run_id = ANY ($2::uuid[]) AND (finished_at IS NOT NULL
  OR EXISTS (SELECT FROM waits w WHERE w.run_id = r.run_id AND w.status = 'waiting' AND w.kind = 'permit'));

-- name: orphans
-- The open runs of accounts that have no valid token of an agent any more.
SELECT DISTINCT a.run_id FROM actions a JOIN runs r ON r.tenant_id = $1 AND r.run_id = a.run_id
WHERE a.tenant_id = $1 AND r.finished_at IS NULL AND r.canceling IS NULL AND NOT EXISTS (SELECT FROM tokens t
    WHERE t.tenant_id = $1 AND t.subject = a.account AND 'agent' = ANY (t.roles) AND t.revoked_at IS NULL AND t.expires_at > now())
ORDER BY a.run_id;
