"""The oracle: what every face shows of a run, held against the rows that are stored beside its book (promise 6)."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from core.db import Connection, Database
from runtime.definition.catalog import Definitions
from runtime.engine.book.recorded import Diverged
from runtime.engine.model.run import Run
from runtime.requests.views import RunReader, Seen, folded
from runtime.store import books
from runtime.store.rows import Rows, check_rows, columns, hold

_RUN = """
SELECT run_id::text, status, superstep, executing, width, writes, reference, extensions, error, canceling, result,
  finished_at IS NOT NULL AS finished FROM runs WHERE run_id = $1"""


async def wrong(faces: Database, definitions: Definitions, tenant: str, run_id: UUID) -> list[str]:
    """Say what of a run is not what its book says: in the faces, in the rows, or when it is replayed."""
    try:
        seen = await RunReader(faces, definitions).at(tenant, run_id, range(2**31))
        async with faces.transaction(tenant) as connection:
            await _compare(connection, definitions, tenant, run_id, seen)
    except Diverged as problem:
        return [problem.message]
    report = await RunReader(faces, definitions).replay(tenant, run_id)
    if report.equal != len(seen.checkpoints):
        return [f"{report.equal} checkpoints are derived again, and {len(seen.checkpoints)} are shown"]
    return [] if report.ok else [str(report.difference)]


async def _compare(connection: Connection, definitions: Definitions, tenant: str, run_id: UUID, seen: Seen) -> None:
    book = await books.read(connection, tenant, run_id)
    run = (await folded(connection, definitions, book)).run
    await check_rows(connection, run)
    for what, statement, expected in _tables(run, seen):
        await hold(connection, run_id, (what, what), statement, expected)


def _tables(run: Run, seen: Seen) -> Iterator[tuple[str, str, Rows]]:
    names = "status superstep executing width writes reference extensions error canceling result finished"
    yield "run", _RUN, {str(run.run_id): columns(run, names)}
