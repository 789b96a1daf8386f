-- What the next release changes in tables, columns, rights and triggers: one statement after the other, each ends with a semicolon.
-- What has become of an approved action, as the run's fold says (`runtime.engine.ends`), and the code of that.
ALTER TABLE approvals ADD COLUMN outcome text, ADD COLUMN why text;
-- Who asks now (`runtime.engine.askers`): their open questions in the tenant are bounded.
ALTER TABLE approvals ADD COLUMN asker text;
CREATE INDEX ix_approvals_asker ON approvals (tenant_id, asker) WHERE status = 'requested' AND asker IS NOT NULL;
-- Rejections that bind in a tenant, by what they are about (`runtime.engine.refusals`).
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
