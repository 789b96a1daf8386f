-- Every table names its tenant. Where the statement that writes a row takes its run and its tenant from rows that are
-- checked, there is no foreign key to these: it would lock the run's row once more in each append, and the tenant's row,
-- at which all commits of a tenant would meet every claim.
-- Rows that change often (runs, queue) are small, and have room beside them; large values stand in rows written once.
CREATE TABLE audit_events (
  stream_id uuid NOT NULL, seq bigint NOT NULL, tenant_id text NOT NULL, type text NOT NULL, line bytea NOT NULL,
  hash text NOT NULL, CONSTRAINT pk_audit_events PRIMARY KEY (stream_id, seq)
);
-- `stop_number` moves with `policy_digests` and `paused`, and guards every intent. `paused` holds what is stopped, by key;
-- `resumed` are keys whose steps a keeper has still to set going, `judge_after` is how far it has come with the open
-- questions, which the new policy judges, and whose cards say what is paused.
CREATE TABLE tenants (
  tenant_id text NOT NULL, policy_digests text[] DEFAULT '{}' NOT NULL, directory_digest text, stop_number int DEFAULT '0' NOT NULL,
  paused jsonb, resumed text[], judge_after uuid, max_concurrency int DEFAULT '16' NOT NULL, max_runs_per_min int,
  max_writes_per_run int, weight double precision DEFAULT '1' NOT NULL,
  virtual_start double precision DEFAULT '0' NOT NULL, virtual_time double precision DEFAULT '0' NOT NULL,
  starts_left double precision, starts_left_at timestamptz, stream_id uuid NOT NULL,
  audit_count bigint DEFAULT '0' NOT NULL,
  audit_head text DEFAULT '0000000000000000000000000000000000000000000000000000000000000000' NOT NULL,
  created_at timestamptz DEFAULT now() NOT NULL, CONSTRAINT pk_tenants PRIMARY KEY (tenant_id),
  CONSTRAINT ck_tenants_weight_is_positive CHECK (weight > 0)
);
-- How many steps of a workflow may be held at once, and how many of its runs may start in a minute, where it has a cap
-- of its own beside its tenant's.
CREATE TABLE caps (
  tenant_id text NOT NULL, cap text NOT NULL, slots int, max_runs_per_min int, starts_left double precision,
  starts_left_at timestamptz, CONSTRAINT pk_caps PRIMARY KEY (tenant_id, cap),
  CONSTRAINT fk_caps_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (tenant_id)
);
CREATE TABLE group_members (
  tenant_id text NOT NULL, group_name text NOT NULL, person_id text NOT NULL,
  CONSTRAINT pk_group_members PRIMARY KEY (tenant_id, group_name, person_id),
  CONSTRAINT fk_group_members_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (tenant_id)
);
CREATE TABLE inbox (
  tenant_id text NOT NULL, source text NOT NULL, notification_id text NOT NULL, payload jsonb NOT NULL, result jsonb,
  correlation_key text, received_at timestamptz DEFAULT now() NOT NULL, processed_at timestamptz,
  CONSTRAINT pk_inbox PRIMARY KEY (tenant_id, source, notification_id),
  CONSTRAINT fk_inbox_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (tenant_id)
);
CREATE INDEX ix_inbox_correlation ON inbox (tenant_id, correlation_key) WHERE correlation_key IS NOT NULL;
CREATE INDEX ix_inbox_kept ON inbox (tenant_id, correlation_key, received_at) WHERE processed_at IS NULL AND
  correlation_key IS NOT NULL;
