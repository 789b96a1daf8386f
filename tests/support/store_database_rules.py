"""Helpers of tests/store that several test files share: from test_database_rules."""

from __future__ import annotations

# One row of every table, in an order in which what is referred to comes first; $1 is the tenant, $2 the run.
ROWS = {
    "tenants": "INSERT INTO tenants (tenant_id, stream_id) VALUES ($1, $2)",
    "workspaces": "INSERT INTO workspaces (tenant_id, workspace_id) SELECT $1, 'w' WHERE $2::uuid IS NOT NULL",
    "caps": "INSERT INTO caps (tenant_id, cap, slots) VALUES ($1, $2::uuid::text, 1)",
    "actions": "INSERT INTO actions (tenant_id, account, key, call, run_id, session, policies)"
    " SELECT $1, 'bot', $2::uuid::text, 'd', $2::uuid, 's', 'p'",
    "workflows": "INSERT INTO workflows (tenant_id, name, version, digest, source, operations, published_by)"
    " VALUES ($1, 'w', 1, $2::uuid::text, 's', '{}', 'p')",
    "policies": "INSERT INTO policies (tenant_id, digest, name, version, source, published_by)"
    " VALUES ($1, $2::uuid::text, 'n', 1, 's', 'p')",
    "directories": "INSERT INTO directories (tenant_id, digest, name, version, source, published_by)"
    " VALUES ($1, $2::uuid::text, 'n', 1, 's', 'p')",
    "operations": "INSERT INTO operations (tenant_id, name, version, digest, source, published_by)"
    " SELECT $1, 'n', 1, $2::uuid::text, 's', 'p'",
    "tenant_settings": "INSERT INTO tenant_settings (tenant_id, version, digest, source, applied_by)"
    " SELECT $1, 1, $2::uuid::text, 's', 'p'",
    "people": "INSERT INTO people (tenant_id, person_id, name) VALUES ($1, $2::uuid::text, 'n')",
    "group_members": "INSERT INTO group_members (tenant_id, group_name, person_id)"
    " VALUES ($1, 'g', $2::uuid::text)",
    "unavailable": "INSERT INTO unavailable (tenant_id, place, kind, name, reason)"
    " VALUES ($1, $2::uuid::text, 'workflow', 'w', 'r')",
    "sessions": "INSERT INTO sessions (session_hash, tenant_id, subject, roles, kind, expires_at)"
    " VALUES ($2::uuid::text, $1, 's', '{}', 'login', now())",
    "notices": "INSERT INTO notices (tenant_id, person_id, topic, began_at, channel, message_ts, count)"
    " VALUES ($1, $2::uuid::text, 't', now(), 'D1', '1', 1)",
    "tokens": "INSERT INTO tokens (token_hash, tenant_id, subject, roles)"
    " VALUES ($2::uuid::text, $1, 's', '{}')",
    # The rows of runs and of audit_events write leaves of their own.
    "log_counters": "INSERT INTO log_counters (tenant_id, runs) SELECT $1, 0 WHERE $2::uuid IS NOT NULL",
    "log_leaves": "INSERT INTO log_leaves (tenant_id, leaf_id, place, kind, run_id, count, head)"
    " VALUES ($1, 1000000, NULL, 'moved', $2, 1, '')",
    "log_checkpoints": "INSERT INTO log_checkpoints (tenant_id, size, note)"
    " SELECT $1, 1, '' WHERE $2::uuid IS NOT NULL",
    "runs": "INSERT INTO runs (run_id, tenant_id, workspace_id, workflow, workflow_version, workflow_digest,"
    " trigger_type, trigger_ref, reference, requested_by, status)"
    " VALUES ($2, $1, 'w', 'w', 1, 'd', 't', $2::uuid::text, 'r', 'p', 'queued')",
    "searched": "INSERT INTO searched (tenant_id, name, value, run_id) VALUES ($1, 'n', 'v', $2)",
    "triggered": "INSERT INTO triggered (tenant_id, workflow, trigger_ref, reference, workspace_id, source,"
    " notification_id, outcome) VALUES ($1, 'w', $2::uuid::text, $2::uuid::text, 'w', 's', 'n', 'waiting')",
    "schedules": "INSERT INTO schedules (tenant_id, workflow, version, schedule, upto)"
    " VALUES ($1, $2::uuid::text, 1, '{}', now())",
    "families": "INSERT INTO families (root_run_id, tenant_id, writes, refused, asked) VALUES ($2, $1, 0, 0, 0)",
    "refusals": "INSERT INTO refusals (tenant_id, key, approval_id, run_id, groups, askers, by, reason, until)"
    " VALUES ($1, 'k', $2, $2, '{}', '{}', 'p', '', now())",
    "queue": "INSERT INTO queue (run_id, step_key, step_id, tenant_id, workspace_id, cap, starts_run, status, epoch)"
    " VALUES ($2, 'k', $2, $1, 'w', '', false, 'claimable', 0)",
    "effects": "INSERT INTO effects (tenant_id, key, run_id, step_key, receipt_id, status)"
    " VALUES ($1, $2::uuid::text, $2, 'k', $2, 'intended')",
    "approvals": "INSERT INTO approvals (approval_id, run_id, n, tenant_id, step_key, status, expires_at)"
    " VALUES ($2, $2, 1, $1, 'k', 'requested', now())",
    "votes": "INSERT INTO votes (approval_id, person_id, tenant_id, choice, reason, groups, channel)"
    " VALUES ($2, 'p', $1, 'approve', '', '{}', 'cli')",
    "waits": "INSERT INTO waits (wait_id, run_id, tenant_id, step_id, step_key, kind, status, token)"
    " VALUES ($2, $2, $1, $2, 'k', 'retry', 'waiting', 't')",
    "ledger": "INSERT INTO ledger (run_id, tenant_id, superstep, step_key, channel, value)"
    " VALUES ($2, $1, 0, 's', 'c', '1')",
    "records": "INSERT INTO records (tenant_id, collection, key, value, run_id)"
    " VALUES ($1, 'c', $2::uuid::text, '{}', $2)",
    "remains": "INSERT INTO remains (run_id, tenant_id, steps, receipts, extensions, questions)"
    " VALUES ($2, $1, '[]', '[]', '[]', '{}')",
    "inbox": "INSERT INTO inbox (tenant_id, source, notification_id, payload) VALUES ($1, 's', $2::uuid::text, '{}')",
    "commands": "INSERT INTO commands (command_id, tenant_id, run_id, kind, payload, status)"
    " VALUES ($2, $1, $2, 'card', '{}', 'pending')",
    "journal": "INSERT INTO journal (run_id, n, tenant_id, first_seq, lines) VALUES ($2, 1, $1, 0, '{}')",
    "audit_events": "INSERT INTO audit_events (stream_id, seq, tenant_id, type, line, hash)"
    " VALUES ($2, 0, $1, 't', '', '00')",
    "bundles": "INSERT INTO bundles (run_id, tenant_id, lines, name, uri, sha256, bytes, key_id)"
    " VALUES ($2, $1, 1, 'n', 'u', 's', 1, 'k')",
}  # fmt: skip
