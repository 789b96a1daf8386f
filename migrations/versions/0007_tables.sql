-- What the next release changes in tables, columns, rights and triggers: one statement after the other, each ends with a semicolon.
-- A policy keeps the installation's own declarations that it was compiled against; null: it was published before that.
ALTER TABLE policies ADD COLUMN operations jsonb;
