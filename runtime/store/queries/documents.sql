-- name: versions
SELECT name, version, digest, published_by, published_at, retired_at, waits_for,
  ARRAY(SELECT jsonb_object_keys(operations) ORDER BY 1) AS operations,
  ARRAY(SELECT DISTINCT coalesce(value ->> 'connector', split_part(key, '.', 1)) FROM jsonb_each(operations)
    ORDER BY 1) AS connectors
FROM workflows WHERE tenant_id = $1 AND ($2::text IS NULL OR name = $2) ORDER BY name, version DESC;

-- name: retire
UPDATE workflows SET retired_at = now() WHERE tenant_id = $1 AND name = $2 AND version = $3 AND retired_at IS NULL
RETURNING version;

-- name: activate
UPDATE workflows SET waits_for = NULL, startable_at = now() WHERE tenant_id = $1 AND name = $2 AND version = $3 AND waits_for IS NOT NULL
RETURNING version;

-- name: newest
SELECT DISTINCT ON (name) name, version, digest, source, operations FROM workflows
WHERE tenant_id = $1 AND retired_at IS NULL AND waits_for IS NULL AND ($2::text IS NULL OR name = $2)
  AND ($3::int IS NULL OR version = $3)
ORDER BY name, version DESC;

-- name: alive
-- The versions with which runs may still start, or go on.
SELECT name, version, digest, source, operations FROM workflows w
WHERE tenant_id = $1 AND waits_for IS NULL AND (retired_at IS NULL OR EXISTS (SELECT FROM runs r
  WHERE r.tenant_id = $1 AND r.workflow = w.name AND coalesce(r.migrated_to, r.workflow_version) = w.version AND r.finished_at IS NULL))
ORDER BY name, version;

-- name: by_digest
SELECT name, version, digest, source, operations FROM workflows
WHERE tenant_id = $1 AND name = $2 AND version = $3;

-- name: publish_workflow
INSERT INTO workflows (tenant_id, name, version, digest, source, operations, published_by, waits_for, schedule, startable_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, now()) ON CONFLICT (tenant_id, name, version) DO NOTHING RETURNING version;

-- name: publish_policy
SELECT publish_policy($1, $2, $3, $4);

-- name: same_policy_version
SELECT digest FROM policies WHERE tenant_id = $1 AND name = $2 AND version = $3;

-- name: in_force
SELECT policy_digests FROM tenants WHERE tenant_id = $1;

-- name: change_policies
SELECT change_policies($1, $2);

-- name: policies
SELECT p.name, p.version, p.digest, p.digest = ANY (t.policy_digests) AS active
FROM tenants t JOIN policies p ON p.tenant_id = t.tenant_id WHERE t.tenant_id = $1 ORDER BY p.name, p.version;

-- name: directories
-- The rows of people hold the present directory only; the tenant's audit lists all that were published. The last is in
-- use.
SELECT line FROM audit_events e JOIN tenants t ON t.stream_id = e.stream_id
WHERE t.tenant_id = $1 AND e.type = 'directory.published' ORDER BY e.seq DESC;

-- name: directory_since
SELECT line FROM audit_events e JOIN tenants t ON t.stream_id = e.stream_id
WHERE t.tenant_id = $1 AND e.type = 'directory.published' ORDER BY e.seq DESC LIMIT 1;

-- name: directory_texts
SELECT digest, source FROM directories WHERE tenant_id = $1;

-- name: policy_of
SELECT digest, source, published_by FROM policies WHERE tenant_id = $1 AND name = $2 AND version = $3;

-- name: proposed
SELECT e.type, e.line FROM audit_events e JOIN tenants t ON t.stream_id = e.stream_id
WHERE t.tenant_id = $1 AND e.type = ANY ($2) ORDER BY e.seq DESC;

-- name: policy
SELECT name, version, source, operations FROM policies WHERE tenant_id = $1 AND digest = $2;
