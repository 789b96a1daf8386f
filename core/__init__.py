"""What every package shares: ids, errors, canonical bytes, state machines, expressions, documents, the database."""
