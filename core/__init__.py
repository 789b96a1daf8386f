"""Shared by every package: ids, errors, canonical bytes, state machines, expressions, documents, the database."""
