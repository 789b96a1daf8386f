-- What the next release changes in tables, columns, rights and triggers: one statement after the other, each ends with a semicolon.
-- The counters of a run with all runs within it and behind it, kept from the start of the first of these on. They are
-- locked after the run's row, and each move of one of them is made in the append of the run that moves it.
CREATE TABLE families (
  root_run_id uuid NOT NULL, tenant_id text NOT NULL, writes int NOT NULL, refused int NOT NULL, asked int NOT NULL,
  number int DEFAULT '0' NOT NULL, writes_max int, same jsonb DEFAULT '{}' NOT NULL,
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
