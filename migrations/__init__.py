"""Alembic migrations; applied by app.storage."""
