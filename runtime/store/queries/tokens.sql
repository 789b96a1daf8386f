-- name: create
INSERT INTO tokens (token_hash, tenant_id, subject, roles, expires_at) VALUES ($1, $2, $3, $4, now() + $5::interval)
RETURNING expires_at;

-- name: owner
SELECT tenant_id, subject, roles, ended FROM token_owner($1);

-- name: list
-- ``token_owner`` says the same of one token.
SELECT left(t.token_hash, 12) AS token, t.subject, t.roles, t.created_at, t.expires_at, t.revoked_at,
  CASE WHEN t.revoked_at IS NOT NULL THEN 'revoked' WHEN t.expires_at <= now() THEN 'expired'
    WHEN p.person_id IS NULL OR p.owner IS NOT NULL AND o.person_id IS NULL THEN 'left'
    WHEN NOT (p.active AND coalesce(o.active, true)) THEN 'deactivated' END AS ended
FROM tokens t LEFT JOIN people p ON p.tenant_id = t.tenant_id AND p.person_id = t.subject
LEFT JOIN people o ON o.tenant_id = t.tenant_id AND o.person_id = p.owner
WHERE t.tenant_id = $1 ORDER BY t.created_at, t.token_hash;

-- name: before_revoking
-- Every append with an intent that began before has ended when this returns, and none begins until the transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended('counterseal.intents:' || $1, 0));

-- name: revoke
UPDATE tokens SET revoked_at = now() WHERE tenant_id = $1 AND starts_with(token_hash, $2) AND revoked_at IS NULL
RETURNING token_hash;

-- name: approval_owner
SELECT approval_owner($1);
