"""What was added to running graphs: the mutation log (V-6)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from core.db import Connection
from runtime.kernel.commit import MutationRow

_OF_RUN = """
SELECT number, actor, source, operations FROM mutations WHERE run_id = $1 AND number <= $2 ORDER BY number"""


async def of_run(connection: Connection, run_id: UUID, count: int) -> list[MutationRow]:
    """The first ``count`` extensions of a run, in their order."""
    return [_row(row) for row in await connection.fetch(_OF_RUN, run_id, count)]


def _row(row: Any) -> MutationRow:
    return MutationRow(row["number"], row["actor"], row["source"], row["operations"])
