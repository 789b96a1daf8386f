"""Runs: their rows, books, steps and waits, and what goes in and out."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    Interval,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import UUID

from runtime.store.schema.columns import (
    int_column,
    json_column,
    metadata,
    run_columns,
    tenant_column,
    text_column,
    time_column,
    uuid_column,
)

# The states of a row of the queue, and what each of them has to hold.
QUEUED = """status = 'claimable' AND owner IS NULL AND expires_at IS NULL
  OR status = 'sent' AND owner IS NOT NULL AND expires_at IS NOT NULL
  OR status = 'leased' AND owner IS NOT NULL AND expires_at IS NOT NULL AND lease_id IS NOT NULL"""

runs = Table(
    "runs",
    metadata,
    Column("run_id", UUID(as_uuid=True), primary_key=True),
    tenant_column(),
    text_column("workspace_id"),
    text_column("workflow"),
    int_column("workflow_version"),
    text_column("workflow_digest"),
    text_column("trigger_type"),
    text_column("trigger_ref"),
    text_column("reference"),
    text_column("requested_by"),
    text_column("status"),
    int_column("version", "1"),
    # Moves with what does not commute: a barrier, a cancel, an extension. Steps of one super-step do.
    int_column("gate", "0"),
    int_column("superstep", "0"),
    int_column("executing", "0"),
    int_column("width", "0"),
    int_column("writes", "0"),
    int_column("extensions", "0"),
    int_column("audit_count", "0"),
    text_column("audit_head", default="0" * 64),
    # The run as the append ``state_n`` left it, so that reading need not begin at the first line. A cache of the book.
    Column("state", LargeBinary),
    int_column("state_n", "0"),
    # Opens the commitments of its book to its values; erasure removes it.
    Column("run_key", LargeBinary),
    json_column("error"),
    json_column("canceling"),
    json_column("result"),
    uuid_column("parent_run_id", null=True),
    int_column("depth", "0"),
    text_column("cap", default=""),
    time_column("created_at", null=False, now=True),
    time_column("started_at"),
    time_column("finished_at"),
    time_column("deadline_at"),
    Column("retention", Interval),
    time_column("purge_at"),
    time_column("purged_at"),
    UniqueConstraint("tenant_id", "workflow", "trigger_type", "trigger_ref"),
    Index("ix_runs_recent", "tenant_id", "created_at", "run_id"),
    Index("ix_runs_purge", "purge_at", postgresql_where=text("purge_at IS NOT NULL")),
    Index("ix_runs_children", "parent_run_id", postgresql_where=text("parent_run_id IS NOT NULL")),
    postgresql_with={"fillfactor": "60"},
)

# The book of a run: a row for each append, numbered by the version that it made. Nobody changes it; erasure removes
# ``vals``, the values that the lines commit to.
journal = Table(
    "journal",
    metadata,
    *run_columns(key=True),
    Column("n", Integer, primary_key=True),
    int_column("first_seq"),
    Column("lines", LargeBinary, nullable=False),
    Column("vals", LargeBinary),
)

waits = Table(
    "waits",
    metadata,
    Column("wait_id", UUID(as_uuid=True), primary_key=True),
    *run_columns(),
    uuid_column("step_id"),
    text_column("step_key"),
    text_column("kind"),
    text_column("status"),
    text_column("token"),
    text_column("correlation_key", null=True),
    Column("parked", Boolean, nullable=False, server_default="true"),
    json_column("context"),
    json_column("result"),
    text_column("channel", null=True),
    text_column("message_ts", null=True),
    time_column("due_at"),
    time_column("created_at", null=False, now=True),
    time_column("completed_at"),
    Index("ix_waits_due", "due_at", postgresql_where=text("status = 'waiting'")),
    Index("ix_waits_open", "run_id", postgresql_where=text("status = 'waiting'")),
    Index("ix_waits_tasks", "tenant_id", "wait_id", postgresql_where=text("kind = 'task'")),
    Index("ix_waits_correlation", "tenant_id", "correlation_key", postgresql_where=text("correlation_key IS NOT NULL")),
)

# Every write to a channel that is declared with a ledger, however few the channel itself keeps.
ledger = Table(
    "ledger",
    metadata,
    *run_columns(key=True),
    Column("superstep", Integer, primary_key=True),
    Column("step_key", Text, primary_key=True),
    Column("channel", Text, primary_key=True),
    json_column("value"),
    time_column("written_at", null=False, now=True),
)

# What is still shown of a run whose values retention has taken: without them nobody can fold its book.
remains = Table(
    "remains",
    metadata,
    *run_columns(key=True),
    json_column("steps", null=False),
    json_column("receipts", null=False),
    json_column("extensions", null=False),
)

inbox = Table(
    "inbox",
    metadata,
    tenant_column(key=True),
    Column("source", Text, primary_key=True),
    Column("notification_id", Text, primary_key=True),
    json_column("payload", null=False),
    json_column("result"),
    text_column("correlation_key", null=True),
    time_column("received_at", null=False, now=True),
    time_column("processed_at"),
    Index("ix_inbox_open", "received_at", postgresql_where=text("processed_at IS NULL")),
    Index("ix_inbox_correlation", "tenant_id", "correlation_key", postgresql_where=text("correlation_key IS NOT NULL")),
    Index(
        "ix_inbox_kept",
        "tenant_id",
        "correlation_key",
        "received_at",
        postgresql_where=text("processed_at IS NULL AND correlation_key IS NOT NULL"),
    ),
)

commands = Table(
    "commands",
    metadata,
    Column("command_id", UUID(as_uuid=True), primary_key=True),
    *run_columns(),
    text_column("kind"),
    text_column("dedupe_key"),
    json_column("payload", null=False),
    text_column("ordering_key", null=True),
    text_column("status"),
    text_column("lease_owner", null=True),
    time_column("lease_expires_at"),
    int_column("attempts", "0"),
    text_column("last_error", null=True),
    time_column("next_attempt_at"),
    time_column("created_at", null=False, now=True),
    Index("ix_commands_messages", "command_id", postgresql_where=text("status = 'pending'")),
    Index(
        "ix_commands_behind",
        "ordering_key",
        postgresql_where=text("status = 'pending' AND ordering_key IS NOT NULL"),
    ),
    Index("ix_commands_failed", "tenant_id", "kind", postgresql_where=text("status = 'failed'")),
    Index("ix_commands_one_at_a_time", "ordering_key", unique=True, postgresql_where=text("status = 'leased'")),
    Index("ix_commands_leased", "lease_expires_at", postgresql_where=text("lease_expires_at IS NOT NULL")),
)

# What workers take: a row for each step that can be begun, is on its way to a worker, or is held by one. The row is the
# lease, and a row that is sent or leased is a slot of its tenant, and of its workflow where that has a cap. ``step_id``
# begins with its run's time, so it is the step's place in line too. ``lease_id`` is drawn anew for each claim; a row
# that is in line again keeps that of its last lease, so that a late outcome can tell that nobody has a newer one.
queue = Table(
    "queue",
    metadata,
    *run_columns(key=True),
    Column("step_key", Text, primary_key=True),
    uuid_column("step_id"),
    text_column("workspace_id"),
    text_column("cap"),
    Column("starts_run", Boolean, nullable=False),
    text_column("status"),
    text_column("owner", null=True),
    uuid_column("lease_id", null=True),
    int_column("epoch"),
    time_column("expires_at"),
    time_column("created_at", null=False, now=True),
    CheckConstraint(QUEUED, name="held_by_somebody"),
    Index(
        "ix_queue_line",
        "tenant_id",
        "workspace_id",
        "cap",
        "starts_run",
        "step_id",
        postgresql_where=text("status = 'claimable'"),
    ),
    Index("ix_queue_step", "step_id"),
    Index("ix_queue_held", "tenant_id", "cap", postgresql_where=text("status <> 'claimable'")),
    postgresql_with={"fillfactor": "60"},
)
