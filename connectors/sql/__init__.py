"""One PostgreSQL as an outside system: rows of declared tables."""
