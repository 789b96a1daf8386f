-- What the next release changes in tables, columns, rights and triggers: one statement after the other, each ends with a semicolon.
-- What has become of an approved action, as the run's fold says (`runtime.engine.ends`), and the code of that.
ALTER TABLE approvals ADD COLUMN outcome text, ADD COLUMN why text;
