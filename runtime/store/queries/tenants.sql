-- name: create
INSERT INTO tenants (tenant_id, stream_id) VALUES ($1, $2) ON CONFLICT (tenant_id) DO NOTHING RETURNING tenant_id;

-- name: groups
SELECT group_name, array_agg(person_id) AS members FROM group_members WHERE tenant_id = $1 GROUP BY group_name;

-- name: directory
SELECT t.directory_digest, p.person_id, p.name, p.active, p.owner, p.principals, p.quiet, p.manager, p.delegate, m.groups
FROM tenants t LEFT JOIN people p USING (tenant_id) LEFT JOIN (
  SELECT person_id, array_agg(group_name) AS groups FROM group_members WHERE tenant_id = $1 GROUP BY person_id
) m USING (person_id) WHERE t.tenant_id = $1;

-- name: now
SELECT now() AS now, t.directory_digest AS digest, t.paused #>> '{suspended,reason}' AS suspended
FROM (SELECT 1) one LEFT JOIN tenants t ON t.tenant_id = $1;

-- name: digest
SELECT directory_digest FROM tenants WHERE tenant_id = $1;

-- name: lock
-- A holder of the lock that has vanished loses it when its transaction has been idle for too long. This waits for that,
-- and then a little longer for others in the line. The limit holds for the later locks of the transaction too.
SELECT
  set_config('lock_timeout', (1000 * extract(epoch FROM
    current_setting('idle_in_transaction_session_timeout')::interval + current_setting('lock_timeout')::interval)
    )::int::text, true),
  pg_advisory_xact_lock(hashtextextended('counterseal.publishing:' || $1, 0));

-- name: listed
SELECT tenant_id, max_concurrency, max_runs_per_min, max_writes_per_run, weight, policy_digests, created_at
FROM tenants ORDER BY tenant_id;

-- name: set_concurrency
-- A claim holds the tenant's row, so after this update the next claim makes the same count as we do.
UPDATE tenants SET max_concurrency = $2 WHERE tenant_id = $1;

-- name: held
SELECT count(*) FROM queue WHERE tenant_id = $1 AND status <> 'claimable';

-- name: set_cap
INSERT INTO caps (tenant_id, cap, slots, max_runs_per_min) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant_id, cap) DO UPDATE SET slots = excluded.slots, max_runs_per_min = excluded.max_runs_per_min;

-- name: set_caps
UPDATE tenants SET
  max_runs_per_min = CASE WHEN $2 < 0 THEN NULL ELSE coalesce($2, max_runs_per_min) END,
  max_writes_per_run = CASE WHEN $3 < 0 THEN NULL ELSE coalesce($3, max_writes_per_run) END,
  weight = coalesce($4, weight)
WHERE tenant_id = $1;

-- name: exists
SELECT EXISTS (SELECT FROM tenants WHERE tenant_id = $1);

-- name: names
SELECT tenant_id FROM tenants ORDER BY tenant_id;

-- name: has_people
SELECT EXISTS (SELECT FROM people WHERE tenant_id = $1);

-- name: replace_directory
SELECT replace_directory($1, $2, $3, $4, $5);

-- name: quiet
UPDATE people SET quiet = q.one -> 1 FROM jsonb_array_elements($1) AS q(one)
WHERE tenant_id = $2 AND person_id = q.one ->> 0;
