-- What the next release changes in tables, columns, rights and triggers: one statement after the other, each ends with a semicolon.
-- The marks of those who shaped a record. A record of an older release has none: then it is unknown who shaped it.
ALTER TABLE records ADD COLUMN shaped jsonb;
-- The person who requested a run, and the account that started it, as they were found when it started.
ALTER TABLE runs ADD COLUMN requester text;
ALTER TABLE runs ADD COLUMN started_by text;
GRANT SELECT (requester, started_by) ON runs TO counterseal_faces;
