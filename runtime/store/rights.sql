-- The rights of each role on tables and columns, after all migrations. Each function names its callers itself. Nothing
-- runs this file: a test applies it to a database without rights, and compares the result with a migrated one. Only the
-- owner of the database, who migrates it, may do more.

-- The login of the workers and keepers. It sees every tenant. Lines and values of a book are never changed, and
-- only purge_records deletes values, after their retention. Nobody may delete an effect. No login may write a leaf
-- of a log: triggers do, and order_leaves gives it its place.
GRANT SELECT ON alembic_version, audit_events, caps, directories, group_members, log_checkpoints, log_counters, log_leaves,
  operations, people, policies, run_lines, runs, sessions, tenant_settings, tenants, tokens, unavailable,
  workflows TO counterseal_engine;
GRANT INSERT, UPDATE (note, at) ON log_checkpoints TO counterseal_engine;
GRANT SELECT, DELETE ON actions TO counterseal_engine;
GRANT SELECT, INSERT ON bundles, journal, ledger, remains, triggered TO counterseal_engine;
GRANT UPDATE (outcome, due_at, run_id, reason, created_at) ON triggered TO counterseal_engine;
GRANT UPDATE (max_concurrency, max_runs_per_min, max_writes_per_run, weight, virtual_start, virtual_time, starts_left,
  starts_left_at, busy) ON tenants TO counterseal_engine;
GRANT SELECT, INSERT, UPDATE ON approvals, commands, effects, families, inbox, schedules, votes, waits, workspaces TO
  counterseal_engine;
GRANT SELECT, DELETE ON searched TO counterseal_engine;
GRANT SELECT, INSERT, UPDATE, DELETE ON notices, queue, records, refusals, turns TO counterseal_engine;
GRANT UPDATE (starts_left, starts_left_at) ON caps TO counterseal_engine;
GRANT UPDATE (workspace_id, workflow, workflow_version, workflow_digest, trigger_type, trigger_ref, reference,
  requested_by, status, version, superstep, executing, width, writes, gate, extensions, audit_count, audit_head,
  state, state_n, error, canceling, result, parent_run_id, depth, cap, started_at, finished_at, deadline_at, purge_at,
  open_until, root_run_id, last_at) ON runs TO counterseal_engine;

-- The login of the HTTP service and of Slack. Row-level security shows it the tenant of its transaction, and nothing
-- without one. It changes runs only through append_to_run, open_run and order_message (functions/). It cannot read the
-- folded state of a run (runs.state): only read_run and read_question do.
GRANT SELECT ON alembic_version, approvals, audit_events, bundles, caps, commands, directories, effects, families,
  group_members, journal, ledger, log_checkpoints, log_counters, log_leaves, operations, people, policies, queue, records,
  refusals, remains, run_lines, schedules, searched, tenant_settings, tenants, turns, votes, waits, workspaces TO counterseal_faces;
GRANT SELECT, INSERT ON actions, inbox, tokens, triggered, workflows TO counterseal_faces;
GRANT UPDATE (outcome) ON triggered TO counterseal_faces;
GRANT SELECT, INSERT, DELETE ON sessions, unavailable TO counterseal_faces;
GRANT UPDATE (ended_at) ON sessions TO counterseal_faces;
GRANT INSERT (tenant_id, cap, slots, max_runs_per_min) ON caps TO counterseal_faces;
GRANT UPDATE (slots, max_runs_per_min) ON caps TO counterseal_faces;
GRANT UPDATE (quiet) ON people TO counterseal_faces;
GRANT UPDATE (result, processed_at) ON inbox TO counterseal_faces;
GRANT SELECT (run_id, tenant_id, workspace_id, workflow, workflow_version, workflow_digest, trigger_type, trigger_ref,
  reference, requested_by, status, version, superstep, executing, width, writes, gate, extensions, audit_count,
  audit_head, state_n, run_key, error, canceling, result, parent_run_id, depth, cap, inherits, created_at, started_at,
  finished_at, deadline_at, retention, purge_at, open_until, purged_at, root_run_id, last_at, requester, started_by,
  migrated_to) ON runs TO counterseal_faces;
GRANT INSERT (tenant_id, stream_id) ON tenants TO counterseal_faces;
GRANT UPDATE (max_concurrency, max_runs_per_min, max_writes_per_run, weight) ON tenants TO counterseal_faces;
GRANT UPDATE (revoked_at) ON tokens TO counterseal_faces;
GRANT UPDATE (reason) ON unavailable TO counterseal_faces;
GRANT UPDATE (retired_at, startable_at, waits_for) ON workflows TO counterseal_faces;

-- The owner of the functions that faces call. It never logs in; row-level security binds it to the tenant that each
-- function sets. A row lock needs UPDATE.
GRANT SELECT ON caps, remains, tenants, workflows TO counterseal_appender;
GRANT SELECT, INSERT ON audit_events, commands, directories, journal, ledger, operations, policies, tenant_settings,
  workspaces TO counterseal_appender;
GRANT SELECT, UPDATE ON approvals, effects, families, waits TO counterseal_appender;
GRANT INSERT ON searched TO counterseal_appender;
GRANT SELECT, INSERT, DELETE ON group_members, people, queue, refusals TO counterseal_appender;
GRANT SELECT, INSERT, UPDATE ON runs, votes TO counterseal_appender;
GRANT UPDATE (created_at) ON queue TO counterseal_appender;
GRANT UPDATE (policy_digests, directory_digest, paused, resumed, judge_after, settings_version, audit_count,
  audit_head) ON tenants TO counterseal_appender;

-- The owner of token_owner, session_owner and approval_owner, which look up a tenant by a key that cannot be guessed. It never logs
-- in.
GRANT SELECT ON approvals, people, sessions, tokens TO counterseal_finder;
