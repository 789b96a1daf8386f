"""Effects that steps and runs share. A row names the run that performed the effect; its book tells the outcome."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import asyncpg
from msgspec import convert

from core.db import Connection
from runtime.engine.book import shared_effects
from runtime.engine.book.contributors import shared_with
from runtime.engine.book.instructions import Shared
from runtime.engine.book.recorded import Diverged
from runtime.engine.model.rows import ReceiptRow, WaitRow
from runtime.engine.model.run import Run
from runtime.engine.model.states import EffectState
from runtime.store import retention
from runtime.store.statements import statements
from runtime.store.views import Graphs, Purged, load

_SQL = statements("effects")
_BY_KEY = _SQL["by_key"]
_SHARING = _SQL["sharing"]
_ABANDON = _SQL["abandon"]
_LEFT_BY = _SQL["left_by"]


async def by_key(connection: Connection, graphs: Graphs, tenant: str, key: str) -> Shared | None:
    """The shared effect with this key, whichever run or step has performed it.

    ``Diverged`` if the book of the run that the row names has no such attempt: then nobody knows whether it happened.
    """
    row = await connection.fetchrow(_BY_KEY, tenant, key)
    if row is None:
        return None
    receipt, run = await _performed(connection, graphs, row)
    if receipt is None or (receipt.idempotency_key, receipt.run_id) != (key, row["run_id"]):
        raise Diverged(
            f"The run {row['run_id']} does not tell of the receipt {row['receipt_id']}, which holds the effect {key}"
        )
    over = run is None or run.finished
    wait, known = await _awaited(connection, graphs, row, run, receipt)
    if not known:
        ended = EffectState(row["status"])
        return Shared(receipt, ended, over=over, erased=True, shaped=shared_with(run, receipt, wait))
    life = shared_effects.life_of(receipt, wait)
    if life is EffectState.LEFT and row["status"] == EffectState.FAILED:
        life = EffectState.FAILED  # it was ended outside, because no step shared it any more
    return Shared(receipt, life, wait, over, erased=run is None, shaped=shared_with(run, receipt, wait))


async def _performed(
    connection: Connection, graphs: Graphs, row: asyncpg.Record
) -> tuple[ReceiptRow | None, Run | None]:
    """The receipt of an effect, and the run that performed it. Of a purged run only the receipt is left."""
    try:
        run = (await load(connection, row["run_id"], graphs, whole=True)).run
    except Purged:
        left = (convert(each, ReceiptRow) for each in (await retention.remains(connection, row["run_id"]))[1])
        return next((each for each in left if each.receipt_id == row["receipt_id"]), None), None
    return run.receipts.get(row["receipt_id"]), run


async def _awaited(
    connection: Connection, graphs: Graphs, row: asyncpg.Record, run: Run | None, receipt: ReceiptRow
) -> tuple[WaitRow | None, bool]:
    """The wait of the run that holds an effect, and False if retention has removed it.

    The book was read after the row, so it may have a wait that the row does not name yet.
    """
    if run is not None and row["holder"] in (None, row["run_id"]):
        return shared_effects.held_by(run, receipt), True
    if row["wait_id"] is None:
        return None, True
    if run is None or row["holder"] != row["run_id"]:
        try:
            run = (await load(connection, row["holder"], graphs, whole=True)).run
        except Purged:
            return None, False
    return run.waits.get(row["wait_id"]), True


async def sharing(connection: Connection, tenant: str, key: str) -> Sequence[asyncpg.Record]:
    """The steps of open runs that wait for the end of this effect, or have learned of it: run, step, wait."""
    return await connection.fetch(_SHARING, tenant, shared_effects.name_of(key))


async def left_by(connection: Connection, tenant: str, wait_id: UUID) -> bool:
    """True if the run with this wait has given up its effect, so that another run may take the effect over."""
    return await connection.fetchrow(_LEFT_BY, tenant, wait_id) is not None


async def row_of(connection: Connection, tenant: str, key: str) -> asyncpg.Record | None:
    """The row of an effect."""
    return await connection.fetchrow(_BY_KEY, tenant, key)


async def abandon(connection: Connection, tenant: str, key: str, wait_id: UUID) -> bool:
    """Mark an effect as failed after its holder has left it; False if another run has taken it over meanwhile.

    After a crash the effect is still to be ended outside: the message that asks for that is delivered again.
    """
    return bool(int((await connection.execute(_ABANDON, tenant, key, wait_id)).split()[-1]))
