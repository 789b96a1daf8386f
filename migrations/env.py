"""Alembic's entry: runs on the connection that app.migrate hands over."""

from __future__ import annotations

from alembic import context

from runtime.store.schema import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, compare_type=True, transaction_per_migration=False)
with context.begin_transaction():
    context.run_migrations()
