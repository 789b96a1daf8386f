-- name: get
SELECT value, version, shaped FROM records WHERE tenant_id = $1 AND collection = $2 AND key = $3;

-- name: query
SELECT key, value, version, shaped FROM records WHERE tenant_id = $1 AND collection = $2 AND key > $3
  AND ($4::jsonb IS NULL OR value @> $4::jsonb)
ORDER BY key LIMIT $5;
