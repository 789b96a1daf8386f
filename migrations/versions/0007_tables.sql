-- What the next release changes in tables, columns, rights and triggers: one statement after the other, each ends with a semicolon.
-- The marks of those who shaped a record. A record of an older release has none: then it is unknown who shaped it.
ALTER TABLE records ADD COLUMN shaped jsonb;
