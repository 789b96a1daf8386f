-- What the next release changes in tables, columns, rights and triggers: one statement after the other, each ends with a semicolon.
-- The counters of a run with all runs within it and behind it, kept from the start of the first of these on. They are
-- locked after the run's row, and each move of one of them is made in the append of the run that moves it.
CREATE TABLE families (
  root_run_id uuid NOT NULL, tenant_id text NOT NULL, writes int NOT NULL, refused int NOT NULL, asked int NOT NULL,
  number int DEFAULT '0' NOT NULL, writes_max int, same jsonb DEFAULT '{}' NOT NULL,
  failed jsonb DEFAULT '{}' NOT NULL, anew int DEFAULT '0' NOT NULL,
  CONSTRAINT pk_families PRIMARY KEY (root_run_id),
  CONSTRAINT fk_families_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (tenant_id)
) WITH (fillfactor = 75);
-- The run whose counters count for this one, too; null for a run that neither was started by another nor has started one.
ALTER TABLE runs ADD COLUMN root_run_id uuid;
GRANT UPDATE (root_run_id) ON runs TO counterseal_engine;
GRANT SELECT (root_run_id) ON runs TO counterseal_faces;
GRANT SELECT, INSERT, UPDATE ON families TO counterseal_engine;
GRANT SELECT, UPDATE ON families TO counterseal_appender;
GRANT SELECT ON families TO counterseal_faces;
ALTER TABLE families ENABLE ROW LEVEL SECURITY;
ALTER TABLE families FORCE ROW LEVEL SECURITY;
CREATE POLICY engine ON families TO counterseal_engine USING (true) WITH CHECK (true);
CREATE POLICY tenant ON families TO counterseal_faces, counterseal_appender USING (tenant_id = current_setting('counterseal.tenant', true)) WITH CHECK (tenant_id = current_setting('counterseal.tenant', true));
-- Why no run starts with a version yet: it waits for an admin. Null for one that runs may start with.
ALTER TABLE workflows ADD COLUMN waits_for text;
GRANT UPDATE (waits_for) ON workflows TO counterseal_faces;
-- What has become of an approved action, as the run's fold says (`runtime.engine.book.ends`), and the code of that.
ALTER TABLE approvals ADD COLUMN outcome text, ADD COLUMN why text;
-- Who asks now (`runtime.engine.book.refusals`): their open questions in the tenant are bounded.
ALTER TABLE approvals ADD COLUMN asker text;
CREATE INDEX ix_approvals_asker ON approvals (tenant_id, asker) WHERE status = 'requested' AND asker IS NOT NULL;
-- Rejections that bind in a tenant, by what they are about (`runtime.engine.book.refusals`).
CREATE TABLE refusals (
  tenant_id text NOT NULL, key text NOT NULL, approval_id uuid NOT NULL, run_id uuid NOT NULL, groups text[] NOT NULL,
  askers text[] NOT NULL, by text NOT NULL, reason text NOT NULL, at timestamptz DEFAULT now() NOT NULL,
  until timestamptz NOT NULL, CONSTRAINT pk_refusals PRIMARY KEY (tenant_id, key, approval_id)
);
ALTER TABLE refusals ENABLE ROW LEVEL SECURITY;
ALTER TABLE refusals FORCE ROW LEVEL SECURITY;
CREATE POLICY engine ON refusals TO counterseal_engine USING (true) WITH CHECK (true);
CREATE POLICY tenant ON refusals TO counterseal_faces, counterseal_appender
  USING (tenant_id = current_setting('counterseal.tenant', true))
  WITH CHECK (tenant_id = current_setting('counterseal.tenant', true));
