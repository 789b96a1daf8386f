-- name: create
INSERT INTO sessions (session_hash, tenant_id, subject, roles, token_hash, kind, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, now() + $7::interval);

-- name: owner
SELECT tenant_id, subject, name, roles, kind, expires_at, ended FROM session_owner($1);

-- name: end
UPDATE sessions SET ended_at = now() WHERE tenant_id = $1 AND session_hash = $2 AND ended_at IS NULL
RETURNING session_hash;

-- name: sweep
DELETE FROM sessions WHERE tenant_id = $1 AND expires_at < now() - interval '1 day';

-- name: forget
DELETE FROM sessions WHERE tenant_id = $1 AND session_hash = $2;

-- name: step_up
-- A step-up (a new login for one question). Of two at once the first counts: both were made just now.
INSERT INTO sessions (session_hash, tenant_id, subject, roles, kind, method, expires_at)
VALUES ($1, $2, $3, '{}', 'step_up', $4, now() + $5::interval) ON CONFLICT (session_hash) DO NOTHING;

-- name: stepped_up
SELECT created_at, method, subject FROM sessions
WHERE tenant_id = $1 AND session_hash = $2 AND kind = 'step_up' AND method <> 'begun' AND expires_at > now();

-- name: begun
-- Takes the time, in Unix seconds, at which a step-up was begun, if it was begun in this session and is not too old.
DELETE FROM sessions
WHERE tenant_id = $1 AND session_hash = $2 AND kind = 'step_up' AND method = 'begun' AND expires_at > now()
RETURNING extract(epoch FROM created_at)::float8 AS since;
