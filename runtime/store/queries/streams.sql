-- name: head
SELECT stream_id, audit_count, audit_head FROM tenants WHERE tenant_id = $1;

-- name: page
SELECT seq, type, line, hash FROM audit_events WHERE stream_id = $1 AND seq >= $2 AND seq < $3 ORDER BY seq;

-- name: counted
-- In one snapshot the stream has as many lines as the tenant's row counts.
SELECT t.audit_count = (SELECT coalesce(max(e.seq) + 1, 0) FROM audit_events e WHERE e.stream_id = t.stream_id)
FROM tenants t WHERE t.tenant_id = $1;
