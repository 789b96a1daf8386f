"""one drawing of a card for all messages that wait to redraw it: they are found by what they are about"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "ix_commands_behind",
        "commands",
        ["ordering_key"],
        postgresql_where=sa.text("status = 'pending' AND ordering_key IS NOT NULL"),
    )