GRANT SELECT, INSERT, UPDATE, DELETE ON refusals TO counterseal_engine;
GRANT SELECT ON refusals TO counterseal_faces;
GRANT SELECT, INSERT, DELETE ON refusals TO counterseal_appender;
-- How the question's card was delivered: `posted`, `short` (Slack took only its short form) or `refused`, and why then.
ALTER TABLE approvals ADD COLUMN card text, ADD COLUMN card_problem text;
-- The time of the latest line of a run: no later line goes back behind it, even if the clock does.
ALTER TABLE runs ADD COLUMN last_at timestamptz;
UPDATE runs SET last_at = now() WHERE finished_at IS NULL;
GRANT SELECT (last_at) ON runs TO counterseal_faces;
GRANT UPDATE (last_at) ON runs TO counterseal_engine;
-- A policy keeps the installation's own declarations that it was compiled against; null: it was published before that.
ALTER TABLE policies ADD COLUMN operations jsonb;
-- The marks of those who shaped a record. A record of an older release has none: then it is unknown who shaped it.
ALTER TABLE records ADD COLUMN shaped jsonb;
-- The person who requested a run, and the account that started it, as they were found when it started.
ALTER TABLE runs ADD COLUMN requester text;
ALTER TABLE runs ADD COLUMN started_by text;
GRANT SELECT (requester, started_by) ON runs TO counterseal_faces;
-- The hours in which a person hears nothing in private; null for none.
ALTER TABLE people ADD COLUMN quiet jsonb;
ALTER TABLE people ADD COLUMN manager text;
GRANT UPDATE (quiet) ON people TO counterseal_faces;
-- The newest notice to each operator of each topic: many of a kind become one message, which counts them.
CREATE TABLE notices (
  tenant_id text NOT NULL, person_id text NOT NULL, topic text NOT NULL, began_at timestamptz NOT NULL,
  channel text NOT NULL, message_ts text NOT NULL, count int NOT NULL,
  CONSTRAINT pk_notices PRIMARY KEY (tenant_id, person_id, topic)
);
ALTER TABLE notices ENABLE ROW LEVEL SECURITY;
ALTER TABLE notices FORCE ROW LEVEL SECURITY;
CREATE POLICY engine ON notices TO counterseal_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON notices TO counterseal_engine;

-- Logins to the console, and links that log in once. Only the SHA-256 of each is stored, so whoever reads the table can use
-- none of them. A login by a token ends with that token.
CREATE TABLE sessions (
  session_hash text NOT NULL, tenant_id text NOT NULL, subject text NOT NULL, roles text[] NOT NULL, token_hash text,
  kind text NOT NULL, created_at timestamptz DEFAULT now() NOT NULL, expires_at timestamptz NOT NULL, ended_at timestamptz,
  CONSTRAINT pk_sessions PRIMARY KEY (session_hash),
  CONSTRAINT fk_sessions_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (tenant_id)
);
CREATE INDEX ix_sessions_expires_at ON sessions (tenant_id, expires_at);
ALTER TABLE sessions ENABLE ROW LEVEL SECURITY;
ALTER TABLE sessions FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON sessions TO counterseal_faces USING (tenant_id = current_setting('counterseal.tenant', true)) WITH CHECK (tenant_id = current_setting('counterseal.tenant', true));
CREATE POLICY engine ON sessions TO counterseal_engine USING (true) WITH CHECK (true);
CREATE POLICY finder ON sessions FOR SELECT TO counterseal_finder USING (true);
GRANT SELECT, INSERT, DELETE ON sessions TO counterseal_faces;
GRANT UPDATE (ended_at) ON sessions TO counterseal_faces;
GRANT SELECT ON sessions TO counterseal_finder, counterseal_engine;
-- What is in force in a tenant, and its audit, change only together, by functions (link_line.sql).
REVOKE INSERT ON audit_events FROM counterseal_engine, counterseal_faces;
REVOKE INSERT ON policies FROM counterseal_faces;
REVOKE UPDATE ON tenants FROM counterseal_engine;
GRANT UPDATE (max_concurrency, max_runs_per_min, max_writes_per_run, weight, virtual_start, virtual_time, starts_left,
  starts_left_at) ON tenants TO counterseal_engine;
