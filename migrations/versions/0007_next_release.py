"""The schema of the next release: 0007_tables.sql, then 0007_functions.sql, a copy of runtime/store/functions.

Until that release both files may change. After it, neither does: a later migration has files of its own.
"""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = depends_on = None


def upgrade() -> None:
    run = op.get_bind().exec_driver_sql
    for statement in _statements("0007_tables.sql", ";\n"):
        run(statement)
    # Lines inside a function may end with a semicolon, so these statements are split at blank lines.
    for statement in _statements("0007_functions.sql", ";\n\n"):
        run(statement)
    run("REVOKE CREATE ON SCHEMA public FROM counterseal_appender, counterseal_finder")


def _statements(file: str, end: str) -> list[str]:
    text = Path(__file__).with_name(file).read_text(encoding="utf-8")
    kept = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    return [statement for statement in kept.strip().rstrip(";").split(end) if statement.strip()]
