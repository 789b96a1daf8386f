-- name: found
-- A login without pg_monitor sees that there are standbys, and not of which kind they are: their columns are null.
SELECT current_setting('synchronous_standby_names') AS named, current_setting('synchronous_commit') AS waits,
  (SELECT count(*) FROM pg_stat_replication) AS standbys,
  (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS synchronous,
  (SELECT count(*) FROM pg_stat_replication WHERE sync_state IS NULL) AS hidden,
  (SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'physical' AND NOT active) AS gone;

-- name: behind
SELECT max(last_at) - clock_timestamp() AS behind FROM runs
WHERE tenant_id = $1 AND finished_at IS NULL AND last_at > clock_timestamp() + interval '1 s';

-- name: forget
DELETE FROM unavailable WHERE tenant_id = $1;

-- name: forget_one
DELETE FROM unavailable WHERE tenant_id = $1 AND kind = $2 AND name = $3;

-- name: note
INSERT INTO unavailable (tenant_id, place, kind, name, reason) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant_id, place) DO UPDATE SET reason = excluded.reason;

-- name: list
-- A definition that was published after the entry is available. A row without a name is about everything of its kind.
SELECT u.kind, u.name, u.place, u.reason FROM unavailable u
WHERE u.tenant_id = $1 AND ($2::text IS NULL OR u.kind = $2) AND ($3::text IS NULL OR u.name = $3)
  AND NOT EXISTS (
    SELECT FROM (
      SELECT 'policy' AS kind, name, published_at FROM policies WHERE tenant_id = $1
      UNION ALL SELECT 'directory', name, published_at FROM directories WHERE tenant_id = $1
      UNION ALL SELECT 'operations', name, published_at FROM operations WHERE tenant_id = $1) p
    WHERE p.kind = u.kind AND (u.name = '' OR p.name = u.name) AND p.published_at > u.found_at)
ORDER BY u.kind, u.name, u.place;