REVOKE UPDATE (policy_digests, paused, resumed, audit_count, audit_head) ON tenants FROM counterseal_faces;
GRANT INSERT ON audit_events TO counterseal_appender;
GRANT SELECT, INSERT ON policies TO counterseal_appender;
GRANT UPDATE (policy_digests, paused, resumed, judge_after, audit_count, audit_head) ON tenants TO counterseal_appender;
-- Every text of a directory that was published, as `policies` keeps those of policies. The tenant's audit says when each
-- was in use. Directories of an older release have no row: their texts were not kept.
CREATE TABLE directories (
  tenant_id text NOT NULL, digest text NOT NULL, name text NOT NULL, version int NOT NULL, source text NOT NULL,
  published_by text NOT NULL, published_at timestamptz DEFAULT now() NOT NULL,
  CONSTRAINT pk_directories PRIMARY KEY (tenant_id, digest),
  CONSTRAINT fk_directories_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (tenant_id)
);
ALTER TABLE directories ENABLE ROW LEVEL SECURITY;
ALTER TABLE directories FORCE ROW LEVEL SECURITY;
CREATE POLICY engine ON directories TO counterseal_engine USING (true) WITH CHECK (true);
CREATE POLICY tenant ON directories TO counterseal_faces, counterseal_appender
  USING (tenant_id = current_setting('counterseal.tenant', true))
  WITH CHECK (tenant_id = current_setting('counterseal.tenant', true));
GRANT SELECT ON directories TO counterseal_engine, counterseal_faces;
GRANT SELECT, INSERT ON directories TO counterseal_appender;
-- The events that a workflow heeds whose trigger looks at what is running, each once by its own reference: so what became
-- of it is the same however often it is delivered. Of one business reference at most one event waits; the others of its
-- window are merged into it.
CREATE TABLE triggered (
  tenant_id text NOT NULL, workflow text NOT NULL, trigger_ref text NOT NULL, reference text NOT NULL,
  workspace_id text NOT NULL, source text NOT NULL, notification_id text NOT NULL, outcome text NOT NULL,
  window_ref text, due_at timestamptz, run_id uuid, reason text, created_at timestamptz DEFAULT now() NOT NULL,
  CONSTRAINT pk_triggered PRIMARY KEY (tenant_id, workflow, trigger_ref),
  CONSTRAINT fk_triggered_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (tenant_id),
  CONSTRAINT ck_triggered_outcome CHECK (outcome IN ('waiting', 'merged', 'started', 'skipped', 'failed', 'missed'))
);
CREATE UNIQUE INDEX uq_triggered_waiting ON triggered (tenant_id, workflow, reference) WHERE outcome = 'waiting';
CREATE INDEX ix_triggered_due ON triggered (tenant_id, due_at) WHERE outcome = 'waiting';
CREATE INDEX ix_triggered_runs ON triggered (tenant_id, workflow, reference) WHERE run_id IS NOT NULL;
CREATE INDEX ix_triggered_window ON triggered (tenant_id, workflow, window_ref) WHERE window_ref IS NOT NULL;
ALTER TABLE triggered ENABLE ROW LEVEL SECURITY;
ALTER TABLE triggered FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON triggered TO counterseal_faces USING (tenant_id = current_setting('counterseal.tenant', true)) WITH CHECK (tenant_id = current_setting('counterseal.tenant', true));
CREATE POLICY engine ON triggered TO counterseal_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT ON triggered TO counterseal_engine, counterseal_faces;
GRANT UPDATE (outcome, due_at, run_id, reason, created_at) ON triggered TO counterseal_engine;
GRANT UPDATE (outcome) ON triggered TO counterseal_faces;
-- The runs that triggers have started and that are not over. Runs that people start are not in it.
CREATE INDEX ix_runs_triggered ON runs (tenant_id, workflow, reference)
  WHERE finished_at IS NULL AND trigger_type IN ('servicenow', 'schedule', 'webhook');
