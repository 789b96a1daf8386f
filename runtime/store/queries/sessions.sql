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
