-- name: head
SELECT audit_count, audit_head, stop_number, now() AS now FROM tenants WHERE tenant_id = $1 FOR UPDATE;

-- name: tell
SELECT tell_tenant($1, $2);

-- name: told
-- True if one of the newest 500 lines of the tenant $1 begins with the text $2, followed by the current hour.
SELECT EXISTS (SELECT FROM tenants t CROSS JOIN LATERAL (
    SELECT e.line FROM audit_events e WHERE e.stream_id = t.stream_id ORDER BY e.seq DESC LIMIT 500) newest
  WHERE t.tenant_id = $1 AND position(
    CAST($2 AS bytea) || convert_to(to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:'), 'UTF8') IN newest.line) = 1);

-- name: run_of
-- The run of a question or of a wait.
SELECT run_id FROM approvals WHERE tenant_id = $1 AND approval_id = $2
UNION ALL SELECT run_id FROM waits WHERE tenant_id = $1 AND wait_id = $2 LIMIT 1;
