"""a workflow's own cap: slots under its name, and commands in line under it; failed messages are found without a search"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("runs", "commands", "slots"):
        op.add_column(table, sa.Column("cap", sa.Text(), server_default="", nullable=False))
    op.drop_constraint("pk_slots", "slots", type_="primary")
    op.create_primary_key("pk_slots", "slots", ["tenant_id", "cap", "slot"])
    op.drop_index("ix_slots_free", "slots")
    op.create_index("ix_slots_free", "slots", ["tenant_id", "cap", "slot"], postgresql_where=sa.text("step_id IS NULL"))
    op.drop_index("ix_slots_taken", "slots")
    op.create_index(
        "ix_slots_taken", "slots", ["step_id", "cap"], unique=True, postgresql_where=sa.text("step_id IS NOT NULL")
    )
    op.drop_index("ix_commands_steps", "commands")
    op.create_index(
        "ix_commands_steps",
        "commands",
        ["tenant_id", "workspace_id", "cap", "starts_run", "command_id"],
        postgresql_where=sa.text("status = 'pending' AND kind = 'step'"),
    )
    op.create_index(
        "ix_commands_failed", "commands", ["tenant_id", "kind"], postgresql_where=sa.text("status = 'failed'")
    )
