-- name: in_force
SELECT s.version, s.digest, s.source, s.applied_by, s.applied_at
FROM tenants t JOIN tenant_settings s ON s.tenant_id = t.tenant_id AND s.version = t.settings_version
WHERE t.tenant_id = $1;

-- name: standing
SELECT settings_version, stop_number, coalesce(paused ? 'suspended', false) AS suspended
FROM tenants WHERE tenant_id = $1;

-- name: apply
SELECT apply_settings($1, $2, $3);

-- name: changed
-- The tenant of the environment, and tenants with settings, whose version is not the known one ($2: version by tenant).
SELECT tenant_id FROM tenants
WHERE (settings_version IS NOT NULL OR tenant_id = $1)
  AND coalesce(settings_version, 0) IS DISTINCT FROM ($2::jsonb ->> tenant_id)::int ORDER BY tenant_id;
