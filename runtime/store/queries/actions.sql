-- name: of_key
SELECT run_id, call FROM actions WHERE tenant_id = $1 AND account = $2 AND key = $3;

-- name: take_turn
-- A holder of the lock that has vanished loses it when its transaction has been idle for too long.
SELECT set_config('lock_timeout', (1000 * extract(epoch FROM
    current_setting('idle_in_transaction_session_timeout')::interval + current_setting('lock_timeout')::interval)
    )::int::text, true),
  pg_advisory_xact_lock(hashtextextended('counterseal.agent:' || $1::text || ':' || $2::text, 0));

-- name: newest
-- The newest run of this call for this account. `lately`: it ended within this time, and its end is still known.
SELECT r.run_id, r.finished_at IS NULL AS going,
  r.finished_at > now() - $4::interval AND r.purged_at IS NULL AS lately, a.policies, r.error ->> 'code' AS code
FROM actions a JOIN runs r ON r.tenant_id = $1 AND r.run_id = a.run_id
WHERE a.tenant_id = $1 AND a.account = $2 AND a.call = $3 ORDER BY a.run_id DESC, a.began DESC LIMIT 1;

-- name: begin
INSERT INTO actions (tenant_id, account, key, call, run_id, session, policies, began)
VALUES ($1, $2, $3, $4, $5, $6, $7, true);

-- name: keep
-- A bounded number of keys stands for one action.
INSERT INTO actions (tenant_id, account, key, call, run_id, session, policies, began)
SELECT $1, $2, $3, $4, $5, $6, $7, false
WHERE (SELECT count(*) FROM actions WHERE run_id = $5) < $8 RETURNING key;

-- name: used
-- The actions that an account asked for in the last minute, and its actions that are not over: one that is not judged
-- yet, or is on its way, may still become a question. Also the counts that policies may read, and the agent's pause.
SELECT
  (SELECT count(*) FROM actions WHERE tenant_id = $1 AND account = $2 AND began
    AND asked_at > clock_timestamp() - interval '1 minute') AS lately,
  (SELECT count(*) FROM runs WHERE tenant_id = $1 AND lower(requested_by) = lower($2::text) AND trigger_type = 'agent'
    AND finished_at IS NULL) AS asking,
  (SELECT count(*) FROM actions WHERE tenant_id = $1 AND account = $2 AND began
    AND asked_at > clock_timestamp() - interval '24 hours') AS asked,
  (SELECT count(*) FROM actions WHERE tenant_id = $1 AND account = $2 AND call = $3 AND began
    AND asked_at > clock_timestamp() - interval '24 hours') AS same,
  (SELECT count(*) FROM runs WHERE tenant_id = $1 AND lower(requested_by) = lower($2::text) AND trigger_type = 'agent'
    AND finished_at > clock_timestamp() - interval '24 hours' AND status = 'failed_terminal'
    AND error ->> 'class' = 'authorization') AS refused,
  (SELECT paused -> ('agent:' || lower($2::text)) FROM tenants WHERE tenant_id = $1) AS paused;

-- name: one
SELECT run_id, call, session, policies FROM actions WHERE tenant_id = $1 AND account = $2 AND run_id = $3
ORDER BY began DESC LIMIT 1;

-- name: of_session
SELECT a.run_id, a.call, a.session, a.policies FROM actions a JOIN runs r ON r.tenant_id = $1 AND r.run_id = a.run_id
WHERE a.tenant_id = $1 AND a.account = $2 AND ($3::text IS NULL OR a.session = $3) AND a.began
  AND ($4::uuid IS NULL OR a.run_id < $4) AND r.purged_at IS NULL
ORDER BY a.run_id DESC LIMIT $5;

-- name: shapes
-- The workflows of this kind that call the same operations.
SELECT count(*) FROM workflows WHERE tenant_id = $1 AND published_by = $2 AND operations = $3 AND version = 1;

-- name: over
-- The runs among these that have ended, or whose agent has something to do: fetch its permit, or report.
SELECT run_id FROM runs r WHERE tenant_id = $1 AND run_id = ANY ($2::uuid[]) AND (finished_at IS NOT NULL
  OR EXISTS (SELECT FROM waits w WHERE w.run_id = r.run_id AND w.status = 'waiting' AND w.kind = 'permit'));
