-- What the next release changes in tables, columns, rights and triggers: one statement after the other, each ends with a semicolon.
-- The time of the latest line of a run: no later line goes back behind it, even if the clock does.
ALTER TABLE runs ADD COLUMN last_at timestamptz;
UPDATE runs SET last_at = now() WHERE finished_at IS NULL;
GRANT SELECT (last_at) ON runs TO counterseal_faces;
GRANT UPDATE (last_at) ON runs TO counterseal_engine;
