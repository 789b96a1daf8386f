-- name: head
SELECT stream_id, audit_count, audit_head, now() AS now FROM tenants WHERE tenant_id = $1 FOR UPDATE;

-- name: line
WITH line AS (
  INSERT INTO audit_events (stream_id, seq, tenant_id, type, line, hash) VALUES ($2, $3, $1, $4, $5, $6))
UPDATE tenants SET audit_count = $3 + 1, audit_head = $6 WHERE tenant_id = $1;
