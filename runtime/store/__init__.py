"""PostgreSQL: the schema, commits, claims, read models. All SQL of the engine lives here."""