CREATE INDEX ix_inbox_open ON inbox (received_at) WHERE processed_at IS NULL;
-- The people of a tenant, and its service accounts: those have an `owner`, who is one of the people.
CREATE TABLE people (
  tenant_id text NOT NULL, person_id text NOT NULL, name text NOT NULL, active boolean DEFAULT 'true' NOT NULL,
  owner text, principals text[] DEFAULT '{}' NOT NULL, CONSTRAINT pk_people PRIMARY KEY (tenant_id, person_id),
  CONSTRAINT fk_people_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (tenant_id)
);
CREATE TABLE policies (
  tenant_id text NOT NULL, digest text NOT NULL, name text NOT NULL, version int NOT NULL, source text NOT NULL,
  published_by text NOT NULL, published_at timestamptz DEFAULT now() NOT NULL,
  CONSTRAINT pk_policies PRIMARY KEY (tenant_id, digest),
  CONSTRAINT fk_policies_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (tenant_id)
);
-- `gate` moves with what does not commute: a barrier, a cancel, an extension. `state` is the run as the append `state_n`
-- left it, a cache of the book. `run_key` opens the book's commitments to its values; erasure removes it.
-- A row is up to 2 kB long (a longer `state` is stored apart). PostgreSQL clears a page of old versions as soon as less
-- than a quarter of it is free, so the next version always finds room beside the last one, and no index is written.
CREATE TABLE runs (
  run_id uuid NOT NULL, tenant_id text NOT NULL, workspace_id text NOT NULL, workflow text NOT NULL,
  workflow_version int NOT NULL, workflow_digest text NOT NULL, trigger_type text NOT NULL, trigger_ref text NOT NULL,
  reference text NOT NULL, requested_by text NOT NULL, status text NOT NULL, version int DEFAULT '1' NOT NULL,
  superstep int DEFAULT '0' NOT NULL, executing int DEFAULT '0' NOT NULL, width int DEFAULT '0' NOT NULL,
  writes int DEFAULT '0' NOT NULL, gate int DEFAULT '0' NOT NULL, extensions int DEFAULT '0' NOT NULL,
  audit_count int DEFAULT '0' NOT NULL,
  audit_head text DEFAULT '0000000000000000000000000000000000000000000000000000000000000000' NOT NULL, state bytea,
  state_n int DEFAULT '0' NOT NULL, run_key bytea, error jsonb, canceling jsonb, result jsonb, parent_run_id uuid,
  depth int DEFAULT '0' NOT NULL, cap text DEFAULT '' NOT NULL, inherits bool DEFAULT false NOT NULL, created_at timestamptz DEFAULT now() NOT NULL,
  started_at timestamptz, finished_at timestamptz, deadline_at timestamptz, retention interval, purge_at timestamptz,
  open_until timestamptz,
  purged_at timestamptz, CONSTRAINT pk_runs PRIMARY KEY (run_id),
  CONSTRAINT uq_runs_tenant_id_workflow_trigger_type_trigger_ref UNIQUE (tenant_id, workflow, trigger_type, trigger_ref)
) WITH (fillfactor = 75);
CREATE INDEX ix_runs_children ON runs (parent_run_id) WHERE parent_run_id IS NOT NULL;
-- Few runs wait for more steps or hold copies: what a sweep looks for among them.
CREATE INDEX ix_runs_special ON runs (run_id)
  WHERE inherits AND purged_at IS NULL OR open_until IS NOT NULL AND finished_at IS NULL;