-- The list that a question belongs to (`runtime.engine.book.lists`); null for one that stands alone, as all did before.
ALTER TABLE approvals ADD COLUMN listed text;
-- 0007_functions.sql brings every function anew. These have other parameters or results than in 0006. The roles that own
-- functions never log in; they may create something only while this migration gives them what they own.
DROP FUNCTION append;
DROP FUNCTION replace_directory;
DROP FUNCTION append_to_run;
DROP FUNCTION open_run;
DROP FUNCTION order_message;
DROP FUNCTION read_run;
DROP FUNCTION read_question;
GRANT CREATE ON SCHEMA public TO counterseal_appender, counterseal_finder;

-- Each bundle holds the lines on which its run rests; the index has no others.
CREATE INDEX ix_audit_events_standing ON audit_events (tenant_id, seq) WHERE type IN ('pause.set', 'pause.lifted',
  'policy.published', 'policy.activated', 'policy.retired', 'directory.published');
-- The tenants' logs (docs/log.md): each row is a leaf, which nobody changes but to give it its place in the order. Columns
-- hold what its bytes are made of (evidence.log.leaves).
CREATE TABLE log_leaves (
  tenant_id text NOT NULL, leaf_id bigint GENERATED BY DEFAULT AS IDENTITY, place bigint, kind text NOT NULL, run_id uuid,
  number int, count bigint NOT NULL, head bytea NOT NULL, at timestamptz DEFAULT clock_timestamp() NOT NULL,
  CONSTRAINT pk_log_leaves PRIMARY KEY (tenant_id, leaf_id)
);
CREATE UNIQUE INDEX uq_log_leaves_place ON log_leaves (tenant_id, place) WHERE place IS NOT NULL;
CREATE INDEX ix_log_leaves_unordered ON log_leaves (tenant_id) WHERE place IS NULL;
CREATE INDEX ix_log_leaves_run ON log_leaves (run_id) WHERE run_id IS NOT NULL;
-- How many runs each tenant has opened: the number of the last one.
CREATE TABLE log_counters (
  tenant_id text NOT NULL, runs int NOT NULL, CONSTRAINT pk_log_counters PRIMARY KEY (tenant_id)
);
-- Copies of what the signer has signed, for those who ask. The signer itself believes only its own memory.
CREATE TABLE log_checkpoints (
  tenant_id text NOT NULL, size bigint NOT NULL, note bytea NOT NULL, at timestamptz DEFAULT now() NOT NULL,
  CONSTRAINT pk_log_checkpoints PRIMARY KEY (tenant_id, size)
);
ALTER TABLE log_leaves ENABLE ROW LEVEL SECURITY;
ALTER TABLE log_leaves FORCE ROW LEVEL SECURITY;
ALTER TABLE log_counters ENABLE ROW LEVEL SECURITY;
ALTER TABLE log_counters FORCE ROW LEVEL SECURITY;
ALTER TABLE log_checkpoints ENABLE ROW LEVEL SECURITY;
ALTER TABLE log_checkpoints FORCE ROW LEVEL SECURITY;
CREATE POLICY owner ON log_leaves TO CURRENT_USER USING (true) WITH CHECK (true);
CREATE POLICY owner ON log_counters TO CURRENT_USER USING (true) WITH CHECK (true);
CREATE POLICY engine ON log_leaves TO counterseal_engine USING (true) WITH CHECK (true);
CREATE POLICY engine ON log_counters TO counterseal_engine USING (true) WITH CHECK (true);
CREATE POLICY engine ON log_checkpoints TO counterseal_engine USING (true) WITH CHECK (true);
CREATE POLICY tenant ON log_leaves TO counterseal_faces, counterseal_appender
  USING (tenant_id = current_setting('counterseal.tenant', true)) WITH CHECK (tenant_id = current_setting('counterseal.tenant', true));
CREATE POLICY tenant ON log_counters TO counterseal_faces, counterseal_appender
  USING (tenant_id = current_setting('counterseal.tenant', true)) WITH CHECK (tenant_id = current_setting('counterseal.tenant', true));
CREATE POLICY tenant ON log_checkpoints TO counterseal_faces, counterseal_appender
  USING (tenant_id = current_setting('counterseal.tenant', true)) WITH CHECK (tenant_id = current_setting('counterseal.tenant', true));
