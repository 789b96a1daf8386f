"""A receipt's row as the evidence shows it, and the digest by which the audit binds it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from core.canonical import digest
from core.errors import InputError
from evidence.receipts import Receipt, ReceiptStatus, Reverse
from runtime.engine.commit import ReceiptRow


def as_receipt(row: ReceiptRow, tenant: str, run_id: UUID) -> Receipt:
    """The receipt of this run. Its times are those of the audit's lines."""
    assert row.intended_at is not None, "it is set when the intent is recorded"
    reverse: Mapping[str, Any] | None = row.reverse
    return Receipt(
        receipt_id=str(row.receipt_id),
        tenant_id=tenant,
        run_id=str(run_id),
        step_key=row.step_key,
        operation=row.operation,
        target=row.target,
        idempotency_key=row.idempotency_key,
        action_digest=row.action_digest,
        status=ReceiptStatus(row.status),
        attempt=row.attempt,
        lease_epoch=row.lease_epoch,
        reversible=row.reversible,
        reverse=Reverse(reverse["operation"], reverse["input"]) if reverse else None,
        external_id=row.external_id,
        resolution=row.resolution,
        error=str(row.error["message"]) if row.error else None,
        intended_at=row.intended_at,
        settled_at=row.settled_at,
        late=row.late,
    )


def receipt_digest(row: ReceiptRow, tenant: str, run_id: UUID, run_key: bytes) -> str | None:
    """What the audit says of a receipt: the digest of what the bundle will show. None if that has no canonical form.

    An outcome is recorded all the same; its bundle is refused when it is made, by the same error.
    """
    try:
        return digest(as_receipt(row, tenant, run_id).to_evidence(run_key))
    except InputError:
        return None
