"""Alembic migrations; applied by app.migrate."""
