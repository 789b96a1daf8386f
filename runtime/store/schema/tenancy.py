"""Tenants with their caps, people and rights, and the documents that they published."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, Float, Index, Integer, Table, Text, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import ARRAY

from runtime.store.schema.columns import (
    int_column,
    json_column,
    metadata,
    tenant_column,
    text_column,
    time_column,
    uuid_column,
)

tenants = Table(
    "tenants",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    text_column("policy_digest", null=True),
    int_column("max_concurrency", "16"),
    Column("max_runs_per_min", Integer),
    Column("max_writes_per_run", Integer),
    Column("weight", Float, nullable=False, server_default="1"),
    Column("virtual_time", Float, nullable=False, server_default="0"),
    Column("starts_left", Float),
    time_column("starts_left_at"),
    uuid_column("stream_id"),
    Column("audit_count", BigInteger, nullable=False, server_default="0"),
    text_column("audit_head", default="0" * 64),
    time_column("created_at", null=False, now=True),
    CheckConstraint("weight > 0", name="weight_is_positive"),
)

lanes = Table(
    "lanes",
    metadata,
    tenant_column(key=True),
    Column("workspace_id", Text, primary_key=True),
    Column("weight", Float, nullable=False, server_default="1"),
    Column("virtual_time", Float, nullable=False, server_default="0"),
    CheckConstraint("weight > 0", name="weight_is_positive"),
)

# One row per unit of a tenant's max_concurrency: a step that executes holds one. So the cap is exact without a counter
# that every claim of a tenant would have to lock. ``cap`` is empty for these; a workflow that has a cap of its own has
# slots under its name, and its steps hold one of either.
slots = Table(
    "slots",
    metadata,
    tenant_column(key=True),
    Column("cap", Text, primary_key=True, server_default=""),
    Column("slot", Integer, primary_key=True),
    uuid_column("step_id", null=True),
    Index("ix_slots_free", "tenant_id", "cap", "slot", postgresql_where=text("step_id IS NULL")),
    Index("ix_slots_taken", "step_id", "cap", unique=True, postgresql_where=text("step_id IS NOT NULL")),
)

workflows = Table(
    "workflows",
    metadata,
    tenant_column(key=True),
    Column("name", Text, primary_key=True),
    Column("version", Integer, primary_key=True),
    text_column("digest"),
    text_column("source"),
    json_column("operations", null=False),
    text_column("published_by"),
    time_column("published_at", null=False, now=True),
    time_column("retired_at"),
)

policies = Table(
    "policies",
    metadata,
    tenant_column(key=True),
    Column("digest", Text, primary_key=True),
    text_column("name"),
    int_column("version"),
    text_column("source"),
    text_column("published_by"),
    time_column("published_at", null=False, now=True),
)

people = Table(
    "people",
    metadata,
    tenant_column(key=True),
    Column("person_id", Text, primary_key=True),
    text_column("name"),
    text_column("slack_user_id", null=True),
    UniqueConstraint("tenant_id", "slack_user_id"),
)

group_members = Table(
    "group_members",
    metadata,
    tenant_column(key=True),
    Column("group_name", Text, primary_key=True),
    Column("person_id", Text, primary_key=True),
)

tokens = Table(
    "tokens",
    metadata,
    Column("token_hash", Text, primary_key=True),
    tenant_column(),
    text_column("subject"),
    Column("roles", ARRAY(Text), nullable=False),
    time_column("created_at", null=False, now=True),
    time_column("expires_at"),
    time_column("revoked_at"),
)
