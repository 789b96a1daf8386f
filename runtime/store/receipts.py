"""Receipts and given approvals, read back from their rows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from core.db import Connection
from runtime.kernel.commit import ReceiptRow

_BY_KEY = "SELECT to_jsonb(r) AS receipt FROM receipts r WHERE tenant_id = $1 AND idempotency_key = $2"
_OF_STEP = """
SELECT to_jsonb(r) AS receipt FROM receipts r WHERE run_id = $1 AND step_key = $2 ORDER BY intended_at DESC LIMIT 1"""


async def by_key(connection: Connection, tenant: str, idempotency_key: str) -> ReceiptRow | None:
    """The receipt of this effect, whichever run or step made it (Q-14, Q-15)."""
    row = await connection.fetchrow(_BY_KEY, tenant, idempotency_key)
    return receipt_row(row["receipt"]) if row else None


async def of_step(connection: Connection, run_id: UUID, step_key: str) -> ReceiptRow | None:
    """The newest receipt of a step."""
    row = await connection.fetchrow(_OF_STEP, run_id, step_key)
    return receipt_row(row["receipt"]) if row else None


def receipt_row(item: Mapping[str, Any]) -> ReceiptRow:
    """A receipt from its row as JSON."""
    return ReceiptRow(
        receipt_id=UUID(item["receipt_id"]),
        step_key=item["step_key"],
        operation=item["operation"],
        target=item["target"],
        idempotency_key=item["idempotency_key"],
        action_digest=item["action_digest"],
        action=item["action"],
        status=item["status"],
        attempt=item["attempt"],
        lease_epoch=item["lease_epoch"],
        reversible=item["reversible"],
        reverse=item["reverse"],
        external_id=item["external_id"],
        output=item["output"],
        usage=item["usage"],
        resolution=item["resolution"],
        error=item["error"],
        intended_at=datetime.fromisoformat(item["intended_at"]),
        settled_at=datetime.fromisoformat(item["settled_at"]) if item["settled_at"] else None,
        run_id=UUID(item["run_id"]),
    )
