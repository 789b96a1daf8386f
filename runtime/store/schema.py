"""The tables, as SQLAlchemy metadata. Alembic's migrations are held against this file by a test.

Large values (inputs, states, outputs) live in rows that are written once; rows that change often (runs, steps) stay
small. Every table that belongs to a tenant carries ``tenant_id`` and is under row-level security.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, UUID

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_NOW = text("now()")


def _text(name: str, *, null: bool = False, default: str | None = None) -> Column[str]:
    return Column(name, Text, nullable=null, server_default=default)


def _int(name: str, default: str | None = None) -> Column[int]:
    return Column(name, Integer, nullable=False, server_default=default)


def _uuid(name: str, *, null: bool = False) -> Column[object]:
    return Column(name, UUID(as_uuid=True), nullable=null)


def _json(name: str, *, null: bool = True) -> Column[object]:
    return Column(name, JSONB(none_as_null=True), nullable=null)


def _time(name: str, *, null: bool = True, now: bool = False) -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=null, server_default=_NOW if now else None)


def _tenant(*, key: bool = False) -> Column[str]:
    return Column("tenant_id", Text, ForeignKey("tenants.tenant_id"), primary_key=key, nullable=False)


def _run(*, key: bool = False, null: bool = False) -> Column[object]:
    return Column("run_id", UUID(as_uuid=True), ForeignKey("runs.run_id"), primary_key=key, nullable=null)


tenants = Table(
    "tenants",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    _text("policy_digest", null=True),
    _int("max_concurrency", "16"),
    Column("max_runs_per_min", Integer),
    Column("max_writes_per_run", Integer),
    Column("weight", Float, nullable=False, server_default="1"),
    Column("virtual_time", Float, nullable=False, server_default="0"),
    Column("starts_left", Float),
    _time("starts_left_at"),
    _uuid("stream_id"),
    Column("audit_count", BigInteger, nullable=False, server_default="0"),
    _text("audit_head", default="0" * 64),
    _time("created_at", null=False, now=True),
)

lanes = Table(
    "lanes",
    metadata,
    _tenant(key=True),
    Column("workspace_id", Text, primary_key=True),
    Column("weight", Float, nullable=False, server_default="1"),
    Column("virtual_time", Float, nullable=False, server_default="0"),
)

# One row per unit of a tenant's max_concurrency: a step that executes holds one. So the cap is exact without a counter
# that every claim of a tenant would have to lock.
slots = Table(
    "slots",
    metadata,
    _tenant(key=True),
    Column("slot", Integer, primary_key=True),
    _uuid("step_id", null=True),
    Index("ix_slots_free", "tenant_id", "slot", postgresql_where=text("step_id IS NULL")),
    Index("ix_slots_taken", "step_id", unique=True, postgresql_where=text("step_id IS NOT NULL")),
)

workflows = Table(
    "workflows",
    metadata,
    _tenant(key=True),
    Column("name", Text, primary_key=True),
    Column("version", Integer, primary_key=True),
    _text("digest"),
    _text("source"),
    _json("operations", null=False),
    _text("published_by"),
    _time("published_at", null=False, now=True),
    _time("retired_at"),
)

policies = Table(
    "policies",
    metadata,
    _tenant(key=True),
    Column("digest", Text, primary_key=True),
    _text("name"),
    _int("version"),
    _text("source"),
    _text("published_by"),
    _time("published_at", null=False, now=True),
)

people = Table(
    "people",
    metadata,
    _tenant(key=True),
    Column("person_id", Text, primary_key=True),
    _text("name"),
    _text("slack_user_id", null=True),
    UniqueConstraint("tenant_id", "slack_user_id"),
)

group_members = Table(
    "group_members",
    metadata,
    _tenant(key=True),
    Column("group_name", Text, primary_key=True),
    Column("person_id", Text, primary_key=True),
)

tokens = Table(
    "tokens",
    metadata,
    Column("token_hash", Text, primary_key=True),
    _tenant(),
    _text("subject"),
    Column("roles", ARRAY(Text), nullable=False),
    _time("created_at", null=False, now=True),
    _time("expires_at"),
    _time("revoked_at"),
)

runs = Table(
    "runs",
    metadata,
    Column("run_id", UUID(as_uuid=True), primary_key=True),
    _tenant(),
    _text("workspace_id"),
    _text("workflow"),
    _int("workflow_version"),
    _text("workflow_digest"),
    _text("trigger_type"),
    _text("trigger_ref"),
    _text("reference"),
    _text("requested_by"),
    _text("status"),
    _int("version", "1"),
    _int("superstep", "0"),
    _int("executing", "0"),
    _int("width", "0"),
    _int("writes", "0"),
    _int("audit_count", "0"),
    _text("audit_head", default="0" * 64),
    _json("error"),
    _json("canceling"),
    _time("created_at", null=False, now=True),
    _time("started_at"),
    _time("finished_at"),
    _time("deadline_at"),
    UniqueConstraint("tenant_id", "workflow", "trigger_type", "trigger_ref"),
    Index("ix_runs_recent", "tenant_id", "created_at", "run_id"),
    postgresql_with={"fillfactor": "60"},
)

run_inputs = Table(
    "run_inputs",
    metadata,
    _run(key=True),
    _tenant(),
    _json("trigger", null=False),
    Column("run_key", LargeBinary),
)

steps = Table(
    "steps",
    metadata,
    Column("step_id", UUID(as_uuid=True), primary_key=True),
    _run(),
    _tenant(),
    _text("step_key"),
    _int("step_index"),
    _text("operation"),
    _int("superstep"),
    _text("status"),
    _int("attempt", "0"),
    _text("idempotency_key", null=True),
    _text("lease_owner", null=True),
    _time("lease_expires_at"),
    _int("lease_epoch", "0"),
    _json("output"),
    _json("writes"),
    _json("usage"),
    _json("last_error"),
    _time("next_eligible_at"),
    _time("created_at", null=False, now=True),
    _time("finished_at"),
    UniqueConstraint("run_id", "step_key"),
    Index("ix_steps_superstep", "run_id", "superstep"),
    Index("ix_steps_lease", "lease_expires_at", postgresql_where=text("status = 'running'")),
    postgresql_with={"fillfactor": "80"},
)

checkpoints = Table(
    "checkpoints",
    metadata,
    _run(key=True),
    Column("superstep", Integer, primary_key=True),
    _tenant(),
    _json("state", null=False),
    _text("digest"),
    _time("created_at", null=False, now=True),
)

decisions = Table(
    "decisions",
    metadata,
    Column("decision_id", UUID(as_uuid=True), primary_key=True),
    _run(),
    _tenant(),
    _text("step_key"),
    _text("operation"),
    _text("action_digest"),
    _text("outcome"),
    _text("policy_digest", null=True),
    _json("rules", null=False),
    _json("errors", null=False),
    _json("reasons", null=False),
    _json("facts", null=False),
    _time("decided_at", null=False, now=True),
    Index("ix_decisions_run", "run_id"),
)

receipts = Table(
    "receipts",
    metadata,
    Column("receipt_id", UUID(as_uuid=True), primary_key=True),
    _run(),
    _tenant(),
    _text("step_key"),
    _text("operation"),
    _text("target"),
    _text("idempotency_key"),
    _text("action_digest"),
    _json("action", null=False),
    _text("status"),
    _int("attempt", "1"),
    _int("lease_epoch"),
    Column("reversible", Boolean, nullable=False),
    _json("reverse"),
    _text("external_id", null=True),
    _json("output"),
    _json("usage"),
    _text("resolution", null=True),
    _json("error"),
    _time("intended_at", null=False, now=True),
    _time("settled_at"),
    UniqueConstraint("tenant_id", "idempotency_key"),
    Index("ix_receipts_run", "run_id"),
    postgresql_with={"fillfactor": "60"},
)

approvals = Table(
    "approvals",
    metadata,
    Column("approval_id", UUID(as_uuid=True), primary_key=True),
    _run(),
    _tenant(),
    _uuid("step_id"),
    _text("step_key"),
    _text("kind"),
    _text("status"),
    _text("action_digest"),
    _text("nonce"),
    _text("tier"),
    _json("terms", null=False),
    _text("requester"),
    _json("card", null=False),
    _json("action"),
    _text("choice", null=True),
    _text("reason", null=True),
    Column("escalated", Boolean, nullable=False, server_default="false"),
    _text("channel", null=True),
    _text("message_ts", null=True),
    _time("created_at", null=False, now=True),
    _time("expires_at", null=False),
    _time("decided_at"),
    _time("consumed_at"),
    Index("ix_approvals_step", "step_id"),
    Index("ix_approvals_run", "run_id"),
    Index("ix_approvals_open", "tenant_id", "approval_id", postgresql_where=text("status = 'requested'")),
)

votes = Table(
    "votes",
    metadata,
    Column("approval_id", UUID(as_uuid=True), ForeignKey("approvals.approval_id"), primary_key=True),
    Column("person_id", Text, primary_key=True),
    _tenant(),
    _text("choice"),
    _text("reason"),
    Column("groups", ARRAY(Text), nullable=False),
    _text("channel"),
    _time("voted_at", null=False, now=True),
)

waits = Table(
    "waits",
    metadata,
    Column("wait_id", UUID(as_uuid=True), primary_key=True),
    _run(),
    _tenant(),
    _uuid("step_id"),
    _text("step_key"),
    _text("kind"),
    _text("status"),
    _text("token"),
    _text("correlation_key", null=True),
    _json("context"),
    _time("due_at"),
    _time("created_at", null=False, now=True),
    _time("completed_at"),
    Index("ix_waits_due", "due_at", postgresql_where=text("status = 'waiting'")),
    Index("ix_waits_run", "run_id"),
    Index("ix_waits_correlation", "tenant_id", "correlation_key", postgresql_where=text("status = 'waiting'")),
)

inbox = Table(
    "inbox",
    metadata,
    _tenant(key=True),
    Column("source", Text, primary_key=True),
    Column("notification_id", Text, primary_key=True),
    _json("payload", null=False),
    _json("result"),
    _time("received_at", null=False, now=True),
    _time("processed_at"),
    Index("ix_inbox_open", "received_at", postgresql_where=text("processed_at IS NULL")),
)

commands = Table(
    "commands",
    metadata,
    Column("command_id", UUID(as_uuid=True), primary_key=True),
    _tenant(),
    _text("workspace_id"),
    _run(null=True),
    _uuid("step_id", null=True),
    _text("kind"),
    _text("dedupe_key"),
    _json("payload", null=False),
    Column("starts_run", Boolean, nullable=False, server_default="false"),
    _text("ordering_key", null=True),
    _text("status"),
    _text("lease_owner", null=True),
    _time("lease_expires_at"),
    _int("attempts", "0"),
    _text("last_error", null=True),
    _time("next_attempt_at"),
    _time("created_at", null=False, now=True),
    UniqueConstraint("dedupe_key"),
    Index(
        "ix_commands_steps",
        "tenant_id",
        "workspace_id",
        "starts_run",
        "command_id",
        postgresql_where=text("status = 'pending' AND kind = 'step'"),
    ),
    Index("ix_commands_messages", "command_id", postgresql_where=text("status = 'pending' AND kind <> 'step'")),
    Index("ix_commands_one_at_a_time", "ordering_key", unique=True, postgresql_where=text("status = 'leased'")),
    Index("ix_commands_leased", "lease_expires_at", postgresql_where=text("status = 'leased'")),
    Index("ix_commands_step", "step_id"),
)

audit_events = Table(
    "audit_events",
    metadata,
    Column("stream_id", UUID(as_uuid=True), primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    _tenant(),
    _text("type"),
    Column("line", LargeBinary, nullable=False),
    Column("hash", Text, nullable=False),
)

bundles = Table(
    "bundles",
    metadata,
    _run(key=True),
    _tenant(),
    _text("name"),
    _text("uri"),
    _text("version_id", null=True),
    _text("sha256"),
    Column("bytes", BigInteger, nullable=False),
    _text("key_id"),
    _time("created_at", null=False, now=True),
)

TENANT_TABLES = tuple(table for table in metadata.sorted_tables if "tenant_id" in table.c)
