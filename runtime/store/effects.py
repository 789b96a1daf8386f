"""Effects that steps and runs share: whose the last attempt is, by the key (Q-14, Q-15).

The table says only where to look. What became of the attempt is told by the book of its run, or by what retention left.
"""

from __future__ import annotations

from core.db import Connection
from runtime.engine.commit import ReceiptRow
from runtime.engine.told import Diverged
from runtime.store import retention
from runtime.store.views import Graphs, Purged, load

_BY_KEY = "SELECT run_id, receipt_id FROM effects WHERE tenant_id = $1 AND key = $2"


async def by_key(connection: Connection, graphs: Graphs, tenant: str, key: str) -> ReceiptRow | None:
    """The receipt of the last attempt at this effect, whichever run or step made it.

    ``Diverged`` if the run that is named tells of no such attempt: then nobody knows whether it happened.
    """
    held = await connection.fetchrow(_BY_KEY, tenant, key)
    if held is None:
        return None
    run_id, receipt_id = held
    try:
        receipt = (await load(connection, run_id, graphs, whole=True)).run.receipts.get(receipt_id)
    except Purged:
        left = (ReceiptRow(**row) for row in (await retention.remains(connection, run_id))[1])
        receipt = next((row for row in left if row.receipt_id == receipt_id), None)
    if receipt is None or (receipt.idempotency_key, receipt.run_id) != (key, run_id):
        raise Diverged(f"The run {run_id} does not tell of the receipt {receipt_id}, which holds the effect {key}")
    return receipt
