"""The schema of the next release: 0007_tables.sql, then the functions of 0007_functions.sql in place of those of 0006.

Until that release both files may change. After it, neither does: a later migration has files of its own.
"""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = depends_on = None

APPENDER = "counterseal_appender"
ENGINE = "counterseal_engine"
FACES = "counterseal_faces"
# The functions of 0007_functions.sql that run with their owner's rights; ``append`` runs with its caller's.
DEFINERS = "append_to_run open_run order_message read_run read_question".split()


def upgrade() -> None:
    run = op.get_bind().exec_driver_sql
    for statement in _statements("0007_tables.sql", ";\n"):
        run(statement)
    for signature in _signatures(["append", *DEFINERS]):
        run(f"DROP FUNCTION {signature}")
    # Lines inside a function may end with a semicolon, so functions are split at blank lines.
    for statement in _statements("0007_functions.sql", ";\n\n"):
        run(statement)
    run(f"GRANT CREATE ON SCHEMA public TO {APPENDER}")
    for signature in _signatures(DEFINERS):
        run(f"ALTER FUNCTION {signature} OWNER TO {APPENDER}")
        run(f"REVOKE ALL ON FUNCTION {signature} FROM PUBLIC")
        run(f"GRANT EXECUTE ON FUNCTION {signature} TO {ENGINE}, {FACES}")
    run(f"REVOKE CREATE ON SCHEMA public FROM {APPENDER}")
    run("REVOKE ALL ON FUNCTION append FROM PUBLIC")
    run(f"GRANT EXECUTE ON FUNCTION append TO {ENGINE}, {APPENDER}")


def _statements(file: str, end: str) -> list[str]:
    text = Path(__file__).with_name(file).read_text(encoding="utf-8")
    kept = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    return [statement for statement in kept.strip().rstrip(";").split(end) if statement.strip()]


def _signatures(names: list[str]) -> list[str]:
    found = op.get_bind().exec_driver_sql(
        f"SELECT oid::regprocedure::text FROM pg_proc WHERE proname = ANY ('{{{','.join(names)}}}') ORDER BY 1"
    )
    return list(found.scalars())
