-- Where the bundles of runs are, and the texts that they hold besides the book.

-- name: source
SELECT source FROM workflows WHERE tenant_id = $1 AND name = $2 AND version = $3;

-- name: policies
SELECT name, version, source FROM policies WHERE tenant_id = $1 AND digest = ANY ($2::text[]) ORDER BY name, version;

-- name: standing
-- The lines of a tenant that decide what may go out: the index ix_audit_events_standing has only these.
SELECT seq, line FROM audit_events
WHERE tenant_id = $1 AND type IN ('pause.set', 'pause.lifted', 'policy.published', 'policy.activated', 'policy.retired',
  'directory.published') ORDER BY seq;

-- name: directories
SELECT digest, source FROM directories WHERE tenant_id = $1 AND digest = ANY ($2::text[]) ORDER BY digest;

-- name: remember
INSERT INTO bundles (run_id, tenant_id, lines, name, uri, version_id, sha256, bytes, key_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (run_id, lines) DO NOTHING;

-- name: newest
SELECT b.sha256 FROM bundles b JOIN runs r ON r.run_id = b.run_id AND b.lines = r.audit_count
WHERE r.tenant_id = $1 AND r.run_id = $2;

-- name: failures
SELECT DISTINCT ON (c.run_id) c.run_id, c.last_error FROM commands c
WHERE c.tenant_id = $1 AND c.kind = 'bundle' AND c.status = 'failed'
  AND NOT EXISTS (SELECT FROM bundles b JOIN runs w ON w.run_id = b.run_id AND w.audit_count = b.lines
    WHERE b.run_id = c.run_id)
  AND NOT EXISTS (SELECT FROM commands n WHERE n.run_id = c.run_id AND n.kind = 'bundle'
    AND n.status IN ('pending', 'leased'))
ORDER BY c.run_id, c.command_id DESC;

-- name: state
SELECT EXISTS (SELECT FROM bundles b WHERE b.run_id = r.run_id AND b.lines = r.audit_count) AS bundled,
  EXISTS (
    SELECT FROM commands c
    WHERE c.tenant_id = r.tenant_id AND c.run_id = r.run_id AND c.kind = 'bundle' AND c.status = 'failed'
      AND NOT EXISTS (SELECT FROM bundles b JOIN runs w ON w.run_id = b.run_id AND w.audit_count = b.lines
        WHERE b.run_id = c.run_id)
      AND NOT EXISTS (SELECT FROM commands n WHERE n.run_id = c.run_id AND n.kind = 'bundle'
        AND n.status IN ('pending', 'leased'))) AS failed
FROM runs r WHERE r.tenant_id = $1 AND r.run_id = $2;
