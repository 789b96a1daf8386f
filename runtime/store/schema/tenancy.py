"""Tenants with their caps, people and rights, and the documents that they published."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, Float, Integer, Table, Text, UniqueConstraint
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
    Column("virtual_start", Float, nullable=False, server_default="0"),
    Column("virtual_time", Float, nullable=False, server_default="0"),
    Column("starts_left", Float),
    time_column("starts_left_at"),
    uuid_column("stream_id"),
    Column("audit_count", BigInteger, nullable=False, server_default="0"),
    text_column("audit_head", default="0" * 64),
    time_column("created_at", null=False, now=True),
    CheckConstraint("weight > 0", name="weight_is_positive"),
)

# Tenants take turns, and within a tenant its workspaces: see ``runtime.store.claims``.
workspaces = Table(
    "workspaces",
    metadata,
    tenant_column(key=True),
    Column("workspace_id", Text, primary_key=True),
    Column("weight", Float, nullable=False, server_default="1"),
    Column("virtual_start", Float, nullable=False, server_default="0"),
    Column("virtual_time", Float, nullable=False, server_default="0"),
    CheckConstraint("weight > 0", name="weight_is_positive"),
)

# How many steps of a workflow may be held at once, where it has a cap of its own beside its tenant's.
caps = Table(
    "caps",
    metadata,
    tenant_column(key=True),
    Column("cap", Text, primary_key=True),
    int_column("slots"),
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