GRANT SELECT ON log_leaves, log_counters, log_checkpoints TO counterseal_engine, counterseal_faces;
GRANT INSERT, UPDATE (note, at) ON log_checkpoints TO counterseal_engine;
-- Keepers look once a minute for open runs whose head has moved. An index of ranges is not written by each append.
CREATE INDEX ix_runs_last_at ON runs USING brin (last_at) WITH (pages_per_range = 16, autosummarize = on);
-- What an older release has recorded gets its leaves now: each run in the order of its start, each line of the tenants.
INSERT INTO log_leaves (tenant_id, kind, run_id, number, count, head)
  SELECT tenant_id, 'opened', run_id, row_number() OVER (PARTITION BY tenant_id ORDER BY created_at, run_id), audit_count,
    decode(audit_head, 'hex') FROM runs ORDER BY created_at, run_id;
INSERT INTO log_leaves (tenant_id, kind, run_id, count, head)
  SELECT tenant_id, k.kind, run_id, audit_count, decode(audit_head, 'hex') FROM runs CROSS JOIN LATERAL (
    SELECT 'closed' AS kind WHERE finished_at IS NOT NULL UNION ALL SELECT 'erased' WHERE purged_at IS NOT NULL) k
  ORDER BY created_at, run_id, k.kind;
CREATE POLICY owner ON audit_events TO CURRENT_USER USING (true);
INSERT INTO log_leaves (tenant_id, kind, count, head)
  SELECT tenant_id, 'told', seq + 1, decode(hash, 'hex') FROM audit_events ORDER BY tenant_id, seq;
DROP POLICY owner ON audit_events;
INSERT INTO log_counters (tenant_id, runs) SELECT tenant_id, count(*) FROM runs GROUP BY tenant_id;

-- What each tenant has outside (tenant.yaml): every version that was applied, and by whom. Secrets stand in it by reference.
CREATE TABLE tenant_settings (
  tenant_id text NOT NULL, version int NOT NULL, digest text NOT NULL, source text NOT NULL, applied_by text NOT NULL,
  applied_at timestamptz DEFAULT now() NOT NULL,
  CONSTRAINT pk_tenant_settings PRIMARY KEY (tenant_id, version),
  CONSTRAINT fk_tenant_settings_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (tenant_id)
);
ALTER TABLE tenant_settings ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenant_settings FORCE ROW LEVEL SECURITY;
CREATE POLICY engine ON tenant_settings TO counterseal_engine USING (true) WITH CHECK (true);
CREATE POLICY tenant ON tenant_settings TO counterseal_faces, counterseal_appender
  USING (tenant_id = current_setting('counterseal.tenant', true))
  WITH CHECK (tenant_id = current_setting('counterseal.tenant', true));
GRANT SELECT ON tenant_settings TO counterseal_engine, counterseal_faces;
GRANT SELECT, INSERT ON tenant_settings TO counterseal_appender;
ALTER TABLE tenants ADD COLUMN settings_version int;
GRANT UPDATE (settings_version) ON tenants TO counterseal_appender;
-- Targets that ask for no calls for a while (Retry-After), each with the time until which none goes out.
ALTER TABLE tenants ADD COLUMN busy jsonb;
GRANT UPDATE (busy) ON tenants TO counterseal_engine;
DROP TRIGGER stop_number ON tenants;
CREATE TRIGGER stop_number BEFORE UPDATE OF policy_digests, directory_digest, paused, settings_version, busy ON tenants
  FOR EACH ROW WHEN (OLD.policy_digests IS DISTINCT FROM NEW.policy_digests
    OR OLD.directory_digest IS DISTINCT FROM NEW.directory_digest OR OLD.paused IS DISTINCT FROM NEW.paused
    OR OLD.settings_version IS DISTINCT FROM NEW.settings_version OR OLD.busy IS DISTINCT FROM NEW.busy)
  EXECUTE FUNCTION move_stop_number();

