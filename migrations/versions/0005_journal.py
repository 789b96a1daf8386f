"""the journal: a row for each append of a run, with its lines and their values; and what retention leaves of a run"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

ENGINE = "counterseal_engine"
FACES = "counterseal_faces"

# A question or a wait may be told and canceled in one append: its row is born canceled.
BORN = {
    "approvals": ["canceled", "requested"],
    "waits": ["canceled", "waiting"],
}


def upgrade() -> None:
    _refuse_older_runs()
    op.create_table(
        "journal",
        sa.Column("run_id", sa.UUID(), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("first_seq", sa.Integer(), nullable=False),
        sa.Column("lines", sa.LargeBinary(), nullable=False),
        sa.Column("vals", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id", "tenant_id"], ["runs.run_id", "runs.tenant_id"], name="fk_journal_run_id_tenant_id_runs"
        ),
        sa.PrimaryKeyConstraint("run_id", "n", name="pk_journal"),
    )
    op.add_column("runs", sa.Column("run_key", sa.LargeBinary(), nullable=True))
    op.add_column("runs", sa.Column("state", sa.LargeBinary(), nullable=True))
    op.add_column("runs", sa.Column("state_n", sa.Integer(), server_default="0", nullable=False))
    op.create_table(
        "remains",
        sa.Column("run_id", sa.UUID(), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        *(
            sa.Column(name, postgresql.JSONB(none_as_null=True), nullable=False)
            for name in ("steps", "receipts", "extensions")
        ),
        sa.ForeignKeyConstraint(
            ["run_id", "tenant_id"], ["runs.run_id", "runs.tenant_id"], name="fk_remains_run_id_tenant_id_runs"
        ),
        sa.PrimaryKeyConstraint("run_id", name="pk_remains"),
    )
    _isolate()
    _read_line_by_line()
    _purge()
    for table, states in BORN.items():
        born = ",".join(states)
        op.execute(f"DROP TRIGGER legal_birth ON {table}")
        op.execute(
            f"CREATE TRIGGER legal_birth BEFORE INSERT ON {table} FOR EACH ROW "
            f"WHEN (NEW.status <> ALL ('{{{born}}}'::text[])) EXECUTE FUNCTION refuse_move()"
        )


def _refuse_older_runs() -> None:
    """A run that began without a journal has no book to go on with. Nothing of 0.1.0 is deployed yet."""
    op.execute(
        "DO $$ BEGIN IF EXISTS (SELECT FROM runs) THEN RAISE EXCEPTION 'cannot be upgraded: it holds runs of "
        "Counterseal 0.1.0, which have no journal.'; END IF; END $$"
    )


def _isolate() -> None:
    own = "tenant_id = current_setting('counterseal.tenant', true)"
    op.execute(f"GRANT SELECT, INSERT ON journal TO {ENGINE}, {FACES}")
    op.execute(f"GRANT SELECT, INSERT ON remains TO {ENGINE}")
    op.execute(f"GRANT SELECT ON remains TO {FACES}")
    for table in ("journal", "remains"):
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY engine ON {table} TO {ENGINE} USING (true) WITH CHECK (true)")
        op.execute(f"CREATE POLICY tenant ON {table} TO {FACES} USING ({own}) WITH CHECK ({own})")
    op.execute("CREATE POLICY owner ON journal TO CURRENT_USER USING (true)")


def _read_line_by_line() -> None:
    """The audit of runs, a row for each line; whoever reads it sees the rows of the journal that he may see."""
    op.execute(
        "CREATE VIEW run_lines WITH (security_invoker = true) AS "
        "SELECT j.run_id, j.tenant_id, j.n, j.first_seq + l.number::int - 1 AS seq, "
        "l.line::json->>'type' AS type, convert_to(l.line, 'UTF8') AS line, "
        "encode(sha256(convert_to(l.line, 'UTF8')), 'hex') AS hash "
        "FROM journal j CROSS JOIN LATERAL string_to_table(convert_from(j.lines, 'UTF8'), E'\\n') "
        "WITH ORDINALITY AS l(line, number)"
    )
    op.execute(f"GRANT SELECT ON run_lines TO {ENGINE}, {FACES}")


def _purge() -> None:
    """Erasure removes the values; the lines stay, and commit to what nobody can know any more."""
    gone = " ".join(
        f"DELETE FROM {table} t USING runs r WHERE t.run_id = r.run_id AND r.run_id = id AND r.purge_at <= now();"
        for table in ("ledger",)
    )
    gone += (
        " UPDATE journal t SET vals = NULL FROM runs r "
        "WHERE t.run_id = r.run_id AND r.run_id = id AND r.purge_at <= now();"
    )
    op.execute(
        "CREATE OR REPLACE FUNCTION purge_records(id uuid) RETURNS void LANGUAGE sql SECURITY DEFINER "
        f"SET search_path = public AS $$ {gone} $$"
    )