CREATE INDEX ix_runs_purge ON runs (tenant_id, purge_at) WHERE purge_at IS NOT NULL;
CREATE INDEX ix_runs_recent ON runs (tenant_id, created_at, run_id);
CREATE TABLE tokens (
  token_hash text NOT NULL, tenant_id text NOT NULL, subject text NOT NULL, roles text[] NOT NULL,
  created_at timestamptz DEFAULT now() NOT NULL, expires_at timestamptz DEFAULT now() + interval '90 days' NOT NULL,
  revoked_at timestamptz, CONSTRAINT pk_tokens PRIMARY KEY (token_hash),
  CONSTRAINT fk_tokens_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (tenant_id)
);
-- What the last start could not use, and why. `place` is a file, or what was published before.
CREATE TABLE unavailable (
  tenant_id text NOT NULL, place text NOT NULL, kind text NOT NULL, name text NOT NULL, reason text NOT NULL,
  found_at timestamptz DEFAULT now() NOT NULL, CONSTRAINT pk_unavailable PRIMARY KEY (tenant_id, place),
  CONSTRAINT fk_unavailable_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (tenant_id)
);
CREATE TABLE workflows (
  tenant_id text NOT NULL, name text NOT NULL, version int NOT NULL, digest text NOT NULL, source text NOT NULL,
  operations jsonb NOT NULL, published_by text NOT NULL, published_at timestamptz DEFAULT now() NOT NULL,
  retired_at timestamptz, CONSTRAINT pk_workflows PRIMARY KEY (tenant_id, name, version),
  CONSTRAINT fk_workflows_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (tenant_id)
);
-- Tenants take turns, and within a tenant its workspaces: see `runtime.store.claims`.
CREATE TABLE workspaces (
  tenant_id text NOT NULL, workspace_id text NOT NULL, weight double precision DEFAULT '1' NOT NULL,
  virtual_start double precision DEFAULT '0' NOT NULL, virtual_time double precision DEFAULT '0' NOT NULL,
  CONSTRAINT pk_workspaces PRIMARY KEY (tenant_id, workspace_id),
  CONSTRAINT ck_workspaces_weight_is_positive CHECK (weight > 0),
  CONSTRAINT fk_workspaces_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (tenant_id)
);
-- What was asked stands in the book of the run: in its append `n`.
CREATE TABLE approvals (
  approval_id uuid NOT NULL, run_id uuid NOT NULL, n int NOT NULL, tenant_id text NOT NULL, step_key text NOT NULL,
  created_at timestamptz DEFAULT now() NOT NULL, expires_at timestamptz NOT NULL, status text NOT NULL, choice text,
  reason text, escalated boolean DEFAULT 'false' NOT NULL, channel text, message_ts text, decided_at timestamptz,
  consumed_at timestamptz, CONSTRAINT pk_approvals PRIMARY KEY (approval_id)
) WITH (fillfactor = 80);
CREATE INDEX ix_approvals_open ON approvals (tenant_id, approval_id) WHERE status = 'requested';
CREATE INDEX ix_approvals_run ON approvals (run_id);
-- `lines`: how many lines of the run's book it holds. A late answer after the end makes a longer edition.
CREATE TABLE bundles (
  run_id uuid NOT NULL, tenant_id text NOT NULL, name text NOT NULL, uri text NOT NULL, version_id text, lines int NOT NULL,
  sha256 text NOT NULL, bytes bigint NOT NULL, key_id text NOT NULL, created_at timestamptz DEFAULT now() NOT NULL,
  CONSTRAINT pk_bundles PRIMARY KEY (run_id, lines)
);
CREATE TABLE commands (
  command_id uuid NOT NULL, run_id uuid NOT NULL, tenant_id text NOT NULL, kind text NOT NULL,
  payload jsonb NOT NULL, ordering_key text, status text NOT NULL, lease_owner text, lease_expires_at timestamptz,
  attempts int DEFAULT '0' NOT NULL, last_error text, next_attempt_at timestamptz,
  created_at timestamptz DEFAULT now() NOT NULL, CONSTRAINT pk_commands PRIMARY KEY (command_id)
);
CREATE INDEX ix_commands_behind ON commands (ordering_key) WHERE status = 'pending' AND ordering_key IS NOT NULL;
CREATE INDEX ix_commands_failed ON commands (tenant_id, kind) WHERE status = 'failed';
CREATE INDEX ix_commands_messages ON commands (tenant_id, kind, coalesce(next_attempt_at, created_at))
  WHERE status = 'pending';
CREATE UNIQUE INDEX ix_commands_one_at_a_time ON commands (ordering_key) WHERE status = 'leased';
-- One row for each key that steps and runs share. It outlives what retention takes of its run: no effect is repeated.
CREATE TABLE effects (
  tenant_id text NOT NULL, key text NOT NULL, run_id uuid NOT NULL, step_key text NOT NULL, receipt_id uuid NOT NULL,
  status text NOT NULL, holder uuid, wait_id uuid, CONSTRAINT pk_effects PRIMARY KEY (tenant_id, key)
) WITH (fillfactor = 80);
CREATE INDEX ix_effects_run ON effects (run_id);
-- The book of a run: a row for each append, numbered by the version that it made. Erasure removes `vals` alone.
CREATE TABLE journal (
  run_id uuid NOT NULL, tenant_id text NOT NULL, n int NOT NULL, first_seq int NOT NULL, lines bytea NOT NULL,
  vals bytea, CONSTRAINT pk_journal PRIMARY KEY (run_id, n)
);
ALTER TABLE journal ALTER lines SET STORAGE MAIN, ALTER vals SET STORAGE MAIN;
-- Every write to a channel that is declared with a ledger, however few the channel itself keeps.
CREATE TABLE ledger (
  run_id uuid NOT NULL, tenant_id text NOT NULL, superstep int NOT NULL, step_key text NOT NULL,
  channel text NOT NULL, value jsonb, written_at timestamptz DEFAULT now() NOT NULL,
  CONSTRAINT pk_ledger PRIMARY KEY (run_id, superstep, step_key, channel)
);
-- A tenant's own JSON records. They live until a step removes them: no run owns them, and no run's retention ends them.
CREATE TABLE records (
  tenant_id text NOT NULL, collection text NOT NULL, key text COLLATE "C" NOT NULL, value jsonb NOT NULL,
  version int DEFAULT '1' NOT NULL, run_id uuid NOT NULL, changed_at timestamptz DEFAULT now() NOT NULL,
  CONSTRAINT pk_records PRIMARY KEY (tenant_id, collection, key)
);
-- What workers take: a row for each step that can be begun, is on its way to a worker, or is held by one. The row is the
-- lease, and a row that is sent or leased is a slot of its tenant, and of its workflow where that has a cap. `step_id`
-- begins with its run's time, so it is the step's place in line too. `lease_id` is drawn anew for each claim; a row in
-- line again keeps that of its last lease, so that a late outcome can tell that nobody has a newer one. PostgreSQL reads
-- a constraint anew for every statement, so this one is short.
CREATE FUNCTION held_by_somebody(status text, owner text, lease_id uuid, expires_at timestamptz) RETURNS boolean
  LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN CASE status WHEN 'claimable' THEN owner IS NULL AND expires_at IS NULL
  WHEN 'sent' THEN owner IS NOT NULL AND expires_at IS NOT NULL
  WHEN 'leased' THEN owner IS NOT NULL AND expires_at IS NOT NULL AND lease_id IS NOT NULL ELSE false END; END $$;
