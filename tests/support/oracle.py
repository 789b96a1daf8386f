"""The oracle: what every face shows of a run, held against the rows that are stored beside its book (promise 6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from core.db import Connection, Database
from runtime.definition.catalog import Definitions
from runtime.kernel.past import Row
from runtime.kernel.run import Run
from runtime.kernel.told import Diverged
from runtime.store import books
from runtime.store.rows import Rows, check_rows, columns, hold
from runtime.verbs.looking import Looking, Seen, folded
from runtime.verbs.replaying import Replaying

_RUN = """
SELECT run_id::text, status, superstep, executing, width, writes, reference, extensions, error, canceling, result,
  finished_at IS NOT NULL AS finished FROM runs WHERE run_id = $1"""
_SHOWN_STEPS = """
SELECT step_key, step_id, step_index, operation, superstep, status, attempt, output, usage, last_error,
  finished_at IS NOT NULL AS finished_at,
  status = 'failed_retryable' AND next_eligible_at IS NOT NULL AS next_eligible_at
FROM steps WHERE run_id = $1"""
_STEPS = """
SELECT step_key, idempotency_key, lease_epoch, writes
FROM steps WHERE run_id = $1"""
# A failed receipt may have given its key up to another run that shares the effect: its own id follows the key then.
_RECEIPTS = """
SELECT receipt_id::text, run_id, step_key, operation, target,
  replace(idempotency_key, ':' || receipt_id, '') AS idempotency_key, action_digest, action, status, attempt,
  lease_epoch, reversible, reverse, external_id, output, usage, resolution, error, settled_at
FROM receipts WHERE run_id = $1"""


async def wrong(faces: Database, definitions: Definitions, tenant: str, run_id: UUID) -> list[str]:
    """What of a run is not what its book says, in words: in the faces, in the rows, or when it is replayed."""
    try:
        seen = await Looking(faces, definitions).at(tenant, run_id, range(2**31))
        async with faces.transaction(tenant) as connection:
            await _compare(connection, definitions, tenant, run_id, seen)
    except Diverged as problem:
        return [problem.message]
    report = await Replaying(faces, definitions).replay(tenant, run_id)
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
    yield "step as shown", _SHOWN_STEPS, {row["step_key"]: _shown_step(row) for row in seen.steps}
    steps = {step.key: step for step in [*run.past.values(), *run.steps.values()]}
    facts = {key: columns(step, "idempotency_key lease_epoch writes") for key, step in steps.items()}
    yield "step", _STEPS, facts
    yield "receipt", _RECEIPTS, {str(row["receipt_id"]): _shown_receipt(row) for row in seen.receipts}


def _shown_step(row: Row) -> Mapping[str, Any]:
    """As it is shown; of times, whether there is one: a line's is an estimate of the commit's."""
    times = {name: row[name] is not None for name in ("finished_at", "next_eligible_at")}
    return {**{name: value for name, value in row.items() if name not in ("step_key", "created_at")}, **times}


def _shown_receipt(row: Row) -> Mapping[str, Any]:
    key = row["idempotency_key"].replace(f":{row['receipt_id']}", "")
    shown = {name: value for name, value in row.items() if name not in ("receipt_id", "intended_at")}
    return {**shown, "idempotency_key": key}


def _named(rows: Sequence[Row], key: str, names: Sequence[str]) -> Rows:
    return {str(row[key]): {name: row[name] for name in names} for row in rows}
