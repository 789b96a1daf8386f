-- name: stream
SELECT t.audit_count, t.audit_head, e.* FROM tenants t CROSS JOIN LATERAL (
  SELECT array_agg(e.seq ORDER BY e.seq) AS places, array_agg(e.type ORDER BY e.seq) AS types,
    array_agg(e.line ORDER BY e.seq) AS lines, array_agg(e.hash ORDER BY e.seq) AS heads
  FROM audit_events e WHERE e.stream_id = t.stream_id) e
WHERE t.tenant_id = $1;
