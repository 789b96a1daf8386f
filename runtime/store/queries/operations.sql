-- name: newest
SELECT DISTINCT ON (name) name, version, digest, source, published_by, published_at FROM operations
WHERE tenant_id = $1 AND ($2::text[] IS NULL OR name = ANY ($2)) ORDER BY name, version DESC;

-- name: names
SELECT DISTINCT name FROM operations WHERE tenant_id = $1 ORDER BY name;

-- name: listed
SELECT name, version, digest, source, published_by, published_at FROM operations
WHERE tenant_id = $1 AND ($2::text IS NULL OR name = $2) ORDER BY name, version DESC;

-- name: publish
SELECT publish_operation($1, $2, $3);