-- Delegations: who may decide for a person, from when until when; and for whom a vote was given, if not for its voter.
ALTER TABLE people ADD COLUMN delegate jsonb;
ALTER TABLE votes ADD COLUMN on_behalf text;

-- Step-up: a login anew for one question is a session of its own kind; how the person was established then.
ALTER TABLE sessions ADD COLUMN method text;

-- Break-glass: a vote that alone lets an action out, and who has reviewed it. Until then there is no other in the tenant.
ALTER TABLE votes ADD COLUMN glass boolean, ADD COLUMN reviewed_by text, ADD COLUMN reviewed_at timestamptz;
CREATE UNIQUE INDEX ix_votes_unreviewed ON votes (tenant_id) WHERE glass AND reviewed_at IS NULL;
-- Declarations of operations, as they were published in each tenant. Of each name the newest version is what workflows and
-- policies are compiled against; a run acts by the one that was frozen with its workflow.
CREATE TABLE operations (
  tenant_id text NOT NULL, name text NOT NULL, version int NOT NULL, digest text NOT NULL, source text NOT NULL,
  published_by text NOT NULL, published_at timestamptz DEFAULT now() NOT NULL,
  CONSTRAINT pk_operations PRIMARY KEY (tenant_id, name, version),
  CONSTRAINT fk_operations_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (tenant_id)
);
ALTER TABLE operations ENABLE ROW LEVEL SECURITY;
ALTER TABLE operations FORCE ROW LEVEL SECURITY;
CREATE POLICY engine ON operations TO counterseal_engine USING (true) WITH CHECK (true);
CREATE POLICY tenant ON operations TO counterseal_faces, counterseal_appender
  USING (tenant_id = current_setting('counterseal.tenant', true))
  WITH CHECK (tenant_id = current_setting('counterseal.tenant', true));
GRANT SELECT ON operations TO counterseal_engine, counterseal_faces;
GRANT SELECT, INSERT ON operations TO counterseal_appender;
-- Schedules: of each workflow that has one, up to which moment all is decided, and the next one. Its moments are in
-- triggered. A keeper alone writes it. What an older release has published has none.
ALTER TABLE workflows ADD COLUMN schedule jsonb, ADD COLUMN startable_at timestamptz;
GRANT UPDATE (startable_at) ON workflows TO counterseal_faces;
CREATE INDEX ix_workflows_schedule ON workflows (tenant_id, name, version) WHERE schedule IS NOT NULL AND retired_at IS NULL;
CREATE TABLE schedules (
  tenant_id text NOT NULL, workflow text NOT NULL, version int NOT NULL, schedule jsonb NOT NULL,
  upto timestamptz NOT NULL, next_at timestamptz,
  CONSTRAINT pk_schedules PRIMARY KEY (tenant_id, workflow),
  CONSTRAINT fk_schedules_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (tenant_id)
);
CREATE INDEX ix_schedules_due ON schedules (next_at) WHERE next_at IS NOT NULL;
ALTER TABLE schedules ENABLE ROW LEVEL SECURITY;
ALTER TABLE schedules FORCE ROW LEVEL SECURITY;
CREATE POLICY engine ON schedules TO counterseal_engine USING (true) WITH CHECK (true);
CREATE POLICY tenant ON schedules TO counterseal_faces USING (tenant_id = current_setting('counterseal.tenant', true));
GRANT SELECT, INSERT, UPDATE ON schedules TO counterseal_engine;
GRANT SELECT ON schedules TO counterseal_faces;
-- Actions of agents: under which keys an account has asked for a call, and the run that does it. `call` is the digest of
-- operation and input, `policies` that of the policies in force when it was asked for. `began`: the key has begun the
-- run; others are attached to it.
CREATE TABLE actions (
  tenant_id text NOT NULL, account text NOT NULL, key text NOT NULL, call text NOT NULL, run_id uuid NOT NULL,
  session text NOT NULL, policies text NOT NULL, asked_at timestamptz DEFAULT clock_timestamp() NOT NULL,
  began bool DEFAULT true NOT NULL,
  CONSTRAINT pk_actions PRIMARY KEY (tenant_id, account, key),
  CONSTRAINT fk_actions_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (tenant_id)
);
CREATE INDEX ix_actions_call ON actions (tenant_id, account, call, run_id);
CREATE INDEX ix_actions_session ON actions (tenant_id, account, session, run_id);
CREATE INDEX ix_actions_asked ON actions (tenant_id, account, asked_at) WHERE began;
CREATE INDEX ix_actions_run ON actions (run_id);
ALTER TABLE actions ENABLE ROW LEVEL SECURITY;
ALTER TABLE actions FORCE ROW LEVEL SECURITY;
CREATE POLICY engine ON actions TO counterseal_engine USING (true) WITH CHECK (true);
CREATE POLICY tenant ON actions TO counterseal_faces USING (tenant_id = current_setting('counterseal.tenant', true))
  WITH CHECK (tenant_id = current_setting('counterseal.tenant', true));
