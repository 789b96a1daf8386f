-- name: head
SELECT audit_count, audit_head, stop_number, now() AS now FROM tenants WHERE tenant_id = $1 FOR UPDATE;

-- name: tell
SELECT tell_tenant($1, $2);
