"""The tables, as SQLAlchemy metadata. Alembic's migrations are held against this package by a test.

Large values (inputs, states, outputs) live in rows that are written once; rows that change often (runs, steps) stay
small. Every table that belongs to a tenant carries ``tenant_id`` and is under row-level security.
"""

from __future__ import annotations

from runtime.store.schema.columns import metadata
from runtime.store.schema.execution import (
    commands,
    inbox,
    journal,
    ledger,
    queue,
    remains,
    runs,
    waits,
)
from runtime.store.schema.governance import approvals, audit_events, bundles, effects, votes
from runtime.store.schema.tenancy import caps, group_members, people, policies, tenants, tokens, workflows, workspaces

__all__ = [
    "TENANT_TABLES",
    "approvals",
    "audit_events",
    "bundles",
    "caps",
    "commands",
    "effects",
    "group_members",
    "inbox",
    "journal",
    "ledger",
    "metadata",
    "people",
    "policies",
    "queue",
    "remains",
    "runs",
    "tenants",
    "tokens",
    "votes",
    "waits",
    "workflows",
    "workspaces",
]

TENANT_TABLES = tuple(table for table in metadata.sorted_tables if "tenant_id" in table.c)