CREATE TABLE queue (
  run_id uuid NOT NULL, tenant_id text NOT NULL, step_key text NOT NULL, step_id uuid NOT NULL,
  workspace_id text NOT NULL, cap text NOT NULL, starts_run boolean NOT NULL, status text NOT NULL, owner text,
  lease_id uuid, epoch int NOT NULL, expires_at timestamptz, created_at timestamptz DEFAULT now() NOT NULL,
  CONSTRAINT pk_queue PRIMARY KEY (run_id, step_key),
  CONSTRAINT ck_queue_held_by_somebody CHECK (held_by_somebody(status, owner, lease_id, expires_at))
) WITH (fillfactor = 60);
CREATE INDEX ix_queue_held ON queue (tenant_id, cap) WHERE status <> 'claimable';
CREATE INDEX ix_queue_line ON queue (tenant_id, workspace_id, cap, starts_run, step_id) WHERE status = 'claimable';
CREATE INDEX ix_queue_sent ON queue (step_id) WHERE status = 'sent';
-- What is still shown of a run whose values retention has taken: without them nobody can fold its book.
CREATE TABLE remains (
  run_id uuid NOT NULL, tenant_id text NOT NULL, steps jsonb NOT NULL, receipts jsonb NOT NULL,
  extensions jsonb NOT NULL, questions jsonb NOT NULL, CONSTRAINT pk_remains PRIMARY KEY (run_id)
);
CREATE TABLE waits (
  wait_id uuid NOT NULL, run_id uuid NOT NULL, tenant_id text NOT NULL, step_id uuid NOT NULL, step_key text NOT NULL,
  kind text NOT NULL, status text NOT NULL, token text NOT NULL, correlation_key text,
  parked boolean DEFAULT 'true' NOT NULL, context jsonb, result jsonb, channel text, message_ts text,
  due_at timestamptz, created_at timestamptz DEFAULT now() NOT NULL, completed_at timestamptz,
  CONSTRAINT pk_waits PRIMARY KEY (wait_id)
);
CREATE INDEX ix_waits_correlation ON waits (tenant_id, correlation_key) WHERE correlation_key IS NOT NULL;
CREATE INDEX ix_waits_due ON waits (tenant_id, due_at) WHERE status = 'waiting';
CREATE INDEX ix_waits_paused ON waits (tenant_id, (context ->> 'paused'))
  WHERE kind IN ('pause', 'shared') AND status = 'waiting';
CREATE INDEX ix_waits_open ON waits (run_id) WHERE status = 'waiting';
CREATE INDEX ix_waits_tasks ON waits (tenant_id, wait_id) WHERE kind = 'task';
CREATE TABLE votes (
  approval_id uuid NOT NULL, person_id text NOT NULL, tenant_id text NOT NULL, choice text NOT NULL,
  reason text NOT NULL, groups text[] NOT NULL, channel text NOT NULL, voted_at timestamptz DEFAULT now() NOT NULL,
  CONSTRAINT pk_votes PRIMARY KEY (approval_id, person_id)
);