GRANT SELECT, INSERT ON actions TO counterseal_faces;
GRANT SELECT, DELETE ON actions TO counterseal_engine;
-- Migrations: the version of its workflow to which a run was moved last, for lists. Its book tells it.
ALTER TABLE runs ADD COLUMN migrated_to int;
GRANT SELECT (migrated_to) ON runs TO counterseal_faces;
-- The values by which runs are found, as their workflows say (`search`). They go with the values of their runs.
CREATE TABLE searched (
  tenant_id text NOT NULL, name text NOT NULL, value text NOT NULL, run_id uuid NOT NULL,
  CONSTRAINT pk_searched PRIMARY KEY (tenant_id, name, value, run_id),
  CONSTRAINT fk_searched_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (run_id),
  CONSTRAINT ck_searched_value CHECK (length(value) BETWEEN 1 AND 200)
);
CREATE INDEX ix_searched_run ON searched (run_id);
ALTER TABLE searched ENABLE ROW LEVEL SECURITY;
ALTER TABLE searched FORCE ROW LEVEL SECURITY;
CREATE POLICY engine ON searched TO counterseal_engine USING (true) WITH CHECK (true);
CREATE POLICY tenant ON searched TO counterseal_faces, counterseal_appender
  USING (tenant_id = current_setting('counterseal.tenant', true))
  WITH CHECK (tenant_id = current_setting('counterseal.tenant', true));
GRANT SELECT ON searched TO counterseal_faces;
GRANT INSERT ON searched TO counterseal_appender;
GRANT SELECT, DELETE ON searched TO counterseal_engine;
-- Agents: the runs of each, those that are open and those that have just ended: for its limits, for what policies count,
-- and for its questions when its last token ends.
CREATE INDEX ix_runs_agents ON runs (tenant_id, lower(requested_by), finished_at) WHERE trigger_type = 'agent';
-- Turns at targets with a rate: a call that was let out in the last minute, or one that is kept for a step that waits.
CREATE TABLE turns (
  tenant_id text NOT NULL, target text NOT NULL, number bigint NOT NULL, step_id uuid NOT NULL, at timestamptz NOT NULL,
  used boolean NOT NULL,
  CONSTRAINT pk_turns PRIMARY KEY (tenant_id, target, number),
  CONSTRAINT fk_turns_tenant_id_tenants FOREIGN KEY(tenant_id) REFERENCES tenants (tenant_id)
);
ALTER TABLE turns ENABLE ROW LEVEL SECURITY;
ALTER TABLE turns FORCE ROW LEVEL SECURITY;
CREATE POLICY engine ON turns TO counterseal_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON turns TO counterseal_engine;
-- Since when the step of a turn has waited for it.
ALTER TABLE turns ADD COLUMN since timestamptz DEFAULT now() NOT NULL;
GRANT SELECT ON turns TO counterseal_faces;
CREATE POLICY tenant ON turns TO counterseal_faces USING (tenant_id = current_setting('counterseal.tenant', true));
