-- name: queue
-- A lease has no line in the book before its step begins, so owner and epoch are compared only for begun steps.
SELECT step_key, step_id::text, status, owner, epoch FROM queue WHERE run_id = $1;

-- name: waits
SELECT wait_id::text, step_key, kind, status, token, correlation_key, context, result FROM waits WHERE run_id = $1;

-- name: approvals
SELECT approval_id::text, step_key, status, choice, reason, escalated, consumed_at IS NOT NULL AS consumed
FROM approvals WHERE run_id = $1;

-- name: ends
-- An approval of an older release has no stored end, unless its end has changed since.
SELECT approval_id, outcome, coalesce(why, '') AS why
FROM approvals WHERE run_id = $1 AND status = 'approved' AND outcome IS NOT NULL;

-- name: votes
SELECT v.approval_id || ' ' || v.person_id AS vote, v.choice, v.reason, v.groups, v.channel, v.on_behalf, v.glass
FROM votes v JOIN approvals a USING (approval_id) WHERE a.run_id = $1;

-- name: effects
-- Not compared: a failed attempt, whose key another run may take; an effect that its run has left to others.
SELECT key, step_key, receipt_id::text, status FROM effects
WHERE run_id = $1 AND coalesce(holder, $1) = $1 AND status NOT IN ('failed', 'left');

-- name: ledger
SELECT superstep || ' ' || step_key || ' ' || channel AS entry, value FROM ledger WHERE run_id = $1;
