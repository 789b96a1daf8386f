"""What was decided, asked, done and recorded: the evidence."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, UUID

from runtime.store.schema.columns import (
    json_column,
    metadata,
    owner_column,
    run_columns,
    text_column,
    time_column,
    uuid_column,
)

# One row for each key that steps and runs share. It outlives what retention takes of its run: no effect is repeated.
effects = Table(
    "effects",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    uuid_column("run_id"),
    text_column("step_key"),
    uuid_column("receipt_id"),
    text_column("status"),
    Index("ix_effects_run", "run_id"),
    postgresql_with={"fillfactor": "80"},
)

# What changes comes last, and there is room beside a row: so a change is logged without the card before it.
approvals = Table(
    "approvals",
    metadata,
    Column("approval_id", UUID(as_uuid=True), primary_key=True),
    *run_columns(),
    uuid_column("step_id"),
    text_column("step_key"),
    text_column("kind"),
    text_column("action_digest"),
    text_column("nonce"),
    text_column("tier"),
    json_column("terms", null=False),
    text_column("requester"),
    json_column("card", null=False),
    json_column("action"),
    time_column("created_at", null=False, now=True),
    time_column("expires_at", null=False),
    text_column("status"),
    text_column("choice", null=True),
    text_column("reason", null=True),
    Column("escalated", Boolean, nullable=False, server_default="false"),
    text_column("channel", null=True),
    text_column("message_ts", null=True),
    time_column("decided_at"),
    time_column("consumed_at"),
    Index("ix_approvals_run", "run_id", "status"),
    Index("ix_approvals_open", "tenant_id", "approval_id", postgresql_where=text("status = 'requested'")),
    postgresql_with={"fillfactor": "50"},
)

votes = Table(
    "votes",
    metadata,
    Column("approval_id", UUID(as_uuid=True), primary_key=True),
    Column("person_id", Text, primary_key=True),
    owner_column(),
    text_column("choice"),
    text_column("reason"),
    Column("groups", ARRAY(Text), nullable=False),
    text_column("channel"),
    time_column("voted_at", null=False, now=True),
)

audit_events = Table(
    "audit_events",
    metadata,
    Column("stream_id", UUID(as_uuid=True), primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    owner_column(),
    text_column("type"),
    Column("line", LargeBinary, nullable=False),
    Column("hash", Text, nullable=False),
)

bundles = Table(
    "bundles",
    metadata,
    *run_columns(key=True),
    # How many lines of the run's book it holds: a late answer after the end makes a longer edition.
    Column("lines", Integer, primary_key=True, autoincrement=False),
    text_column("name"),
    text_column("uri"),
    text_column("version_id", null=True),
    text_column("sha256"),
    Column("bytes", BigInteger, nullable=False),
    text_column("key_id"),
    time_column("created_at", null=False, now=True),
)
