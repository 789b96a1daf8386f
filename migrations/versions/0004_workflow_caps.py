"""a workflow's own cap: its runs say so; failed messages are found without a search"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("cap", sa.Text(), server_default="", nullable=False))
    op.create_index(
        "ix_commands_failed", "commands", ["tenant_id", "kind"], postgresql_where=sa.text("status = 'failed'")
    )
