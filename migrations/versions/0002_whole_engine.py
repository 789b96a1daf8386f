"""waits of every kind, loops of any length, runs within runs, extensions, ledgers, retention"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

ENGINE = "counterseal_engine"
FACES = "counterseal_faces"
NEW_TABLES = ("ledger",)
# What a run's retention removes, of that which nobody may delete otherwise.
PURGED = ("ledger",)

# Frozen here on purpose: a migration says what it did, whatever the tables in the code say later. One append may begin
# a run or a step and move it on.
MOVES = {
    "runs": [
        ("failed_retryable", "canceled"),
        ("failed_retryable", "failed_terminal"),
        ("failed_retryable", "running"),
        ("queued", "canceled"),
        ("queued", "failed_retryable"),
        ("queued", "failed_terminal"),
        ("queued", "running"),
        ("queued", "succeeded"),
        ("queued", "waiting"),
        ("queued", "waiting_approval"),
        ("running", "canceled"),
        ("running", "failed_retryable"),
        ("running", "failed_terminal"),
        ("running", "succeeded"),
        ("running", "waiting"),
        ("running", "waiting_approval"),
        ("waiting", "canceled"),
        ("waiting", "failed_terminal"),
        ("waiting", "running"),
        ("waiting_approval", "canceled"),
        ("waiting_approval", "failed_terminal"),
        ("waiting_approval", "running"),
    ],
}
BORN = {
}


def upgrade() -> None:
    _add_columns()
    _create_tables()
    _isolate()
    _allow_moves()


def _json(name: str, *, nullable: bool = True) -> sa.Column:
    return sa.Column(name, postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=nullable)


def _time(name: str) -> sa.Column:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=True)


def _add_columns() -> None:
    op.add_column("runs", sa.Column("extensions", sa.Integer(), server_default="0", nullable=False))
    op.add_column("runs", _json("result"))
    op.add_column("runs", sa.Column("parent_run_id", sa.UUID(), nullable=True))
    op.add_column("runs", sa.Column("depth", sa.Integer(), server_default="0", nullable=False))
    op.add_column("runs", sa.Column("retention", sa.Interval(), nullable=True))
    op.add_column("runs", _time("purge_at"))
    op.add_column("runs", _time("purged_at"))
    op.create_index("ix_runs_purge", "runs", ["purge_at"], postgresql_where=sa.text("purge_at IS NOT NULL"))
    op.create_index(
        "ix_runs_children", "runs", ["parent_run_id"], postgresql_where=sa.text("parent_run_id IS NOT NULL")
    )
    op.add_column("waits", _json("result"))
    op.add_column("waits", sa.Column("channel", sa.Text(), nullable=True))
    op.add_column("waits", sa.Column("message_ts", sa.Text(), nullable=True))
    op.drop_index("ix_waits_run", "waits")
    op.drop_index("ix_waits_correlation", "waits")
    op.create_index(
        "ix_waits_correlation",
        "waits",
        ["tenant_id", "correlation_key"],
        postgresql_where=sa.text("correlation_key IS NOT NULL"),
    )
    op.create_index("ix_waits_open", "waits", ["run_id"], postgresql_where=sa.text("status = 'waiting'"))
    op.create_index("ix_waits_step", "waits", ["step_id"])
    op.create_index("ix_waits_tasks", "waits", ["tenant_id", "wait_id"], postgresql_where=sa.text("kind = 'task'"))
    op.drop_index("ix_approvals_run", "approvals")
    op.create_index("ix_approvals_run", "approvals", ["run_id", "status"])
    op.add_column("inbox", sa.Column("correlation_key", sa.Text(), nullable=True))
    op.create_index(
        "ix_inbox_correlation",
        "inbox",
        ["tenant_id", "correlation_key"],
        postgresql_where=sa.text("correlation_key IS NOT NULL"),
    )
    op.create_index(
        "ix_inbox_kept",
        "inbox",
        ["tenant_id", "correlation_key", "received_at"],
        postgresql_where=sa.text("processed_at IS NULL AND correlation_key IS NOT NULL"),
    )


def _create_tables() -> None:
    _create_run_table("ledger", ["superstep", "step_key", "channel"], [
        sa.Column("superstep", sa.Integer(), nullable=False),
        sa.Column("step_key", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        _json("value"),
        sa.Column("written_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
    ])  # fmt: skip


def _create_run_table(name: str, key: list[str], columns: list[sa.Column]) -> None:
    op.create_table(
        name,
        sa.Column("run_id", sa.UUID(), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        *columns,
        sa.ForeignKeyConstraint(
            ["run_id", "tenant_id"], ["runs.run_id", "runs.tenant_id"], name=f"fk_{name}_run_id_tenant_id_runs"
        ),
        sa.PrimaryKeyConstraint("run_id", *key, name=f"pk_{name}"),
    )


def _isolate() -> None:
    own = "tenant_id = current_setting('counterseal.tenant', true)"
    for table in NEW_TABLES:
        op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {ENGINE}, {FACES}")
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY engine ON {table} TO {ENGINE} USING (true) WITH CHECK (true)")
        op.execute(f"CREATE POLICY tenant ON {table} TO {FACES} USING ({own}) WITH CHECK ({own})")
    # What was recorded is never changed, and nobody deletes it either, but by this function, once its time is over.
    op.execute(f"REVOKE UPDATE, DELETE ON ledger FROM {ENGINE}, {FACES}")
    for table in ("runs", *PURGED):
        op.execute(f"CREATE POLICY owner ON {table} TO CURRENT_USER USING (true)")
    gone = " ".join(
        f"DELETE FROM {table} t USING runs r WHERE t.run_id = r.run_id AND r.run_id = id AND r.purge_at <= now();"
        for table in PURGED
    )
    op.execute(
        "CREATE FUNCTION purge_records(id uuid) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = public "
        f"AS $$ {gone} $$"
    )
    op.execute("REVOKE ALL ON FUNCTION purge_records(uuid) FROM PUBLIC")
    op.execute(f"GRANT EXECUTE ON FUNCTION purge_records(uuid) TO {ENGINE}")


def _allow_moves() -> None:
    for table, moves in MOVES.items():
        legal = ",".join(f"{before} {after}" for before, after in moves)
        op.execute(f"DROP TRIGGER legal_move ON {table}")
        op.execute(
            f"CREATE TRIGGER legal_move BEFORE UPDATE OF status ON {table} FOR EACH ROW WHEN (OLD.status <> NEW.status "
            f"AND (OLD.status || ' ' || NEW.status) <> ALL ('{{{legal}}}'::text[])) EXECUTE FUNCTION refuse_move()"
        )
    for table, states in BORN.items():
        born = ",".join(states)
        op.execute(f"DROP TRIGGER legal_birth ON {table}")
        op.execute(
            f"CREATE TRIGGER legal_birth BEFORE INSERT ON {table} FOR EACH ROW "
            f"WHEN (NEW.status <> ALL ('{{{born}}}'::text[])) EXECUTE FUNCTION refuse_move()"
        )
